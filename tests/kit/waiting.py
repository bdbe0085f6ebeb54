"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

# Much more than anything takes on an idle machine: a test must not depend on load.
TIMEOUT_S = 60.0
POLL_S = 0.01


def wait_until(
    condition: Callable[[], object], what: str | Callable[[], object] = "the condition", *, timeout_s: float = TIMEOUT_S
) -> float:
    """Wait until `condition()` is true; returns the seconds it took.

    After `timeout_s` it raises an AssertionError with `what` was awaited: a text, or a function that describes the
    state at that time. A condition may raise to end the wait early, for instance when a process has ended.
    """
    began = asked = time.monotonic()
    while not condition():
        answered = time.monotonic()
        if answered - began > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        # A condition that reads much leaves the cores to what it waits for most of the time.
        time.sleep(max(POLL_S, 3 * (answered - asked)))
        asked = time.monotonic()
    return time.monotonic() - began
