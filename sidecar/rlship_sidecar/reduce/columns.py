"""Moments of many metrics at once, in columns, with the bits that `rlship_formats.values` gives one by one. Pure.

Rows are segments in merge order, columns are metrics. Sums are made by `np.add.accumulate`, which adds one after
another as merging does; `np.sum` adds in another order, and so gives other bits. Where there is nothing to add it adds
-0.0, which changes no sum, not even -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlship_formats.histogram import histogram
from rlship_formats.quantiles import quantile
from rlship_formats.values import MOMENT_REDUCTIONS, QUANTILES, SUM_LAST
from rlship_sidecar.decode.shapes import W_IS_N
from rlship_sidecar.reduce.custom import Customs
from rlship_sidecar.reduce.values import UNDEFINED, ReducedValue

Doubles: TypeAlias = "NDArray[np.float64]"
Flags: TypeAlias = "NDArray[np.bool_]"

NOTHING = -0.0  # what is added where there is nothing to add


class ObservedParts:
    """The moments of each segment and metric, of observations `xs[segment, metric, place]` in file order.

    An x is NaN where the observation is not finite, and infinite where nothing was observed. Without `ws` all weights
    are 1.
    """

    def __init__(self, xs: Doubles, ws: Doubles | None) -> None:
        self.xs = xs
        self.ws = ws

    def only(self, columns: Sequence[int]) -> ObservedParts:
        """These columns."""
        return ObservedParts(self.xs[:, columns], None if self.ws is None else self.ws[:, columns])

    def of_row(self, row: int) -> ObservedParts:
        """One segment."""
        return ObservedParts(self.xs[row : row + 1], None if self.ws is None else self.ws[row : row + 1])

    @cached_property
    def finite(self) -> Flags:
        """Where a finite observation is."""
        return np.isfinite(self.xs)

    @property
    def observed(self) -> Flags:
        """Where a segment has an observation, finite or not."""
        found: Flags = np.logical_not(np.isinf(self.xs).all(axis=2))
        return found

    @cached_property
    def n(self) -> Doubles:
        found: Doubles = np.add.reduce(self.finite, axis=2, dtype=np.float64)
        return found

    @cached_property
    def nonfinite(self) -> Doubles:
        counts = np.isnan(self.xs) if self.ws is None else np.isnan(self.xs) & (self.ws != 0.0)
        found: Doubles = np.add.reduce(counts, axis=2, dtype=np.float64)
        return found

    @cached_property
    def _sums(self) -> Doubles:
        """The running sums."""
        products = self.xs if self.ws is None else self.ws * self.xs
        return np.add.accumulate(np.where(self.finite, products, NOTHING), axis=2)

    @cached_property
    def _weights(self) -> Doubles:
        """The running sums of weights."""
        return np.add.accumulate(np.where(self.finite, 1.0 if self.ws is None else self.ws, NOTHING), axis=2)

    @property
    def sum(self) -> Doubles:
        return self._sums[:, :, -1]

    @property
    def w(self) -> Doubles:
        return self._weights[:, :, -1]

    @cached_property
    def m2(self) -> Doubles:
        if self.xs.shape[2] == 1:
            return np.zeros(self.xs.shape[:2])
        a, finite = slice(None, -1), self.finite[:, :, 1:]
        xs = self.xs[:, :, 1:]
        ws = np.ones_like(xs) if self.ws is None else self.ws[:, :, 1:]
        before = np.logical_or.accumulate(self.finite, axis=2)[:, :, a]
        terms = _m2_terms(self._sums[:, :, a], self._weights[:, :, a], ws * xs, ws, before & finite)
        result: Doubles = 0.0 + np.add.accumulate(terms, axis=2)[:, :, -1]
        return result

    @property
    def m2_unknown(self) -> Flags:
        return np.zeros(self.xs.shape[:2], np.bool_)

    @cached_property
    def min(self) -> Doubles:
        return _least(np.where(self.finite, self.xs, np.inf), 2)

    @cached_property
    def max(self) -> Doubles:
        return -_least(-np.where(self.finite, self.xs, -np.inf), 2)

    @cached_property
    def first(self) -> Doubles:
        return _taken(self.xs, self.finite.argmax(axis=2), 2)

    @cached_property
    def last(self) -> Doubles:
        return _taken(self.xs, self.xs.shape[2] - 1 - self.finite[:, :, ::-1].argmax(axis=2), 2)


class SummaryParts:
    """The moments of each segment and metric, from summaries; `fields[segment, metric]` are the doubles of one.

    `w` is NaN where a segment has none.
    """

    nonfinite: Doubles

    def __init__(self, fields: Doubles) -> None:
        self.fields = fields
        self.n, w, self.sum, m2, self.min, self.max, self.first, self.last = np.moveaxis(fields, 2, 0)
        self.observed: Flags = np.logical_not(np.isnan(w))
        self.w: Doubles = np.where(w == W_IS_N, self.n, w)
        self.m2: Doubles = np.where(np.isnan(self.sum), np.nan, m2)
        self.m2_unknown: Flags = np.isnan(self.m2)
        self.nonfinite = np.zeros_like(self.n)


class Merged:
    """The moments of each metric, merged over the segments of `parts`, of which each is of another rank."""

    def __init__(self, parts: ObservedParts | SummaryParts) -> None:
        self.parts = parts

    @cached_property
    def present(self) -> Flags:
        """Where a segment has a finite observation of a metric."""
        return self.parts.n > 0

    @property
    def observed(self) -> Flags:
        found: Flags = np.logical_or.reduce(self.parts.observed, axis=0)
        return found

    @cached_property
    def n(self) -> Doubles:
        found: Doubles = np.add.reduce(self.parts.n, axis=0)
        return found

    @cached_property
    def nonfinite(self) -> Doubles:
        found: Doubles = np.add.reduce(self.parts.nonfinite, axis=0)
        return found

    @cached_property
    def _sums(self) -> Doubles:
        return np.add.accumulate(np.where(self.present, self.parts.sum, NOTHING), axis=0)

    @cached_property
    def _weights(self) -> Doubles:
        return np.add.accumulate(np.where(self.present, self.parts.w, NOTHING), axis=0)

    @property
    def sum(self) -> Doubles:
        total: Doubles = self._sums[-1]
        return total

    @property
    def w(self) -> Doubles:
        total: Doubles = self._weights[-1]
        return total

    @cached_property
    def m2(self) -> Doubles:
        parts, present = self.parts, self.present
        before = np.logical_or.accumulate(present, axis=0)[:-1]
        added = np.empty((2 * len(present) - 1, present.shape[1]))
        m2 = np.where(present, parts.m2, NOTHING)
        # A merge adds the two m2 first, and then the term.
        added[0], added[1::2] = m2[0], m2[1:]
        added[2::2] = _m2_terms(self._sums[:-1], self._weights[:-1], parts.sum[1:], parts.w[1:], before & present[1:])
        total: Doubles = np.add.accumulate(added, axis=0)[-1]
        return total

    @property
    def m2_unknown(self) -> Flags:
        unknown: Flags = np.logical_or.reduce(self.present & self.parts.m2_unknown, axis=0)
        return unknown

    @cached_property
    def min(self) -> Doubles:
        return _least(np.where(self.present, self.parts.min, np.inf), 0)

    @cached_property
    def max(self) -> Doubles:
        return -_least(-np.where(self.present, self.parts.max, -np.inf), 0)

    @cached_property
    def _lowest(self) -> NDArray[np.intp]:
        """The first segment with a finite observation: that of the lowest rank."""
        places: NDArray[np.intp] = self.present.argmax(axis=0)
        return places

    @cached_property
    def first(self) -> Doubles:
        return _taken(self.parts.first, self._lowest, 0)

    @cached_property
    def last(self) -> Doubles:
        return _taken(self.parts.last, self._lowest, 0)

    @cached_property
    def sum_last(self) -> Doubles:
        """The sum of what each segment saw last."""
        total: Doubles = np.add.accumulate(np.where(self.present, self.parts.last, NOTHING), axis=0)[-1]
        return total


def reduced(moments: Merged | ObservedParts | SummaryParts, reduction: str) -> tuple[Doubles, Flags]:
    """The values of one of `COLUMN_REDUCTIONS`, and where there is a value. One that is not finite is underivable."""
    if reduction == "count":
        return moments.n, moments.observed
    exists = moments.n > 0
    if reduction == "mean":
        return moments.sum / moments.w, exists & (moments.w > 0)
    if reduction == "std":
        equal = (moments.min == moments.max) & ~moments.m2_unknown  # rounding may keep their m2 from being 0
        return np.where(equal, 0.0, np.sqrt(moments.m2 / moments.w)), exists & (moments.w > 0)
    if reduction == SUM_LAST:
        return moments.sum_last if isinstance(moments, Merged) else moments.last, exists
    values: Doubles = getattr(moments, reduction)
    return values, exists


COLUMN_REDUCTIONS = frozenset((*MOMENT_REDUCTIONS, SUM_LAST))


def of_observations(parts: ObservedParts, column: int, reduction: str, customs: Customs) -> ReducedValue:
    """The value of a reduction that needs the observations of a metric themselves."""
    finite = parts.finite[:, column]
    if not finite.any():
        return UNDEFINED
    xs = parts.xs[:, column]
    if reduction in QUANTILES:
        return quantile(np.sort(xs[finite]), QUANTILES[reduction])
    if reduction == "hist":
        return histogram(np.sort(xs[finite]))
    ws = np.ones_like(xs) if parts.ws is None else parts.ws[:, column]
    return customs.value_of(reduction, (pairs(x[there], w[there]) for x, w, there in zip(xs, ws, finite)))


def pairs(xs: Doubles, ws: Doubles) -> Sequence[tuple[float, float]]:
    """Observations with their weights."""
    return [*zip(xs.tolist(), ws.tolist())]


def _m2_terms(a_sum: Doubles, a_w: Doubles, b_sum: Doubles, b_w: Doubles, both: Flags) -> Doubles:
    """What a merge adds to the two m2, where both sides have observations: Chan et al."""
    d = b_sum / b_w - a_sum / a_w
    terms: Any = d * d * (a_w * b_w / (a_w + b_w))
    result: Doubles = np.where(both & (a_w != 0.0) & (b_w != 0.0), terms, NOTHING)
    return result


def _least(values: Doubles, axis: int) -> Doubles:
    """The least values. Among equal ones the first one's bits count; only 0.0 and -0.0 are equal with other bits."""
    least: Doubles = values.min(axis=axis)
    zero = least == 0.0
    if zero.any():
        least[zero] = _taken(values, (values == 0.0).argmax(axis=axis), axis)[zero]
    return least


def _taken(values: Doubles, places: NDArray[np.intp], axis: int) -> Doubles:
    """One value of each line along an axis, at the places."""
    return np.take_along_axis(values, np.expand_dims(places, axis), axis).squeeze(axis)
