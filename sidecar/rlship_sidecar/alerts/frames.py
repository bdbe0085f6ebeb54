"""Rows of a store to frames: what is known of one step of the lead, in one lineage. Pure.

A frame holds only what rules ask for. Its names are those of the catalogue, whatever the job called its metrics, and
the keys of rows as they are. `coverage/missing`, `coverage/short` and `tag/<tag>` are names too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from rlship_formats.catalogue.metrics import METRICS, lookup
from rlship_formats.values import REDUCTIONS
from rlship_sidecar.rows import (
    ALIGNED,
    LEDGER,
    STEP,
    Lineage,
    RankName,
    Row,
    count_ranks,
    count_short,
    each_rank,
    plain_lineage,
)

MISSING, SHORT, TAG = "coverage/missing", "coverage/short", "tag/"
NONFINITE = "/nonfinite"
MAX_PLACES = 16  # of the ranks that are missing or short, of which a frame names the first
_ENDS = frozenset((*REDUCTIONS, "nonfinite", "argmax_rank", "argmax_replica"))
_FIRST = {metric.name: metric.reduce[0] for metric in METRICS}

RankValues = tuple[tuple[str, float], ...]  # by place, `<actor>/<replica>.<rank>`


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
    fit: int  # 0: the key itself, 1: a name of the catalogue, 2: a foreign name


class FrameNames:
    """The names that rules ask for, and which keys of rows have them."""

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = frozenset(wanted) | {name.removesuffix(NONFINITE) for name in wanted}
        self._counted = tuple(sorted(name for name in self._wanted if name.endswith(NONFINITE)))
        self._tags = tuple(sorted(name for name in self._wanted if name.startswith(TAG)))
        self._known: dict[tuple[str, str], tuple[_Named, ...]] = {}

    def part(self, row: Row) -> Part:
        """What a row says of the names."""
        actor = row.unit.actor
        values: dict[str, float] = {}
        best: dict[str, tuple[int, str]] = {}
        for key, value in row.values.items():
            for name, scale, fit in self._of(actor, key):
                if name not in best or (fit, key) < best[name]:
                    best[name] = fit, key
                    values[name] = value * scale
        for name in self._counted:
            if name not in values and name.removesuffix(NONFINITE) in values:
                values[name] = 0.0
        ranks: dict[str, RankValues] = {}
        fits: dict[str, tuple[int, str]] = {}
        for key, found in row.per_rank.items():
            for name, scale, fit in self._of(actor, key):
                if name not in fits or (fit, key) < fits[name]:
                    fits[name] = fit, key
                    ranks[name] = tuple((f"{actor}/{place}", value * scale) for place, value in found)
        self._add_coverage(row, values, ranks)
        return Part(lineage_of(row), row.t, values, ranks)

    def _add_coverage(self, row: Row, values: dict[str, float], ranks: dict[str, RankValues]) -> None:
        actor, coverage = row.unit.actor, row.coverage
        if MISSING in self._wanted:
            values[MISSING] = float(count_ranks(coverage.missing))
            ranks[MISSING] = _ones(actor, each_rank(coverage.missing))
        if SHORT in self._wanted and row.unit.kind == STEP:
            values[SHORT] = float(count_short(coverage))
            first = next(iter(coverage.short.values()), ())
            ranks[SHORT] = _ones(actor, each_rank(first))
        for name in self._tags:
            values[name] = float(name.removeprefix(TAG) in row.tags)

    def _of(self, actor: str, key: str) -> tuple[_Named, ...]:
        known = self._known.get((actor, key))
        if known is None:
            known = self._known[actor, key] = tuple(one for one in _names(actor, key) if one.name in self._wanted)
        return known


def _ones(actor: str, ranks: Iterator[RankName]) -> RankValues:
    """The first of these ranks as places, with the value 1."""
    return tuple((f"{actor}/{one.replica}.{one.rank}", 1.0) for one in islice(ranks, MAX_PLACES))


def _names(actor: str, key: str) -> Iterator[_Named]:
    """All names of a row's key."""
    yield _Named(key, 1.0, 0)
    path = key.removeprefix(f"{actor}/").removeprefix("aligned/")
    found = _catalogued(actor, path, "")
    if found is None:
        head, _, end = path.rpartition("/")
        found = _catalogued(actor, head, end) if head and end in _ENDS else None
    if found is not None:
        yield found


def _catalogued(actor: str, path: str, end: str) -> _Named | None:
    found = lookup(actor, path)
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
    return _Named(f"{name}/{end}" if end else name, found.scale, 1 if own else 2)


