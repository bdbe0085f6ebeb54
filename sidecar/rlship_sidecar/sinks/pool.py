"""A few threads that ship for all experiments and sinks.

A task is one sink of one experiment. Its `step` takes one due step, and returns when the next one is due. A lane holds
the tasks of one kind of sink. So a server that never answers delays no file sink.

Within a lane at most `WIDTH` threads work, and one waits. A call that has blocked for `STUCK_S` no longer counts as
work: the waiting thread takes the next task, and another one waits. So one hung disk does not delay the other
experiments of its lane either, until `MAX_THREADS` calls hang. An idle thread ends after `LINGER_S`. If the system
allows no further thread, tasks wait, and `shortage` gives the reason. Every later `schedule` tries again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

WIDTH = 4
MAX_THREADS = 32
STUCK_S = 5.0
LINGER_S = 5.0


class PoolTask(Protocol):
    """A task of a lane. One thread runs it at a time, not always the same one."""

    @property
    def name(self) -> str:
        """The lane."""

    def step(self) -> float | None:
        """Take one due step. Returns the seconds until the next one; None if the task waits for `schedule`."""


class Lane:
    """The tasks of one kind of sink, and the threads that run them."""

    def __init__(self, name: str, *, width: int = WIDTH, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.shortage = ""
        self._width = width
        self._clock = clock
        self._change = threading.Condition()
        self._due: dict[PoolTask, float] = {}
        self._running: dict[PoolTask, float] = {}  # when each task began
        self._again: set[PoolTask] = set()  # scheduled while they ran
        self._threads = 0
        self._waiting = 0  # the number of threads without a task

    def schedule(self, task: PoolTask) -> None:
        """Run a task as soon as a thread is free; once more if it is running now. Never waits."""
        with self._change:
            if task in self._running:
                self._again.add(task)
                return
            self._due[task] = self._clock()
            self._staff()
            self._change.notify_all()

    def withdraw(self, task: PoolTask) -> bool:
        """Stop running a task. False if it is running now."""
        with self._change:
            self._due.pop(task, None)
            self._again.discard(task)
            return task not in self._running

    def _staff(self) -> None:
        """Make sure that a thread waits for the next due task."""
        if self._waiting or self._threads >= MAX_THREADS:
            return
        thread = threading.Thread(target=self._work, name=f"rlship-{self.name}", daemon=True)
        self._threads += 1
        self._waiting += 1
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            self._threads -= 1
            self._waiting -= 1
            self.shortage = f"waits for a free thread ({error}): raise ulimit -u, or the TasksMax of the service"
            return
        self.shortage = ""

    def _work(self) -> None:
        while (task := self._take()) is not None:
            wait: float | None = None
            whole = False
            try:
                wait = task.step()
                whole = True
            finally:
                with self._change:
                    self._put_back(task, wait)
                    if whole:
                        self._waiting += 1
                    else:  # a bug in rlship ends this thread; the next `schedule` starts another
                        self._threads -= 1

    def _put_back(self, task: PoolTask, wait: float | None) -> None:
        del self._running[task]
        if task in self._again:
            self._again.discard(task)
            wait = 0.0
        if wait is not None:
            self._due[task] = self._clock() + wait
        self._change.notify_all()

    def _take(self) -> PoolTask | None:
        """Wait for a task that is due and may run now. None: the thread should end."""
        with self._change:
            idle_since = self._clock()
            while True:
                now = self._clock()
                task, wait = self._first(now)
                if task is not None:
                    del self._due[task]
                    self._running[task] = now
                    self._waiting -= 1
                    if self._due:
                        self._staff()
                    return task
                lingered = now - idle_since >= LINGER_S
                if lingered and (self._waiting > 1 or not self._due):
                    self._waiting -= 1
                    self._threads -= 1
                    return None
                self._change.wait(LINGER_S if wait is None else min(wait, LINGER_S))

    def _first(self, now: float) -> tuple[PoolTask | None, float | None]:
        """The task to run now; otherwise the seconds until one may be due."""
        if not self._due:
            return None, None
        working = [since for since in self._running.values() if now - since < STUCK_S]
        if len(working) >= self._width:
            return None, min(working) + STUCK_S - now
        task = min(self._due, key=self._due.__getitem__)
        wait = self._due[task] - now
        return (task, None) if wait <= 0 else (None, wait)


class Pool:
    """The lanes, by kind of sink."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}

    def lane(self, name: str) -> Lane:
        """The lane of a kind of sink."""
        with self._lock:
            return self._lanes.setdefault(name, Lane(name))


POOL = Pool()
