"""One figure of one metric, from the contributions that count: docs/semantics.md, read literally."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from tests.reference.moments import merge
from tests.reference.order import Contribution, rank_order, without_superseded
from tests.reference.records import Writer
from tests.reference.rows import Histogram
from tests.reference.settings import Settings

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
MOST_EXACT = 65_536
BINS = 64
SMALLEST_NORMAL = 2.0**-1022
ALPHA = 0.01
GAMMA = (1 + ALPHA) / (1 - ALPHA)

Rate = Callable[[Sequence[Contribution]], float]
"""The rate over contributions that have finite observations; ArithmeticError where it cannot be derived."""


@dataclass(frozen=True)
class Figures:
    """How figures are made in one unit. `crew` gives the writers of an actor."""

    settings: Settings
    rate: Rate
    crew: Callable[[str], Sequence[Writer]]

    def of(self, contributions: Sequence[Contribution], reduction: str) -> float | None:
        """One figure of one metric; None where it cannot be given.

        ArithmeticError if there should be one but something keeps it from being derived.
        """
        figure = self.any_of(contributions, reduction)
        if figure is not None and not math.isfinite(figure):
            raise ArithmeticError(f"{reduction} is {figure}")
        return figure

    def any_of(self, contributions: Sequence[Contribution], reduction: str) -> float | None:
        if reduction in QUANTILES:
            return quantile(sorted_values(contributions), QUANTILES[reduction])
        if "." in reduction:
            return self.custom(contributions, reduction)
        whole = reduce(merge, (contribution.moments for contribution in contributions))
        if reduction == "count":
            return float(whole.n)
        if whole.n == 0:
            return None
        if reduction == "rate":
            return self.rate([contribution for contribution in contributions if contribution.moments.n > 0])
        if reduction == "sum_last":
            newest = [
                c
                for c in without_superseded(contributions, self.crew(contributions[0].writer.actor))
                if c.moments.n > 0
            ]
            return reduce(lambda a, b: a + b, (known(c.moments.last) for c in newest)) if newest else None
        if reduction in ("first", "last"):
            lowest = min(rank_order(c.root) for c in contributions if c.moments.n > 0)
            of_rank = reduce(merge, (c.moments for c in contributions if rank_order(c.root) == lowest))
            return known(of_rank.first if reduction == "first" else of_rank.last)
        if reduction == "min":
            return known(whole.min)
        if reduction == "max":
            return known(whole.max)
        if reduction == "sum":
            return known(whole.sum)
        if whole.w == 0:
            return None
        if reduction == "mean":
            return known(whole.sum) / whole.w
        variance = known(whole.m2) / whole.w
        return 0.0 if whole.min is not None and whole.min == whole.max else math.sqrt(variance)

    def custom(self, contributions: Sequence[Contribution], reduction: str) -> float | None:
        """A reduction of another package: one accumulator a segment that has a finite observation, merged in order."""
        refuse_summaries(contributions)
        if not any(contribution.observed for contribution in contributions):
            return None
        if reduction not in self.settings.custom:
            raise ArithmeticError(f"{reduction} is not installed")
        try:
            accumulators = []
            for contribution in contributions:
                if contribution.observed:
                    accumulators.append(self.settings.custom[reduction]())
                    for x, w in contribution.observed:
                        accumulators[-1].add(x, w)
            first, *others = accumulators
            for other in others:
                first.merge(other)
            result = first.value()
        except Exception as trouble:
            raise ArithmeticError(f"{reduction} raises {trouble}") from trouble
        if result is not None and (isinstance(result, bool) or not isinstance(result, (int, float))):
            raise ArithmeticError(f"{reduction} gives {result!r}")
        return None if result is None else float(result)


def known(field: float | None) -> float:
    if field is None:
        raise ArithmeticError("unknown")
    return field


def refuse_summaries(contributions: Sequence[Contribution]) -> None:
    if any(contribution.summarised for contribution in contributions):
        raise ArithmeticError("a summary does not say what it is made of")


def sorted_values(contributions: Sequence[Contribution]) -> list[float]:
    """x_0, x_1, …: all finite observations, each once."""
    refuse_summaries(contributions)
    return sorted(x for contribution in contributions for x, _ in contribution.observed)


# --- quantiles and histograms ---


def quantile(x: Sequence[float], q: float) -> float | None:
    if not x:
        return None
    figure = type_7(x, q) if len(x) <= MOST_EXACT else sketched(x, q)
    return 0.0 if figure == 0 else figure


def type_7(x: Sequence[float], q: float) -> float:
    h = (len(x) - 1) * q
    i = math.floor(h)
    f = h - i
    if f == 0:
        return x[i]
    difference = x[i + 1] - x[i]
    return x[i] + f * difference if math.isfinite(difference) else x[i] * (1 - f) + x[i + 1] * f


def held(x: Sequence[float], q: float) -> float:
    """x_r, which a sketch stands for by the value of its bucket."""
    return x[math.floor((len(x) - 1) * q)]


def sketched(x: Sequence[float], q: float) -> float:
    return min(max(value_of_bucket(held(x, q)), x[0]), x[-1])


def value_of_bucket(x: float) -> float:
    """The value of the bucket into which x falls."""
    if abs(x) < SMALLEST_NORMAL:
        return 0.0
    index = math.ceil(math.log(abs(x)) / math.log(GAMMA))
    try:
        size = 2 * GAMMA**index / (GAMMA + 1)
    except OverflowError:
        size = math.inf
    return math.copysign(size, x)


def histogram(contributions: Sequence[Contribution]) -> Histogram | None:
    """Of observations, and of summaries with edges and counts."""
    x = [(x, x, 1) for contribution in contributions for x, _ in contribution.observed]
    summaries = [one for contribution in contributions for one in contribution.binned]
    if None in summaries:
        raise ArithmeticError("a summary does not say what it is made of")
    known = [one for one in summaries if one is not None]
    if not x and not known:
        return None
    if not x and len({edges for edges, _ in known}) == 1 and len(known[0][1]) <= 512:
        return Histogram(known[0][0], tuple(sum(found) for found in zip(*(counts for _, counts in known))))
    for edges, counts in known:
        x += [(low, high, count) for low, high, count in zip(edges, edges[1:], counts) if count > 0]
    return spread(x)


def spread(x: Sequence[tuple[float, float, int]]) -> Histogram:
    """64 bins for items that each stand for some observations between two numbers."""
    lo, hi = min(low for low, _, _ in x), max(high for _, high, _ in x)
    if lo == hi:
        return Histogram((lo + 0.0, hi + 0.0), (sum(count for _, _, count in x),))
    edges = [lo]
    for j in range(1, BINS):
        edges.append(min(max(edges[-1], lo * (1 - j / BINS) + hi * (j / BINS)), hi))
    counts = [0] * BINS
    for low, high, count in x:
        middle = min(max(low / 2 + high / 2, low), high)
        counts[bisect_right(edges, middle) - 1] += count
    return Histogram(tuple(edge + 0.0 for edge in (*edges, hi)), tuple(counts))


# --- rates ---


def step_rate(step: int) -> Rate:
    """The rate of a step unit: each segment's sum over the time between the barriers of its root."""

    def rate(contributions: Sequence[Contribution]) -> float:
        return reduce(lambda a, b: a + b, (known(c.moments.sum) / seconds_before(c.root, step) for c in contributions))

    return rate


def seconds_before(root: Writer, step: int) -> float:
    """Between a root's barrier of the step and the one before; ArithmeticError if there is no such time."""
    having = [segment for segment in root.segments if any(at == step for at, _ in segment.barriers)]
    if not having:
        raise ArithmeticError("no barrier")
    barriers = having[-1].barriers
    place = [at for at, _ in barriers].index(step)
    if place == 0 or barriers[place][1] <= barriers[place - 1][1]:
        raise ArithmeticError("no time between barriers")
    return barriers[place][1] - barriers[place - 1][1]


def rate_over(seconds: float) -> Rate:
    """The rate of a unit of known length."""

    def rate(contributions: Sequence[Contribution]) -> float:
        whole = reduce(merge, (contribution.moments for contribution in contributions))
        if seconds <= 0:
            raise ArithmeticError("no time")
        return known(whole.sum) / seconds

    return rate


def no_rate(contributions: Sequence[Contribution]) -> float:
    """A point has no length."""
    raise ArithmeticError("no time")
