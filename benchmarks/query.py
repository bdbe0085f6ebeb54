"""The time of questions about the writers' files, as far as a filter spares reading them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.files import names, write_job
from benchmarks.report import Finding, Result, median
from benchmarks.rounds import ROOT, SubjectFailed, clean_environment

EVERYTHING = "all values"
QUESTIONS = {
    EVERYTHING: "SELECT metric, avg(value) FROM observations GROUP BY metric",
    "one metric": "SELECT step, avg(value) FROM observations WHERE metric = '{metric}' GROUP BY step",
    "one metric of a rank, ten steps": (
        "SELECT * FROM observations WHERE metric = '{metric}' AND rank = 0 AND step BETWEEN 10 AND 19"
    ),
    "barriers of a rank": "SELECT step, t FROM barriers WHERE rank = 0",
    "columns": "DESCRIBE observations",
}
METHOD = (
    "`rlship query` on the files of {ranks} ranks with {metrics} metrics a step, {mb:.0f} MB, from the start of the "
    "process to its end; wall time, the median of {rounds} rounds. Beside: a question that needs every value."
)


def measure(folder: Path, quick: bool) -> Result:
    """Ask in `folder`."""
    ranks, steps, metrics, rounds = (2, 200, 5, 1) if quick else (16, 12_000, 30, 3)
    experiment = folder / "experiment"
    job = write_job(experiment, ranks=ranks, steps=steps, metrics=metrics)
    times: dict[str, list[float]] = {name: [] for name in QUESTIONS}
    for _ in range(rounds):
        for name, sql in QUESTIONS.items():
            times[name].append(_asked(sql.format(metric=names(1)[0]), experiment))
    beside = median(times[EVERYTHING])
    findings = [Finding(EVERYTHING, beside, "s")]
    findings += [
        Finding(name, median(taken), "s", EVERYTHING, beside, median(taken) / beside)
        for name, taken in times.items()
        if name != EVERYTHING
    ]
    return Result("query", METHOD.format(ranks=ranks, metrics=metrics, mb=job.size / 1e6, rounds=rounds), findings)


def _asked(sql: str, experiment: Path) -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "rlship", "query", "--csv", sql, str(experiment)]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True)
    if done.returncode or not done.stdout:
        raise SubjectFailed(f"rlship query ended with {done.returncode}: {done.stderr}")
    return time.monotonic() - began
