"""A few threads that look at files of a network filesystem, where each call takes as long as the server does.

A thread only opens and reads; it decides and applies nothing. A look that has taken `HANGS_S` does not count as work
any more: another thread takes its place, up to `THREADS` of them. The threads are daemons, so a call that never returns
holds up neither the other files nor the end of the process.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

THREADS = 32
HANGS_S = 2.0
CLOSE_S = 1.0


class Look(Generic[T]):
    """One call, for a thread to make. Once `is_done`, either `error` is set or `result` holds."""

    __slots__ = ("_work", "began_at", "error", "is_done", "is_urgent", "result")

    def __init__(self, work: Callable[[], T], *, is_urgent: bool) -> None:
        self._work = work
        self.is_urgent = is_urgent
        self.began_at: float | None = None
        self.is_done = False
        self.error: BaseException | None = None
        self.result: T | None = None

    def run(self) -> None:
        """Make the call."""
        self.began_at = time.monotonic()
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - the thread that asked raises it
            self.error = error
        self.is_done = True

    def hung_s(self, now: float) -> float:
        """Seconds since the call began, if it has not returned for `HANGS_S`; else 0."""
        taken_s = 0.0 if self.is_done or self.began_at is None else now - self.began_at
        return taken_s if taken_s >= HANGS_S else 0.0


class Looks:
    """The threads. One thread asks and collects; `close` ends them."""

    def __init__(self, threads: int = THREADS) -> None:
        self._most = threads
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()  # one for each look, or False to end a thread
        self._urgent: deque[Look[object]] = deque()
        self._todo: deque[Look[object]] = deque()
        self._at_work: dict[threading.Thread, Look[object]] = {}
        self._threads: list[threading.Thread] = []
        self._went_idle = threading.Event()

    @property
    def is_one_of_them(self) -> bool:
        """True in one of the threads, which makes further calls itself: threads that wait for threads may lack some."""
        return threading.current_thread() in self._at_work

    def begin(self, work: Callable[[], T], *, urgent: bool = False) -> Look[T]:
        """Have a thread make this call; an `urgent` one before those that wait."""
        look = Look(work, is_urgent=urgent)
        (self._urgent if urgent else self._todo).append(look)  # type: ignore[arg-type]
        self._tokens.put(True)
        if len(self._threads) < self._most:
            self._staff()
        return look

    def _staff(self) -> None:
        waiting = len(self._todo) + len(self._urgent)
        free = len(self._threads) - len(self._at_work)
        if free >= waiting:
            return
        now = time.monotonic()
        hung = sum(1 for look in list(self._at_work.values()) if look.hung_s(now))
        if len(self._threads) >= self._most + min(hung, self._most):
            return
        thread = threading.Thread(target=self._run, name="rlship-look", daemon=True)
        with suppress(RuntimeError):  # no further thread is allowed: those that there are do it
            thread.start()
            self._threads.append(thread)
        if not self._threads:
            self._one()

    def _run(self) -> None:
        me = threading.current_thread()
        while self._tokens.get():
            look = self._next()
            if look is None:
                continue
            self._at_work[me] = look
            look.run()
            del self._at_work[me]
            if look.is_urgent or not (self._todo or self._urgent):
                self._went_idle.set()

    def _one(self) -> None:
        """Make one call in the thread that asked."""
        look = self._next()
        if look is not None:
            look.run()

    def _next(self) -> Look[object] | None:
        for waiting in (self._urgent, self._todo):
            with suppress(IndexError):
                return waiting.popleft()
        return None

    def wait(self, looks: Sequence[Look[T]], timeout_s: float) -> bool:
        """Wait until each of these is done or hangs, for at most `timeout_s`. Returns True if all are done."""
        deadline = time.monotonic() + timeout_s
        left = [look for look in looks if not look.is_done]
        while left:
            now = time.monotonic()
            if now >= deadline or all(look.hung_s(now) for look in left):
                return False
            self._staff()  # those at work may have come to hang
            self._went_idle.clear()
            left = [look for look in left if not look.is_done]
            if left:
                self._went_idle.wait(min(deadline - now, 0.1))
                left = [look for look in left if not look.is_done]
        return True

    def close(self) -> int:
        """End the threads. Returns how many hang, and end only with the process or once their call returns."""
        self._todo.clear()
        self._urgent.clear()
        for _ in self._threads:
            self._tokens.put(False)
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)


def begin(looks: Looks | None, work: Callable[[], T]) -> Look[T]:
    """Have a thread of `looks` make this call before those that wait; without looks, make it now."""
    if looks is not None:
        return looks.begin(work, urgent=True)
    look = Look(work, is_urgent=True)
    look.run()
    return look


class Repeated(Generic[T]):
    """A call that is made again and again by a thread of `looks`, once at a time; without looks, by the caller.

    The call takes the time and `force`, and returns None if nothing is due.
    """

    def __init__(self, call: Callable[..., T | None], looks: Looks | None) -> None:
        self._call = call
        self._looks = looks
        self._look: Look[T | None] | None = None

    def __call__(self, now: float, *, force: bool, wait_s: float, **given: object) -> T | None:
        """What it found, or None. If it takes longer than `wait_s`, a later call returns what it found.

        With `force`, it begins now, and this waits until it is done or hangs. `given` goes to the call. Raises what the
        call raises.
        """
        if self._looks is None:
            return self._call(now, force=force, **given)
        look = self._look
        if look is not None and force and self._looks.wait([look], math.inf):
            look = None  # it began before this
        if look is None:
            look = self._look = self._looks.begin(partial(self._call, now, force=force, **given), urgent=True)
        if not self._looks.wait([look], math.inf if force else wait_s):
            return None
        self._look = None
        if look.error is not None:
            raise look.error
        return look.result

    def hung_s(self, now: float) -> float:
        """Seconds since the call began if it hangs, else 0."""
        return 0.0 if self._look is None else self._look.hung_s(now)

    def is_working(self, now: float) -> bool:
        """True while the call is under way and does not hang."""
        return self._look is not None and not self._look.hung_s(now)
