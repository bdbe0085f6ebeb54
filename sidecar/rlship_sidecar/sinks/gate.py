"""How many sinks of a kind may start at once, where starting one is expensive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STARTING_S = 20.0  # longer than any start takes CPU: who is not through by then waits for a server


class Gate:
    """Lets `most` in at a time. It never makes a caller wait: who is refused asks again later.

    The place of a start that lasts longer than `STARTING_S` is given to others. So a server that answers nothing
    holds up no other sink.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._inside: dict[int, float] = {}

    def enter(self, who: int) -> bool:
        """Whether `who`, a number of the caller's own, may start now; then `leave` has to follow."""
        with self._lock:
            now = self._clock()
            starting = sum(now - since < STARTING_S for since in self._inside.values())
            if starting >= self._most:
                return False
            self._inside[who] = now
            return True

    def leave(self, who: int) -> None:
        """The start is over, however it ended."""
        with self._lock:
            self._inside.pop(who, None)
