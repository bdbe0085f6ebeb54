"""Which rows may have changed, and which of them are revised now. Steps and stream units share it. Pure.

A unit is *dirty* from the moment when something that its row was made of may have changed, until the row is made again
from the files. Marking one too many costs a look into the files, for a row that comes out equal is no revision. Marking
one too few leaves a wrong row for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from rlship_sidecar.align.units import MAX_KEPT
from rlship_sidecar.rows import Unit


@dataclass(slots=True)
class Dirty:
    """A unit whose row may have changed `since` then; `partial`: the row lacks ranks."""

    since: float
    partial: bool


class Revisions:
    """The dirty units of one actor, in the order in which they became dirty.

    `unsaved` are those whose marks the store lacks. They have to be committed together with the positions of the lines
    that made them dirty: a kill between the two would lose the revision.
    """

    def __init__(self, revise_s: float) -> None:
        self.dirty: dict[Unit, Dirty] = {}
        self.unsaved: set[Unit] = set()
        self._revise_s = revise_s
        self._revised_at: dict[Unit, float] = {}

    def mark_dirty(self, unit: Unit, since: float, *, partial: bool = False) -> None:
        """A unit's row may have changed; `partial`: it lacks ranks now."""
        dirty = self.dirty.get(unit)
        if dirty is None:
            self.dirty[unit] = Dirty(since, partial)
            self.unsaved.add(unit)
        else:
            dirty.since = min(dirty.since, since)

    def restore(self, unit: Unit, since: float, *, partial: bool = False) -> None:
        """The store says that a unit is dirty."""
        self.dirty[unit] = Dirty(since, partial)

    def clear(self) -> None:
        """Forget every mark."""
        self.dirty.clear()
        self.unsaved.clear()

    def due(
        self, now: float, *, end: bool = False, complete: Callable[[Unit], bool] = lambda unit: False
    ) -> list[Unit]:
        """The units to revise now, in order, at most MAX_KEPT.

        A unit is revised at most every `revise_s`, so that lines which trickle in make one revision and not many. One
        is due at once where that makes a partial row `complete`, or where a complete row was not revised lately.
        `end`: all are due.
        """
        self._revised_at = {unit: at for unit, at in self._revised_at.items() if now - at < self._revise_s}
        # Bounded, because a clock record or a restart can make every unit of a long job dirty.
        oldest = islice(self.dirty.items(), 4 * MAX_KEPT)
        found = (unit for unit, dirty in oldest if end or self._is_due(unit, dirty, now, complete))
        return sorted(islice(found, MAX_KEPT))

    def _is_due(self, unit: Unit, dirty: Dirty, now: float, complete: Callable[[Unit], bool]) -> bool:
        recent = unit in self._revised_at
        if not recent and now - dirty.since >= self._revise_s:
            return True
        return (dirty.partial or not recent) and complete(unit)

    def done(self, unit: Unit, now: float) -> None:
        """A dirty unit's row was made again."""
        del self.dirty[unit]
        self._revised_at[unit] = now

    def forget(self, unit: Unit) -> bool:
        """A unit became a row just now. Returns whether it was dirty."""
        return self.dirty.pop(unit, None) is not None