def lineage_of(row: Row) -> Lineage:
    """From which start of the job the newest lines of a row of a step are."""
    return row.coverage.lineage or plain_lineage(row.coverage.attempts)


_Place = tuple[str, str]  # actor and kind of unit


@dataclass(slots=True)
class _LineageParts:
    """The rows of a lineage by step. It begins at `first`; before that it has those of the lineage before it."""

    key: Lineage
    first: int
    parts: dict[int, dict[_Place, Part]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FrameChange:
    """A frame that is new or changed (None: it is gone); or the beginning of a lineage at step `index`, which has the
    frames below it of the lineage before it.
    """

    lineage: Lineage
    index: int
    frame: StepFrame | None
    begins: bool = False


class Frames:
    """Takes the rows of a store in the order of their numbers, and gives the frames that change.

    A row of the lead with a greater lineage than all before it begins a new lineage at its step. Rows of other actors
    go to the lineage that is the newest when they come. Steps below the beginning of a lineage are common to it and to
    the lineage before it.
    """

    def __init__(self, names: FrameNames, lead: str) -> None:
        self._names = names
        self._lead: _Place = (lead, STEP)
        self._axis: str | None = None
        self._lineages: list[_LineageParts] = []
        self._early: list[Row] = []  # rows of other actors before the first of the lead

    @property
    def has_lead(self) -> bool:
        """Whether there was a row of the lead: without one there are no frames."""
        return bool(self._lineages)

    def take(self, row: Row) -> Iterator[FrameChange]:
        """What a row changes."""
        unit = row.unit
        if (unit.actor, unit.kind) == self._lead:
            yield from self._take_lead(row)
            early, self._early = self._early, []
            for one in early:
                yield from self.take(one)
        elif unit.kind in (STEP, ALIGNED, LEDGER):
            if self._axis is None:
                self._early.append(row)
            elif unit.kind == ALIGNED or self._axis in row.x:
                yield from self._put(row, len(self._lineages) - 1, spread_back=True)

    def _take_lead(self, row: Row) -> Iterator[FrameChange]:
        if self._axis is None:
            self._axis = next(iter(row.x), "")
        key, index = lineage_of(row), row.unit.index
        if not self._lineages or key > self._lineages[-1].key:
            begun = _LineageParts(key, index)
            if self._lineages:
                before = self._lineages[-1].parts
                begun.parts = {step: dict(parts) for step, parts in before.items() if step < index}
            self._lineages.append(begun)
            yield FrameChange(key, index, None, begins=True)
        at = max((at for at, one in enumerate(self._lineages) if one.key <= key), default=0)
        own = self._lineages[at]
        if index < own.first:
            # The lineage begins earlier than it seemed, so it did not have what the one before it has from here on.
            gone = [step for step in own.parts if index <= step < own.first] if at else []
            own.first = index
            for step in gone:
                del own.parts[step]
                yield FrameChange(own.key, step, None)
        yield from self._put(row, at, spread_back=False)

    def _put(self, row: Row, at: int, *, spread_back: bool) -> Iterator[FrameChange]:
        """Put a row into a lineage, and into those with which it shares the step."""
        index, every = row.unit.index, self._lineages
        last = at
        while last + 1 < len(every) and index < every[last + 1].first:
            last += 1
        first = at
        while spread_back and first > 0 and index < every[first].first:
            first -= 1
        part = self._names.part(row)
        for one in every[first : last + 1]:
            parts = one.parts.setdefault(index, {})
            parts[row.unit.actor, row.unit.kind] = part
            if self._lead in parts:
                yield FrameChange(one.key, index, self._frame(index, parts))

    def _frame(self, index: int, parts: Mapping[_Place, Part]) -> StepFrame:
        lead = parts[self._lead]
        values: dict[str, float] = dict(lead.values)
        ranks: dict[str, RankValues] = dict(lead.ranks)
        for place in sorted(parts):
            if place != self._lead:
                _add(parts[place], values, ranks)
        return StepFrame(lead.lineage, index, lead.t, values, ranks)


def _add(part: Part, values: dict[str, float], ranks: dict[str, RankValues]) -> None:
    """Add what another actor's row says. Of a metric that several actors log the lead's counts, else the first one's;
    ranks that are missing or short add up.
    """
    for name, value in part.values.items():
        if name in (MISSING, SHORT):
            values[name] = values.get(name, 0.0) + value
        else:
            values.setdefault(name, value)
    for name, found in part.ranks.items():
        if name in (MISSING, SHORT):
            ranks[name] = ranks.get(name, ()) + found
        else:
            ranks.setdefault(name, found)
