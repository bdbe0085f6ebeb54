"""The sidecar on a filesystem on which each call on a writer's file takes half a millisecond."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.load import Load
from benchmarks.report import Finding, Result
from benchmarks.rounds import SubjectFailed
from benchmarks.watching import Watcher, watching
from rlship.flusher import Timing
from rlship_sidecar.config import Config
from rlship_sidecar.report.status import Status

DELAY_S = 0.0005
METRICS = 10
NETWORK_TYPE = "nfs4"
FIRST_ROW_S = 10.0
SAVED_S = 10.0  # positions alone are saved every five seconds, which takes a while itself
_SOURCE = Path(__file__).with_name("slow_calls.c")
_KINDS = ("open", "stat", "read", "close", "list", "state")

METHOD = (
    "`rlship watch --sink jsonl` as a process of its own, with its defaults. A library of C, compiled with cc and "
    "preloaded into it, sleeps {delay:g} ms in every open, stat, read and close that it makes on a writer's file, and "
    "counts them; a sleep inside the call releases the interpreter as a server's answer does. Its /proc/self/mountinfo "
    "says {type} for every filesystem, so none counts as local, the store's neither. The load's own calls are not "
    "delayed: one process plays all ranks with {metrics} plain metrics, once a second, all in a row, prepared, as in "
    "`live`. Start: until all files are read, with their first lines. Idle: nothing is written for {idle:.0f} s, then "
    "calls are counted for {count:.0f} s; then one step is written. After {warm} steps of warm-up, {steps} steps. Lag "
    "as in `live`, from when the line is there for the sidecar to see. From the call: a writer syncs its file at most "
    "once in so many seconds at that world, which the line may wait before. Takeover: calls on the sidecar's state are "
    "slow as well. The sidecar is killed while one rank has not finished the step, and another one started: until its "
    "status has all files."
)


@dataclass(frozen=True, slots=True)
class Case:
    """How many files, and how long each call takes."""

    files: int
    delay_s: float = DELAY_S
    p50_s: float | None = None
    idle_opens: float | None = None
    opens: float | None = None


CASES: Mapping[str, Case] = {
    "1024": Case(1_024, p50_s=0.7),
    "4096": Case(4_096, p50_s=1.2, idle_opens=500, opens=10_000),
    "4096-local": Case(4_096, delay_s=0.0, idle_opens=500, opens=10_000),
    "10000": Case(10_000, p50_s=2.5),
}
STARTS: Mapping[str, tuple[int, float]] = {  # files, and seconds a call
    "start-1024": (1_024, 0.0005),
    "start-1024-slow": (1_024, 0.005),
    "start-4096": (4_096, 0.0005),
    "start-4096-slow": (4_096, 0.005),
}
PARTS = (*CASES, *STARTS)
START_S = Config().lease_ttl_s / 2


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of each part of a run, or steps."""

    idle: float
    count: float
    warm: int
    steps: int
    saved: float


