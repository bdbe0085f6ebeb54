"""Looks that may never return, each on a thread of its own, so that a hung driver or share stops nothing else."""

from __future__ import annotations

import time

from .. import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Repeated:
    """Calls `look()` every `interval_s` seconds on a daemon thread, without drift, and keeps its last result but None.

    Calls `failed(error)` for each exception. `stop` ends it without waiting for a call that hangs.
    """

    def __init__(
        self,
        look: Callable[[], Any],
        interval_s: float,
        failed: Callable[[Exception], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._interval_s = interval_s
        self._failed = failed
        self._clock = clock
        self._wake = threads.lock()
        self._wake.acquire()
        self._ended = threads.lock()
        self._ended.acquire()
        self._started = False
        self._stopped = False
        self.returned = False  # a call has returned, or raised
        self._began: float | None = None
        self._kept: Any = None
        self._news: Any = None

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if no thread can be started."""
        threads.start(self._run)
        self._started = True

    def stop(self) -> None:
        """End the thread after its current call."""
        if not self._stopped:
            self._stopped = True
            self._wake.release()

    def ended(self, timeout_s: float) -> bool:
        """True if the thread has ended, or ends within `timeout_s` seconds."""
        if not self._started:
            return True
        if not self._ended.acquire(timeout=timeout_s):
            return False
        self._ended.release()
        return True

    @property
    def hangs_s(self) -> float:
        """How long the current call has been running; 0 between calls."""
        began = self._began
        return 0.0 if began is None else self._clock() - began

    def take(self) -> Any:
        """The last call's result, only once."""
        news, self._news = self._news, None
        return news

    def latest(self) -> Any:
        """The last call's result, however old; None before the first."""
        return self._kept

    def _run(self) -> None:
        due = Due(self._interval_s, self._clock)
        while not self._stopped:
            self._began = self._clock()
            try:
                found = self._look()
                if found is not None:  # None: nothing is new
                    self._kept = self._news = found
            except Exception as error:  # noqa: BLE001 - any error is reported, and the other looks go on
                self._failed(error)
            self._began, self.returned = None, True
            if not self._stopped:
                self._wake.acquire(timeout=due.left())
        self._ended.release()


class Due:
    """The schedule of a loop: every `interval_s` seconds from the start on, without drift. A late round begins at once;
    missed rounds are not made up for.
    """

    def __init__(self, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._start = clock()
        self._round = 0

    def left(self) -> float:
        """Seconds until the next round begins, 0 or more."""
        passed = self._clock() - self._start
        self._round = max(self._round + 1, int(passed / self._interval_s))
        return max(0.0, self._start + self._round * self._interval_s - self._clock())
