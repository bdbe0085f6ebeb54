"""What `rlship watch --once`, as a real process, makes of an experiment of foreign files."""

from __future__ import annotations

import shutil
from pathlib import Path

from rlship_sidecar.rows import Row, Unit
from tests.endtoend.evidence import newest, shipped
from tests.endtoend.sidecar import rlship

SAMPLES = Path(__file__).with_name("samples")


def sample(name: str, tmp_path: Path) -> Path:
    """A copy of a sample experiment, to be watched."""
    return Path(shutil.copytree(SAMPLES / name, tmp_path / name))


def once(experiment: Path, home: Path, *, code: int = 0) -> dict[Unit, Row]:
    """The last row of every unit after one `rlship watch --once`, which ends with `code`."""
    done = rlship(home, "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode == code, done.stderr
    return newest(shipped(experiment))


def figures(rows: dict[Unit, Row], actor: str, step: int) -> dict[str, float]:
    """A step's figures, by the metric's name."""
    found = rows[Unit(actor, "step", step)].values
    return {key.removeprefix(f"{actor}/"): value for key, value in found.items()}
