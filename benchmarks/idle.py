"""CPU of the sidecar while many files grow slowly, or not at all."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from benchmarks.files import barrier_line, file_of, metrics_line, open_line, values, writers_folder
from benchmarks.report import Finding, Result, median, ratio
from benchmarks.watching import Watcher, watching

LIMIT = 3.0
METRICS = 5

METHOD = (
    "`rlship watch --poll 1 --sink jsonl` as a process of its own; CPU from /proc/<pid>/stat in {windows} windows "
    "of {window:.0f} s after {warm:.0f} s of warm-up, everything that it does in there included (status.json "
    "too); the median, as % of a core. Beside, in the same windows: a bare loop once a second over the same files "
    "(idle: os.stat of each; appended: os.stat, open, pread and orjson.loads of what is new), its thread's CPU. "
    "Idle files hold an open record. Appended: once a second each of the {appended:,} ranks appends one barrier "
    "line (no rows come of it), or a metrics line of {metrics} keys and its barrier in one write (a row a second "
    "of {appended:,} ranks); all ranks in a burst, as at the end of a step."
)


def measure(folder: Path, quick: bool) -> Result:
    """Run all three in `folder`."""
    idle, appended, windows, window_s, warm_s = (200, 50, 1, 1.0, 1.0) if quick else (10_000, 1_024, 3, 10.0, 8.0)
    source = random.Random(3)

    def nothing(step: int) -> bytes | None:
        return None

    def barrier(step: int) -> bytes | None:
        return barrier_line(step, time.time())

    def metrics(step: int) -> bytes | None:
        return metrics_line(step, time.time(), values(METRICS, source)) + barrier_line(step, time.time())

    findings: list[Finding] = []
    for figure, count, line, beside in (
        (f"{idle:,} idle files", idle, nothing, "bare os.stat loop"),
        (f"{appended:,} files, a barrier line each a second", appended, barrier, "bare read + orjson loop"),
        (f"{appended:,} files, metrics + barrier each a second", appended, metrics, "bare read + orjson loop"),
    ):
        ours, bare = _run(folder / f"job-{len(findings)}", count, line, windows, window_s, warm_s)
        value = median(ours)
        findings.append(
            Finding(figure, value, "%", beside, median(bare), ratio(ours, bare), f"< {LIMIT:.0f} %", value < LIMIT)
        )
    method = METHOD.format(windows=windows, window=window_s, warm=warm_s, appended=appended, metrics=METRICS)
    return Result("CPU at one look a second", method, findings)


def _run(
    experiment: Path, count: int, line: Callable[[int], bytes | None], windows: int, window_s: float, warm_s: float
) -> tuple[list[float], list[float]]:
    """Share of a core, in %, per window, of the sidecar and of a bare loop over the same files."""
    folder = writers_folder(experiment)
    paths = [str(file_of(folder, rank)) for rank in range(count)]
    for rank, path in enumerate(paths):
        _append(path, open_line(rank, count))
    bare = BareLoop(paths)
    with watching(experiment, "--poll", "1") as watcher:
        watcher.wait_until(lambda status: len(status.writers) == count, f"reading {count} files")
        job = _Job(paths, line, bare)
        job.run(watcher, warm_s)
        return _split([job.run(watcher, window_s) for _ in range(windows)])


def _split(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [ours for ours, _ in pairs], [bare for _, bare in pairs]


class _Job:
    """Writers that append once a second, and the bare loop that looks at them."""

    def __init__(self, paths: list[str], line: Callable[[int], bytes | None], bare: BareLoop) -> None:
        self._paths = paths
        self._line = line
        self._bare = bare
        self._step = 0

    def run(self, watcher: Watcher, seconds: float) -> tuple[float, float]:
        """Share of a core, in %, that the sidecar and the bare loop took meanwhile."""
        began, began_cpu, bare_cpu = time.monotonic(), watcher.cpu_s(), 0.0
        for second in range(round(seconds)):
            time.sleep(max(0.0, began + second + 0.5 - time.monotonic()))
            data = self._line(self._step)
            self._step += 1
            if data is not None:
                for path in self._paths:
                    _append(path, data)
            before = time.thread_time()
            self._bare.look()
            bare_cpu += time.thread_time() - before
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        took = time.monotonic() - began
        return (watcher.cpu_s() - began_cpu) / took * 100, bare_cpu / took * 100


class BareLoop:
    """The least work that notices and parses new lines in many files."""

    def __init__(self, paths: list[str]) -> None:
        self._sizes = {path: os.stat(path).st_size for path in paths}

    def look(self) -> None:
        """One look at every file."""
        sizes = self._sizes
        for path, size in sizes.items():
            now = os.stat(path).st_size
            if now == size:
                continue
            fd = os.open(path, os.O_RDONLY)
            for line in os.pread(fd, now - size, size).splitlines():
                orjson.loads(line)
            os.close(fd)
            sizes[path] = now


def _append(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, data)
    os.close(fd)
