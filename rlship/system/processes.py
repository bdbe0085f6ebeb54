"""Processes of this machine: their parents, what a tree of them uses, and their pids inside containers."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Listing all processes may take this share of the time, and is never done more often than this.
_SHARE = 0.002
_MIN_S = 2.0
_MAX_S = 60.0
_MAX_STEPS = 64


class Use:
    """The use of some processes: `cpu_s` seconds of CPU so far, `memory` bytes resident (shared pages count in each),
    `count` their number.
    """

    __slots__ = ("count", "cpu_s", "memory")

    def __init__(self) -> None:
        self.cpu_s: dict[tuple[int, int], float] = {}
        self.memory = 0
        self.count = 0

    def since(self, before: Use) -> float:
        """CPU seconds that they used since an earlier look.

        A process that is new in this look counts from now on: it may be old and only be found now.
        """
        return sum(max(0.0, used - before.cpu_s.get(process, used)) for process, used in self.cpu_s.items())


class Processes:
    """The processes under `root`/proc, listed as often as that is cheap.

    `names` maps a pid to the process's number in the innermost of its pid namespaces, if that is another number.
    """

    def __init__(self, *, root: str = "/") -> None:
        self._proc = os.path.join(root, "proc")
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._look_at = float("-inf")
        self._parents: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        self._known: dict[tuple[int, int], int] = {}
        self.names: dict[int, int] = {}
        self.started: dict[int, int] = {}

    def look(self, now: float, *, force: bool = False) -> bool:
        """List them again if it is due. `now`: seconds of a clock that does not go back. Returns whether it was due."""
        if now < self._look_at and not force:
            return False
        began = time.thread_time()
        parents: dict[int, int] = {}
        started: dict[int, int] = {}
        known: dict[tuple[int, int], int] = {}
        names: dict[int, int] = {}
        for name in self._listed():
            pid = int(name)
            fields = self._stat(pid)
            if fields is None:
                continue
            parents[pid], started[pid] = int(fields[1]), int(fields[19])
            process = (pid, started[pid])
            inner = self._known[process] if process in self._known else self._inner(pid)
            known[process] = inner
            if inner != pid:
                names[pid] = inner
        self._parents, self.started, self._known, self.names = parents, started, known, names
        self._children = {}
        for pid, parent in parents.items():
            self._children.setdefault(parent, []).append(pid)
        cost = time.thread_time() - began
        self._look_at = now + min(_MAX_S, max(_MIN_S, cost / _SHARE))
        return True

    def alive(self, pid: int) -> bool:
        """True if the process existed at the last look."""
        return pid in self._parents

    def above(self, pid: int, wanted: Collection[int]) -> int | None:
        """The first of `wanted` on the way up from `pid`, itself included."""
        for _ in range(_MAX_STEPS):
            if pid in wanted:
                return pid
            parent = self._parents.get(pid)
            if parent is None or parent <= 0:
                return None
            pid = parent
        return None

    def tree(self, pid: int, without: Collection[int] = ()) -> list[int]:
        """The process and those below it, without the processes in `without` and those below them."""
        found, waiting = [], [pid]
        seen = {pid}
        while waiting:
            one = waiting.pop()
            found.append(one)
            for child in self._children.get(one, ()):
                if child not in without and child not in seen:
                    seen.add(child)
                    waiting.append(child)
        return found

    def use(self, pids: Iterable[int]) -> Use:
        """The current use of these processes; ended ones do not count."""
        found = Use()
        for pid in pids:
            fields = self._stat(pid)
            if fields is None or fields[0] in ("Z", "X"):
                continue
            found.cpu_s[pid, int(fields[19])] = (int(fields[11]) + int(fields[12])) * self._tick_s
            found.memory += int(fields[21]) * self._page
            found.count += 1
        return found

    def boot_t(self) -> float | None:
        """The Unix time of the machine's start, from which start times of processes count; None if unknown."""
        try:
            with open(os.path.join(self._proc, "stat"), "rb") as file:
                for line in file:
                    if line.startswith(b"btime "):
                        return float(line.split()[1])
        except (OSError, ValueError, IndexError):
            return None
        return None

    def start_t(self, pid: int, boot: float) -> float | None:
        """The Unix time at which a process began, given the boot time from `boot_t`; None if unknown."""
        ticks = self.started.get(pid)
        return None if ticks is None else boot + ticks * self._tick_s

    def _listed(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return []

    def _stat(self, pid: int) -> list[str] | None:
        """The fields of /proc/<pid>/stat, starting with the state."""
        try:
            fd = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(fd, 4096)
            finally:
                os.close(fd)
        except OSError:
            return None
        # The program's name is in parentheses and may itself contain some.
        fields = data.rpartition(b")")[2].decode("ascii", "replace").split()
        return fields if len(fields) > 21 else None

    def _inner(self, pid: int) -> int:
        """The process's pid in its innermost namespace."""
        try:
            with open(f"{self._proc}/{pid}/status", "rb") as file:
                for line in file:
                    if line.startswith(b"NSpid:"):
                        return int(line.split()[-1])
        except (OSError, ValueError, IndexError):
            return pid
        return pid


# The first pid namespace of a machine has this inode in every kernel.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC


def in_first_pid_namespace(root: str = "/") -> bool:
    """True if pids here are those by which the driver knows processes."""
    try:
        return os.stat(os.path.join(root, "proc/self/ns/pid")).st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


# The files of devices: NVIDIA's, Ascend's, AMD's.
_GPU_FILES = ("/dev/nvidia", "/dev/davinci", "/dev/kfd")


def holds_gpu(pid: int, root: str = "/") -> bool:
    """True if a process has a GPU open, as far as permissions allow to see."""
    return any(target.startswith(_GPU_FILES) for target in open_files(pid, root) or ())


def open_files(pid: int, root: str = "/") -> list[str] | None:
    """The names of a process's open files, as it sees them; None without permission, or if it has ended."""
    folder = os.path.join(root, f"proc/{pid}/fd")
    found = []
    try:
        for name in os.listdir(folder):
            try:
                found.append(os.readlink(os.path.join(folder, name)))
            except OSError:
                continue
    except OSError:
        return None
    return found
