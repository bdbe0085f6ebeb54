"""A clock for tests."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """A clock that moves only when a test moves it: by `sleep`, or by setting `now`."""

    def __init__(self, now: float = 1000.0, on_sleep: Callable[[], object] | None = None) -> None:
        self.now = now
        self.slept = 0.0
        self.on_sleep = on_sleep

    def __call__(self) -> float:
        """The time in seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass, then call `on_sleep`."""
        self.now += seconds
        self.slept += seconds
        if self.on_sleep is not None:
            self.on_sleep()
