"""Replays in this process, and what they left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlship_sidecar.config import Config
from rlship_sidecar.replay.found import Replayed
from rlship_sidecar.replay.run import ReplayRequest, replay
from rlship_sidecar.rows import ALERT, ALIGNED, CLOCK, Coverage, Row, Unit
from rlship_sidecar.steps import Steps
from tests.endtoend.evidence import newest, stored

__all__ = ["again", "make", "newest_rows", "rows_in", "watched", "without_empty"]


def make(folder: Path, files: Mapping[str, bytes]) -> Path:
    """An experiment with these files."""
    (folder / "rlship").mkdir(parents=True)
    for name, data in files.items():
        (folder / "rlship" / name).write_bytes(data)
    return folder


def again(
    experiment: Path, out: Path | None, steps: Steps | None = None, sinks: Sequence[str] = (), **more: Any
) -> Replayed:
    """Replay it; `more` are settings."""
    return replay(ReplayRequest(experiment, Config(sinks=list(sinks), **more), steps, out))


def rows_in(out: Path) -> list[Row]:
    """All rows of a replay, in order."""
    from rlship_sidecar.store.store import Store

    (path,) = out.glob("store.*.db")
    store = Store(path, local=True)
    try:
        return store.read_rows(0, 1 << 30)
    finally:
        store.close()


def newest_rows(out: Path) -> dict[Unit, Row]:
    """The last revision of every unit of a replay."""
    return newest(rows_in(out))


def watched(experiment: Path) -> dict[Unit, Row]:
    """The last revision of every unit that the sidecar has."""
    return newest(stored(experiment))


def without_empty(rows: Mapping[Unit, Row], others: Mapping[Unit, Row]) -> dict[Unit, Row]:
    """Without the rows, of units that `others` lack, that say nothing any more: docs/semantics.md, "Empty rows"."""
    return {unit: row for unit, row in rows.items() if unit in others or not _is_empty(row)}


def _is_empty(row: Row) -> bool:
    bare = Row(row.unit, row.t, row.x, {}, Coverage((), 0))
    return row == bare and row.unit.kind in (ALIGNED, CLOCK, ALERT) and row.arrival.revision > 0
