"""Rows of a store to frames: what is known of one step of the lead, in one lineage. Pure.

A frame holds only what rules ask for. Its names are those of the catalogue, whichever of the names that the catalogue
knows the job used, and the keys of rows as they are. `coverage/missing`, `coverage/short`, `coverage/expected` and
`tag/<tag>` are names, too. `coverage/missing/lead` is of the lead's ranks alone, `coverage/missing/others` of the rest.
`coverage/members` counts the ranks that take part: without those that have ended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from rlship_formats.catalogue.metrics import METRICS, lookup, lookup_evidence
from rlship_formats.values import REDUCTIONS
from rlship_sidecar.reduce.returns import RECOVERY, RESTARTS
from rlship_sidecar.rows import (
    ALIGNED,
    LEDGER,
    STEP,
    LateRanks,
    Lineage,
    RankName,
    Row,
    count_ranks,
    count_short,
    each_rank,
    lineage_of,
)

MISSING, SHORT, EXPECTED, TAG = "coverage/missing", "coverage/short", "coverage/expected", "tag/"
MEMBERS = "coverage/members"
LEAD_MISSING, OTHERS_MISSING = f"{MISSING}/lead", f"{MISSING}/others"
LACKING = (MISSING, LEAD_MISSING, OTHERS_MISSING, SHORT)  # of which frames name the ranks
_ADDED_UP = (*LACKING, EXPECTED, MEMBERS)  # over actors
NONFINITE = "/nonfinite"
JOINED = (STEP, ALIGNED, LEDGER)  # the kinds of rows that say something of a step of the lead
MAX_CHOSEN = 64  # sets of keys of which it is remembered which names they have
MAX_PLACES = 16  # of the ranks that are missing or short, of which a frame names the first
_ENDS = frozenset((*REDUCTIONS, "nonfinite", "argmax_rank", "argmax_replica"))
_FIRST = {metric.name: metric.reduce[0] for metric in METRICS}

RankValues = Sequence[tuple[str, float]]  # by place, `<actor>/<replica>.<rank>`


class AtPlaces(LateRanks):
    """The values of an actor's ranks by place. Their names are made at the first look.

    `source`: the actor, the row's key of the values, and what brings them to their unit.
    """

    __slots__ = ("_actor", "_figures", "_ordered", "_scale", "_values", "source")

    def __init__(self, actor: str, key: str, values: Sequence[tuple[str, float]], scale: float) -> None:
        super().__init__(self._named)
        self.source = actor, key, scale
        self._actor, self._values, self._scale = actor, values, scale
        self._figures: list[float] | None = None
        self._ordered: list[float] | None = None
        if not isinstance(values, LateRanks):
            self.figures()  # at once, so that a value that is no number is found where no rule looks at it

    def _named(self) -> RankValues:
        places = (f"{self._actor}/{rank}" for rank, _ in self._values)
        return tuple(zip(places, self.figures()))

    def figures(self) -> list[float]:
        """The values alone."""
        if self._figures is None:
            self._figures = [value * self._scale for _, value in self._values]
        return self._figures

    def ordered(self) -> list[float]:
        """The same, ascending: several signals look at them."""
        if self._ordered is None:
            self._ordered = sorted(self.figures())
        return self._ordered

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, AtPlaces) and (self._actor, self._scale) == (other._actor, other._scale):
            return list(self._values) == list(other._values)
        return super().__eq__(other)

    __hash__ = None  # as it equals other sequences


def ordered_figures(ranks: RankValues) -> list[float]:
    """The values of ranks without their places, ascending."""
    return ranks.ordered() if isinstance(ranks, AtPlaces) else sorted([value for _, value in ranks])


@dataclass(frozen=True, slots=True)
class StepFrame:
    """Step `index` of the lead. `lineage` is that of its row, `t` its time in Unix seconds.

    `values` and `ranks` are keyed by the names that rules ask for.
    """

    lineage: Lineage
    index: int
    t: float
    values: Mapping[str, float]
    ranks: Mapping[str, RankValues] = field(default_factory=dict)


class Part(NamedTuple):
    """What one row contributes to a frame. `lineage` is that of a row of a step."""

    lineage: Lineage
    t: float
    values: dict[str, float]
    ranks: dict[str, RankValues]


class _Named(NamedTuple):
    """A name that rules ask for, for a key of a row: how good the name fits, and what brings the value to its unit."""

    name: str
    scale: float
    fit: int  # 0: the key itself, 1: a name of the catalogue, 2: a foreign name, 3: a bare name


class FrameNames:
    """The names that rules ask for, and which keys of rows have them."""

    def __init__(self, wanted: Collection[str], lead: str) -> None:
        self._lead = lead
        self._wanted = frozenset(wanted) | {name.removesuffix(NONFINITE) for name in wanted}
        self._counted = tuple(sorted(name for name in self._wanted if name.endswith(NONFINITE)))
        self._tags = tuple(sorted(name for name in self._wanted if name.startswith(TAG)))
        self._known: dict[str, dict[str, tuple[_Named, ...]]] = {}  # by actor and key
        self._chosen: dict[tuple[str, tuple[str, ...]], tuple[tuple[str, str, float], ...]] = {}  # by actor and keys

    def part(self, row: Row, *, past: bool = False) -> Part:
        """What a row says of the names. `past`: it is that of an earlier lineage, of which nothing is short."""
        actor = row.unit.actor
        values = {name: row.values[key] * scale for name, key, scale in self._choose(actor, row.values)}
        for name in self._counted:
            if name not in values and name.removesuffix(NONFINITE) in values:
                values[name] = 0.0
        ranks: dict[str, RankValues] = {
            name: AtPlaces(actor, key, row.per_rank[key], scale)
            for name, key, scale in self._choose(actor, row.per_rank)
        }
        self._add_coverage(row, values, ranks, past=past)
        return Part(lineage_of(row), row.t, values, ranks)

    def seen(self, keys: Iterable[tuple[str, str]]) -> set[str]:
        """The names that frames have if rows have these keys, each with its actor."""
        found = {one.name for actor, key in keys for one in self._of(actor, key)}
        found |= {name for name in self._counted if name.removesuffix(NONFINITE) in found}
        return found | self._wanted.intersection((*_ADDED_UP, *self._tags))

    def _add_coverage(self, row: Row, values: dict[str, float], ranks: dict[str, RankValues], *, past: bool) -> None:
        actor, coverage = row.unit.actor, row.coverage
        own = LEAD_MISSING if actor == self._lead else OTHERS_MISSING
        for name in (MISSING, own):
            if name in self._wanted:
                values[name] = float(count_ranks(coverage.missing))
                ranks[name] = _ones(actor, each_rank(coverage.missing))
        if actor == self._lead and OTHERS_MISSING in self._wanted:
            values[OTHERS_MISSING] = 0.0  # until rows of others say more
        if EXPECTED in self._wanted and row.unit.kind != LEDGER:
            values[EXPECTED] = float(coverage.expected)
        if MEMBERS in self._wanted and row.unit.kind != LEDGER:
            values[MEMBERS] = float(_count_members(row))
        if SHORT in self._wanted and row.unit.kind == STEP and not past:
            values[SHORT] = float(count_short(coverage))
            short = {rank for ranks in coverage.short.values() for rank in each_rank(ranks)}
            ranks[SHORT] = _ones(actor, sorted(short))
        for name in self._tags:
            values[name] = float(name.removeprefix(TAG) in row.tags)

    def _choose(self, actor: str, values: Mapping[str, object]) -> tuple[tuple[str, str, float], ...]:
        """The names for values with these keys: each with the key that fits it best, and its scale. Rows of an actor
        mostly have the keys of the row before them.
        """
        keys = actor, tuple(values)
        chosen = self._chosen.get(keys)
        if chosen is None:
            best: dict[str, tuple[int, str, float]] = {}
            for key in values:
                for name, scale, fit in self._of(actor, key):
                    if name not in best or (fit, key) < best[name][:2]:
                        best[name] = fit, key, scale
            if len(self._chosen) >= MAX_CHOSEN:
                self._chosen.clear()
            chosen = self._chosen[keys] = tuple((name, key, scale) for name, (_, key, scale) in best.items())
        return chosen

    def _of(self, actor: str, key: str) -> tuple[_Named, ...]:
        known = self._known.setdefault(actor, {})
        named = known.get(key)
        if named is None:
            named = known[key] = tuple(one for one in _names(actor, key, self._lead) if one.name in self._wanted)
        return named


def _count_members(row: Row) -> int:
    """How many ranks take part in a unit: a step expects those that have ended, too, which no longer log."""
    coverage = row.coverage
    if row.unit.kind != STEP:
        return coverage.expected
    if not coverage.missing:
        return count_ranks(coverage.ranks)
    return len({*each_rank(coverage.ranks), *each_rank(coverage.missing)})


def _ones(actor: str, ranks: Iterable[RankName]) -> RankValues:
    """The first of these ranks as places, with the value 1."""
    return tuple((f"{actor}/{one.replica}.{one.rank}", 1.0) for one in islice(ranks, MAX_PLACES))


def _names(actor: str, key: str, lead: str) -> Iterator[_Named]:
    """All names of a row's key."""
    yield _Named(key, 1.0, 0)
    path = key.removeprefix(f"{actor}/").removeprefix("aligned/")
    if actor == lead and path in (RESTARTS, RECOVERY):
        return  # the lead that comes back opens a lineage: it is no replica of a service
    found = _catalogued(actor, path, "", lead)
    if found is None:
        head, _, end = path.rpartition("/")
        found = _catalogued(actor, head, end, lead) if head and end in _ENDS else None
    if found is not None:
        yield found


