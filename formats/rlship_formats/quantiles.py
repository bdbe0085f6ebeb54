"""Quantiles of observations: exact up to 65,536 of them, from a sketch above. docs/semantics.md, "Quantiles"."""

from __future__ import annotations

from math import floor

import numpy as np
from numpy.typing import NDArray

from rlship_formats.sketch import Sketch

EXACT_UP_TO = 65_536

Doubles = NDArray[np.float64]


def quantile(ordered: Doubles, q: float) -> float:
    """The quantile `q` (in 0..1) of finite observations in ascending order, at least one."""
    if len(ordered) > EXACT_UP_TO:
        sketch = Sketch()
        sketch.add(ordered)
        found = sketch.value(q)
        assert found is not None
        return found
    return float(row_quantiles(ordered[np.newaxis], q)[0])


def row_quantiles(ordered: Doubles, q: float) -> Doubles:
    """The exact quantile `q` of each row of a matrix whose rows are in ascending order: type 7 of Hyndman and Fan."""
    h = (ordered.shape[1] - 1) * q
    i = floor(h)
    f = h - i
    low = ordered[:, i]
    if f == 0.0:
        return low + 0.0  # turns -0.0 into 0.0
    high = ordered[:, i + 1]
    with np.errstate(over="ignore", invalid="ignore"):
        step = high - low
        found = low + f * step
    far = np.isinf(step)
    if far.any():
        found[far] = low[far] * (1.0 - f) + high[far] * f
    result: Doubles = found + 0.0
    return result
