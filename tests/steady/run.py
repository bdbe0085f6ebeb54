"""Run the job and the sidecar, look at both, and let the W&B server go away now and then."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.endtoend.sidecar import Sidecar, environment, watching
from tests.guards.tree import ROOT
from tests.loopback.backend import LoopbackBackend
from tests.loopback.runs import Run
from tests.steady.course import Course, Sample

SINKS = ("wandb", "jsonl", "tensorboard")
LOOK_S, SAMPLE_S = 0.02, 2.0
START_S, END_S = 60.0, 120.0


@dataclass(frozen=True)
class Plan:
    """A job of `ranks` that end `rate` steps a second for `seconds`."""

    seconds: float
    ranks: int = 64
    rate: float = 5.0

    @property
    def steps(self) -> int:
        """How many there are."""
        return int(self.seconds * self.rate)

    @property
    def outage_every_s(self) -> float:
        """The server is away once in so many seconds, from the middle of them on: every ten minutes, or twice."""
        return min(600.0, self.seconds / 2)

    @property
    def outage_s(self) -> float:
        """For how long."""
        return min(60.0, self.outage_every_s / 6)


def run(plan: Plan, folder: Path) -> Course:
    """Run it in an empty folder; raises AssertionError where the sidecar ends, or rows do not come."""
    experiment, home, course = folder / "job", folder / "home", Course()
    home.mkdir(parents=True)
    experiment.mkdir()
    with LoopbackBackend() as backend:
        settings = {**backend.environment(home), "RLSHIP_DIR": ""}
        command = [sys.executable, "-m", "tests.steady.job", str(experiment), str(plan.ranks), str(plan.rate)]
        job = subprocess.Popen([*command, str(plan.steps)], cwd=ROOT, env=environment(home, {}))
        try:
            with watching(experiment, *SINKS, home=home, settings=settings) as sidecar:
                _look_on(plan, sidecar, backend, job, course)
                run_of = next(iter(backend.runs.values()))
                sidecar.until(lambda: len(run_of.history) >= plan.steps, END_S)
                assert sidecar.stop() == 0, sidecar.said()
        finally:
            job.kill()
            job.wait()
        course.ended = _last_barriers(experiment)
        course.arrived = _arrivals(run_of)
    return course


def _look_on(
    plan: Plan, sidecar: Sidecar, backend: LoopbackBackend, job: subprocess.Popen[bytes], course: Course
) -> None:
    state = sidecar.directory / "rlship" / "state"
    sidecar.until(lambda: bool(backend.runs), START_S)
    (store,) = state.glob("store.*.db")
    outage_at, up_at, sample_at = time.time() + plan.outage_every_s / 2, 0.0, 0.0
    process = psutil.Process(sidecar.process.pid)
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)) as rows:
        while job.poll() is None or len(course.stored) < plan.steps:
            assert sidecar.process.poll() is None, sidecar.said()
            assert job.poll() in (None, 0), "a rank failed"
            newest = rows.execute("select max(no) from rows").fetchone()[0]
            now = time.time()
            for step in range(len(course.stored), 0 if newest is None else newest + 1):
                course.stored[step] = now
            if now >= sample_at:
                sample_at = now + SAMPLE_S
                course.samples.append(_sample(process, now))
            if not up_at and now >= outage_at:
                backend.down()
                up_at = now + plan.outage_s
                course.outages.append((now, up_at))
            elif up_at and now >= up_at:
                backend.up()
                outage_at, up_at = outage_at + plan.outage_every_s, 0.0
            time.sleep(LOOK_S)
    if up_at:
        backend.up()


def _sample(process: psutil.Process, now: float) -> Sample:
    started = 0
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            started += child.memory_info().rss
    return Sample(now, process.memory_info().rss / 1e6, process.num_fds(), started / 1e6)


def _last_barriers(experiment: Path) -> dict[int, float]:
    """When the last rank ended each step, by the barrier records."""
    ended: dict[int, float] = {}
    for path in (experiment / "rlship").glob("*.jsonl"):
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(b'{"kind":"barrier"'):
                    record = json.loads(line)
                    ended[record["step"]] = max(record["t"], ended.get(record["step"], 0.0))
    return ended


def _arrivals(run: Run) -> dict[int, float]:
    """When the row of each step came to the server."""
    return {row["global_step"]: t for row, t in zip(run.rows(), run.arrived)}
