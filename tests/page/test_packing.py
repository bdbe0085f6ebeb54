"""Matrices as an exported file holds them."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.view.packing import rounded, tight
from tests.page.made import packed

FLOATS = st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=50)


def unpacked(found: dict[str, Any]) -> Any:
    """The inverse of `tight`, as the page does it."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(found["z24"])), np.uint8).reshape(3, -1).astype(np.uint32)
    return ((planes[0] << 24) | (planes[1] << 16) | (planes[2] << 8)).astype(np.uint32).view("<f4")


@given(FLOATS)
def test_extremes_are_never_understated(values: list[float]) -> None:
    """A minimum is rounded down, a maximum up, and neither by more than one part in 32,000; NaN and infinity stay."""
    given = np.array(values, "<f4")
    low, near, high = (rounded(given, how) for how in ("down", "nearest", "up"))
    known = np.isfinite(given)
    assert np.array_equal(np.isnan(given), np.isnan(near))
    for found in (low, near, high):
        assert np.array_equal(found[~known & ~np.isnan(given)], given[~known & ~np.isnan(given)])
    largest = np.abs(given[known]) >= np.float32(3.4027e38)  # there is no next float below infinity
    assert np.all((low[known] <= given[known]) | largest) and np.all((high[known] >= given[known]) | largest)
    normal = known & (np.abs(given) >= np.finfo("<f4").tiny)
    assert np.all(np.abs(near[normal].astype(float) - given[normal]) <= np.abs(given[normal].astype(float)) / 32_000)


def test_a_matrix_reads_back() -> None:
    """What is packed is what was rounded, row by row, in less than three bytes a number for values like those of ranks."""
    matrix = np.random.default_rng(1).normal(8.0, 0.3, (64, 400)).astype("<f4")
    found = tight(packed(matrix))
    assert found is not None
    assert np.array_equal(unpacked(found), rounded(matrix.ravel(), "nearest"))
    assert len(found["z24"]) * 0.75 < 3 * matrix.size
    assert tight(None) is None
