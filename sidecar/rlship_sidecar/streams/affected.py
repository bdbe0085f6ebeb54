"""Which rows of streams a change can affect: every way in which they get dirty, in one place.

A row of a stream depends on more than its own lines. Their times are corrected by clock records, which may come later;
steps cover other times once a barrier of the lead comes late; and a rank is missing where nothing of it came after the
unit's end. So each change is put as the times that it concerns, before and after, and all closed units there are dirty.
Units beyond the frontier need no mark: they are made once, from everything that is known by then.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass

from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.align.revisions import Revisions
from rlship_sidecar.rows import ALIGNED, CLOCK, Unit
from rlship_sidecar.store.units import ActorUnits
from rlship_sidecar.streams.frontiers import Frontier
from rlship_sidecar.streams.timeline import Moved, Timeline


@dataclass(frozen=True, slots=True)
class AffectedRows:
    """Marks rows of one actor dirty. Times are Unix seconds on the common clock; `now` is monotonic."""

    units: ActorUnits
    timeline: Timeline
    frontier: Frontier
    revisions: Revisions
    window_s: float

    def at(self, t: float, now: float) -> None:
        """Something at a time is new, gone or other than before."""
        self.window(math.floor(t / self.window_s), now)
        self.step_at(t, now)

    def window(self, index: int, now: float) -> bool:
        """A window of time. Returns whether it is closed: else it has no row yet."""
        closed = self.frontier.covers(index)
        if closed:
            self.revisions.mark_dirty(Unit(self.units.actor, CLOCK, index), now)
        return closed

    def step_at(self, t: float, now: float) -> None:
        """The step that covers a time."""
        if t > self.frontier.end:
            return
        interval = self.timeline.covering(t)
        # Steps may share an end: only their order says whether this one is closed.
        if interval is not None and interval.place <= self.frontier.place:
            self._step(interval.step, now)

    def between(self, low: float, high: float, now: float, *, partial: bool = False) -> None:
        """Rows whose units end in low..high, or begin there; `partial`: only those that lack ranks.

        It is for what coverage depends on: a rank that was heard of up to `high` instead of `low` may be missing no
        more where a unit ends in between, and be expected where one begins.
        """
        self.windows_between(low, high, now, partial=partial)
        if low > self.frontier.end:
            return
        # The step that `high` is in begins before, but ends after it.
        behind = self.timeline.after((high, -1), 1) if high < math.inf else []
        for step in self.units.steps_ending(low, behind[0].end if behind else math.inf, partial=partial):
            self._step(step, now)

    def windows_between(self, low: float, high: float, now: float, *, partial: bool = False) -> None:
        """Windows of time that end or begin in low..high, and their neighbours, as ends are compared after rounding."""
        clock = self.frontier.clock
        first = -math.inf if low == -math.inf else math.floor(low / self.window_s) - 1
        last = math.inf if high == math.inf else math.floor(high / self.window_s) + 1
        near = clock is not None and low <= (clock + 1) * self.window_s
        # Mostly nothing is closed so far ahead; then the store is not asked.
        if not near and not any(first <= index <= last for index in self.frontier.ahead):
            return
        for index in self.units.windows_between(first, last, partial=partial):
            self.revisions.mark_dirty(Unit(self.units.actor, CLOCK, index), now)

    def timeline_moved(self, moved: Moved, now: float, *, versions: bool) -> None:
        """Steps cover other times than before. `versions`: windows show the policy lag, which goes by the step that the
        lead was at.
        """
        for step, place in moved.steps.items():
            # A step that lost its place had one: its row has to become empty, wherever the frontier is.
            if place is None or place <= self.frontier.place:
                self._step(step, now)
        if versions:
            self.windows_between(moved.low, moved.high, now)

    def kinds(self, kinds: Container[str], now: float) -> None:
        """All rows of these kinds."""
        for unit in self.units.all():
            if unit.kind in kinds:
                self.revisions.mark_dirty(unit, now)

    def points(self, writer: Writer, now: float) -> None:
        """All points of a file."""
        for unit in self.units.points(writer.open.id):
            self.revisions.mark_dirty(unit, now)

    def _step(self, step: int, now: float) -> None:
        self.revisions.mark_dirty(Unit(self.units.actor, ALIGNED, step), now)
