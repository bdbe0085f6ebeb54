"""Errors for a lack of descriptors, threads or memory, which waiting cures."""

from __future__ import annotations

import errno
import os
import sqlite3

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
WAITS_FOR_DESCRIPTORS = "waits for free file descriptors: raise ulimit -n, or LimitNOFILE of the service"
WAITS_FOR_THREADS = "waits for free threads or processes: raise ulimit -u, or TasksMax of the service"
WAITS_FOR_MEMORY = "waits for free memory: give the sidecar more"


def is_shortage(error: BaseException) -> bool:
    """True if the error means that the system has no descriptor, thread or memory to give now."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    if isinstance(error, sqlite3.OperationalError):
        # SQLite has one message for every file that it cannot open.
        return "out of memory" in str(error) or ("unable to open" in str(error) and not _gives_descriptors())
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "new thread" in str(error))


def _gives_descriptors(count: int = 4) -> bool:
    """True if the system gives a few descriptors now."""
    given: list[int] = []
    try:
        given.extend(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(count))
    except OSError:
        return False
    finally:
        for fd in given:
            os.close(fd)
    return True


def what_to_raise(error: BaseException) -> str:
    """Describe what an experiment waits for after a shortage, and how to provide more."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return WAITS_FOR_DESCRIPTORS
    if isinstance(error, sqlite3.OperationalError) and "memory" not in str(error):
        return WAITS_FOR_DESCRIPTORS
    if isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno == errno.EAGAIN):
        return WAITS_FOR_THREADS
    return WAITS_FOR_MEMORY
