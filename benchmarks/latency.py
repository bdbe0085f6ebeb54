"""From the last rank's barrier to the row committed in the store."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.files import barrier_line, file_of, metrics_line, open_line, values, writers_folder
from benchmarks.report import Finding, Result, percentile
from benchmarks.rounds import SubjectFailed
from benchmarks.watching import watching

METRICS = 10
WARM_STEPS = 5
POLL_S = 0.001
LATEST_S = 30.0
P50_MS, P99_MS = 25.0, 150.0

METHOD = (
    "`rlship watch --sink jsonl` as a process of its own, with its default polling. One process plays all "
    "writers: {steps} steps a round, one every 80 to 120 ms, {metrics} metrics; one os.write per writer with a "
    "metrics line and its barrier, all writers in a row. From just before the last writer's write to when another "
    "connection to the store first sees the row, looking every ms; the first {warm} steps of a round are left "
    "out. {rounds} rounds of each number of writers, in turn; p50 and p99 of all steps, in ms. Beside: an append "
    "of 4 KiB + fdatasync on the same disk, {rounds} times {syncs} of them between the rounds. A commit needs one "
    "such sync."
)


@dataclass(slots=True)
class _Steps:
    """Steps that are written but not yet seen as rows, and the latency of the others, in ms."""

    due: dict[int, float] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)

    def seen(self, rows: int, now: float) -> None:
        """Record that this many rows are committed: a row per step, in order."""
        for step in [step for step in self.due if step < rows]:
            self.took.append((now - self.due.pop(step)) * 1e3)


def measure(folder: Path, quick: bool) -> Result:
    """Run the rounds in `folder`."""
    steps, rounds, syncs = (15, 1, 20) if quick else (200, 2, 200)
    sizes = (8, 64)
    took: dict[int, list[float]] = {writers: [] for writers in sizes}
    synced: list[float] = []
    for number in range(rounds):
        for writers in sizes:
            took[writers] += _round(folder / f"job-{writers}-{number}", writers, steps)
        synced += _syncs(folder / "synced", syncs)
    findings = []
    for writers in sizes:
        for name, share, limit in (("p50", 0.5, P50_MS), ("p99", 0.99, P99_MS)):
            ours, beside = percentile(took[writers], share), percentile(synced, share)
            figure = f"{writers} writers, {name}"
            findings.append(
                Finding(
                    figure, ours, "ms", f"fdatasync, {name}", beside, ours / beside, f"< {limit:.0f} ms", ours < limit
                )
            )
    method = METHOD.format(steps=steps, metrics=METRICS, warm=WARM_STEPS, rounds=rounds, syncs=syncs)
    return Result("last barrier to row committed", method, findings)


def _round(experiment: Path, writers: int, steps: int) -> list[float]:
    folder = writers_folder(experiment)
    fds = []
    try:
        for rank in range(writers):
            fds.append(os.open(file_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND))
            os.write(fds[-1], open_line(rank, writers))
        with watching(experiment) as watcher:
            watcher.wait_until(lambda status: len(status.writers) == writers, f"reading {writers} files")
            return _steps(watcher.store(), fds, steps + WARM_STEPS).took[WARM_STEPS:]
    finally:
        for fd in fds:
            os.close(fd)


def _steps(store: Path, fds: list[int], count: int) -> _Steps:
    """Write `count` steps and watch for their rows meanwhile."""
    source = random.Random(2)
    steps = _Steps()
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)
    step, next_at, deadline = 0, time.monotonic() + 0.5, 0.0
    try:
        while step < count or steps.due:
            now = time.monotonic()
            if step < count and now >= next_at:
                steps.due[step] = _write(fds, step, source)
                step += 1
                # Out of step with everything that the sidecar does regularly.
                next_at = now + source.uniform(0.08, 0.12)
                deadline = now + LATEST_S
            newest = connection.execute("select max(no) from rows").fetchone()[0]
            steps.seen(0 if newest is None else newest + 1, time.monotonic())
            if steps.due and time.monotonic() > deadline:
                raise SubjectFailed(f"no row for step {min(steps.due)} after {LATEST_S:.0f} s")
            time.sleep(POLL_S)
    finally:
        connection.close()
    return steps


def _write(fds: list[int], step: int, source: random.Random) -> float:
    """Write one step of every rank; returns when the last write began."""
    lines = [metrics_line(step, time.time(), values(METRICS, source)) for _ in fds]
    began = 0.0
    for fd, line in zip(fds, lines):
        began = time.monotonic()
        os.write(fd, line + barrier_line(step, time.time()))
    return began


def _syncs(path: Path, count: int) -> list[float]:
    took = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(count):
            os.write(fd, bytes(4096))
            began = time.monotonic()
            os.fdatasync(fd)
            took.append((time.monotonic() - began) * 1e3)
            time.sleep(0.01)
    finally:
        os.close(fd)
    return took
