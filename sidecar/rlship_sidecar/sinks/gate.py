"""Limits how many sinks of a kind start at once, because starting one is expensive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STARTING_S = 20.0  # longer than any start uses CPU: after that it only waits for a server


class Gate:
    """Lets `most` callers in at a time. It never makes a caller wait: a refused caller tries again later.

    A start that lasts longer than `STARTING_S` loses its place to others. So a server that never answers delays no
    other sink.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._inside: dict[int, float] = {}

    def enter(self, caller: int) -> bool:
        """Whether `caller`, a number that the caller chose, may start now; then it has to call `leave`."""
        with self._lock:
            now = self._clock()
            starting = sum(now - since < STARTING_S for since in self._inside.values())
            if starting >= self._most:
                return False
            self._inside[caller] = now
            return True

    def leave(self, caller: int) -> None:
        """The start is over, whether it failed or not."""
        with self._lock:
            self._inside.pop(caller, None)
