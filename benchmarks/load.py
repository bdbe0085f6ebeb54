"""One process that plays all ranks of a job, a step a second, and watches for the rows of its steps."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from benchmarks.files import barrier_line, file_of, open_line, values, weighted, writers_folder
from benchmarks.report import percentile
from benchmarks.rounds import SubjectFailed
from benchmarks.watching import Watcher, resident_mb

EVERY_S = 1.0
LOOK_S = 0.005
BODIES = 16
SPARE_DESCRIPTORS = 200
_ROWS = "select number, partial from units where actor = 'trainer' and kind = 'step' and number >= ?"


@dataclass(slots=True)
class Window:
    """What one window of time found: shares of a core in %, memory by second in MB, lags in seconds by step.

    `lags` has each step of the window. A step without its row has its age at the end, so that it cannot look better
    than the others; `behind` counts those.
    """

    cpu: float = 0.0
    load_cpu: float = 0.0
    memory: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    behind: int = 0

    def lag(self, share: float) -> float:
        """The lag that `share` of the steps do not exceed."""
        return percentile(self.lags, share)


class Load:
    """The ranks. Lines are prepared: at a step each rank's file gets one write, of one of a few bodies."""

    def __init__(self, experiment: Path, ranks: int, *, plain: int, weights: int = 0, nan: bool = False) -> None:
        source = random.Random(8)
        self._bodies = [_body(source, plain, weights, nan=False) for _ in range(BODIES)]
        self._nan = _body(source, plain, weights, nan=True) if nan else None
        self._step = 0
        self._due: dict[int, float] = {}
        self._fds: list[int] = []
        self._connection: sqlite3.Connection | None = None
        self._store: Path | None = None
        _allow_descriptors(ranks + SPARE_DESCRIPTORS)
        folder = writers_folder(experiment)
        for rank in range(ranks):
            self._fds.append(os.open(file_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND))
            os.write(self._fds[-1], open_line(rank, ranks))

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._fds:
            os.close(fd)
        if self._connection is not None:
            self._connection.close()

    def run(self, watcher: Watcher, steps: int) -> Window:
        """Write this many steps, one a second, and look for rows until a second after the last one."""
        window, first = Window(), self._step
        began, cpu_s, load_cpu_s = time.monotonic(), watcher.cpu_s(), time.process_time()
        for step in range(steps):
            self._look_until(watcher, began + step * EVERY_S, window, first)
            self._write()
            window.memory.append(resident_mb(watcher.pid))
        self._look_until(watcher, began + steps * EVERY_S, window, first)
        now = time.monotonic()
        window.cpu = (watcher.cpu_s() - cpu_s) / (now - began) * 100
        window.load_cpu = (time.process_time() - load_cpu_s) / (now - began) * 100
        late = [now - at for step, at in self._due.items() if step >= first]
        window.behind = len(late)
        window.lags += late
        return window

    def row_after(self, watcher: Watcher, limit_s: float) -> float:
        """Write one step; returns the seconds until its row, or raises SubjectFailed."""
        window, step = Window(), self._step
        began = time.monotonic()
        self._write()
        while step in self._due:
            if time.monotonic() > began + limit_s:
                raise SubjectFailed(f"no row for step {step} after {limit_s:.0f} s")
            self._look_until(watcher, time.monotonic() + LOOK_S, window, step)
        return window.lags[-1]

    def _write(self) -> None:
        """Write the next step, all ranks in a row; it is due from just before the last rank's write."""
        step, self._step = self._step, self._step + 1
        lines = self._lines(step)
        for rank, fd in enumerate(self._fds[:-1]):
            os.write(fd, lines[rank % BODIES])
        last = lines[0] if self._nan is None else self._line(step, self._nan)
        self._due[step] = time.monotonic()
        os.write(self._fds[-1], last)

    def _lines(self, step: int) -> list[bytes]:
        return [self._line(step, body) for body in self._bodies]

    def _line(self, step: int, body: bytes) -> bytes:
        return b'{"t":%.3f,"step":%d,"m":' % (time.time(), step) + body + b"}\n" + barrier_line(step, time.time())

    def all_but_one(self) -> None:
        """The last rank alone does not write the next step; `row_after` writes it again, for all."""
        for fd in self._fds[:-1]:
            os.write(fd, self._lines(self._step)[0])

    def _look_until(self, watcher: Watcher, until: float, window: Window, first: int) -> None:
        """Note which steps have complete rows, until it is time."""
        store = watcher.store()
        if self._connection is None or store != self._store:  # a successor may have a copy
            if self._connection is not None:
                self._connection.close()
            self._connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, isolation_level=None)
            self._store = store
        while (now := time.monotonic()) < until:
            if self._due:
                found = self._connection.execute(_ROWS, (min(self._due),)).fetchall()
                now = time.monotonic()
                for step, partial in found:
                    if not partial and step in self._due:
                        at = self._due.pop(step)
                        if step >= first:
                            window.lags.append(now - at)
            time.sleep(max(0.0, min(LOOK_S, until - now)))


def _body(source: random.Random, plain: int, weights: int, *, nan: bool) -> bytes:
    """The metrics of one line as JSON."""
    logged: dict[str, object] = {**values(plain, source)}
    logged |= {f"weighted_{index:03}": weighted(source) for index in range(weights)}
    if nan:
        logged["metric_000"] = "NaN"
    return orjson.dumps(logged)


def _allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SubjectFailed(f"the load needs {count:,} open files, and `ulimit -Hn` allows {hard:,}: raise it")
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def flatness(memory: Sequence[float]) -> tuple[float, float]:
    """The most memory in the first and in the last third of the samples."""
    third = max(1, len(memory) // 3)
    return max(memory[:third]), max(memory[-third:])
