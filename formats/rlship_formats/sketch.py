"""DDSketch (Masson, Rim, Lee 2019): quantiles of any number of observations, within 1 % of the right observation.

A bucket holds the x of one sign with γ^(i-1) < |x| <= γ^i, γ = 101/99. A sketch keeps only counts, so merging sketches
gives exactly the sketch of all observations at once. Bounds come from a table that is the same on every machine.
Logarithms of different machines differ in the last bit, so a row could differ from its replay elsewhere.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from functools import lru_cache
from math import floor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RELATIVE_ERROR = 0.01
LEAST = 2.0**-1022
"""Observations nearer to zero than this count as zero."""

_LOG_GAMMA = 0.020000666706669525
_HIGHEST = 35_488  # the bucket of the greatest double
_LOWEST = -35_418  # that of `LEAST`


class Sketch:
    """Counts per bucket. Four operations: `add`, `merge`, `value`, `state`."""

    __slots__ = ("high", "low", "n", "negative", "positive", "zeros")

    def __init__(self) -> None:
        self.n = 0
        self.zeros = 0
        self.low = 0.0
        self.high = 0.0
        self.negative: dict[int, int] = {}
        self.positive: dict[int, int] = {}

    def add(self, xs: ArrayLike) -> None:
        """Add finite observations: one number or any number of them, in any order."""
        found = np.atleast_1d(np.asarray(xs, dtype=np.float64))
        if not len(found):
            return
        self._widen(float(found.min()), float(found.max()), len(found))
        sizes = np.abs(found)
        far = sizes >= LEAST
        self.zeros += len(found) - int(far.sum())
        _count(self.positive, sizes[far & (found > 0)])
        _count(self.negative, sizes[far & (found < 0)])

    def merge(self, other: Sketch) -> None:
        """Add another sketch; equal to adding its observations here."""
        if not other.n:
            return
        self._widen(other.low, other.high, other.n)
        self.zeros += other.zeros
        for mine, theirs in ((self.positive, other.positive), (self.negative, other.negative)):
            for bucket, count in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + count

    def value(self, q: float) -> float | None:
        """The quantile `q` (in 0..1), within 1 % of the observation of rank floor((n - 1)·q). None if n is 0."""
        if not self.n:
            return None
        rank = floor((self.n - 1) * q)
        return min(max(self._at(rank), self.low), self.high) + 0.0

    def state(self) -> dict[str, Any]:
        """The whole state, as JSON data."""
        return {
            "n": self.n,
            "zeros": self.zeros,
            "low": self.low,
            "high": self.high,
            "negative": {str(bucket): count for bucket, count in sorted(self.negative.items())},
            "positive": {str(bucket): count for bucket, count in sorted(self.positive.items())},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Sketch:
        """The inverse of `state`."""
        made = cls()
        made.n, made.zeros, made.low, made.high = state["n"], state["zeros"], state["low"], state["high"]
        made.negative = {int(bucket): count for bucket, count in state["negative"].items()}
        made.positive = {int(bucket): count for bucket, count in state["positive"].items()}
        return made

    def _widen(self, low: float, high: float, n: int) -> None:
        low, high = low + 0.0, high + 0.0
        self.low = min(self.low, low) if self.n else low
        self.high = max(self.high, high) if self.n else high
        self.n += n

    def _at(self, rank: int) -> float:
        """The value of the bucket that holds the observation of that rank."""
        passed = 0
        for bucket in sorted(self.negative, reverse=True):
            passed += self.negative[bucket]
            if rank < passed:
                return -_middle(bucket)
        passed += self.zeros
        if rank < passed:
            return 0.0
        for bucket in sorted(self.positive):
            passed += self.positive[bucket]
            if rank < passed:
                return _middle(bucket)
        raise AssertionError("a rank below n is in some bucket")


def bucket_of(sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each absolute value, none of them below `LEAST`."""
    bounds = _bounds()
    # The logarithm may be wrong in the last bit or two, so the bounds decide between neighbours.
    place = np.ceil(np.log(sizes) / _LOG_GAMMA).astype(np.int64) - (_LOWEST - 1)
    place = np.clip(place, 1, len(bounds) - 1)
    place -= bounds[place - 1] >= sizes
    place += bounds[place] < sizes
    return place + (_LOWEST - 1)


def _count(into: dict[int, int], sizes: NDArray[np.float64]) -> None:
    if len(sizes):
        buckets, counts = np.unique(bucket_of(sizes), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist()):
            into[bucket] = into.get(bucket, 0) + count


def _middle(bucket: int) -> float:
    """2·γ^i/(γ+1), which is 1.01·γ^(i-1): at most 1 % from both ends of the bucket."""
    return float(_bounds()[bucket - _LOWEST]) * (1.0 + RELATIVE_ERROR)


@lru_cache(1)
def _bounds() -> NDArray[np.float64]:
    """γ^i for i from `_LOWEST` - 1 to `_HIGHEST`, each correctly rounded; the last is beyond the doubles."""
    with decimal.localcontext() as context:
        context.prec = 40
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        gamma = decimal.Decimal(101) / decimal.Decimal(99)
        powers = [decimal.Decimal(1)]
        for _ in range(_HIGHEST):
            powers.append(powers[-1] * gamma)
        roots = [decimal.Decimal(1)]
        for _ in range(1 - _LOWEST):
            roots.append(roots[-1] / gamma)
        return np.array([float(bound) for bound in (*reversed(roots[1:]), *powers)])
