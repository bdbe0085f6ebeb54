"""The loop of the README, with a span in it: rows of its steps, and nothing else."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import rlship
from rlship_sidecar.cli.group import rlship as commands
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


def test_the_loop_that_diverges_is_seen(tmp_path: Path) -> None:
    """A loss that is NaN under README's names fires at its first step: live, and in `rlship alerts`."""
    program = compile(loop("trainer"), "README.md", "exec")
    exec(program, {"folder": tmp_path, "steps": STEPS, "loss": math.nan, "norm": math.inf})
    assert rlship.close()
    (tmp_path / "rlship.toml").write_text('sinks = ["jsonl"]\n')

    watched, listed = (
        CliRunner().invoke(commands, [*verb, str(tmp_path)]) for verb in (["watch", "--once"], ["alerts"])
    )

    assert (watched.exit_code, listed.exit_code) == (0, 0), watched.output + listed.output
    rows = [json.loads(line) for line in (tmp_path / "rlship/state/rows.jsonl").read_text().splitlines()]
    assert {row["index"]: row["m"] for row in rows if row["kind"] == "alert"} == {
        0: {"zz_rlship/alert/divergence": 2.0}
    }
    head, episode, _, *values, last = listed.stdout.splitlines()
    assert head == f"{tmp_path.name}: 1 episode, 1 going on, up to step {STEPS - 1}"
    assert episode.startswith("  firing      critical  divergence, from step 0, fired at 0 (")
    assert [line.split(":")[0].strip() for line in values[:2]] == ["loss_nan 1", "grad_nan 1"]
    assert "rules saw none of their metrics: memory, " in last and "divergence" not in last