def _catalogued(actor: str, path: str, end: str, lead: str) -> _Named | None:
    found = lookup_evidence(actor, path, lead)
    if found is None:
        return None
    own = path in (found.name, found.name.removeprefix(f"{actor}/"))
    name = found.name
    if "<" in name:
        name = path if path.startswith(name.partition("<")[0]) else f"{name.partition('<')[0]}{path.split('/')[1]}"
    if not own and not end:
        # A foreign name may say itself how it was reduced. Standard deviations are averaged, and are no mean.
        reduced = "std" if path.endswith("std") else found.reduce[0]
        end = "" if reduced == _FIRST[found.name] else reduced
    fit = 1 if own else 3 if lookup(actor, path) is None else 2
    return _Named(f"{name}/{end}" if end else name, found.scale, fit)


Place = tuple[str, str]  # actor and kind of unit


class Lineages:
    """Which lineages there are, and at which step each begins.

    A lineage has its own rows, and below its first step those of the lineage before it. What other actors logged at a
    step belongs to the newest lineage that has begun there, and to later ones that share the step.
    """

    def __init__(self) -> None:
        self.keys: list[Lineage] = []  # ascending
        self._steps: dict[Lineage, list[int]] = {}

    def add(self, key: Lineage, step: int) -> None:
        """A lineage has a row of its own at a step, where it had none."""
        if key not in self._steps:
            insort(self.keys, key)
            self._steps[key] = []
        insort(self._steps[key], step)

    def remove(self, key: Lineage, step: int) -> None:
        """A lineage has no row of its own at a step any more."""
        steps = self._steps[key]
        del steps[bisect_left(steps, step)]
        if not steps:
            del self._steps[key]
            self.keys.remove(key)

    def first(self, key: Lineage) -> int:
        """The step at which a lineage begins."""
        return self._steps[key][0]

    def last(self, key: Lineage) -> int:
        """The last step of its own."""
        return self._steps[key][-1]

    def own(self, key: Lineage) -> Sequence[int]:
        """The steps that a lineage has rows of its own of, ascending."""
        return self._steps.get(key, ())

    def firsts(self) -> dict[Lineage, int]:
        """The first step of each."""
        return {key: steps[0] for key, steps in self._steps.items()}

    def before(self, key: Lineage) -> Lineage | None:
        """The lineage that a lineage has what is below its first step of."""
        at = bisect_left(self.keys, key)
        return self.keys[at - 1] if at else None

    def source(self, key: Lineage, step: int, rows: Collection[Lineage]) -> Lineage | None:
        """Of the lineages that have rows at a step, the one whose row a lineage has there; None if it has none."""
        at = bisect_right(self.keys, key)
        for one in reversed(self.keys[:at]):
            if one in rows:
                return one
            if step >= self.first(one):
                return None
        return None

    def newest_at(self, step: int) -> Lineage | None:
        """The newest lineage that has begun at a step."""
        return next((key for key in reversed(self.keys) if self.first(key) <= step), None)


