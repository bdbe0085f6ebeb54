"""How many samples of a step a writer keeps, so that samples never fill the disk."""

from __future__ import annotations

import os

from .records import event_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # Of samples without a step, those of ten seconds share a quota; the key is then negative.
    Key: TypeAlias = int

BYTES_PER_STEP = 1 << 20
_WINDOW_S = 10.0
_MAX_STEPS = 64


def priority() -> float:
    """A random number in [0, 1), of 53 bits.

    From the system and not from `random`: importing that is slow, its state is the job's, and a fork would repeat it.
    """
    return (int.from_bytes(os.urandom(7), "big") >> 3) * 2.0**-53


class Dropped:
    """What was dropped of one step (None: of samples without one): how many, and the smallest `pri` of them."""

    __slots__ = ("n", "pri", "step")

    def __init__(self, step: int | None) -> None:
        self.step = step
        self.n = 0
        self.pri = 1.0

    def line(self, t: float) -> str:
        """The event that tells it."""
        return event_line("samples_dropped", {"n": self.n, "pri": self.pri}, self.step, t)


class _Use:
    __slots__ = ("dropped", "kept", "offered", "used")

    def __init__(self, step: int | None) -> None:
        self.used = self.kept = self.offered = 0
        self.dropped = Dropped(step)

    def told(self) -> Dropped | None:
        """What was dropped since the last time."""
        before = self.dropped
        if not before.n:
            return None
        self.dropped = Dropped(before.step)
        return before


class Quota:
    """At most about `budget` bytes of samples for each step.

    The first half of the budget is for the first samples. After that the threshold for `pri` goes down as samples come
    and as the budget is used. The fair random few of a step are those with the smallest `pri`; they come through
    however many there are. Whether a sample is kept does not depend on how long it is.
    """

    def __init__(self, budget: int = BYTES_PER_STEP) -> None:
        self._budget = budget
        self._uses: dict[Key, _Use] = {}
        self._newest: Key | None = None

    def admits(self, step: int | None, t: float, pri: float) -> bool:
        """Whether to keep a sample of `pri`, which comes at `t`; one that is not is counted."""
        key = -1 - int(t // _WINDOW_S) if step is None else step
        use = self._uses.get(key)
        if use is None:
            use = self._uses.setdefault(key, _Use(step))
            self._newest = key
        use.offered += 1
        if use.used * 2 < self._budget:
            return True
        # A quarter of those that still fit, of as many as there were: what is left lasts for very many.
        fit = (self._budget - use.used) * use.kept / use.used
        if pri * use.offered * 4 < fit:
            return True
        dropped = use.dropped
        dropped.n += 1
        dropped.pri = min(dropped.pri, pri)
        return False

    def spend(self, step: int | None, t: float, size: int) -> None:
        """Count `size` bytes of a sample that is kept."""
        use = self._uses.get(-1 - int(t // _WINDOW_S) if step is None else step)
        if use is not None:
            use.used += size
            use.kept += 1

    def settle(self, upto: int | None) -> list[Dropped]:
        """What was dropped of steps up to `upto` (None: all samples) and not reported yet. Forgets these steps."""
        due = [key for key in [*self._uses] if upto is None or 0 <= key <= upto]
        return self._told([use for key in due if (use := self._uses.pop(key, None)) is not None])

    def passed(self) -> list[Dropped]:
        """The same of what a new step leaves behind: lower steps, or the ten seconds before. Those may still go on."""
        newest, self._newest = self._newest, None
        if newest is None:
            return []
        keys = [*self._uses]
        many = set(keys[: max(0, len(keys) - _MAX_STEPS)])
        behind = [key for key in keys if key in many or (newest < key < 0 if newest < 0 else 0 <= key < newest)]
        found = self._told([use for key in behind if (use := self._uses.get(key)) is not None])
        for key in many:
            self._uses.pop(key, None)
        return found

    def _told(self, uses: list[_Use]) -> list[Dropped]:
        return [dropped for use in uses if (dropped := use.told()) is not None]
