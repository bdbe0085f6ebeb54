"""The few metrics that a screen has room for: reward, loss and tokens per second, each over the whole run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.report.status import TrendStatus
from rlship_sidecar.rows import ALIGNED, CLOCK, STEP, Row, Unit
from rlship_sidecar.store.units import ActorUnits
from rlship_sidecar.tally import OWN_ACTOR

if TYPE_CHECKING:  # the screen of `rlship status` opens no store
    from rlship_sidecar.store.store import Store

MAX_POINTS = 48  # that a status has of a metric, and newest rows that are kept
MAX_HELD = 2 * MAX_POINTS  # points of the whole run that are kept
MAX_TRENDS = 8
SEED_ROWS = 64  # the rows that a sidecar reads again at its start
_KINDS = (STEP, ALIGNED, CLOCK)
_RATE_STEPS = 20
_NONFINITE = "/nonfinite"
_Held = TypeVar("_Held")

NOT_BEHIND: Mapping[str, int] = {}

# What each place of the screen shows: names of the catalogue, best first, then last parts of names that it lacks.
SLOTS: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = (
    (("reward/total",), frozenset(("reward", "rewards", "score", "return"))),
    (("train/loss", "train/loss_decomp/pg"), frozenset(("loss", "total_loss", "train_loss", "pg_loss", "actor_loss"))),
    (
        ("perf/tokens_per_s", "gen/decode_tokens_per_s"),
        frozenset(("tokens_per_s", "tokens_per_sec", "tokens_per_second", "tok_per_s", "tps", "throughput")),
    ),
)


class _Point(NamedTuple):
    """A metric in a row: its value, NaN if no observation was finite, how many were not, and the row's time."""

    value: float
    nonfinite: int
    t: float

    @property
    def is_finite(self) -> bool:
        """True if there is a value to draw."""
        return math.isfinite(self.value)


