"""Histograms: of observations, and of bins that were counted before. docs/semantics.md, "Quantiles and histograms"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlship_formats.values import Histogram

BINS = 64
MOST_KEPT = 512  # bins that were counted before: W&B takes no more

_SHARES = np.arange(BINS + 1) / BINS


def histogram(ordered: NDArray[np.float64]) -> Histogram:
    """The histogram of finite observations in ascending order, at least one."""
    low, high = float(ordered[0]) + 0.0, float(ordered[-1]) + 0.0
    if low == high:
        return Histogram((low, high), (len(ordered),))
    edges = _edges(low, high)
    below = np.searchsorted(ordered, edges[1:-1], side="left")
    bounds = np.concatenate(([0], below, [len(ordered)]))
    return Histogram(tuple(edges.tolist()), tuple(np.diff(bounds).tolist()))


def merged(parts: Sequence[Histogram], ordered: NDArray[np.float64]) -> Histogram:
    """One histogram of several, each with a count above 0, and of finite observations in ascending order.

    Histograms of equal edges and not too many bins add up, if there are no other observations. Else each bin's
    observations are taken for ones at its middle.
    """
    few = len(parts[0].counts) <= MOST_KEPT
    if few and not len(ordered) and all(part.edges == parts[0].edges for part in parts):
        return Histogram(parts[0].edges, tuple(map(sum, zip(*(part.counts for part in parts)))))
    held = [
        (bottom, top, count)
        for part in parts
        for bottom, top, count in zip(part.edges, part.edges[1:], part.counts)
        if count
    ]
    low = min([bottom for bottom, _, _ in held] + ordered[:1].tolist()) + 0.0
    high = max([top for _, top, _ in held] + ordered[-1:].tolist()) + 0.0
    middles = [min(max(bottom / 2 + top / 2, bottom), top) for bottom, top, _ in held]
    numbers = [count for _, _, count in held] + [1] * len(ordered)
    if low == high:
        return Histogram((low, high), (sum(numbers),))
    edges = _edges(low, high)
    places = np.searchsorted(edges[:-1], np.concatenate((middles, ordered)), side="right") - 1
    counts = [0] * BINS
    for place, number in zip(places.tolist(), numbers):
        counts[place] += number
    return Histogram(tuple(edges.tolist()), tuple(counts))


def _edges(low: float, high: float) -> NDArray[np.float64]:
    """The edges of 64 bins from `low` to a greater `high`."""
    edges = low * (1.0 - _SHARES) + high * _SHARES
    edges[0], edges[-1] = low, high
    # Rounding may make edges that are close to each other descend in places.
    return np.maximum.accumulate(edges) + 0.0
