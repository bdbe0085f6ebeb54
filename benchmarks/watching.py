"""`rlship watch` as a child process, and the kernel's counters for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rounds import ROOT, SubjectFailed, clean_environment
from rlship_sidecar.report.status import Status, read_status

READY_S = 120.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Watcher:
    """A running sidecar of the experiment `folder`."""

    pid: int
    folder: Path
    state: Path
    _ended: Callable[[], int | None]
    _stderr: Path

    def cpu_s(self) -> float:
        """User and system time of all its threads so far, in steps of 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def held(self) -> tuple[int, int, float]:
        """Its descriptors, threads and resident memory in MB (10^6 bytes), without its children."""
        process = Path(f"/proc/{self.pid}")
        return len(os.listdir(process / "fd")), len(os.listdir(process / "task")), resident_mb(self.pid)

    def peak_mb(self) -> float:
        """Its highest resident memory so far, in MB (10^6 bytes)."""
        return peak_mb(self.pid)

    def kill(self) -> float:
        """SIGKILL; returns its peak memory until then, in MB."""
        peak = self.peak_mb()
        os.kill(self.pid, signal.SIGKILL)
        while self._ended() is None:
            time.sleep(0.005)
        return peak

    def wait_until(self, reached: Callable[[Status], bool], what: str, limit_s: float = READY_S) -> Status:
        """Wait for a status for which `reached` is true; raises SubjectFailed if it ends, or after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self._ended() is not None:
                raise SubjectFailed(
                    f"rlship watch ended with {self._ended()}: {self._stderr.read_text(encoding='utf-8')}"
                )
            status = read_status(self.state)
            if status is not None and reached(status):
                return status
            time.sleep(0.2)
        raise SubjectFailed(f"rlship watch: not {what} after {limit_s:.0f} s")

    def store(self) -> Path:
        """The path of its store."""
        return max(self.state.glob("store.*.db"))


def peak_mb(pid: int | str = "self") -> float:
    """The most memory that a process ever had resident, in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SubjectFailed(f"/proc/{pid}/status has no VmHWM")


def resident_mb(pid: int) -> float:
    """The resident memory of a process, in MB (10^6 bytes)."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def watching(
    experiment: Path,
    *flags: str,
    sinks: Sequence[str] = ("jsonl",),
    nofile: int | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Watcher]:
    """Run `rlship watch` on an experiment or a folder of them, and stop it at the end.

    `nofile` limits its open files, `env` are further variables.
    """
    stderr_file = experiment / "watch.stderr"
    command = [sys.executable, "-m", "rlship", "watch", str(experiment), "--quiet", *flags]
    command += [word for sink in sinks for word in ("--sink", sink)]
    if nofile is not None:
        command = ["/bin/sh", "-c", f'ulimit -n {nofile} && exec "$@"', "sh", *command]
    with stderr_file.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=clean_environment() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        yield Watcher(process.pid, experiment / "rlship", experiment / "rlship" / "state", process.poll, stderr_file)
    finally:
        process.terminate()
        try:
            process.wait(60.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
