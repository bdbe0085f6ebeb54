"""What an experiment's folder holds: the writers' files, the rows that came of them, and what they should be."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from rlship_sidecar.rows import Row, Unit
from rlship_sidecar.store.store import Store
from tests.reference.reduction import differing, final_rows
from tests.reference.settings import DEFAULTS, Settings


def state_of(experiment: Path) -> Path:
    """The sidecar's folder."""
    return experiment / "rlship" / "state"


def files_of(experiment: Path) -> dict[str, bytes]:
    """The writers' files as they are now; names with a leading dot are left out."""
    found = sorted((experiment / "rlship").glob("[!.]*.jsonl"))
    return {path.name: path.read_bytes() for path in found if path.is_file() and not path.is_symlink()}


def shipped(experiment: Path) -> list[Row]:
    """The rows in the jsonl sink's file, a torn last line left out."""
    try:
        data = (state_of(experiment) / "rows.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    return [Row.from_json(line) for line in data.split(b"\n")[:-1]]


def stored(experiment: Path) -> list[Row]:
    """The rows of the newest store; its daemon must have ended."""
    newest = max(state_of(experiment).glob("store.*.db"), key=lambda path: int(path.suffixes[0][1:]))
    store = Store(newest, local=True)
    try:
        return store.read_rows(0, 1 << 30)
    finally:
        store.close()


def newest(rows: Iterable[Row]) -> dict[Unit, Row]:
    """The last revision of every unit."""
    return {row.unit: row for row in rows}


def revisions(rows: Iterable[Row], actor: str, step: int) -> list[Row]:
    """All rows of one step of an actor, in order."""
    return [row for row in rows if row.unit == Unit(actor, "step", step)]


def check_rows(experiment: Path, rows: list[Row], settings: Settings = DEFAULTS) -> None:
    """The rows have every number once, and the newest of every unit are, bit by bit, what the files say."""
    assert [row.arrival.row_number for row in rows] == list(range(len(rows)))
    found = differing(final_rows(files_of(experiment), settings=settings), newest(rows))
    assert not found, found


def remove(folder: Path) -> None:
    """`rm -rf`, which bears that a sidecar makes and renames files there meanwhile."""
    for _ in range(20):
        if subprocess.run(["rm", "-rf", str(folder)], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return
    raise AssertionError(f"{folder} cannot be removed")
