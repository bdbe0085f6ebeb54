"""CPU of the sidecar with a fleet of processes that log without steps, and the delay of their rows."""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.files import (
    barrier_line,
    file_of,
    metrics_line,
    open_line,
    stream_line,
    stream_open_line,
    values,
    writers_folder,
)
from benchmarks.idle import BareLoop
from benchmarks.report import Finding, Result, median, percentile, ratio
from benchmarks.rounds import SubjectFailed
from benchmarks.watching import Watcher, watching

METRICS = 20
EVERY_S = 0.1  # between two lines of a writer
FLUSH_S = 0.5  # between two writes of a writer
LONG_S, SHORT_S = 10.0, 2.0  # windows of time: the default, and one for latencies
LATEST_S = 30.0

METHOD = (
    "`rlship watch --sink jsonl` as a process of its own, with its default polling, on {writers} generators that log "
    "{metrics} metrics without a step every {every:.0f} ms, and a trainer with a step of 5 metrics a second. One "
    "process plays them all: as a worker's writing thread does, each generator's lines go into its file every "
    "{flush:g} s, {lines} in one write; the generators' turns are spread evenly over that time. CPU from "
    "/proc/<pid>/stat in {windows} windows of {window:.0f} s after {warm:.0f} s of warm-up, rows and sink included, "
    "the median, as % of a core; with clock_window_s at its default of 10 s (about {rate:,.0f} metrics a second in, an "
    "aligned row a second out) and at 2 s. Beside, in the same windows: a bare loop once a second over the same files "
    "(os.stat, open, pread and orjson.loads of what is new), its thread's CPU. Latency, with clock_window_s at 2 s, of "
    "{rows} rows: from the end of a window, and from the write with which the last generator passed it, to when "
    "another connection to the store first sees its row, looking every {look:.0f} ms. Every row was of all generators."
)


@dataclass(slots=True)
class _Windows:
    """When windows ended, when the last generator passed their end, and the delay of their rows from both, in ms."""

    length: float
    passed: dict[int, float] = field(default_factory=dict)
    of_end: list[float] = field(default_factory=list)
    of_last: list[float] = field(default_factory=list)

    def seen(self, index: int, now: float) -> None:
        """Record that the row of a window is committed."""
        self.of_end.append((now - (index + 1) * self.length) * 1e3)
        self.of_last.append((now - self.passed.pop(index)) * 1e3)


def measure(folder: Path, quick: bool) -> Result:
    """Run both lengths of windows in `folder`."""
    writers, windows, window_s, warm_s = (8, 1, 3.0, 3.0) if quick else (64, 3, 15.0, 15.0)
    findings: list[Finding] = []
    latency = _Windows(SHORT_S)
    for length in (LONG_S, SHORT_S):
        experiment = folder / f"job-{length:.0f}"
        with _Fleet(experiment, writers, length) as fleet, watching(experiment) as watcher:
            watcher.wait_until(lambda status: len(status.writers) == writers + 1, f"reading {writers + 1} files")
            fleet.run(watcher, warm_s)
            if length == SHORT_S:
                fleet.begin()
            found = [fleet.run(watcher, window_s) for _ in range(windows)]
            fleet.complete(watcher)
        ours, bare = [one for one, _ in found], [other for _, other in found]
        findings.append(
            Finding(
                f"{writers} generators, windows of {length:.0f} s",
                median(ours),
                "%",
                "bare read + orjson loop",
                median(bare),
                ratio(ours, bare),
            )
        )
        latency = fleet.windows
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        of_end, of_last = percentile(latency.of_end, share), percentile(latency.of_last, share)
        findings.append(Finding(f"end of a window to its row, {name}", of_end, "ms"))
        findings.append(Finding(f"last generator's write to the row, {name}", of_last, "ms"))
    method = METHOD.format(
        writers=writers,
        metrics=METRICS,
        every=EVERY_S * 1e3,
        flush=FLUSH_S,
        lines=round(FLUSH_S / EVERY_S),
        windows=windows,
        window=window_s,
        warm=warm_s,
        rate=writers * METRICS / EVERY_S,
        rows=len(latency.of_end),
        look=FLUSH_S / writers * 1e3,
    )
    return Result("processes without steps", method, findings)


