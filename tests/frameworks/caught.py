"""TRL's own calls of W&B under `rlship run --watch`, with a server, compared with what TRL says that it logged."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.endtoend.evidence import newest, stored
from tests.endtoend.sidecar import RLSHIP, environment
from tests.facade.jobs import records, samples
from tests.loopback.backend import LoopbackBackend

JOB = Path(__file__).with_name("jobs") / "grpo_wandb.py"
LIMIT_S = 300.0
COMPLETIONS = 6 * 4 + 2 * 4  # of six steps and two evaluations; TRL logs the last evaluation's table twice
AXIS = "train/global_step"
# Of these the integration sets the run's summary.
SUMMARY = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss")


def caught(folder: Path, venv: Path) -> tuple[list[str], str]:
    """What is wrong at the server and in the rows, and how much was compared. The job's Python has no rlship."""
    home, experiment, truth = folder / "home", folder / "run", folder / "truth.json"
    with LoopbackBackend() as backend:
        # On a busy machine an evaluation takes longer than the pause that ends a step.
        patient = {"RLSHIP_SINKS": "wandb", "RLSHIP_IMPLICIT_S": "120"}
        settings = environment(home, {**backend.environment(home), **patient})
        command = [*RLSHIP, "run", "--dir", str(experiment), "--watch", "--", str(venv / "bin" / "python"), str(JOB)]
        done = subprocess.run(
            [*command, "out", str(truth)], cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT_S
        )
        if done.returncode or len(backend.runs) != 1:
            return [f"exit code {done.returncode}, {len(backend.runs)} runs: {done.stderr[-2000:]}"], "not compared"
        (run,) = backend.runs.values()
    logged = json.loads(truth.read_text(encoding="utf-8"))
    wanted, count = expected(logged)
    at: dict[int, dict[str, Any]] = defaultdict(dict)
    for line in run.rows():
        at[line.get(AXIS, -1)].update(line)
    wrong = [
        f"step {step}: {name} was logged as {value!r} and is {at[step].get(name)!r}"
        for (step, name), value in wanted.items()
        if at[step].get(name) != value
    ]
    wrong += [f"config: {key} is not there" for key in logged["config"] if key not in run.config]
    wrong += [f"summary: {key} is not there" for key in SUMMARY if key not in run.summary]
    if run.display_name != "tiny":
        wrong.append(f"the run is called {run.display_name}")
    tables = [one for found in records(experiment) for one in samples(found, "completions")]
    wrong += [f"a completion is at step {one.get('step')}: {one['row']}" for one in tables if misplaced(one)]
    if len(tables) != COMPLETIONS:
        wrong.append(f"{len(tables)} completions are there, of {COMPLETIONS}")
    rows = [row for unit, row in newest(stored(experiment)).items() if unit.kind == "step"]
    return wrong, f"{count}, {len(tables)} completions, {len(logged['config'])} keys of the config, {len(rows)} rows"


def misplaced(sample: dict[str, Any]) -> bool:
    """Whether a completion is at another step than it says itself."""
    return bool(sample.get("step") != sample["row"]["step"])


def expected(logged: dict[str, Any]) -> tuple[dict[tuple[int, str], float], str]:
    """The figures by step and name at W&B, and how many there are; of profiling the mean of each step."""
    found: dict[tuple[int, str], float] = {}
    for entry in logged["history"]:
        for name, value in entry.items():
            if name != "step" and name not in SUMMARY:
                shown = f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"
                found[entry["step"], shown] = value
    figures = len(found)
    calls: dict[tuple[int, str], list[float]] = defaultdict(list)
    for step, data in logged["profiling"]:
        for name, value in data.items():
            calls[step, name].append(value)
    for place, values in calls.items():
        found[place] = sum(values) / len(values)
    return found, f"{figures} figures and {len(logged['profiling'])} profiling calls"
