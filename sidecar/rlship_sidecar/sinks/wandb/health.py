"""Detects that the client of this process no longer works: it often fails without a sign in its API."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

from rlship_sidecar.sinks.wandb.protocol import ParentPipe, last_word

HEALTH_S = 1.0
STOPPED_S = 5.0
FATAL_MARK = b"filestream: fatal error"

Check = Callable[[], str]


def watch(parent: ParentPipe, broken: list[Check], worn: Check) -> None:
    """Run every check once a second, in a thread.

    The first complaint of `broken` ends the process. So does one of `worn`, which only means that it is time for a new
    process.
    """

    def look() -> None:
        while True:
            for check in broken:
                problem = check()
                if problem:
                    parent.end({"unavailable": f"sink wandb: {problem}"})
            why = worn()
            if why:
                parent.end({"reopen": f"sink wandb: {why}"})
            time.sleep(HEALTH_S)

    def look_or_end() -> None:
        try:
            look()
        except BaseException as problem:  # noqa: BLE001 - without this thread a broken client would go unnoticed
            parent.end(last_word(problem))

    threading.Thread(target=look_or_end, name="health", daemon=True).start()


def core_pid() -> int | None:
    """The process id of this process's wandb-core, or None."""
    return next((child.pid for child in psutil.Process().children() if "wandb" in child.name()), None)


def core_death(pid: int | None, *, clock: Callable[[], float] = time.monotonic) -> Check:
    """A check that complains once the process is gone, or has been stopped (SIGSTOP, a debugger) for `STOPPED_S`."""
    stopped_at: float | None = None

    def dead() -> str:
        nonlocal stopped_at
        if pid is None:
            return ""
        try:
            status = psutil.Process(pid).status()
        except psutil.NoSuchProcess:
            status = psutil.STATUS_ZOMBIE
        if status == psutil.STATUS_ZOMBIE:
            return "wandb-core is gone"
        if status not in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
            stopped_at = None
            return ""
        stopped_at = clock() if stopped_at is None else stopped_at
        return f"wandb-core is stopped (process {pid})" if clock() - stopped_at >= STOPPED_S else ""

    return dead


def fatal_in(log: Path) -> Check:
    """A check for a line in the client's own log: the only sign that the server rejects history for good."""
    read = 0

    def fatal() -> str:
        nonlocal read
        if not log.exists():
            return ""
        with open(log, "rb") as file:
            file.seek(read)
            text = file.read()
        found = text.find(FATAL_MARK)
        if found < 0:
            read += max(0, len(text) - len(FATAL_MARK))
            return ""
        return "the client gave up sending history: " + text[found:].split(b"\n", 1)[0].decode("utf-8", "replace")[:300]

    return fatal


def grown(file: Path, max_file_bytes: int, beside: Callable[[], int] = lambda: 0) -> Check:
    """A check that complains once the client's own file of the run is this large: it holds all rows since the client
    started.

    `beside` returns how many bytes of other files it has made.
    """

    def large() -> str:
        size = (file.stat().st_size if file.exists() else 0) + beside()
        return (
            f"the client's files have grown to {size} bytes: a new client begins new ones"
            if size > max_file_bytes
            else ""
        )

    return large
