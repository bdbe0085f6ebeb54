"""How long a sidecar takes to resume after a kill with a long history, and how much memory it needs.

And its CPU for many files in which nothing is new.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.files import T0, barrier_line, file_of, metrics_line, open_line, values, writers_folder
from benchmarks.report import Finding, Result, median, ratio
from benchmarks.watching import Watcher, watching
from rlship_sidecar.report.status import Status

LIMIT_S = 5.0
METRICS = 50
OPEN_STEPS = 3

MANY = (1_000, 4_000, 10_000)  # files in which nothing is new
MANY_STEPS, MANY_METRICS = 5, 5
BUILD_S = 600.0
MANY_CPU_S = 2.0

METHOD = (
    "{writers:,} writers' files of {metrics} metrics a step, {size:.2f} GB together ({steps:,} rows in the store "
    "and in rows.jsonl), read by `rlship watch --sink jsonl`, which is then killed with SIGKILL while {open} steps "
    "are open (one rank's barriers are held back). The held barriers and one more step of every rank are appended, "
    "then it is started again: from the start of the process until those rows are confirmed by the sink, median of "
    "{rounds} rounds. Beside: a bare interpreter that stats each file and reads its first and last 64 bytes. "
    "Memory: peak resident (VmHWM) of the sidecar that read all of it and of the one that went on, with this "
    "history and with a tenth of it."
)
MANY_METHOD = (
    "Many files: {steps} steps of {metrics} metrics in each, delivered, the sidecar stopped and started again with "
    "nothing new: its CPU (/proc/<pid>/stat, the interpreter's start included) until its status has every file and all "
    "is delivered; the median of {rounds} starts. Beside: the fewest files."
)
PARTS = ("history", "files")


def measure(folder: Path, quick: bool, parts: Sequence[str] = PARTS) -> Result:
    """Restart with these in `folder`."""
    both = [(_measure_files if part == "files" else _measure_history)(folder, quick) for part in parts]
    return Result("restart", " ".join(method for method, _ in both), [one for _, found in both for one in found])


def _measure_files(folder: Path, quick: bool) -> tuple[str, list[Finding]]:
    counts, rounds = ((20, 40, 100), 1) if quick else (MANY, 3)
    took = {files: _starts(folder / f"files-{files}", files, rounds) for files in counts}
    least, most = counts[0], counts[-1]
    findings = []
    for files in counts:
        cpu_s, beside = median(took[files]), median(took[least])
        aims = (f"< {MANY_CPU_S:g} s", cpu_s < MANY_CPU_S) if files == most else ("", None)
        findings.append(
            Finding(f"start with {files:,} files", cpu_s, "s", f"{least:,} files", beside, cpu_s / beside, *aims)
        )
    return MANY_METHOD.format(steps=MANY_STEPS, metrics=MANY_METRICS, rounds=rounds), findings


def _starts(experiment: Path, files: int, rounds: int) -> list[float]:
    """The CPU of each start, after one that delivered everything."""
    job = _Job(experiment, files, MANY_STEPS, MANY_METRICS)
    with watching(experiment) as watcher:
        watcher.wait_until(lambda status: _confirmed(status) == MANY_STEPS, "done with the history", BUILD_S)
    took = []
    for _ in range(rounds):
        with watching(experiment) as watcher:
            watcher.wait_until(partial(_has_all, len(job.paths), time.time()), f"back at {files} files")
            took.append(watcher.cpu_s())
    return took


def _has_all(files: int, since: float, status: Status) -> bool:
    """Whether a status of the new start has everything."""
    everything = len(status.writers) == files and not any(writer.unread for writer in status.writers)
    return status.t >= since and everything and _confirmed(status) == MANY_STEPS


def _measure_history(folder: Path, quick: bool) -> tuple[str, list[Finding]]:
    """Build both histories in `folder`, kill and restart."""
    writers, steps, rounds = (40, 40, 1) if quick else (1_000, 1_600, 5)
    long, short = _Job(folder / "long", writers, steps), _Job(folder / "short", writers, steps // 10)
    size = sum(path.stat().st_size for path in long.paths) / 1e9
    took, bare, peaks = [], [], {}
    for name, job, times in (("short", short, 1), ("long", long, rounds)):
        first_peak = 0.0
        for _ in range(times):
            peak = job.read_and_kill()
            first_peak = first_peak or peak
            seconds, after = job.go_on()
            if name == "long":
                bare.append(job.bare_look())
                took.append(seconds)
            peaks[name] = (first_peak, after)
    findings = [
        Finding(
            f"going on with {size:.2f} GB in {writers:,} files",
            median(took),
            "s",
            "bare look at each file",
            median(bare),
            ratio(took, bare),
            f"< {LIMIT_S:.0f} s",
            median(took) < LIMIT_S,
        )
    ]
    for which, figure in enumerate(("peak memory while reading it all", "peak memory after going on")):
        ours, beside = peaks["long"][which], peaks["short"][which]
        findings.append(
            Finding(figure, ours, "MB", "a tenth of the history", beside, ours / beside, "< 1.25", ours / beside < 1.25)
        )
    method = METHOD.format(writers=writers, metrics=METRICS, size=size, steps=steps, open=OPEN_STEPS, rounds=rounds)
    return method, findings


class _Job:
    """Writers' files of a job that continues a few steps at a time. Rank 0 holds its barriers back."""

    def __init__(self, experiment: Path, writers: int, steps: int, metrics: int = METRICS) -> None:
        self.experiment = experiment
        folder = writers_folder(experiment)
        self.paths = [file_of(folder, rank) for rank in range(writers)]
        self._source = random.Random(5)
        self._next = steps
        self._metrics = metrics
        # Ranks log the same numbers: making others would take longer than reading them.
        lines = b"".join(self._step(step) for step in range(steps))
        for rank, path in enumerate(self.paths):
            path.write_bytes(open_line(rank, writers) + lines)

    def _step(self, step: int) -> bytes:
        return metrics_line(step, T0 + step, values(self._metrics, self._source)) + barrier_line(step, T0 + step)

    def read_and_kill(self) -> float:
        """Let the sidecar read everything, leave steps open, and kill it; returns its peak memory in MB."""
        with watching(self.experiment) as watcher:
            watcher.wait_until(lambda status: _confirmed(status) == self._next, "done with the history")
            for path in self.paths[1:]:
                _append(path, b"".join(self._step(self._next + n) for n in range(OPEN_STEPS)))
            watcher.wait_until(lambda status: _open(status) == OPEN_STEPS, f"at {OPEN_STEPS} open steps")
            # Positions alone are saved every five seconds: wait until the store has the open steps.
            time.sleep(6.0)
            return watcher.kill()

    def go_on(self) -> tuple[float, float]:
        """Start again; returns the seconds until the sink has confirmed the next rows, and the peak memory in MB."""
        for number, path in enumerate(self.paths):
            held = b"" if number else b"".join(self._step(self._next + n) for n in range(OPEN_STEPS))
            _append(path, held + self._step(self._next + OPEN_STEPS))
        self._next += OPEN_STEPS + 1
        began = time.monotonic()
        with watching(self.experiment) as watcher:
            rows = self.experiment / "rlship" / "state" / "rows.jsonl"
            _until_row(watcher, rows, self._next - 1)
            seconds = time.monotonic() - began
            watcher.wait_until(lambda status: _confirmed(status) == self._next, "done")
            return seconds, watcher.peak_mb()

    def bare_look(self) -> float:
        """The seconds for a stat of every file and reading both of its ends."""
        began = time.monotonic()
        for path in self.paths:
            fd = os.open(path, os.O_RDONLY)
            size = os.fstat(fd).st_size
            os.pread(fd, 64, 0)
            os.pread(fd, 64, size - 64)
            os.close(fd)
        return time.monotonic() - began


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _confirmed(status: Status) -> int:
    return status.sinks[0].next_row if status.sinks else 0


def _open(status: Status) -> int:
    return status.actors[0].open_units if status.actors else 0


def _until_row(watcher: Watcher, rows: Path, number: int) -> None:
    """Wait until the file of rows ends with the row of this number."""
    wanted = b'{"row":%d,' % number
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        with rows.open("rb") as file:
            file.seek(max(0, rows.stat().st_size - (1 << 16)))
            if wanted in file.read():
                return
        time.sleep(0.005)
    watcher.wait_until(lambda status: False, f"at row {number}")
