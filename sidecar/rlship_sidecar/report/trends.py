"""The newest values of the few metrics that a screen has room for: reward, loss and tokens per second. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.report.status import TrendStatus
from rlship_sidecar.rows import ALIGNED, CLOCK, STEP, Row
from rlship_sidecar.tally import OWN_ACTOR

MAX_POINTS = 48
MAX_TRENDS = 8
SEED_ROWS = 64  # the rows that a sidecar reads again at its start
_KINDS = (STEP, ALIGNED, CLOCK)
_RATE_STEPS = 20
_NONFINITE = "/nonfinite"
_Held = TypeVar("_Held")

# What each place of the screen shows: names of the catalogue, best first, then last parts of names that it lacks.
_SLOTS = (
    (("reward/total",), frozenset(("reward", "rewards", "score", "return"))),
    (("train/loss", "train/loss_decomp/pg"), frozenset(("loss", "total_loss", "train_loss", "pg_loss", "actor_loss"))),
    (
        ("perf/tokens_per_s", "gen/decode_tokens_per_s"),
        frozenset(("tokens_per_s", "tokens_per_sec", "tokens_per_second", "tok_per_s", "tps", "throughput")),
    ),
)


class _Point(NamedTuple):
    """A metric in a row: its value, NaN if no observation was finite, and how many were not."""

    value: float
    nonfinite: int


@dataclass(slots=True)
class _TrackedRows:
    """The newest rows of one actor and kind: their times by index, and the newest points of each chosen key by index.

    A key keeps points of its own, because rows may have a metric seldom.
    """

    width: int = -1
    times: dict[int, float] = field(default_factory=dict)
    points: dict[str, dict[int, _Point]] = field(default_factory=dict)

    def note(self, row: Row) -> None:
        """Take the row's time and its points."""
        index = row.unit.index
        _keep(self.times, index, row.t)
        for key, points in self.points.items():
            value, nonfinite = row.values.get(key), int(row.values.get(_beside(key), 0))
            if value is not None or nonfinite:
                _keep(points, index, _Point(math.nan if value is None else value, nonfinite))
            else:
                points.pop(index, None)


class Trends:
    """Follows the rows of one experiment and keeps the last `MAX_POINTS` values of a few metrics.

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
                        family.points[key] = {}
            family.note(row)

    def trends(self) -> list[TrendStatus]:
        """The chosen metrics, best first, each metric of an actor once."""
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
        return [self._trend(owner[one], *one) for one in chosen[:MAX_TRENDS]]

    def steps_per_s(self, actor: str, at: float | None = None) -> float | None:
        """How many steps a second the newest rows of an actor cover, or None if that is unknown.

        `at` is the present by the clock of the actor's writers. The rate falls once no row follows: it is at most that
        of the recent past up to `at`, as if one more row came now. The recent past is as long as the newest rows took,
        or as the time since the newest row if that is longer.
        """
        family = self._families.get((actor, STEP))
        indexes = sorted(family.times)[-_RATE_STEPS:] if family is not None else []
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

    def _trend(self, actor: str, kind: str, key: str) -> TrendStatus:
        family = self._families[actor, kind]
        points = family.points[key]
        indexes = sorted(points)
        values = [value if math.isfinite(value) else None for value in (points[index].value for index in indexes)]
        newest, found = indexes[-1], lookup(actor, _metric(actor, key))
        return TrendStatus(
            key,
            actor,
            kind,
            newest,
            values[-1],
            values,
            found.unit if found is not None else "",
            rows_since=sum(index > newest for index in family.times),
            nonfinite=points[newest].nonfinite,
        )

    def _place(self, actor: str, kind: str, key: str) -> tuple[object, ...] | None:
        """Where a key comes among all keys, or None if it is not shown."""
        metric = _metric(actor, key)
        beside = _KINDS.index(kind), actor != self._lead, len(key), key
        if self._patterns:
            fits = (at for at, pattern in enumerate(self._patterns) if _fits(key, pattern))
            at = next(fits, None)
            return None if at is None else (at, 0, *beside)
        plain = metric.removesuffix("/mean")
        entry = lookup(actor, metric) or lookup(actor, plain)
        for slot, (names, ends) in enumerate(_SLOTS):
            if entry is not None and entry.name in names:
                return slot, names.index(entry.name), *beside
            if entry is None and plain.rpartition("/")[2].lower() in ends:
                return slot, 1, *beside  # behind the catalogue's best
        return None


def _fits(key: str, pattern: str) -> bool:
    return fnmatchcase(key, pattern) or fnmatchcase(key.removeprefix("clock/"), pattern)


def _beside(key: str) -> str:
    """The key that counts a metric's observations that are not finite."""
    return key.removesuffix("/mean") + _NONFINITE


def _keep(held: dict[int, _Held], index: int, one: _Held) -> None:
    """Put it in, and drop the lowest index if there are too many."""
    held[index] = one
    if len(held) > MAX_POINTS:
        del held[min(held)]


def _metric(actor: str, key: str) -> str:
    return key.removeprefix("clock/").removeprefix(f"{actor}/")
