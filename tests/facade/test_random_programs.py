"""Random programs, through the facade and by W&B's own client: the rows are those of W&B's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlship_sidecar.sinks.wandb.file import history
from tests.facade.jobs import rows_of, run
from tests.facade.programs import AXES, NAMES, program
from tests.kit.cases import number

CODE = "import sys; sys.argv = ['job', '0', '{count}']\nfrom tests.facade.programs import main\nmain()\n"

Values = dict[tuple[str, float, str], float]


def wanted(file: Path, axes: list[str]) -> Values:
    """The newest value of each name at each value of its axis, in W&B's file; without axes at its own step."""
    starts = {AXES[axis][:-1]: axis for axis in axes}
    found: Values = {}
    for row in history(file):
        for name in NAMES:
            start = max((one for one in starts if name.startswith(one)), key=len, default=None)
            axis = "_step" if not axes else None if start is None else starts[start]
            if axis is not None and name in row and axis in row:
                found[axis, row[axis], name] = row[name]
    return found


def shown(experiment: Path) -> Values:
    """The values of the rows of steps, by axis, step and name."""
    found: Values = {}
    for unit, row in rows_of(experiment).items():
        if unit.kind == "step":
            ((axis, x),) = row.x.items()
            for key, value in row.values.items():
                found[axis, x, key.removeprefix(f"{unit.actor}/")] = value
    return found


@pytest.mark.statistical
def test_rows_are_those_of_wandbs_own_file(tmp_path: Path) -> None:
    """Whatever mixture of steps, commits and axes a program uses: each value that W&B has at a value of its axis is in
    the row of that step, and no other is there.
    """
    count = number(160)
    for name in ("real", "job"):
        (tmp_path / name).mkdir()
    run(tmp_path / "real", CODE.format(count=count), patched=False, WANDB_MODE="offline")
    run(tmp_path / "job", CODE.format(count=count))
    for seed in range(count):
        axes, calls = program(seed)
        (file,) = (tmp_path / "real" / "wandb").glob(f"offline-run-*-r{seed}/*.wandb")
        truth = wanted(file, axes)
        rows = shown(tmp_path / "job" / ("run" if seed == 0 else f"run-{seed + 1}"))
        own = {key: value for key, value in rows.items() if key in truth or not axes}
        assert own == truth, (seed, axes, calls)
        charted = {(axis, name) for axis, _, name in truth}
        more = {key for key in rows if (key[0], key[2]) in charted} - truth.keys()
        assert not more, (seed, axes, calls)
