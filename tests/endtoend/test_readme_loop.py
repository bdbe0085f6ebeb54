"""The loop of the README, with a span in it: rows of its steps, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rlship
from rlship_sidecar.report.survey import survey
from tests.guards.tree import ROOT
from tests.pipeline.simulated import simulation
from tests.reference.reduction import differing, final_rows

STEPS = 3


def loop(actor: str) -> str:
    """The README's first program, for a few steps, with the span of its second one around a step's work."""
    text = (ROOT / "README.md").read_text()
    program = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "rlship.init" in block)
    assert 'actor="trainer"' in program
    assert 'with rlship.span("rollout"):' in text
    program = program.replace('actor="trainer"', f'actor="{actor}"').replace('"outputs/grpo-7b"', "folder")
    return program.replace("range(steps):\n", 'range(steps):\n    with rlship.span("rollout"):\n        pass\n')


@pytest.mark.parametrize("actor", ["trainer", "reward"])
def test_the_loop_makes_exactly_its_steps(tmp_path: Path, actor: str) -> None:
    """Twenty times over, however the lines reach the sidecar: no aligned and no clock row, and no key of a stream."""
    program = compile(loop(actor), "README.md", "exec")
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        exec(program, {"folder": folder, "steps": STEPS, "loss": 0.5, "norm": 1.0})
        assert rlship.close()
        (path,) = (folder / "rlship").glob("*.jsonl")
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        cut = sum(map(len, lines[: 1 + attempt % len(lines)]))
        with simulation() as sim:
            sim.write(path.name, whole[:cut])
            sim.tick()
            sim.write(path.name, whole[cut:])
            sim.finish()
            assert [(row.unit.kind, row.unit.index) for row in sim.rows()] == [("step", step) for step in range(STEPS)]
            keys = {key for row in sim.rows() for key in row.values}
            assert keys == {f"{actor}/{name}" for name in ("loss", "grad_norm", "rollout_s", "rollout_s/max")}
            assert all(row.values[f"{actor}/rollout_s"] >= 0 for row in sim.final().values())
            status = survey(sim.experiment, (), now=sim.now, wall=sim.now)
            assert (status.streams, status.notes) == ([], [])
            assert not differing(final_rows({path.name: whole}), sim.final())
