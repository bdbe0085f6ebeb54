"""Real threads and locks, even if gevent has put greenlets in their place.

A greenlet that waits for the disk would stop the whole job, and one that never gets its turn would write nothing.
"""

from __future__ import annotations

import select
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    RLock: TypeAlias = threading.RLock


def _patched() -> Any:
    """gevent's module that knows the original classes, or None if gevent has replaced nothing."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey if monkey is not None and monkey.is_module_patched("threading") else None


def lock() -> threading.Lock:
    """A real `threading.Lock`."""
    monkey = _patched()
    return (monkey.get_original("threading", "Lock") if monkey else threading.Lock)()


def reentrant_lock() -> threading.RLock:
    """A real `threading.RLock`."""
    monkey = _patched()
    return (monkey.get_original("threading", "RLock") if monkey else threading.RLock)()


def start(target: Callable[[], None]) -> None:
    """Run `target` in a real daemon thread. Raises RuntimeError if the system has no thread left."""
    monkey = _patched()
    if monkey:
        monkey.get_original("_thread", "start_new_thread")(target, ())
    else:
        threading.Thread(target=target, name="rlship", daemon=True).start()


def takes_text(fd: int) -> bool:
    """True if a page can be written to a descriptor at once: not to a pipe that is full or has no reader."""
    monkey = _patched()
    poll = (monkey.get_original("select", "poll") if monkey else select.poll)()
    poll.register(fd, select.POLLOUT)
    found = poll.poll(0)
    return bool(found) and not found[0][1] & (select.POLLERR | select.POLLHUP)
