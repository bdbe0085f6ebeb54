"""Processes of this machine by their ids, as far as `/proc` and the system calls of this process show them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

PROC = "/proc"


def boot() -> str:
    """The id of this start of the kernel; "" if it is not known."""
    try:
        return Path(f"{PROC}/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def namespace() -> str:
    """The pid namespace of this process; "" if it is not known."""
    try:
        return os.readlink(f"{PROC}/self/ns/pid")
    except OSError:
        return ""


def state(pid: int) -> tuple[str, int] | None:
    """A process's state letter and its start in clock ticks since boot; None if no process has this id."""
    try:
        stat = Path(f"{PROC}/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else (fields[0], int(fields[19]))


def is_hidden(pid: int) -> bool:
    """True if the process exists but `/proc` hides it, as with `hidepid`, because it belongs to another user."""
    if os.path.exists(f"{PROC}/{pid}"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


@cache
def _space() -> str:
    """What writers that this process can look for have as their `pid_space`; "" if it can look for none."""
    try:
        if os.readlink(f"{PROC}/self") != str(os.getpid()):  # a /proc of another namespace
            return ""
    except OSError:
        return ""
    return f"{boot()} {namespace()}" if boot() and namespace() else ""


def has_ended(pid_space: str, pid: int) -> bool:
    """True if it is certain that the process of a writer has ended: its id counts among the processes that this one
    sees, and none of them has it. If another process has got the id since, that is not noticed.
    """
    if not pid_space or pid <= 0 or pid_space != _space():
        return False
    return state(pid) is None and not is_hidden(pid) and not _has_threads(pid)


def _has_threads(pid: int) -> bool:
    """True if a process goes on without its first thread, whose end alone makes it look like a zombie."""
    try:
        return len(os.listdir(f"{PROC}/{pid}/task")) > 1
    except OSError:
        return False
