"""TRL on two ranks of torchrun under `rlship run --watch`, by W&B's name and by rlship's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.endtoend.evidence import newest, stored
from tests.endtoend.sidecar import RLSHIP, environment

JOB = Path(__file__).with_name("jobs") / "grpo_ranks.py"
LIMIT_S = 400.0
# Figures of a rank's own clock: each rank has its own.
_TIMES = ("step_time",)


def ranks(folder: Path, venv: Path, name: str) -> tuple[list[str], str]:
    """What is wrong with the rows of a job with `report_to=name`, and how much was compared.

    W&B's callback logs on rank 0 alone, so that rank 1 is absent. rlship's own logs on both. The job's Python has no
    rlship, and its script does not import it.
    """
    home, experiment, truth = folder / "home", folder / "run", folder / "truth.json"
    home.mkdir()
    python = venv / "bin" / "python"
    command = [*RLSHIP, "run", "--dir", str(experiment), "--watch", "--", str(python), "-m", "torch.distributed.run"]
    command += ["--standalone", "--nproc-per-node", "2", str(JOB), "out", str(truth), name]
    settings = environment(home, {"RLSHIP_SINKS": "jsonl", "OMP_NUM_THREADS": "1"})
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        return [f"the job failed: {done.stderr[-2000:]}"], "not compared"
    rows = {unit.index: row for unit, row in newest(stored(experiment)).items() if unit.kind == "step"}
    logged = json.loads(truth.read_text(encoding="utf-8"))
    prefix, present, absent = "trainer/", ("0.0-1",), ()
    if name == "wandb":
        prefix, present, absent = "trainer/train/", ("0.0",), ("0.1",)
    wrong = [] if len(rows) == len(logged) else [f"{len(logged)} steps were logged, {len(rows)} have rows"]
    for step, row in rows.items():
        if (row.coverage.ranks, row.coverage.absent, row.coverage.missing) != (present, absent, ()):
            wrong.append(f"step {step} is made of the wrong ranks: {row.coverage}")
    count = 0
    for step, figures in logged.items():
        found = rows[int(step)].values if int(step) in rows else {}
        for metric, value in figures.items():
            count += 1
            shown = found.get(prefix + metric)
            if shown is None or (shown != value and metric not in _TIMES):
                wrong.append(f"step {step}: {metric} was logged as {value!r} and is {shown!r}")
    return wrong, f"report_to={name!r}: {count} figures of {len(logged)} steps, ranks {present}, absent {absent}"
