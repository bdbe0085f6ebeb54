"""The shared threads that ship: how few they are, and that a call that hangs holds up no other task."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from rlship_sidecar.sinks import pool
from rlship_sidecar.sinks.gate import STARTING_S, Gate
from rlship_sidecar.sinks.pool import Lane
from tests.kit.clocks import Clock
from tests.kit.waiting import wait_until


class Job:
    """A task that counts its steps, and does what it is given at each."""

    name = "fake"

    def __init__(self, do: Callable[[], float | None] = lambda: None) -> None:
        self.steps = 0
        self.done = threading.Event()
        self._do = do

    def step(self) -> float | None:
        self.steps += 1
        try:
            return self._do()
        finally:
            self.done.set()


def at_work(lane: Lane) -> int:
    """How many threads a lane has."""
    return sum(thread.name == f"rlship-{lane.name}" for thread in threading.enumerate())


def test_many_tasks_share_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred tasks run on at most `width` threads and one that waits, and no thread is left once there is no
    work.
    """
    monkeypatch.setattr(pool, "LINGER_S", 0.05)
    lane, most = Lane("crowd", width=3), list[int]()

    def note() -> None:
        most.append(at_work(lane))

    jobs = [Job(note) for _ in range(100)]
    for job in jobs:
        lane.schedule(job)
    assert all(job.done.wait(10.0) for job in jobs)
    assert max(most) <= 4
    wait_until(lambda: at_work(lane) == 0)
    lane.schedule(jobs[0])
    wait_until(lambda: jobs[0].steps == 2)


def test_calls_that_hang_hold_up_no_other_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all threads of a lane hang, others take their place after a while."""
    monkeypatch.setattr(pool, "STUCK_S", 0.1)
    lane, release = Lane("hanging", width=2), threading.Event()

    def hang() -> None:
        release.wait(30.0)

    stuck = [Job(hang) for _ in range(6)]
    try:
        for job in stuck:
            lane.schedule(job)
        healthy = Job()
        lane.schedule(healthy)
        assert healthy.done.wait(10.0)
    finally:
        release.set()
    wait_until(lambda: all(job.done.is_set() for job in stuck))


def test_a_task_is_run_when_it_said_and_once_more_if_it_was_scheduled_meanwhile() -> None:
    """A pause that a task asks for is kept, unless it is scheduled; while it runs, that counts for after it."""
    lane, inside, go_on = Lane("timed"), threading.Event(), threading.Event()

    def pause() -> float:
        inside.set()
        go_on.wait(10.0)
        return 600.0

    job = Job(pause)
    lane.schedule(job)
    assert inside.wait(10.0)
    lane.schedule(job)
    go_on.set()
    wait_until(lambda: job.steps == 2)
    time.sleep(0.05)
    assert job.steps == 2
    lane.schedule(job)
    wait_until(lambda: job.steps == 3)
    assert lane.withdraw(job)
    quick = Job(lambda: 0.01)
    lane.schedule(quick)
    wait_until(lambda: quick.steps >= 3)
    lane.withdraw(quick)


def test_without_a_thread_tasks_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says is reported; the next `schedule` tries again."""
    lane, job, start = Lane("poor"), Job(), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    lane.schedule(job)
    assert "raise ulimit -u" in lane.shortage and "can't start new thread" in lane.shortage
    monkeypatch.setattr(threading.Thread, "start", start)
    lane.schedule(job)
    assert job.done.wait(10.0) and lane.shortage == ""


def test_a_gate_lets_few_in_and_gives_the_place_of_slow_ones_away() -> None:
    """At most so many start at a time; a start that takes too long counts no more."""
    clock = Clock()
    gate = Gate(2, clock)
    assert gate.enter(1) and gate.enter(2) and not gate.enter(3)
    gate.leave(1)
    assert gate.enter(3) and not gate.enter(4)
    clock.sleep(STARTING_S)
    assert gate.enter(4) and gate.enter(5) and not gate.enter(6)
