"""The definition of a reduced window: any mixture of values, segments and reductions, merged one by one. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlship_formats.foreign.trainer_state import at_wandb
from rlship_formats.histogram import histogram, merged
from rlship_formats.quantiles import quantile
from rlship_formats.reading import TAGGED
from rlship_formats.records import Definition
from rlship_formats.values import (
    EMPTY,
    MOMENT_REDUCTIONS,
    QUANTILES,
    SUM_LAST,
    Histogram,
    Moments,
    Observations,
    defined,
    fold,
    merge,
    reduce_moments,
)
from rlship_sidecar.align.lineage import Segment, newest, order_of, replica_key
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.reduce.custom import Customs
from rlship_sidecar.reduce.naming import LEAD_STEPS, POLICY_VERSION, Naming
from rlship_sidecar.reduce.per_rank import rank_name, scalars
from rlship_sidecar.reduce.rates import Seconds, rate
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.samples import counted
from rlship_sidecar.reduce.values import UNDEFINED, PerRank, Reduced, ReducedValue
from rlship_sidecar.rows import RankName


class Item(NamedTuple):
    """One metric on one line."""

    segment: Segment
    offset: int
    t: float
    asks: Definition
    observations: Observations


class SegmentPart(NamedTuple):
    """The contribution of one segment to a metric."""

    segment: Segment
    moments: Moments
    observations: list[Observations]


class Contributions:
    """The counting contributions to one metric, in merge order."""

    def __init__(self, parts: list[SegmentPart], *, with_m2: bool) -> None:
        self.parts = parts
        self._with_m2 = with_m2

    @cached_property
    def total(self) -> Moments:
        """The merged moments."""
        total = self.parts[0].moments
        for part in self.parts[1:]:
            total = merge(total, part.moments, with_m2=self._with_m2)
        return total

    @cached_property
    def of_one_rank(self) -> bool:
        """Whether they are all of one rank."""
        return len({part.segment.writer.rank for part in self.parts}) == 1

    @property
    def single(self) -> bool:
        """Whether they hold one observation, a finite one that is known by itself."""
        return self.total.n == 1 and not self.total.nonfinite and not self.summarized

    @cached_property
    def summarized(self) -> bool:
        """Whether one of them is a summary, which lacks the single observations."""
        return any(item.summary is not None for part in self.parts for item in part.observations)

    @cached_property
    def bins(self) -> list[Histogram] | None:
        """The bins of the summaries; None if one of these has none."""
        summaries = [item for part in self.parts for item in part.observations if item.summary is not None]
        found = [item.bins for item in summaries if item.bins is not None]
        return found if len(found) == len(summaries) else None

    @cached_property
    def ordered(self) -> NDArray[np.float64]:
        """The finite observations, in ascending order."""
        xs = [x for part in self.parts for item in part.observations for x in item.xs]
        return np.sort(np.array(xs, dtype=np.float64))

    def derive(self, reduction: str, seconds: Seconds, customs: Customs) -> ReducedValue:
        """The value of a reduction."""
        if reduction in MOMENT_REDUCTIONS:
            total = self._lowest() if reduction in ("first", "last") else self.total
            return reduce_moments(total, reduction) if defined(total, reduction) else UNDEFINED
        if reduction == SUM_LAST:
            return self._sum_of_last()
        if reduction == "rate":
            return rate([(part.segment, part.moments) for part in self.parts], self.total, seconds)
        if self.summarized:
            return merged(self.bins, self.ordered) if reduction == "hist" and self.bins else None
        if not self.total.n:
            return UNDEFINED
        if reduction == "hist":
            return histogram(self.ordered)
        if reduction in QUANTILES:
            return quantile(self.ordered, QUANTILES[reduction])
        return customs.value_of(reduction, (_weighted(part) for part in self.parts))

    def _sum_of_last(self) -> ReducedValue:
        """The sum of the last observation of each part that no newer life of its rank supersedes.

        In a step no superseded part is left. In a window of time several lives of a rank may have one.
        """
        current = newest(part.segment for part in self.parts)
        found: float | None = None
        for part in self.parts:
            if part.moments.n and part.segment in current:
                last = part.moments.last
                if last is None:
                    return None
                found = last if found is None else found + last
        if found is None:
            return UNDEFINED
        return found if math.isfinite(found) else None

    def by_rank(self) -> list[tuple[RankName, Contributions]]:
        """The contributions of each rank, in merge order."""
        found: dict[RankName, list[SegmentPart]] = {}
        for part in self.parts:
            found.setdefault(part.segment.writer.rank, []).append(part)
        ranks = sorted(found, key=lambda rank: (replica_key(rank.replica), rank.rank))
        return [(rank, Contributions(found[rank], with_m2=self._with_m2)) for rank in ranks]

    def _lowest(self) -> Moments:
        """The merged moments of the lowest rank that has a finite observation."""
        for _, contributions in self.by_rank():
            if contributions.total.n:
                return contributions.total
        return EMPTY


class _Metric(NamedTuple):
    """One metric's values by key, its first reduction first, and what its values per rank need. `compared`: the row
    says which rank has the greatest. `asked`: the keys of further reductions that the job asks for.
    """

    values: list[tuple[str, ReducedValue]]
    first: str
    contributions: Contributions
    governed: bool
    compared: bool
    lags: bool
    asked: list[str]


class Manner(NamedTuple):
    """How a window is reduced. `seconds`: what rates are over; `superseding`: whether newer segments replace older
    ones; `alone`: whether the actor has one rank.
    """

    naming: Naming
    rules: Rules
    seconds: Seconds
    superseding: bool = True
    alone: bool = False


def reduce_any(
    window: UnitLines, how: Manner, *, only: Collection[str] | None = None, beside: Sequence[Segment] = ()
) -> Reduced:
    """The reduced window.

    `only`: just these metrics, and the samples. `beside` are segments that have a part in the row by other metrics.
    """
    naming, rules, seconds, superseding, alone = how
    primary: dict[str, ReducedValue] = {}
    derived: dict[str, ReducedValue] = {}
    metrics: dict[str, _Metric] = {}
    used = set(beside)
    ts: list[float] = []
    found = _items(window, only)
    for name, items in sorted((without_retold(found) if superseding else found).items()):
        items = _counted(items) if superseding else items
        used.update(item.segment for item in items)
        ts.extend(item.t for item in items)
        if name == TAGGED:
            continue
        metric = metrics[name] = _metric(naming, name, items, rules, seconds, alone=alone)
        for key, value in metric.values:
            # A key means one thing in every row: its owner does not depend on whether this row has a value for it.
            (primary if key == naming.plain(name) else derived).setdefault(key, value)
    for sampled in counted(window.samples, superseding=superseding).values():
        used.update(segment for segment, _ in sampled)
        ts.extend(line.t for _, line in sampled)
    every = {**derived, **primary}
    per_rank, more = _per_rank(naming, metrics, {segment.writer.rank.replica for segment in used}, rules, seconds)
    for key, value in more:
        every.setdefault(key, value)
    if not used:
        ts = [line.t for _, line in window.sparse] + [t for block in window.blocks.values() for t, _, _ in block.lines]
    return Reduced(
        {key: value for key, value in every.items() if isinstance(value, float)},
        {key: value for key, value in every.items() if isinstance(value, Histogram)},
        per_rank,
        every.keys(),
        order_of(tuple(used)),
        tuple(sorted(key for key, value in every.items() if value is None)),
        max(ts, default=0.0),
        POLICY_VERSION in metrics and metrics[POLICY_VERSION].lags,
        tuple(sorted({key for metric in metrics.values() for key in metric.asked})),
    )


def _items(window: UnitLines, only: Collection[str] | None = None) -> dict[str, list[Item]]:
    """Every observation of the window by metric, in merge order and file order; with `only`, those of some metrics."""
    found: dict[str, list[Item]] = {}
    unsorted: set[str] = set()
    for schema, block in window.blocks.items():
        names = schema.names if only is None else [name for name in schema.names if name in only]
        if not names:
            continue
        unsorted.update(names if schema.bundled else found.keys() & set(names))
        # Sorted once for all metrics of the block.
        lines = sorted(zip(block.owners, block.lines), key=lambda line: (line[0].merge_key, line[1][1]))
        for owner, (t, offset, data) in lines:
            values = schema.values(data)
            ts, offsets = schema.places(data) if schema.bundled else (repeat(t), repeat(offset))
            for (name, asks, observations), at, begin in zip(values, ts, offsets):
                if only is None or name in only:
                    found.setdefault(name, []).append(Item(owner, begin, at, asks, observations))
    for segment, line in window.sparse:
        for name, asks, observations in line.values:
            found.setdefault(name, []).append(Item(segment, line.offset, line.t, asks, observations))
            unsorted.add(name)
    for name in unsorted:
        found[name].sort(key=lambda item: (item.segment.merge_key, item.offset))
    return found


def without_retold(found: dict[str, list[Item]]) -> dict[str, list[Item]]:
    """The items of a step without those of transformers' files that their rank logged at W&B, under another name."""
    kept: dict[str, list[Item]] = {}
    for name, items in found.items():
        if any(item.segment.writer.retells for item in items):
            others = (item.segment.writer for item in found.get(at_wandb(name), ()))
            ranks = {writer.rank for writer in others if not writer.retells}
            items = [item for item in items if not (item.segment.writer.retells and item.segment.writer.rank in ranks)]
        if items:
            kept[name] = items
    return kept


