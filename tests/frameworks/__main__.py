"""Runs trainings and loggers of other frameworks, as they are installed, each under a `rlship watch` that sees their
files grow, and compares the rows with what the frameworks say that they logged.

`python -m tests.frameworks VENV SWIFT_VENV NATIVE_VENV [JOB…]`: the environments with the packages that the Makefile
pins; ms-swift has one of its own, as it wants other versions, and so have verl, vLLM and TorchTitan as whole packages.
Without a JOB all run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.endtoend.evidence import newest, shipped, stored
from tests.endtoend.sidecar import rlship, watching
from tests.frameworks import caught, killed, ranks, restarted

JOBS = Path(__file__).with_name("jobs")
LOGGERS = JOBS / "wandb_loggers.py"
SITE = Path(__file__).parents[2] / "rlship" / "hook" / "site"
# W&B's calls of these are taken, as `rlship run` does it, beside the framework's own plug-in.
HOOKED = ("verl_native.py",)
ALONE = ("verl_native.py",)  # one process makes the trainer's rows
LIMIT_S = 300.0
Check = Callable[[Path], tuple[list[str], str]]  # in an empty folder: what is wrong, and how much was compared
SETTLED_S = 15.0  # the last step closes 10 s after its last line


def main() -> int:
    """0 if all rows are what was logged, else 1."""
    venv, swift, native = (Path(argument).resolve() for argument in sys.argv[1:4])
    jobs = {
        "grpo.py": venv,
        "grpo_native.py": venv,
        "lightning_native.py": venv,
        "verl_file.py": venv,
        "titan.py": venv,
        "swift_train.py": swift,
        "verl_native.py": native,
        "vllm_native.py": native,
        "titan_native.py": native,
    }
    checks: dict[str, Check] = {
        job: partial(tried, environment=environment, job=job) for job, environment in jobs.items()
    }
    checks[caught.JOB.name] = partial(caught.caught, venv=venv)
    checks[ranks.JOB.name] = partial(ranks.ranks, venv=venv, name="rlship")
    checks[f"{ranks.JOB.name} by W&B's name"] = partial(ranks.ranks, venv=venv, name="wandb")
    checks[killed.JOB.name] = partial(killed.killed, venv=venv)
    checks[restarted.JOB.name] = partial(restarted.restarted, venv=venv)
    checks[LOGGERS.name] = partial(loggers, environment=native)
    failed = 0
    for name, check in checks.items():
        if sys.argv[4:] and name not in sys.argv[4:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            wrong, said = check(Path(folder))
        print(f"{'FAILED' if wrong else 'ok    '}  {name}: {said}", *wrong[:20], sep="\n    ", flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


def loggers(folder: Path, environment: Path) -> tuple[list[str], str]:
    """What is wrong with what the loggers' calls of W&B became, and how many loggers there are."""
    done = subprocess.run(
        [environment / "bin" / "python", LOGGERS, folder],
        env={**os.environ, "RLSHIP_SITE": str(SITE)},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
    )
    ended = done.stdout.splitlines()
    return ([*ended, done.stderr[-2000:]] if done.returncode else []), f"{len(ended)} loggers that call W&B"


def tried(folder: Path, environment: Path, job: str) -> tuple[list[str], str]:
    """What is wrong with the rows of a job, and how much was compared."""
    experiment, truth, home = folder / "run", folder / "truth.json", folder / "home"
    (experiment / "rlship").mkdir(parents=True)
    home.mkdir()
    with watching(experiment, home=home) as sidecar:
        command = [environment / "bin" / "python", JOBS / job, experiment, truth]
        env = {**os.environ, "RLSHIP_DIR": str(experiment)}  # for the frameworks that call rlship by themselves
        if job in HOOKED:
            env |= {"PYTHONPATH": str(SITE), "HOME": str(home)}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            return [f"the job failed: {done.stderr[-2000:]}"], "not compared"
        time.sleep(SETTLED_S)
        ended = sidecar.stop()
    again = rlship(home, "watch", experiment, "--once", "--sink", "jsonl")
    wrong = [f"the sidecar ended with {ended}: {again.stderr}"] if ended or again.returncode else []
    live = len(shipped(experiment))
    if not live:
        wrong.append("there are no rows")
    logged = json.loads(truth.read_text(encoding="utf-8"))
    rows = {
        unit.index: row
        for unit, row in newest(stored(experiment)).items()
        if (unit.kind, unit.actor) == ("step", "trainer")
    }
    found = {step: row.values for step, row in rows.items()}
    if job in ALONE:
        wrong += [f"step {step}: ranks {row.coverage}" for step, row in rows.items() if row.coverage.ranks != ("0.0",)]
    count = 0
    for step, metrics in logged.items():
        for name, value in metrics.items():
            shown = found.get(int(step), {}).get(f"trainer/{name}")
            count += 1
            if shown != value:
                wrong.append(f"step {step}: {name} was logged as {value!r} and is {shown!r}")
    return wrong, f"{count} figures of {len(logged)} steps, {live} rows"


if __name__ == "__main__":
    sys.exit(main())
