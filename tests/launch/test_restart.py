"""A job under `rlship run --watch` that is killed and started again goes on in the same run at W&B."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.kit.waiting import wait_until
from tests.launch.watched import children, started
from tests.loopback.backend import LoopbackBackend
from tests.loopback.runs import Run

# Logs three steps from the given one on; then it ends if `end` is the second argument, and waits otherwise.
TRAINS = """
import sys, threading, wandb
first = int(sys.argv[1])
wandb.init(project="grpo", name="again", config={"lr": 0.5})
for step in range(first, first + 3):
    wandb.log({"loss": 1 / (step + 1)}, step=step)
if sys.argv[2] == "end":
    wandb.finish()
else:
    threading.Event().wait()
"""


def is_written(folder: Path, step: int) -> bool:
    """Whether the job's call at `step` is in a file."""
    files = (folder / "rlship").glob("trainer-*.jsonl")
    return any(f'"step":{step},' in path.read_text() for path in files)


def losses(run: Run) -> list[float]:
    return [row["loss"] for row in run.rows() if "loss" in row]


@pytest.mark.long
def test_a_restart_goes_on_in_the_same_run(tmp_path: Path) -> None:
    """After `kill -9` of the job, and then of it and `rlship run`, the next start into the same folder goes on in the
    same run at W&B, which has all steps of the three starts, each once. The last start comes at once, while the sidecar
    of the one before may still deliver.
    """
    with LoopbackBackend() as backend:
        settings = {**backend.environment(tmp_path / "home"), "RLSHIP_SINKS": "wandb"}

        def start(first: int, then: str) -> AbstractContextManager[subprocess.Popen[str]]:
            return started(tmp_path, sys.executable, "-c", TRAINS, str(first), then, settings=settings)

        with start(0, "wait") as process:
            wait_until(lambda: is_written(tmp_path / "run", 2), "the third step")
            wait_until(lambda: backend.runs, "the run at the server")
            (job,) = [pid for pid, line in children(process.pid).items() if line.startswith(f"{sys.executable} -c")]
            os.kill(job, signal.SIGKILL)
            _, err = process.communicate(timeout=100)
            assert process.returncode == -signal.SIGKILL, err
        with start(3, "wait") as process:
            wait_until(lambda: is_written(tmp_path / "run", 5), "the sixth step")
            (run,) = backend.runs.values()
            wait_until(lambda: 1 / 5 in losses(run), "the fifth step at the server")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with start(6, "end") as process:
            _, err = process.communicate(timeout=100)
        (run,) = backend.runs.values()
    assert process.returncode == 0, err
    shown = [(row["zz_rlship/_step"], row["loss"]) for row in run.rows() if "loss" in row]
    # A step of a killed process has no end, so that its row may come after those of the next start.
    assert sorted(shown) == [(step, 1 / (step + 1)) for step in range(9)], err
    assert run.config["lr"]["value"] == 0.5
    assert run.finished
