"""Matrices as an exported file holds them."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.view.packing import DISTANCE_BYTES, MEAN_BYTES, rounded, tight
from tests.page.made import packed

CELLS = st.lists(
    st.tuples(*[st.floats(width=32, allow_nan=False, min_value=-(2.0**99), max_value=2.0**99)] * 2),
    min_size=1,
    max_size=50,
)


def unpacked(found: dict[str, Any]) -> Any:
    """The inverse of `planes`, as the page does it."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(found["z"])), np.uint8)
    words = np.zeros(len(data) // found["bytes"], np.uint32)
    for nth, plane in enumerate(data.reshape(found["bytes"], -1)):
        words |= plane.astype(np.uint32) << np.uint32(24 - 8 * nth)
    return words.view("<f4")


@given(CELLS)
def test_extremes_are_never_understated(cells: list[tuple[float, float]]) -> None:
    """The least value that the page shows is at or below the least there was, the greatest at or above; the mean is off
    by at most one part in 65,000.
    """
    low, high = (np.array([pick(cell) for cell in cells], "<f4") for pick in (min, max))
    mean = ((low.astype(float) + high) / 2).astype("<f4")
    found = tight({name: packed([values]) for name, values in (("mean", mean), ("min", low), ("max", high))})
    near, below, above = (unpacked(found[name]).astype(float) for name in ("mean", "min", "max"))
    assert np.all(near - below <= low) and np.all(near + above >= high)
    normal = np.abs(mean) >= np.finfo("<f4").tiny
    assert np.all(np.abs(near - mean)[normal] <= np.abs(mean.astype(float))[normal] / 65_000)
    wide = (high.astype(float) - low) > np.abs(mean) * 1e-3
    normal &= wide & ((high.astype(float) - low) > np.finfo("<f4").tiny * 1e3)
    assert np.all(below[normal] <= (mean.astype(float) - low)[normal] * (1 + 1 / 30) + np.abs(mean[normal]) / 65_000)


def test_what_is_not_finite_stays() -> None:
    """Infinity stays infinity, whatever its sign, and NaN stays NaN in a mean and in an extreme."""
    given = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4028234e38], "<f4")
    assert np.array_equal(rounded(given[:5], MEAN_BYTES), given[:5], equal_nan=True)
    assert np.array_equal(
        rounded(np.array([np.nan, np.inf, 0.0]), DISTANCE_BYTES, up=True), [np.nan, np.inf, 0], equal_nan=True
    )
    found = tight({"mean": packed([given]), "min": packed([given]), "max": None})
    assert np.isnan(unpacked(found["min"])[0]) and found["max"] is None
    assert tight({"mean": None, "min": None, "max": None}) == {"mean": None, "min": None, "max": None}


def test_a_matrix_is_small() -> None:
    """Means with least and greatest values of ranks take less than six bytes a cell."""
    noise = np.random.default_rng(1)
    mean = noise.normal(8.0, 0.3, (64, 400)).astype("<f4")
    low, high = mean - np.abs(noise.normal(0, 0.1, mean.shape)), mean + np.abs(noise.normal(0, 0.1, mean.shape))
    found = tight({name: packed(values) for name, values in (("mean", mean), ("min", low), ("max", high))})
    assert np.array_equal(unpacked(found["mean"]), rounded(mean.ravel(), MEAN_BYTES))
    assert sum(len(found[name]["z"]) * 0.75 for name in ("mean", "min", "max")) < 6 * mean.size
