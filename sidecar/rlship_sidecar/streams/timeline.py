"""When the lead's steps ended: what puts streams and clocks beside steps. The rules: docs/semantics.md, "Stream lines".

It is in the store, a row for each step, because a long job has many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from rlship_sidecar.align.lineage import Age, Segment, replica_key
from rlship_sidecar.decode.lines import BarrierLines
from rlship_sidecar.store.ledger import Ledger
from rlship_sidecar.streams.clocks import Shift, StoredClocks

_PUT = "insert or replace into timeline values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
KEPT = 4096  # steps of which is known without the store whose barrier counts

_Rank = tuple[tuple[int, int, str], int]
_Claim = tuple[_Rank, Age, str]

Place = tuple[float, int]  # of a step in the order of steps: when it ended, and its number


class Stretch(NamedTuple):
    """The times that a step covers: above `start`, up to `end`."""

    step: int
    start: float
    end: float

    @property
    def place(self) -> Place:
        """Where it stands in the order of steps."""
        return self.end, self.step


@dataclass(slots=True)
class Moved:
    """What a change of the timeline concerns: the places of steps that cover other times than before, None for those
    without one, and the times (inclusive) that belong to another step.
    """

    steps: dict[int, Place | None] = field(default_factory=dict)
    low: float = math.inf
    high: float = -math.inf

    def add(self, low: float, high: float) -> None:
        """More times."""
        self.low, self.high = min(self.low, low), max(self.high, high)


class Timeline:
    """The steps of the lead. Only barriers of root writers may be noted."""

    def __init__(self, ledger: Ledger, clocks: StoredClocks) -> None:
        self._ledger = ledger
        self._clocks = clocks
        self._claims: dict[int, _Claim] = {}

    # What it says --------------------------------------------------------------------------------------------------

    def stretch(self, step: int) -> Stretch | None:
        """The times of a step, None if it has no barrier."""
        found = self._ledger.ask("select until, step, since from timeline where step = ?", (step,))
        return self._with_start(*found[0]) if found else None

    def covering(self, t: float) -> Stretch | None:
        """The step that covers a time."""
        found = self._ledger.ask(
            "select until, step, since from timeline where until >= ? order by until, step limit 1", (t,)
        )
        stretch = self._with_start(*found[0]) if found else None
        return stretch if stretch is not None and t > stretch.start else None

    def current(self, t: float) -> int | None:
        """The step that covers a time, or else the last one that ends before."""
        covering = self.covering(t)
        if covering is not None:
            return covering.step
        found = self._ledger.ask(
            "select step from timeline where until <= ? order by until desc, step desc limit 1", (t,)
        )
        return found[0][0] if found else None

    def after(self, place: Place, limit: int) -> list[Stretch]:
        """The next steps behind a place in their order."""
        found = self._ledger.ask(
            "select until, step, since from timeline where (until, step) > (?, ?) order by until, step limit ?",
            (*place, limit),
        )
        stretches: list[Stretch] = []
        for end, step, begin in found:
            before = stretches[-1].end if stretches else self._end_before(end, step)
            stretches.append(Stretch(step, max(before, begin), end))
        return stretches

    def empty(self) -> bool:
        """Whether no step has ended."""
        return not self._ledger.ask("select 1 from timeline limit 1")

    def sources(self) -> set[str]:
        """The files whose barriers count."""
        return {file for (file,) in self._ledger.ask("select distinct file from timeline")}

    def _with_start(self, end: float, step: int, begin: float) -> Stretch:
        return Stretch(step, max(self._end_before(end, step), begin), end)

    def _end_before(self, end: float, step: int) -> float:
        found = self._ledger.ask(
            "select until from timeline where (until, step) < (?, ?) order by until desc, step desc limit 1",
            (end, step),
        )
        return found[0][0] if found else -math.inf

    # What changes it -----------------------------------------------------------------------------------------------

    def note(self, segment: Segment, barriers: BarrierLines, moved: Moved) -> None:
        """Take in barrier records of a segment of a root writer of the lead."""
        claim = _claim(segment)
        claims = self._claims
        if barriers.steps[0] not in claims and self._append(segment, barriers, moved):
            for step in barriers.steps:
                self._remember(step, claim)
            return
        stronger: _Claim | None = None
        for step, t in zip(barriers.steps, barriers.ts):
            held = claims.get(step) or self._held(step)
            if held is stronger and held is not None:  # as most are: those of the lowest rank
                continue
            if held is None:
                self._take(segment, step, t, None, moved)
            elif _beats(claim, held):
                self._take(segment, step, t, self._place(step), moved)
            else:
                stronger = held
                continue
            self._remember(step, claim)

    def _append(self, segment: Segment, barriers: BarrierLines, moved: Moved) -> bool:
        """Take them all in at once if they are of steps, in order, that end and count behind all that is known, as of a
        lead that goes on; else do nothing and return False.
        """
        steps = barriers.steps
        host = segment.writer.open.host
        places = [(self._clocks.corrected(host, t), step) for step, t in zip(steps, barriers.ts)]
        highest = self._ledger.ask("select max(step) from timeline")[0][0]
        if any(a >= b for a, b in pairwise([-1 if highest is None else highest, *steps])):
            return False
        last = self._ledger.ask("select until, step from timeline order by until desc, step desc limit 1")
        if any(a >= b for a, b in pairwise([*last, *places])):
            return False
        lines = [self._line(segment, *place, t) for place, t in zip(places, barriers.ts)]
        for line in lines:
            self._ledger.change(_PUT, line)
        moved.steps.update((step, (end, step)) for end, step in places)
        moved.add(last[0][0] if last else -math.inf, math.inf)
        return True

    def _take(self, segment: Segment, step: int, t: float, before: Place | None, moved: Moved) -> None:
        end = self._clocks.corrected(segment.writer.open.host, t)
        self._put(self._line(segment, end, step, t), before, moved)

    def _line(self, segment: Segment, end: float, step: int, t: float) -> tuple[Any, ...]:
        """The line of a step that ends with a barrier record written at `t`."""
        opened, since = segment.writer.open, segment.since
        who = (segment.writer.file, opened.host, opened.replica, opened.rank, opened.attempt, opened.t, opened.id)
        return (step, end, self._clocks.corrected(opened.host, since), t, since, *who, segment.number)

    def shift(self, shift: Shift, moved: Moved) -> None:
        """A clock of a host counts as another one."""
        found = self._ledger.ask(
            "select * from timeline where host = ? "
            "and ((until_t >= ? and until_t < ?) or (since_t >= ? and since_t < ?))",
            (shift.host, shift.low, shift.high, shift.low, shift.high),
        )
        for step, until, _, end_t, begin_t, file, host, *rest in found:
            end, begin = self._clocks.corrected(host, end_t), self._clocks.corrected(host, begin_t)
            self._put((step, end, begin, end_t, begin_t, file, host, *rest), (until, step), moved)

    def clear(self, moved: Moved) -> None:
        """Forget every step."""
        moved.steps.update((step, None) for (step,) in self._ledger.ask("select step from timeline"))
        moved.add(-math.inf, math.inf)
        self._ledger.change("delete from timeline")
        self._claims.clear()

    def _put(self, values: tuple[Any, ...], before: Place | None, moved: Moved) -> None:
        """Write the line of a step, whose place was `before` if it had one."""
        if before is not None:
            self._concerns(before, moved)
        self._ledger.change(_PUT, values)
        step, end, *_ = values
        self._concerns((end, step), moved)

    def _concerns(self, place: Place, moved: Moved) -> None:
        """The step at a place and the one behind it are about to change, or just have."""
        behind = self._ledger.ask(
            "select until, step from timeline where (until, step) > (?, ?) order by until, step limit 1", place
        )
        moved.steps[place[1]] = place
        moved.steps.update((step, (until, step)) for until, step in behind)
        moved.add(self._end_before(*place), behind[0][0] if behind else math.inf)

    def _place(self, step: int) -> Place | None:
        found = self._ledger.ask("select until, step from timeline where step = ?", (step,))
        return found[0] if found else None

    def _held(self, step: int) -> _Claim | None:
        found = self._ledger.ask(
            "select replica, rank, attempt, open_t, id, segment, file from timeline where step = ?", (step,)
        )
        if not found:
            return None
        replica, rank, attempt, open_t, id, segment, file = found[0]
        claim = (replica_key(replica), rank), (attempt, open_t, id, segment), file
        self._remember(step, claim)
        return claim

    def _remember(self, step: int, claim: _Claim) -> None:
        if len(self._claims) >= KEPT:
            for old in list(self._claims)[: KEPT // 2]:
                del self._claims[old]
        self._claims[step] = claim


def _claim(segment: Segment) -> _Claim:
    opened = segment.writer.open
    return (replica_key(opened.replica), opened.rank), segment.age, segment.writer.file


def _beats(claim: _Claim, held: _Claim) -> bool:
    """Of the lowest rank the newest segment; the file name parts copies of one file."""
    return claim[0] < held[0] or (claim[0] == held[0] and claim[1:] > held[1:])