class _Fleet:
    """The generators and their trainer, and the bare loop that looks at their files."""

    def __init__(self, experiment: Path, writers: int, length: float) -> None:
        folder = writers_folder(experiment)
        (experiment / "rlship.toml").write_text(f"clock_window_s = {length}\n", encoding="utf-8")
        self.windows = _Windows(length)
        self._source = random.Random(4)
        self._fds: list[int] = []
        self._paths = [str(file_of(folder, number)) for number in range(writers + 1)]
        self._lines = [stream_open_line(number, time.time()) for number in range(writers)] + [open_line(0, 1)]
        self._newest = [0.0] * writers
        self._turn = 0
        self._step = 0
        self._next_index: int | None = None
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> _Fleet:
        for path, line in zip(self._paths, self._lines):
            self._fds.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
            os.write(self._fds[-1], line)
        self._bare = BareLoop(self._paths)
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)
        if self._connection is not None:
            self._connection.close()

    def begin(self) -> None:
        """Watch for rows from the next window on."""
        self._next_index = math.floor(time.time() / self.windows.length) + 1

    def run(self, watcher: Watcher, seconds: float) -> tuple[float, float]:
        """Share of a core, in %, that the sidecar and the bare loop took meanwhile."""
        began, began_cpu, bare_cpu = time.monotonic(), watcher.cpu_s(), 0.0
        pause = FLUSH_S / len(self._newest)
        for turn in range(round(seconds / pause)):
            time.sleep(max(0.0, began + turn * pause - time.monotonic()))
            self._write()
            self._look(watcher)
            if turn % round(1 / pause) == 0:
                before = time.thread_time()
                self._bare.look()
                bare_cpu += time.thread_time() - before
        took = time.monotonic() - began
        return (watcher.cpu_s() - began_cpu) / took * 100, bare_cpu / took * 100

    def complete(self, watcher: Watcher) -> None:
        """Continue until every window that has ended by now, and at least one, has its row.

        Raises SubjectFailed if a row is incomplete.
        """
        ended = math.floor(time.time() / self.windows.length) - 1
        last = ended if self.windows.of_end else max(ended, self._next_index or 0)
        deadline = time.monotonic() + LATEST_S
        while self._next_index is not None and self._next_index <= last:
            if time.monotonic() > deadline:
                raise SubjectFailed(f"no row of clock window {self._next_index} after {LATEST_S:.0f} s")
            self.run(watcher, FLUSH_S)

    def _write(self) -> None:
        """Write the next generator's lines, and once a second the trainer's."""
        writers = len(self._newest)
        number, self._turn = self._turn % writers, self._turn + 1
        now = time.time()
        count = round(FLUSH_S / EVERY_S)
        times = [now - (count - 1 - line) * EVERY_S for line in range(count)]
        lines = [stream_line(t, values(METRICS, self._source)) for t in times]
        os.write(self._fds[number], b"".join(lines))
        self._newest[number] = now
        ended = math.floor(min(self._newest) / self.windows.length) - 1
        self.windows.passed.setdefault(ended, time.time())
        if self._turn % round(writers / FLUSH_S) == 0:
            line = metrics_line(self._step, now, values(5, self._source)) + barrier_line(self._step, now)
            os.write(self._fds[-1], line)
            self._step += 1

    def _look(self, watcher: Watcher) -> None:
        """Whether the row of the next window is committed."""
        if self._next_index is None:
            return
        if self._connection is None:
            self._connection = sqlite3.connect(f"file:{watcher.store()}?mode=ro", uri=True, isolation_level=None)
        found = self._connection.execute(
            "select partial from units where actor = 'generator' and kind = 'clock' and number = ?",
            (self._next_index,),
        ).fetchone()
        if found is None:
            return
        if found[0]:
            raise SubjectFailed(f"the row of clock window {self._next_index} lacks generators: the figures are void")
        self.windows.seen(self._next_index, time.time())
        self._next_index += 1