def _counted(items: list[Item]) -> list[Item]:
    """The items that no newer segment of their rank supersedes."""
    kept = newest(item.segment for item in items)
    return [item for item in items if item.segment in kept]


def _metric(naming: Naming, name: str, items: list[Item], rules: Rules, seconds: Seconds, *, alone: bool) -> _Metric:
    chosen = rules.chosen(naming.actor, name)
    asks = chosen or tuple(dict.fromkeys(ask for item in items for ask in item.asks.reduce))
    contributions = Contributions(_parts(items, with_m2="std" in asks), with_m2="std" in asks)
    alone = alone and contributions.of_one_rank
    flat = not chosen and _is_flat(items, contributions, alone=alone)
    values = [
        (key, UNDEFINED if flat and place else contributions.derive(ask, seconds, rules.customs))
        for place, (ask, key) in enumerate(naming.keys(name, asks))
    ]
    if contributions.total.nonfinite and not naming.first_only:
        values.append((f"{naming.plain(name)}/nonfinite", float(contributions.total.nonfinite)))
    lags = name == POLICY_VERSION and any(item.asks.unit == LEAD_STEPS for item in items)
    governed = any(item.asks.per_rank for item in items)
    compared = any(item.asks.per_rank and not (alone and item.asks.catalogued) for item in items)
    of_job = chosen or {ask for item in items if item.asks.asked for ask in item.asks.reduce}
    asked = [key for place, (ask, key) in enumerate(naming.keys(name, asks)) if place and ask in of_job]
    return _Metric(values, asks[0], contributions, governed, compared, lags, asked)