def measure(folder: Path, quick: bool, parts: Sequence[str] = PARTS) -> Result:
    """Run these cases in `folder`, one after the other."""
    times = _Times(1.0, 1.0, 1, 3, 1.0) if quick else _Times(60.0, 10.0, 10, 30, SAVED_S)
    library = compiled(folder)
    findings: list[Finding] = []
    for part in parts:
        if part in STARTS:
            files, delay_s = STARTS[part]
            findings += _took_over(folder / part, files // 64 if quick else files, delay_s, times, library)
        else:
            case = CASES[part]
            findings += _measured(folder / part, case, case.files // 64 if quick else case.files, times, library)
        shutil.rmtree(folder / part)
    method = METHOD.format(
        delay=DELAY_S * 1e3,
        type=NETWORK_TYPE,
        metrics=METRICS,
        idle=times.idle,
        count=times.count,
        warm=times.warm,
        steps=times.steps,
    )
    return Result("a filesystem whose calls take time", method, findings)


def _measured(experiment: Path, case: Case, files: int, times: _Times, library: Path) -> Iterator[Finding]:
    with Load(experiment, files, plain=METRICS) as load, SlowCalls(experiment, case.delay_s) as calls:
        began = time.monotonic()
        with watching(experiment, env=calls.environment(library)) as watcher:
            watcher.wait_until(lambda status: len(status.writers) == files, f"reading {files} files")
            start_s = time.monotonic() - began
            time.sleep(times.idle)
            idle = _rates(calls, watcher, times.count)
            first_s = load.row_after(watcher, 60.0)
            load.run(watcher, times.warm)
            before, began = calls.counts(), time.monotonic()
            found = load.run(watcher, times.steps)
            busy = _per_second(before, calls.counts(), time.monotonic() - began)
    if not all(busy[kind] for kind in ("open", "read", "close")):
        raise RuntimeError(f"the library saw these calls a second: {busy}: the figures are void")
    name = f"{files:,} files, {case.delay_s * 1e3:g} ms"
    sync_s = Timing.for_world(files).sync
    p50 = found.lag(0.5)
    yield Finding(f"{name}: start", start_s, "s")
    yield _judged(f"{name}: opens, idle", idle["open"], "/s", case.idle_opens)
    yield Finding(f"{name}: all calls, idle", sum(idle.values()), "/s")
    yield _judged(f"{name}: first row after that", first_s, "s", FIRST_ROW_S)
    opens = _judged(f"{name}: opens, a step a second", busy["open"], "/s", case.opens)
    yield replace(opens, reached=opens.reached and not found.behind)  # few of them are no merit then
    yield Finding(f"{name}: all calls, a step a second", sum(busy.values()), "/s")
    yield _judged(f"{name}: lag, p50", p50, "s", case.p50_s)
    yield Finding(f"{name}: lag, p99", found.lag(0.99), "s")
    called_s = p50 + sync_s
    yield Finding(
        f"{name}: from the call, p50 at most", called_s, "s", "of it waiting for a sync", sync_s, called_s / sync_s
    )
    yield Finding(f"{name}: steps behind at the end", found.behind, "", aim="0", reached=found.behind == 0)
    yield Finding(f"{name}: CPU", found.cpu, "%")


def _took_over(experiment: Path, files: int, delay_s: float, times: _Times, library: Path) -> Iterator[Finding]:
    def has_all(since: float, status: Status) -> bool:
        return len(status.writers) == files and status.t > since

    with Load(experiment, files, plain=METRICS) as load, SlowCalls(experiment, delay_s, state=True) as calls:
        environment = calls.environment(library)
        with watching(experiment, env=environment) as watcher:
            watcher.wait_until(partial(has_all, 0.0), f"reading {files} files")
            load.row_after(watcher, 60.0)
            load.all_but_one()
            time.sleep(times.saved)
            watcher.kill()
        before, began = calls.counts(), time.monotonic()
        with watching(experiment, env=environment) as watcher:
            watcher.wait_until(partial(has_all, time.time()), f"back at {files} files")
            start_s, cpu_s, after = time.monotonic() - began, watcher.cpu_s(), calls.counts()
            first_s = load.row_after(watcher, 60.0)
    name = f"{files:,} files, {delay_s * 1e3:g} ms"
    yield _judged(f"{name}: takeover", start_s, "s", START_S)
    yield Finding(f"{name}: its CPU", cpu_s, "s")
    yield Finding(f"{name}: its calls on the state", after["state"] - before["state"], "")
    yield Finding(f"{name}: its opens of files", after["open"] - before["open"], "")
    yield Finding(f"{name}: first row after it", first_s, "s")


def _judged(figure: str, value: float, unit: str, limit: float | None) -> Finding:
    aim, reached = ("", None) if limit is None else (f"<= {limit:g} {unit}", value <= limit)
    return Finding(figure, value, unit, aim=aim, reached=reached)


class SlowCalls:
    """What the benchmark and the preloaded library share: the delay and the counts, in a file that both map.

    `state`: calls on the sidecar's own files are slow too. `hanging` is a file on which calls do not return between
    `hang` and `go_on`.
    """

    _LAYOUT = struct.Struct("8Q")  # struct shared in slow_calls.c
    _HANGS = slice(56, 64)

    def __init__(self, experiment: Path, delay_s: float, *, state: bool = False, hanging: Path | None = None) -> None:
        self._folder = os.path.realpath(experiment / "rlship")
        self._shared = experiment / "calls"
        self._mounts = experiment / "mountinfo"
        self._more = {"SLOW_CALLS_STATE": f"{self._folder}/state"} if state else {}
        if hanging is not None:
            self._more["SLOW_CALLS_HANGING"] = os.path.realpath(hanging)
        self._shared.write_bytes(self._LAYOUT.pack(round(delay_s * 1e9), *[0] * 7))
        self._mounts.write_text(_all_of_type(NETWORK_TYPE), encoding="utf-8")

    def __enter__(self) -> SlowCalls:
        with self._shared.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._LAYOUT.size)
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()

    def environment(self, library: Path) -> dict[str, str]:
        """The variables with which a process is slow."""
        return {
            "LD_PRELOAD": str(library),
            "SLOW_CALLS_FOLDER": self._folder,
            "SLOW_CALLS_SHARED": str(self._shared),
            "SLOW_CALLS_MOUNTS": str(self._mounts),
            **self._more,
        }

    def counts(self) -> dict[str, int]:
        """The calls so far: on writers' files by kind, on the state in all, listings of the writers' folder."""
        return dict(zip(_KINDS, self._LAYOUT.unpack(self._map[:])[1:]))

    def hang(self) -> None:
        """Let calls on the file that hangs not return."""
        self._map[self._HANGS] = struct.pack("Q", 1)

    def go_on(self) -> None:
        """Let them return."""
        self._map[self._HANGS] = struct.pack("Q", 0)


def _rates(calls: SlowCalls, watcher: Watcher, seconds: float) -> dict[str, float]:
    before, began = calls.counts(), time.monotonic()
    time.sleep(seconds)
    return _per_second(before, calls.counts(), time.monotonic() - began)


def _per_second(before: Mapping[str, int], after: Mapping[str, int], seconds: float) -> dict[str, float]:
    return {kind: (after[kind] - before[kind]) / seconds for kind in before}


def compiled(folder: Path) -> Path:
    """The library, compiled for this machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SubjectFailed("network needs a C compiler: install one as `cc`, such as the package gcc")
    library = folder / "slow_calls.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SubjectFailed(f"{compiler} cannot compile {_SOURCE}: {done.stderr}")
    return library


def _all_of_type(type_: str) -> str:
    """/proc/self/mountinfo with another type for every filesystem."""
    changed = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        changed.append(f"{left} - {type_} {right.partition(' ')[2]}\n")
    return "".join(changed)
