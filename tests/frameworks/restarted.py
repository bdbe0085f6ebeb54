"""TRL's own calls of W&B under `rlship run --watch`, killed and started again: both starts are one run at W&B."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.endtoend.sidecar import RLSHIP, environment
from tests.frameworks.caught import AXIS, SUMMARY
from tests.kit.waiting import wait_until
from tests.launch.watched import children
from tests.loopback.backend import LoopbackBackend
from tests.loopback.runs import Run

JOB = Path(__file__).with_name("jobs") / "grpo_restarted.py"
LIMIT_S = 300.0
STOPS_AT, STEPS = 4, 6


def restarted(folder: Path, venv: Path) -> tuple[list[str], str]:
    """What is wrong at the server, and how much was compared. The job goes on at its checkpoint."""
    home, experiment, truth = folder / "home", folder / "run", folder / "truth.jsonl"
    python = str(venv / "bin" / "python")
    command = [*RLSHIP, "run", "--dir", str(experiment), "--watch", "--", python, str(JOB), "out", str(truth)]
    with LoopbackBackend() as backend:
        settings = environment(home, {**backend.environment(home), "RLSHIP_SINKS": "wandb"})
        with subprocess.Popen(
            command, cwd=folder, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as first:
            wait_until(lambda: is_written(experiment), "the step at which the job stops", timeout_s=LIMIT_S)
            (job,) = [pid for pid, line in children(first.pid).items() if line.startswith(python)]
            os.kill(job, signal.SIGKILL)
            _, said = first.communicate(timeout=LIMIT_S)
        if first.returncode != -signal.SIGKILL:
            return [f"the first start ended with {first.returncode}: {said[-2000:]}"], "not compared"
        second = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT_S)
        if second.returncode or len(backend.runs) != 1:
            return [f"exit code {second.returncode}, {len(backend.runs)} runs: {second.stderr[-2000:]}"], "not compared"
        (run,) = backend.runs.values()
    logged = [json.loads(line) for line in truth.read_text().splitlines()]
    wrong, count = differing(run, logged)
    if not run.finished:
        wrong.append("the run is not finished")
    return wrong, f"killed after step {STOPS_AT}: {count} figures of {STEPS} steps, by two starts, in one run"


def is_written(experiment: Path) -> bool:
    """Whether the metrics of the step at which the job stops are in a file."""
    files = (experiment / "rlship").glob("trainer-*.jsonl")
    return any(f'"step":{STOPS_AT},' in path.read_text() for path in files)


def differing(run: Run, logged: list[tuple[int, dict[str, float]]]) -> tuple[list[str], int]:
    """What the run has otherwise than it was logged last, and how many figures there are."""
    wanted: dict[tuple[int, str], float] = {}
    for step, figures in logged:
        wanted |= {(step, f"train/{name}"): value for name, value in figures.items() if name not in SUMMARY}
    at: dict[int, dict[str, Any]] = defaultdict(dict)
    for line in run.rows():
        at[line.get(AXIS, -1)].update(line)
    steps = sorted(step for step in at if step >= 0)
    wrong = [] if steps == list(range(1, STEPS + 1)) else [f"the run has the steps {steps}"]
    wrong += [
        f"step {step}: {name} was logged as {value!r} and is {at[step].get(name)!r}"
        for (step, name), value in wanted.items()
        if at[step].get(name) != value
    ]
    return wrong, len(wanted)
