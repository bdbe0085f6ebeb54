"""Reductions of what scrapes log: sums of levels, and quantiles of buckets.

They are entry points of the group `rlship.reductions`, like those of any package; see docs/reductions.md.
"""

from __future__ import annotations

from typing import ClassVar


class GaugeSum:
    """`gauge.sum`: the mean of each source's observations, added up over sources.

    A queue that is looked at twice in a window is not twice as long. The weight of an observation identifies its
    source: observations of one source have the same weight, those of different sources have different ones.
    """

    def __init__(self) -> None:
        self.sources: dict[float, tuple[float, int]] = {}

    def add(self, x: float, weight: float) -> None:
        """Add one observation of a source."""
        total, count = self.sources.get(weight, (0.0, 0))
        self.sources[weight] = total + x, count + 1

    def merge(self, other: GaugeSum) -> None:
        """Add the observations of `other`."""
        for weight, (more, times) in other.sources.items():
            total, count = self.sources.get(weight, (0.0, 0))
            self.sources[weight] = total + more, count + times

    def value(self) -> float | None:
        """The sum over sources of their means."""
        return sum(total / count for total, count in self.sources.values())

    def state(self) -> list[list[float]]:
        """The whole state, as JSON data."""
        return [[weight, total, count] for weight, (total, count) in self.sources.items()]

    @classmethod
    def from_state(cls, state: list[list[float]]) -> GaugeSum:
        """The inverse of `state`."""
        made = cls()
        made.sources = {weight: (total, int(count)) for weight, total, count in state}
        return made


class BucketQuantile:
    """A quantile of a histogram: each observation is the upper bound of a bucket, its weight the count in the bucket.

    A bucket is taken as evenly filled between the bound below and its own, as in Prometheus. The lowest one begins at 0
    if its bound is above 0; otherwise all of it is at its bound.
    """

    q: ClassVar[float]

    def __init__(self) -> None:
        self.weights: dict[float, float] = {}

    def add(self, x: float, weight: float) -> None:
        """Add a bucket."""
        self.weights[x] = self.weights.get(x, 0.0) + weight

    def merge(self, other: BucketQuantile) -> None:
        """Add the buckets of `other`."""
        for bound, weight in other.weights.items():
            self.add(bound, weight)

    def value(self) -> float | None:
        """The quantile; None if all buckets are empty."""
        bounds = sorted(self.weights)
        target = self.q * sum(self.weights[bound] for bound in bounds)
        below = 0.0
        for place, bound in enumerate(bounds):
            weight = self.weights[bound]
            if weight and below + weight >= target:
                low = bounds[place - 1] if place else min(bound, 0.0)
                return low + (bound - low) * ((target - below) / weight)
            below += weight
        return None

    def state(self) -> list[list[float]]:
        """The whole state, as JSON data."""
        return [[bound, weight] for bound, weight in self.weights.items()]

    @classmethod
    def from_state(cls, state: list[list[float]]) -> BucketQuantile:
        """The inverse of `state`."""
        made = cls()
        made.weights = {pair[0]: pair[1] for pair in state}
        return made


class BucketP50(BucketQuantile):
    """`buckets.p50`."""

    q = 0.5


class BucketP90(BucketQuantile):
    """`buckets.p90`."""

    q = 0.9


class BucketP95(BucketQuantile):
    """`buckets.p95`."""

    q = 0.95


class BucketP99(BucketQuantile):
    """`buckets.p99`."""

    q = 0.99
