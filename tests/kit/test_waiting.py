"""Waiting, and the clock that tests set."""

from __future__ import annotations

import pytest

from tests.kit.clocks import Clock
from tests.kit.waiting import wait_until


def test_a_wait_ends_with_its_condition() -> None:
    """It asks until the condition holds, and says how long that took."""
    left = [3]

    def ready() -> bool:
        left[0] -= 1
        return left[0] == 0

    assert 0.0 < wait_until(ready) < 30.0
    assert left == [0]


def test_a_wait_in_vain_says_what_for() -> None:
    """The message has the time and what was awaited; a description is asked for only then."""
    with pytest.raises(AssertionError, match=r"^not within 0\.05 s: a row$"):
        wait_until(lambda: False, "a row", timeout_s=0.05)
    with pytest.raises(AssertionError, match=r"\['half'\]$"):
        wait_until(lambda: False, lambda: ["half"], timeout_s=0.0)
    wait_until(lambda: True, lambda: 1 / 0)


def test_a_condition_may_end_a_wait() -> None:
    """What it raises is raised."""
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)


def test_a_clock_moves_only_when_it_is_moved() -> None:
    """By sleeping, which is counted and may do something, and by setting it."""
    seen: list[float] = []
    clock = Clock(5.0, on_sleep=lambda: seen.append(clock.now))
    clock.sleep(2.0)
    assert (clock(), clock.slept, seen) == (7.0, 2.0, [7.0])
    clock.now = 1.0
    assert clock() == 1.0
