"""A sweep below `rlship run`: W&B's own agent and its server decide the values, and the job trains with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.sidecar import RLSHIP, environment
from tests.facade.jobs import metrics, records
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
    """Each run has the sweep's value, the server gets its results as without rlship, and rlship's files have both."""
    job = tmp_path / "train.py"
    job.write_text(TRAIN)
    agent = (
        "import sys; sys.argv = ['wandb', 'agent', '--count', '2', 'tests/p/s1']; from wandb.cli.cli import cli; cli()"
    )
    command = [*RLSHIP, "run", "--dir", "run", "--", sys.executable, "-c", agent]
    with Sweep(job) as backend:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(tmp_path / "home", backend.environment(tmp_path / "home")),
            capture_output=True,
            text=True,
            timeout=100,
        )
        shown = {run.name: run for run in backend.runs.values()}
    assert done.returncode == 0, done.stderr
    assert set(shown) == set(RATES), done.stderr
    for name, rate in RATES.items():
        assert shown[name].config["lr"]["value"] == rate
        assert [row["loss"] for row in shown[name].rows() if "loss" in row] == [rate, 2 * rate, 3 * rate]
    found = {one[0]["labels"]["wandb_id"]: one for one in records(tmp_path / "run")}
    for name, rate in RATES.items():
        assert metrics(found[name]) == [(step, {"loss": rate * (step + 1)}) for step in range(3)]
