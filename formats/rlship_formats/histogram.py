"""Histograms of observations: 64 bins between the least and the greatest. docs/semantics.md, "Histograms"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlship_formats.values import Histogram

BINS = 64

_SHARES = np.arange(BINS + 1) / BINS


def histogram(ordered: NDArray[np.float64]) -> Histogram:
    """The histogram of finite observations in ascending order, at least one."""
    low, high = float(ordered[0]) + 0.0, float(ordered[-1]) + 0.0
    if low == high:
        return Histogram((low, high), (len(ordered),))
    edges = low * (1.0 - _SHARES) + high * _SHARES
    edges[0], edges[-1] = low, high
    # Rounding may make edges that are close to each other descend in places.
    edges = np.maximum.accumulate(edges) + 0.0
    below = np.searchsorted(ordered, edges[1:-1], side="left")
    bounds = np.concatenate(([0], below, [len(ordered)]))
    return Histogram(tuple(edges.tolist()), tuple(np.diff(bounds).tolist()))