@dataclass(slots=True)
class _Curve:
    """One metric over the whole run: of each `stride` neighbouring indexes one point, the first with a finite value.

    Single points and no means, so that a revision replaces what it revises.
    """

    stride: int = 1
    held: dict[int, tuple[int, _Point]] = field(default_factory=dict)
    finite: tuple[int, float] | None = None  # the newest finite value, and its index

    def note(self, index: int, point: _Point) -> None:
        """Take a new or a revised point."""
        self._hold(index, point)
        if point.is_finite and (self.finite is None or index >= self.finite[0]):
            self.finite = index, point.value
        elif self.finite is not None and index == self.finite[0]:
            self.finite = max(((at, one.value) for at, one in self.held.values() if one.is_finite), default=None)
        while len(self.held) > MAX_HELD:
            before, self.held, self.stride = self.held, {}, 2 * self.stride
            for _, one in sorted(before.items()):
                self._hold(*one)

    def _hold(self, index: int, point: _Point) -> None:
        at, held = self.held.get(index // self.stride, (index, point))
        if at == index or (point.is_finite and (index < at or not held.is_finite)):
            held, at = point, index
        self.held[index // self.stride] = at, held

    def drop(self, index: int) -> None:
        """Forget a point: a revision took the metric out of its row."""
        if self.held.get(index // self.stride, (None,))[0] == index:
            del self.held[index // self.stride]

    def values(self, newest: int, value: float) -> list[float | None]:
        """The values up to the newest one, which ends the curve whether it is held or not; None: not finite."""
        found = dict(sorted((index, point.value) for index, point in self.held.values() if index < newest))
        found[newest] = value
        return [one if math.isfinite(one) else None for one in evenly(list(found.values()), MAX_POINTS)]

    @property
    def first(self) -> int:
        """The index at which the curve begins."""
        return min((index for index, _ in self.held.values()), default=0)


@dataclass(slots=True)
class _TrackedRows:
    """The newest rows of one actor and kind, by their times: these by index, and of each chosen key the newest points
    by index and the curve. Steps that are done again are newer than those after them.

    A key keeps points of its own, because rows may have a metric seldom.
    """

    width: int = -1
    times: dict[int, float] = field(default_factory=dict)
    points: dict[str, dict[int, _Point]] = field(default_factory=dict)
    curves: dict[str, _Curve] = field(default_factory=dict)

    def note(self, row: Row) -> None:
        """Take the row's time and its points."""
        index = row.unit.index
        self.times[index] = row.t
        if len(self.times) > MAX_POINTS:
            del self.times[min(zip(self.times.values(), self.times))[1]]
        for key, points in self.points.items():
            point = _point(row, key)
            if point is not None:
                points[index] = point
                if len(points) > MAX_POINTS:
                    del points[min((one.t, at) for at, one in points.items())[1]]
                self.curves[key].note(index, point)
            else:
                points.pop(index, None)
                self.curves[key].drop(index)

    def recall(self, row: Row) -> None:
        """Take an old row into the curves alone."""
        for key, curve in self.curves.items():
            if (point := _point(row, key)) is not None:
                curve.note(row.unit.index, point)


class Trends:
    """Follows the rows of one experiment and keeps a few metrics: their newest values, and curves of the whole run.

    `patterns` choose keys, `*` matching any characters; without patterns the catalogue chooses. The metrics of `lead`
    come before those of other actors.
    """

    def __init__(self, patterns: Sequence[str] = (), lead: str = "") -> None:
        self._patterns = tuple(patterns)
        self._lead = lead
        self._families: dict[tuple[str, str], _TrackedRows] = {}

    def note(self, rows: Iterable[Row]) -> None:
        """Take rows and revisions in the order of their row numbers."""
        for row in rows:
            unit = row.unit
            if unit.kind not in _KINDS or unit.actor == OWN_ACTOR:
                continue
            family = self._families.setdefault((unit.actor, unit.kind), _TrackedRows())
            if len(row.values) != family.width:
                family.width = len(row.values)
                for key in row.values:
                    key = key.removesuffix(_NONFINITE)
                    if key not in family.points and self._place(unit.actor, unit.kind, key) is not None:
                        family.points[key], family.curves[key] = {}, _Curve()
            family.note(row)

    def seed(self, store: Store) -> None:
        """Take what the store has: its newest rows, and for the curves some of the rows before them."""
        self.note(store.read_rows(max(0, store.row_count() - SEED_ROWS), SEED_ROWS))
        for unit in self._units_before(store):
            if (row := store.newest(unit)) is not None:
                self._families[unit.actor, unit.kind].recall(row)

    def _units_before(self, store: Store) -> list[Unit]:
        """Units from before the noted rows, evenly spread over the run: `MAX_POINTS` at most for each chosen metric."""
        found: dict[Unit, None] = {}
        for trend in self.trends():
            indexes = sorted(self._families[trend.actor, trend.kind].points[trend.key])
            first = ActorUnits(store, trend.actor).lowest(trend.kind)
            # A metric of every tenth row is looked for in every tenth row.
            apart = math.gcd(*(b - a for a, b in pairwise(indexes))) or 1
            stride = apart * max(1, -(-(indexes[0] - first) // (apart * MAX_POINTS)))
            chosen = [*range(indexes[0], first, -stride), first]  # the curve begins where the run does
            found |= {Unit(trend.actor, trend.kind, at): None for at in chosen}
        return list(found)

    def trends(self, behind: Mapping[str, int] = NOT_BEHIND) -> list[TrendStatus]:
        """The chosen metrics, best first, each metric of an actor once.

        `behind` maps actors that are doing steps again to the step that they are at: what former lives of them logged
        in later steps is old.
        """
        found: dict[tuple[str, str], tuple[tuple[object, ...], str, str]] = {}
        for (actor, kind), family in self._families.items():
            for key in filter(family.points.get, family.points):
                place = self._place(actor, kind, key)
                if place is not None:
                    metric = actor, _metric(actor, key)
                    found[metric] = min(found.get(metric, (place, kind, key)), (place, kind, key))
        chosen, taken = [], set()
        for place, kind, key in sorted(found.values()):
            if self._patterns or place[0] not in taken:  # the catalogue chooses one metric for each place
                taken.add(place[0])
                chosen.append((kind, key))
        owner = {(kind, key): actor for (actor, kind), family in self._families.items() for key in family.points}
        return [self._trend(owner[one], *one, behind) for one in chosen[:MAX_TRENDS]]

    def steps_per_s(self, actor: str, at: float | None = None, behind: Mapping[str, int] = NOT_BEHIND) -> float | None:
        """How many steps a second the newest rows of an actor cover, or None if that is unknown.

        `at` is the present by the clock of the actor's writers. The rate falls once no row follows: it is at most that
        of the recent past up to `at`, as if one more row came now. The recent past is as long as the newest rows took,
        or as the time since the newest row if that is longer. `behind` is that of `trends`.
        """
        family = self._families.get((actor, STEP))
        indexes = sorted(_up_to(family.times, behind.get(actor)))[-_RATE_STEPS:] if family is not None else []
        if family is None or len(indexes) < 2:
            return None
        times = [family.times[index] for index in indexes]
        took_s = times[-1] - times[0]
        if took_s <= 0:
            return None
        steps = indexes[-1] - indexes[0]
        if at is None:
            return steps / took_s
        recent_s = max(took_s, at - times[-1])
        recent = sum(t > at - recent_s for t in times)
        return min(steps / took_s, steps / (len(times) - 1) * (recent + 1) / recent_s)

    def _trend(self, actor: str, kind: str, key: str, behind: Mapping[str, int]) -> TrendStatus:
        family = self._families[actor, kind]
        points, curve = family.points[key], family.curves[key]
        of = {STEP: actor, ALIGNED: self._lead}.get(kind)
        latest = None if of is None else behind.get(of)
        newest = max(_up_to(points, latest), default=max(points))
        found = lookup(actor, _metric(actor, key))
        if latest is None:
            first, values = min(curve.first, newest), curve.values(newest, points[newest].value)
        else:  # the curve of the whole run is that of the former life, but for what is done again
            again = sorted(_up_to(points, latest)) or [newest]
            first = again[0]
            values = [points[one].value if points[one].is_finite else None for one in again]
        finite = curve.finite if values[-1] is None and curve.finite is not None and curve.finite[0] <= newest else None
        return TrendStatus(
            key,
            actor,
            kind,
            newest,
            values[-1],
            values,
            found.unit if found is not None else "",
            rows_since=sum(index > newest for index in _up_to(family.times, latest)),
            nonfinite=points[newest].nonfinite,
            first=first,
            finite=None if finite is None else finite[1],
            finite_index=None if finite is None else finite[0],
        )

    def _place(self, actor: str, kind: str, key: str) -> tuple[object, ...] | None:
        """Where a key comes among all keys, or None if it is not shown."""
        beside = _KINDS.index(kind), actor != self._lead, len(key), key
        if self._patterns:
            fits = (at for at, pattern in enumerate(self._patterns) if _fits(key, pattern))
            at = next(fits, None)
            return None if at is None else (at, 0, *beside)
        slot = slot_of(actor, _metric(actor, key))
        return None if slot is None else (*slot, *beside)


class Slot(NamedTuple):
    """What a metric is of the few that every job has, and how well it fits: 0 is best."""

    number: int
    fit: int


def slot_of(actor: str, metric: str) -> Slot | None:
    """Whether an actor's metric is the reward (0), the loss (1), tokens per second (2), or another one (None)."""
    plain = metric.removesuffix("/mean")
    entry = lookup(actor, metric) or lookup(actor, plain)
    for number, (names, ends) in enumerate(SLOTS):
        if entry is not None and entry.name in names:
            return Slot(number, names.index(entry.name))
        if entry is None and plain.rpartition("/")[2].lower() in ends:
            return Slot(number, 1)  # after the catalogue's best
    return None


def evenly(points: Sequence[_Held], most: int) -> Sequence[_Held]:
    """At most `most` of the points, evenly spread, the first and the last among them."""
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[last * place // max(1, most - 1)] for place in range(most)]


def _point(row: Row, key: str) -> _Point | None:
    """A metric of a row; None if the row lacks it."""
    value, nonfinite = row.values.get(key), int(row.values.get(_beside(key), 0))
    if value is None and not nonfinite:
        return None
    return _Point(math.nan if value is None else value, nonfinite, row.t)


def _up_to(indexes: Iterable[int], latest: int | None) -> list[int]:
    return [index for index in indexes if latest is None or index <= latest]


def _fits(key: str, pattern: str) -> bool:
    return fnmatchcase(key, pattern) or fnmatchcase(key.removeprefix("clock/"), pattern)


def _beside(key: str) -> str:
    """The key that counts a metric's observations that are not finite."""
    return key.removesuffix("/mean") + _NONFINITE


def _metric(actor: str, key: str) -> str:
    return key.removeprefix("clock/").removeprefix(f"{actor}/")
