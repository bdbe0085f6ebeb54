"""Runs trainings and loggers of other frameworks, as they are installed, each under a `rlship watch` that sees their
files grow, and compares the rows with what the frameworks say that they logged.

`python -m tests.frameworks VENV SWIFT_VENV`: the environments with the packages that the Makefile pins; ms-swift has
one of its own, as it wants other versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.endtoend.evidence import newest, shipped, stored
from tests.endtoend.sidecar import rlship, watching
from tests.frameworks import caught

JOBS = Path(__file__).with_name("jobs")
LIMIT_S = 300.0
SETTLED_S = 15.0  # the last step closes 10 s after its last line


def main() -> int:
    """0 if all rows are what was logged, else 1."""
    venv, swift = (Path(argument).resolve() for argument in sys.argv[1:])
    jobs = {
        "grpo.py": venv,
        "grpo_native.py": venv,
        "lightning_native.py": venv,
        "verl_file.py": venv,
        "titan.py": venv,
        "swift_train.py": swift,
    }
    failed = 0
    for job, environment in {**jobs, caught.JOB.name: venv}.items():
        with tempfile.TemporaryDirectory() as folder:
            if job in jobs:
                wrong, said = tried(Path(folder), environment, job)
            else:
                wrong, said = caught.caught(Path(folder), environment)
        print(f"{'FAILED' if wrong else 'ok    '}  {job}: {said}", *wrong[:20], sep="\n    ", flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


def tried(folder: Path, environment: Path, job: str) -> tuple[list[str], str]:
    """What is wrong with the rows of a job, and how much was compared."""
    experiment, truth, home = folder / "run", folder / "truth.json", folder / "home"
    (experiment / "rlship").mkdir(parents=True)
    home.mkdir()
    with watching(experiment, home=home) as sidecar:
        command = [environment / "bin" / "python", JOBS / job, experiment, truth]
        env = {**os.environ, "RLSHIP_DIR": str(experiment)}  # for the frameworks that call rlship by themselves
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode:
            return [f"the job failed: {done.stderr[-2000:]}"], "not compared"
        time.sleep(SETTLED_S)
        ended = sidecar.stop()
    again = rlship(home, "watch", experiment, "--once", "--sink", "jsonl")
    wrong = [f"the sidecar ended with {ended}: {again.stderr}"] if ended or again.returncode else []
    live = len(shipped(experiment))
    logged = json.loads(truth.read_text(encoding="utf-8"))
    found = {unit.index: row.values for unit, row in newest(stored(experiment)).items() if unit.kind == "step"}
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
