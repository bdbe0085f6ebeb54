"""Limits how many samples of a step a writer keeps, so that samples never fill the disk."""

from __future__ import annotations

import os

from .records import event_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # Samples without a step share a quota for ten seconds; the key is then negative.
    Key: TypeAlias = int

BYTES_PER_STEP = 1 << 20
_WINDOW_S = 10.0
_MAX_STEPS = 64


def priority() -> float:
    """A random number in [0, 1), of 53 bits.

    From the system and not from `random`: importing that is slow, the job owns its state, and a fork would repeat it.
    """
    return (int.from_bytes(os.urandom(7), "big") >> 3) * 2.0**-53


class Dropped:
    """The samples dropped of one step (None: without a step): their number, and the smallest `pri` of them."""

    __slots__ = ("n", "pri", "step")

    def __init__(self, step: int | None) -> None:
        self.step = step
        self.n = 0
        self.pri = 1.0

    def line(self, t: float) -> str:
        """The event that reports it."""
        return event_line("samples_dropped", {"n": self.n, "pri": self.pri}, self.step, t)


class _Use:
    __slots__ = ("dropped", "kept", "offered", "used")

    def __init__(self, step: int | None) -> None:
        self.used = self.kept = self.offered = 0
        self.dropped = Dropped(step)

    def take_dropped(self) -> Dropped | None:
        """The samples dropped since the last call, or None."""
        before = self.dropped
        if not before.n:
            return None
        self.dropped = Dropped(before.step)
        return before


class Quota:
    """At most about `budget` bytes of samples for each step.

    The first half of the budget is for the first samples. After that the threshold for `pri` falls as samples come and
    as the budget is used. The fair random few of a step are those with the smallest `pri`; they pass at any number of
    samples. Whether a sample is kept does not depend on its length.
    """

    def __init__(self, budget: int = BYTES_PER_STEP) -> None:
        self._budget = budget
        self.uses: dict[Key, _Use] = {}  # empty if no step has samples that a barrier has to settle
        self._newest: Key | None = None

    def admits(self, step: int | None, t: float, pri: float) -> bool:
        """True if a sample of `pri` at time `t` is to be kept; otherwise counts it."""
        key = -1 - int(t // _WINDOW_S) if step is None else step
        use = self.uses.get(key)
        if use is None:
            use = self.uses.setdefault(key, _Use(step))
            self._newest = key
        use.offered += 1
        if use.used * 2 < self._budget:
            return True
        # Admit a quarter of the samples that still fit, so that the rest of the budget lasts for very many more.
        fit = (self._budget - use.used) * use.kept / use.used
        if pri * use.offered * 4 < fit:
            return True
        dropped = use.dropped
        dropped.n += 1
        dropped.pri = min(dropped.pri, pri)
        return False

    def spend(self, step: int | None, t: float, size: int) -> None:
        """Count `size` bytes of a kept sample."""
        use = self.uses.get(-1 - int(t // _WINDOW_S) if step is None else step)
        if use is not None:
            use.used += size
            use.kept += 1

    def settle(self, upto: int | None) -> list[Dropped]:
        """The unreported drops of steps up to `upto` (None: of all samples). Forgets these steps."""
        due = [key for key in [*self.uses] if upto is None or 0 <= key <= upto]
        return self._take_dropped([use for key in due if (use := self.uses.pop(key, None)) is not None])

    def passed(self) -> list[Dropped]:
        """The unreported drops of lower steps than the new one, or of the ten seconds before. Those may continue."""
        newest, self._newest = self._newest, None
        if newest is None:
            return []
        keys = [*self.uses]
        many = set(keys[: max(0, len(keys) - _MAX_STEPS)])
        behind = [key for key in keys if key in many or (newest < key < 0 if newest < 0 else 0 <= key < newest)]
        found = self._take_dropped([use for key in behind if (use := self.uses.get(key)) is not None])
        for key in many:
            self.uses.pop(key, None)
        return found

    def _take_dropped(self, uses: list[_Use]) -> list[Dropped]:
        return [dropped for use in uses if (dropped := use.take_dropped()) is not None]