def _is_flat(items: Sequence[Item], contributions: Contributions, *, alone: bool) -> bool:
    """Whether a metric has no spread to show: it is one number of the only rank, and the catalogue alone asks."""
    return alone and contributions.single and all(item.asks.catalogued for item in items)


def _parts(items: Iterable[Item], *, with_m2: bool) -> list[SegmentPart]:
    """One part for each segment."""
    by_segment: dict[Segment, list[Observations]] = {}
    for item in items:
        by_segment.setdefault(item.segment, []).append(item.observations)
    return [
        SegmentPart(segment, fold(observations, with_m2=with_m2), observations)
        for segment, observations in by_segment.items()
    ]


def _per_rank(
    naming: Naming, metrics: dict[str, _Metric], replicas: set[str], rules: Rules, seconds: Seconds
) -> tuple[PerRank, list[tuple[str, ReducedValue]]]:
    """The values per rank, and the values of the row that follow from them, by key."""
    found: PerRank = {}
    more: list[tuple[str, ReducedValue]] = []
    for name, metric in metrics.items():
        if metric.first == "hist" or naming.first_only or not (metric.governed or rules.per_rank):
            continue
        key = naming.plain(name)
        ranks: list[RankName] = []
        values: list[float] = []
        for rank, contributions in metric.contributions.by_rank():
            value = contributions.derive(metric.first, seconds, rules.customs)
            if isinstance(value, float):
                ranks.append(rank)
                values.append(value)
        if values:
            found[key] = [(rank_name(rank), value) for rank, value in zip(ranks, values)]
            if metric.compared:
                more += [(f"{key}/{what}", value) for what, value in scalars(ranks, values, replicas)]
    return found, more


def _weighted(part: SegmentPart) -> Iterable[tuple[float, float]]:
    for item in part.observations:
        yield from zip(item.xs, item.ws if item.ws is not None else (1.0 for _ in item.xs))