@dataclass(slots=True)
class StepParts:
    """What rows say of a step: those of the lead by lineage, and those of others by actor and kind."""

    lead: dict[Lineage, Part] = field(default_factory=dict)
    others: dict[Place, Part] = field(default_factory=dict)

    def frame(self, index: int, key: Lineage, lineages: Lineages) -> StepFrame | None:
        """The frame of a lineage at this step; None if it has none."""
        source = lineages.source(key, index, self.lead)
        if source is None:
            return None
        lead = self.lead[source]
        values: dict[str, float] = dict(lead.values)
        ranks: dict[str, RankValues] = dict(lead.ranks)
        newest = lineages.newest_at(index)
        if newest is None or key >= newest:
            for place in sorted(self.others):
                _add(self.others[place], values, ranks)
        return StepFrame(lead.lineage, index, lead.t, values, ranks)


@dataclass(frozen=True, slots=True)
class FrameChange:
    """A frame that is new or changed (None: it is gone); or the beginning of a lineage at step `index`, which has the
    frames below it of the lineage before it. `anew`: all that was said before is void.
    """

    lineage: Lineage
    index: int
    frame: StepFrame | None
    begins: bool = False
    anew: bool = False


class Frames:
    """Takes rows in any order, later ones of a unit in place of earlier ones, and gives the frames that change."""

    def __init__(self, names: FrameNames, lead: str) -> None:
        self._names = names
        self._lead: Place = (lead, STEP)
        self._axis: str | None = None
        self._lineages = Lineages()
        self._parts: dict[int, StepParts] = {}
        self._early: list[Row] = []  # rows of other actors before the first of the lead

    @property
    def has_lead(self) -> bool:
        """Whether there was a row of the lead: without one there are no frames."""
        return bool(self._lineages.keys)

    def take(self, row: Row, past: Collection[Row] | None = None) -> Iterator[FrameChange]:
        """What a row changes. `past`: what a step of the lead was in earlier lineages; None leaves what is known."""
        unit = row.unit
        if (unit.actor, unit.kind) == self._lead:
            yield from self._take_lead(row, past)
            early, self._early = self._early, []
            for one in early:
                yield from self.take(one)
        elif unit.kind in JOINED:
            if self._axis is None:
                self._early.append(row)
            elif belongs(row, self._axis):
                parts = self._parts.setdefault(unit.index, StepParts())
                parts.others[unit.actor, unit.kind] = self._names.part(row)
                newest = self._lineages.newest_at(unit.index)
                yield from self._frames_at(unit.index, [key for key in self._lineages.keys if key >= (newest or key)])

    def _take_lead(self, row: Row, past: Collection[Row] | None) -> Iterator[FrameChange]:
        if self._axis is None:
            self._axis = next(iter(row.x), "")
        index = row.unit.index
        parts = self._parts.setdefault(index, StepParts())
        before, firsts = parts.lead, self._lineages.firsts()
        own = self._names.part(row)
        if past is None:
            parts.lead = {key: part for key, part in before.items() if key < own.lineage}
        else:
            parts.lead = {lineage_of(one): self._names.part(one, past=True) for one in past}
        parts.lead[own.lineage] = own
        for key in parts.lead.keys() - before.keys():
            self._lineages.add(key, index)
        for key in before.keys() - parts.lead.keys():
            self._lineages.remove(key, index)
        now = self._lineages.firsts()
        keys = self._lineages.keys
        if now == firsts:
            least = min((*before, *parts.lead))
            yield from self._frames_at(index, [key for key in keys if key >= least])
        elif len(now) == len(firsts) + 1 and firsts.items() < now.items() and keys[-1] not in firsts:
            yield FrameChange(keys[-1], now[keys[-1]], None, begins=True)
            for step in sorted(step for step in self._parts if step >= index):
                yield from self._frames_at(step, keys)
        else:
            yield from self._anew()

    def _anew(self) -> Iterator[FrameChange]:
        every, steps = self._lineages, sorted(self._parts)
        yield FrameChange((0, 0, 0), 0, None, anew=True)
        for key in every.keys:
            yield FrameChange(key, every.first(key), None, begins=True)
            for step in steps[bisect_left(steps, every.first(key)) :]:
                frame = self._parts[step].frame(step, key, every)
                if frame is not None:
                    yield FrameChange(key, step, frame)

    def _frames_at(self, index: int, keys: Collection[Lineage]) -> Iterator[FrameChange]:
        for key in keys:
            yield FrameChange(key, index, self._parts[index].frame(index, key, self._lineages))


def belongs(row: Row, axis: str) -> bool:
    """Whether a row of another actor than the lead is part of the frame of its index."""
    return row.unit.kind in JOINED and (row.unit.kind != STEP or axis in row.x)


def _add(part: Part, values: dict[str, float], ranks: dict[str, RankValues]) -> None:
    """Add what another actor's row says. Of a metric that several actors log the lead's counts, else the first one's;
    ranks that are missing, short or expected add up.
    """
    for name, value in part.values.items():
        if name in _ADDED_UP:
            values[name] = values.get(name, 0.0) + value
        else:
            values.setdefault(name, value)
    for name, found in part.ranks.items():
        if name in _ADDED_UP:
            ranks[name] = (*ranks.get(name, ()), *found)
        else:
            ranks.setdefault(name, found)
