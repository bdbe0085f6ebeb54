"""The timeline: spans of all processes in lanes, and what share of each step the stages take. Pure."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.view.contract import Barriers, SpanColumns, Stages, TimelineLane
from rlship_sidecar.view.doings import Doing, StepDoings
from rlship_sidecar.view.records import FoundRecord
from rlship_sidecar.view.texts import text

MAIN = "main"
MAX_NAME = 200
MAX_STAGES = 12
MAX_LANES = 5_000
MAX_COUNTED = 1_000_000  # spans of which stages are made, also of those that are left out
MAX_NAMES, OTHERS = 10_000, "(other names)"  # those after the first ones share a name
_SLACK_S = 20e-6  # two readings of the clock make neighbours overlap by this much


class _Drawn(NamedTuple):
    dur: float
    t: float
    lane: int
    name: int
    step: int
    err: str
    segment: int


class _DrawnBarrier(NamedTuple):
    t: float
    lane: int
    step: int
    segment: int


@dataclass(slots=True)
class _CountedSpans:
    """What stages are made of: all spans, in few bytes each."""

    lane: array[int] = field(default_factory=lambda: array("i"))
    name: array[int] = field(default_factory=lambda: array("i"))
    step: array[int] = field(default_factory=lambda: array("q"))
    segment: array[int] = field(default_factory=lambda: array("i"))
    t: array[float] = field(default_factory=lambda: array("d"))
    dur: array[float] = field(default_factory=lambda: array("d"))

    def add(self, one: _Drawn) -> None:
        """Count a span."""
        if len(self.t) < MAX_COUNTED:
            self.lane.append(one.lane)
            self.name.append(one.name)
            self.step.append(one.step)
            self.segment.append(one.segment)
            self.t.append(one.t)
            self.dur.append(one.dur)

    def outermost(self) -> Iterator[int]:
        """Which spans lie in no other one of their lane."""
        t, dur = np.array(self.t), np.array(self.dur)
        lane, reach = -1, 0.0
        for at in np.lexsort((-dur, t, np.array(self.lane))).tolist():
            begin = self.t[at]
            if self.lane[at] != lane or reach <= begin + _SLACK_S:
                lane, reach = self.lane[at], begin + self.dur[at]
                yield at
            else:
                reach = max(reach, begin + self.dur[at])


@dataclass(slots=True)
class _Lane:
    actor: str
    replica: str
    rank: int
    attempt: int
    host: str
    name: str
    file: str


@dataclass(slots=True)
class SpanTimeline:
    """Collects spans and barriers. Beyond `limit` spans the shortest are left out and counted. Stages are of all, but a
    step that was done again has those of its last doing. With `by_step` the range that was found is of last doings too.
    """

    limit: int
    lead: str
    by_step: bool = False
    lanes: dict[tuple[str, str], int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    _lanes: list[_Lane] = field(default_factory=list)
    _heap: list[_Drawn] = field(default_factory=list)
    _barriers: list[_DrawnBarrier] = field(default_factory=list)
    _counted: _CountedSpans = field(default_factory=_CountedSpans)
    _doings: StepDoings = field(default_factory=StepDoings)

    def take(self, found: Iterable[FoundRecord]) -> None:
        """Take records in any order."""
        for one in found:
            self._doings.take(one)
            if one.entry.kind == "barrier":
                lane = self._lane(one, MAIN)
                if lane >= 0 and one.entry.step is not None:
                    self._barriers.append(_DrawnBarrier(one.t, lane, one.entry.step, one.entry.segment))
                continue
            span = one.entry.body
            lane = self._lane(one, text(span.lane, MAX_NAME))
            if lane < 0:
                self.left_out += 1
                continue
            name = self._name(text(span.name, MAX_NAME))
            step = -1 if one.entry.step is None else one.entry.step
            err = text(span.err, 500) if span.err is not None else ""
            drawn = _Drawn(span.dur, one.t, lane, name, step, err, one.entry.segment)
            self._counted.add(drawn)
            if len(self._heap) < self.limit:
                heapq.heappush(self._heap, drawn)
            else:
                heapq.heappushpop(self._heap, drawn)
                self.left_out += 1

    def know(self, found: Iterable[FoundRecord]) -> None:
        """Take records that are not shown, for the steps that were done again."""
        for one in found:
            self._doings.take(one)

    @property
    def steps(self) -> tuple[int, int] | None:
        """The least and the greatest step of spans and barriers; None without one."""
        found = [*(step for step in self._counted.step if step >= 0), *(one.step for one in self._barriers)]
        return (min(found), max(found)) if found else None

    def _name(self, name: str) -> int:
        if name not in self.names and len(self.names) >= MAX_NAMES:
            name = OTHERS
        return self.names.setdefault(name, len(self.names))

    def _lane(self, one: FoundRecord, name: str) -> int:
        file = one.place.rpartition(":")[0]
        key = file, name
        if key not in self.lanes:
            if len(self.lanes) >= MAX_LANES:
                return -1
            self.lanes[key] = len(self._lanes)
            opened = one.opened
            self._lanes.append(
                _Lane(opened.actor, opened.replica, opened.rank, opened.attempt, opened.host or "", name, file)
            )
        return self.lanes[key]

    def answer(self) -> dict[str, Any]:
        """The parts of the answer that spans make."""
        order = sorted(range(len(self._lanes)), key=self._order)
        place = {old: new for new, old in enumerate(order)}
        spans = sorted(self._heap, key=lambda one: (place[one.lane], one.t, -one.dur))
        origin = min([*(one.t for one in spans), *(one.t for one in self._barriers)], default=0.0)
        former = self._doings.superseded()
        columns: SpanColumns = {
            "lane": [place[one.lane] for one in spans],
            "name": [one.name for one in spans],
            "t": [round(one.t - origin, 6) for one in spans],
            "dur": [round(one.dur, 6) for one in spans],
            "step": [one.step for one in spans],
            "depth": _depths(spans),
            "err": {str(at): one.err for at, one in enumerate(spans) if one.err},
        }
        barriers = sorted(self._barriers)
        shown: Barriers = {
            "lane": [place[one.lane] for one in barriers],
            "step": [one.step for one in barriers],
            "t": [round(one.t - origin, 6) for one in barriers],
        }
        return {
            "origin": origin,
            "found": self._found(spans, former if self.by_step else set()),
            "lanes": [self._shown(self._lanes[old]) for old in order],
            "names": list(self.names),
            "spans": columns,
            "barriers": shown,
            "stages": self._stages(former),
            "left_out": self.left_out,
        }

    def _is_former(self, lane: int, segment: int, step: int, former: set[Doing]) -> bool:
        return bool(former) and Doing(self._lanes[lane].file, segment, step) in former

    def _found(self, spans: list[_Drawn], former: set[Doing]) -> tuple[float, float] | None:
        """The range of spans and barriers, but for former doings."""
        kept = [one for one in spans if not self._is_former(one.lane, one.segment, one.step, former)]
        marks = [one.t for one in self._barriers if not self._is_former(one.lane, one.segment, one.step, former)]
        if not kept and not marks:
            return None
        return min([one.t for one in kept] + marks), max([one.t + one.dur for one in kept] + marks)

    def _order(self, at: int) -> tuple[Any, ...]:
        lane = self._lanes[at]
        rank = (lane.actor != self.lead, lane.actor, *replica_key(lane.replica), lane.rank, lane.attempt, lane.file)
        return (*rank, lane.name != MAIN, lane.name)

    @staticmethod
    def _shown(lane: _Lane) -> TimelineLane:
        rank = f"{lane.replica}.{lane.rank}"
        return {
            "id": lane_id(lane.file, lane.name),
            "actor": text(lane.actor),
            "rank": text(rank),
            "host": text(lane.host),
            "attempt": lane.attempt,
            "name": lane.name,
        }

    def _stages(self, former: set[Doing]) -> Stages:
        """Of each step, the mean over ranks of the seconds in each outermost span of a main lane."""
        taken: dict[tuple[int, int], dict[int, float]] = {}  # (step, name) -> lane -> seconds
        busy: dict[tuple[int, int], float] = {}  # (step, lane of the lead) -> seconds
        every = self._counted
        for at in every.outermost():
            line, step, dur = every.lane[at], every.step[at], every.dur[at]
            lane = self._lanes[line]
            if step >= 0 and lane.name == MAIN and not self._is_former(line, every.segment[at], step, former):
                of = taken.setdefault((step, every.name[at]), {})
                of[line] = of.get(line, 0.0) + dur
                if lane.actor == self.lead:
                    busy[step, line] = busy.get((step, line), 0.0) + dur
        begin, took = self._steps_of_lead(former)
        names = _longest(taken)
        steps = sorted(begin)
        of_lead: dict[int, list[float]] = {}
        for (step, _), seconds in busy.items():
            of_lead.setdefault(step, []).append(seconds)
        bubbles = [_bubble(took.get(step), of_lead.get(step)) for step in steps]
        called = list(self.names)
        return {
            "step": steps,
            "t": [round(begin[step], 6) for step in steps],
            "dur": [took.get(step) for step in steps],
            "names": [called[name] for name in names],
            "seconds": [[_mean(taken.get((step, name))) for step in steps] for name in names],
            "bubble": bubbles,
        }

    def _steps_of_lead(self, former: set[Doing]) -> tuple[dict[int, float], dict[int, float]]:
        """When each step of the lead began, and how long it took: from barrier to barrier, else as its spans say. What
        lies between the steps of two lineages is of neither.
        """
        begin: dict[int, float] = {}
        end: dict[int, float] = {}
        by: dict[int, set[tuple[str, int]]] = {}  # the segments that did a step
        every = self._counted
        for line, segment, step, t, dur in zip(every.lane, every.segment, every.step, every.t, every.dur):
            if step < 0 or self._lanes[line].actor != self.lead:
                continue
            if not self._is_former(line, segment, step, former):
                begin[step] = min(begin.get(step, t), t)
                end[step] = max(end.get(step, 0.0), t + dur)
                by.setdefault(step, set()).add((self._lanes[line].file, segment))
        for t, line, step, segment in self._barriers:
            if self._lanes[line].actor == self.lead and not self._is_former(line, segment, step, former):
                end[step] = max(end.get(step, 0.0), t)
                by.setdefault(step, set()).add((self._lanes[line].file, segment))
        for step in end:
            begin.setdefault(step, end[step])
            if step - 1 in end and not by[step].isdisjoint(by[step - 1]):
                begin[step] = min(begin[step], end[step - 1])
        return begin, {step: end[step] - begin[step] for step in end if end[step] > begin[step]}


def lane_id(file: str, name: str) -> str:
    """The id of a lane: of its file and its name."""
    return hashlib.blake2b(f"{file}\0{name}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _longest(taken: dict[tuple[int, int], dict[int, float]]) -> list[int]:
    """The names that took most, over all steps and lanes."""
    total: dict[int, float] = {}
    for (_, name), of in taken.items():
        total[name] = total.get(name, 0.0) + sum(of.values())
    return sorted(total, key=lambda name: -total[name])[:MAX_STAGES]


def _bubble(whole: float | None, of_lead: list[float] | None) -> float | None:
    """The seconds of a step in which a rank of the lead is in no span, as a mean over its ranks."""
    return None if whole is None or not of_lead else max(0.0, whole - sum(of_lead) / len(of_lead))


def _mean(of: dict[int, float] | None) -> float | None:
    return None if not of else sum(of.values()) / len(of)


def _depths(spans: list[_Drawn]) -> list[int]:
    """How many spans of its lane each of these lies in; they are by lane and time, the outer one first."""
    found: list[int] = []
    ends: list[float] = []
    lane = -1
    for one in spans:
        if one.lane != lane:
            lane, ends = one.lane, []
        while ends and ends[-1] <= one.t + _SLACK_S:
            ends.pop()
        found.append(len(ends))
        ends.append(one.t + one.dur)
    return found
