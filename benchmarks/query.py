"""The time and memory of questions about the writers' files and the rows, as far as a filter spares reading them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

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
    "one metric of all rows": "SELECT step, {metric} FROM trainer_steps",
}
MEMORY_TIMES = 1.1  # at most, of ten times the history
METHOD = (
    "`rlship query` on the files of {ranks} ranks with {metrics} metrics a step, {mb:.0f} MB, from the start of the "
    "process to its end; wall time, the median of {rounds} rounds. Beside: a question that needs every value. The rows "
    "were made by `rlship watch --once` before. Memory: the process's highest resident memory (ru_maxrss), the median; "
    "beside, the same question of a tenth of the steps."
)


def measure(folder: Path, quick: bool) -> Result:
    """Ask in `folder`."""
    ranks, steps, metrics, rounds = (2, 200, 5, 1) if quick else (16, 12_000, 30, 3)
    long, short = folder / "experiment", folder / "tenth"
    job = write_job(long, ranks=ranks, steps=steps, metrics=metrics)
    write_job(short, ranks=ranks, steps=steps // 10, metrics=metrics)
    for experiment in (long, short):
        _run("watch", str(experiment), "--once", "--quiet", "--sink", "jsonl")
    asked: dict[str, list[_Cost]] = {name: [] for name in QUESTIONS}
    of_short: dict[str, list[_Cost]] = {name: [] for name in QUESTIONS}
    for _ in range(rounds):
        for name, sql in QUESTIONS.items():
            for experiment, costs in ((long, asked), (short, of_short)):
                costs[name].append(_asked(sql.format(metric=names(1)[0]), experiment))
    times = {name: median([cost.seconds for cost in costs]) for name, costs in asked.items()}
    beside = times[EVERYTHING]
    findings = [Finding(EVERYTHING, beside, "s")]
    findings += [
        Finding(name, taken, "s", EVERYTHING, beside, taken / beside)
        for name, taken in times.items()
        if name != EVERYTHING
    ]
    for name in QUESTIONS:
        ours, tenth = (median([cost.peak_mb for cost in costs[name]]) for costs in (asked, of_short))
        aim = f"<= {MEMORY_TIMES:g}"
        findings.append(
            Finding(
                *(f"memory: {name}", ours, "MB", "a tenth of the history", tenth, ours / tenth),
                *(aim, ours <= MEMORY_TIMES * tenth),
            )
        )
    return Result("query", METHOD.format(ranks=ranks, metrics=metrics, mb=job.size / 1e6, rounds=rounds), findings)


class _Cost(NamedTuple):
    seconds: float
    peak_mb: float


def _asked(sql: str, experiment: Path) -> _Cost:
    cost, output = _run("query", "--csv", sql, str(experiment))
    if not output:
        raise SubjectFailed(f"rlship query {sql!r} printed nothing")
    return cost


def _run(*words: str) -> tuple[_Cost, bytes]:
    """Run the command; its cost and what it printed. Raises SubjectFailed."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "rlship", *words], cwd=ROOT, env=clean_environment(), stdout=stdout, stderr=stderr
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode:
            stderr.seek(0)
            raise SubjectFailed(f"rlship {' '.join(words)} ended with {process.returncode}: {stderr.read().decode()}")
        stdout.seek(0)
        return _Cost(seconds, used.ru_maxrss * 1024 / 1e6), stdout.read()
