"""When the lead's steps ended: what puts streams and clocks beside steps. The rules: docs/semantics.md, "Stream lines".

It is in the store, a row for each step, because a long job has many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rlship_sidecar.align.lineage import Age, Segment, SubmittedJob, Writer, replica_key
from rlship_sidecar.decode.lines import BarrierLines
from rlship_sidecar.store.ended_steps import EndedStep, EndedSteps, Place
from rlship_sidecar.store.tables import StoreTables
from rlship_sidecar.streams.clocks import Shift, StoredClocks

KEPT = 4096  # steps of which is known without the store whose barrier counts

_Rank = tuple[tuple[int, int, str], int]
_Claim = tuple[SubmittedJob | None, _Rank, Age, str]  # the job, whose start may move, the rank, the age and the file
_Barrier = tuple[int, float, float | None]  # the step, the time, and the time of the record before it in its segment
_NO_JOB = (-math.inf, "")


class StepInterval(NamedTuple):
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
    """The steps of the lead. Only barriers of root writers may be noted. `writer_of` finds the writer of a file."""

    def __init__(
        self, ledger: StoreTables, clocks: StoredClocks, writer_of: Callable[[str], Writer | None] = lambda file: None
    ) -> None:
        self._steps = EndedSteps(ledger)
        self._clocks = clocks
        self._writer_of = writer_of
        self._claims: dict[int, _Claim] = {}

    # What it says --------------------------------------------------------------------------------------------------

    def interval(self, step: int) -> StepInterval | None:
        """The times of a step, None if it has no barrier."""
        found = self._steps.get(step)
        return self._with_start(found) if found is not None else None

    def covering(self, t: float) -> StepInterval | None:
        """The step that covers a time."""
        found = self._steps.first_ending(t)
        interval = self._with_start(found) if found is not None else None
        return interval if interval is not None and t > interval.start else None

    def current(self, t: float) -> int | None:
        """The step that covers a time, or else the last one that ends before."""
        covering = self.covering(t)
        if covering is not None:
            return covering.step
        found = self._steps.last_ended(t)
        return found.step if found is not None else None

    def after(self, place: Place, limit: int) -> list[StepInterval]:
        """The next steps behind a place in their order."""
        intervals: list[StepInterval] = []
        found_steps = self._steps.after(place, limit)
        before = self._steps.before(found_steps[0].place) if found_steps else None
        for found in found_steps:
            intervals.append(_interval(found, before))
            before = found
        return intervals

    def empty(self) -> bool:
        """Whether no step has ended."""
        return self._steps.last() is None

    def sources(self) -> set[str]:
        """The files whose barriers count."""
        return self._steps.files()

    def _with_start(self, found: EndedStep) -> StepInterval:
        return _interval(found, self._steps.before(found.place))

    def _end_before(self, place: Place) -> float:
        found = self._steps.before(place)
        return found.until if found is not None else -math.inf

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
        for step, t, _, before_t in barriers.each():
            held = claims.get(step) or self._held(step)
            if held is stronger and held is not None:  # as most are: those of the lowest rank
                continue
            if held is None:
                self._take(segment, (step, t, before_t), None, moved)
            elif _beats(claim, held):
                self._take(segment, (step, t, before_t), self._place(step), moved)
            else:
                stronger = held
                continue
            self._remember(step, claim)

    def _append(self, segment: Segment, barriers: BarrierLines, moved: Moved) -> bool:
        """Take them all in at once if they are of steps, in order, that end and count after all that is known, as of a
        lead that goes on; else do nothing and return False.
        """
        steps = barriers.steps
        host = segment.writer.open.host
        places = [(self._clocks.corrected(host, t), step) for step, t in zip(steps, barriers.ts)]
        if any(a >= b for a, b in pairwise([self._steps.highest(), *steps])):
            return False
        last = self._steps.last()
        if any(a >= b for a, b in pairwise([*([] if last is None else [last.place]), *places])):
            return False
        for (end, _), (step, t, _, before_t) in zip(places, barriers.each()):
            self._steps.put(self._ended(segment, end, (step, t, before_t)))
        moved.steps.update((step, (end, step)) for end, step in places)
        moved.add(-math.inf if last is None else last.until, math.inf)
        return True

    def _take(self, segment: Segment, barrier: _Barrier, place: Place | None, moved: Moved) -> None:
        end = self._clocks.corrected(segment.writer.open.host, barrier[1])
        self._put(self._ended(segment, end, barrier), place, moved)

    def _ended(self, segment: Segment, end: float, barrier: _Barrier) -> EndedStep:
        """The step that a barrier record of a segment ends at `end` of the common clock."""
        step, t, before_t = barrier
        opened, since = segment.writer.open, segment.since if before_t is None else before_t
        who = (segment.writer.file, opened.host, opened.replica, opened.rank, opened.attempt, opened.t, opened.id)
        return EndedStep(step, end, self._clocks.corrected(opened.host, since), t, since, *who, segment.number)

    def shift(self, shift: Shift, moved: Moved) -> None:
        """The offset of a host's clock changed."""
        for found in self._steps.timed_between(shift.host, shift.low, shift.high):
            until = self._clocks.corrected(found.host, found.until_t)
            since = self._clocks.corrected(found.host, found.since_t)
            self._put(found._replace(until=until, since=since), found.place, moved)

    def clear(self, moved: Moved) -> None:
        """Forget every step."""
        moved.steps.update((step, None) for step in self._steps.numbers())
        moved.add(-math.inf, math.inf)
        self._steps.clear()
        self._claims.clear()

    def _put(self, ended: EndedStep, before: Place | None, moved: Moved) -> None:
        """Keep a step, whose place was `before` if it had one."""
        if before is not None:
            self._concerns(before, moved)
        self._steps.put(ended)
        self._concerns(ended.place, moved)

    def _concerns(self, place: Place, moved: Moved) -> None:
        """The step at a place and the one after it are about to change, or just have."""
        # The step after begins where this one ends, so it covers other times as well.
        behind = self._steps.after(place, 1)
        moved.steps[place[1]] = place
        moved.steps.update((ended.step, ended.place) for ended in behind)
        moved.add(self._end_before(place), behind[0].until if behind else math.inf)

    def _place(self, step: int) -> Place | None:
        found = self._steps.get(step)
        return found.place if found is not None else None

    def _held(self, step: int) -> _Claim | None:
        found = self._steps.get(step)
        if found is None:
            return None
        writer = self._writer_of(found.file)
        submission = 0 if writer is None else writer.submission
        age = submission, found.attempt, found.open_t, found.id, found.segment
        claim = None if writer is None else writer.job, (replica_key(found.replica), found.rank), age, found.file
        self._remember(step, claim)
        return claim

    def _remember(self, step: int, claim: _Claim) -> None:
        if len(self._claims) >= KEPT:
            for old in list(self._claims)[: KEPT // 2]:
                del self._claims[old]
        self._claims[step] = claim


def _interval(found: EndedStep, before: EndedStep | None) -> StepInterval:
    """The times of a step, which has `before` right before it in the order of steps."""
    if before is None:
        return StepInterval(found.step, found.since, found.until)
    # A repeated barrier of the step before does not begin this one, so `since` does not count here.
    follows = (before.step + 1, before.file, before.segment) == (found.step, found.file, found.segment)
    # Else steps between the two may have been done again: the times of their older course belong to no step.
    return StepInterval(found.step, before.until if follows else max(before.until, found.since), found.until)


def _claim(segment: Segment) -> _Claim:
    replica, rank, *_ = segment.merge_key
    return segment.writer.job, (replica, rank), segment.age, segment.writer.file


def _beats(claim: _Claim, held: _Claim) -> bool:
    """Of the latest job and of its lowest rank the newest segment; the file name parts copies of one file."""
    if claim[0] is held[0]:
        return claim[1] < held[1] or (claim[1] == held[1] and claim[2:] > held[2:])
    job, held_job = (_NO_JOB if one is None else one.order for one in (claim[0], held[0]))
    return (job, held[1], claim[2:]) > (held_job, claim[1], held[2:])
