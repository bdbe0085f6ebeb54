"""A sweep below `rlship run`: W&B's own agent and its server decide the values, and the job trains with them. Each run
is an experiment of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.evidence import newest, stored
from tests.endtoend.sidecar import RLSHIP, environment
from tests.facade.jobs import metrics, records, run
from tests.loopback.backend import LoopbackBackend

pytestmark = pytest.mark.long

TRAIN = """
import wandb
run = wandb.init(config={"lr": 1.0, "seed": 7})
for step in range(3):
    wandb.log({"loss": run.config.lr * (step + 1)}, step=step)
run.finish()
"""
RATES = {"first": 0.25, "second": 0.5}


def losses(rate: float) -> list[float]:
    """What a run with this rate logs at its steps."""
    return [rate * (step + 1) for step in range(3)]


class Sweep(LoopbackBackend):
    """A server with a sweep of two runs."""

    def __init__(self, program: Path) -> None:
        super().__init__()
        self._left = [
            {"type": "run", "run_id": name, "program": str(program), "args": {"lr": {"value": rate}}}
            for name, rate in RATES.items()
        ]

    def _graphql(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        if operation == "SweepWithRuns":
            command = json.dumps({"method": "grid", "command": [sys.executable, "${program}"]})
            return {"project": {"sweep": {"id": "s1", "name": "s1", "config": command, "runs": {"edges": []}}}}
        if operation == "CreateAgent":
            return {"createAgent": {"agent": {"id": "a1"}}}
        if operation == "Heartbeat":
            running = json.loads(given["runState"])
            commands = [] if running or not self._left else [self._left.pop(0)]
            return {"agentHeartbeat": {"agent": {"id": "a1"}, "commands": json.dumps(commands)}}
        return super()._graphql(operation, given)


def test_a_sweep_trains_with_its_values(tmp_path: Path) -> None:
    """Each run has the sweep's value, the server gets its results as without rlship, and rlship has files and rows of
    each.
    """
    home, job = tmp_path / "home", tmp_path / "train.py"
    job.write_text(TRAIN)
    agent = (
        "import sys; sys.argv = ['wandb', 'agent', '--count', '2', 'tests/p/s1']; from wandb.cli.cli import cli; cli()"
    )
    command = [*RLSHIP, "run", "--dir", "run", "--watch", "--", sys.executable, "-c", agent]
    with Sweep(job) as backend:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(home, {**backend.environment(home), "RLSHIP_SINKS": "jsonl"}),
            capture_output=True,
            text=True,
            timeout=100,
        )
        shown = {run.name: run for run in backend.runs.values()}
    assert done.returncode == 0, done.stderr
    assert set(shown) == set(RATES), done.stderr
    for name, rate in RATES.items():
        assert shown[name].config["lr"]["value"] == rate
        assert [row["loss"] for row in shown[name].rows() if "loss" in row] == losses(rate)
    for name, rate in RATES.items():
        experiment = tmp_path / f"run-sweep-{name}"
        found = next(one for one in records(experiment) if one[0]["actor"] == "trainer")
        assert metrics(found) == [(step, {"loss": loss}) for step, loss in enumerate(losses(rate))]
        rows = {unit.index: row for unit, row in newest(stored(experiment)).items() if unit.kind == "step"}
        assert {step: row.values["trainer/loss"] for step, row in rows.items()} == dict(enumerate(losses(rate)))
        assert f"{experiment} are delivered" in done.stderr
    assert not (tmp_path / "run" / "rlship").exists()


def test_runs_of_an_agent_in_the_process(tmp_path: Path) -> None:
    """A process that trains for one run of a sweep after the other, as a function that `wandb.agent` calls, writes each
    into a folder of its own; one that it resumes goes on in its folder.
    """
    job = run(
        tmp_path,
        """
        import os
        for run_id in ("one", "two", "one"):
            os.environ.update(WANDB_SWEEP_ID="s1", WANDB_RUN_ID=run_id)
            wandb.teardown()  # as the agent does it, so that the client reads its variables again
            with wandb.init(mode="offline"):
                wandb.log({"loss": 1.0})
            del os.environ["WANDB_SWEEP_ID"], os.environ["WANDB_RUN_ID"]
        """,
    )
    assert {path.name: len(list(records(path))) for path in tmp_path.glob("run*")} == {
        "run-sweep-one": 2,
        "run-sweep-two": 1,
    }, job.err
