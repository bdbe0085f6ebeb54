"""Matrices of numbers as an exported file holds them: the upper bytes of each float, in planes, deflated.

A mean keeps 24 bits: its sign, its exponent and 15 bits of its fraction, so that it is off by at most one part in
65,000. A least and a greatest value are kept as their distances from that mean, in 16 bits and rounded away from it:
what is shown as an extreme is never less than it was, and more by at most one part in 128 of the distance. Planes are
what makes it small: exponents of neighbours are alike, while the fractions of measured values are noise.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

MEAN_BYTES, DISTANCE_BYTES = 3, 2


def tight(ranks: dict[str, Any]) -> dict[str, Any]:
    """An answer to /ranks with its matrices in the shorter form: `z` and `bytes` in place of `f32`."""
    if ranks["mean"] is None:
        return ranks
    mean = rounded(floats(ranks["mean"]), MEAN_BYTES)
    shape = {name: ranks["mean"][name] for name in ("rows", "columns")}
    found = {**ranks, "mean": {**shape, **planes(mean, MEAN_BYTES)}}
    for name, sign in (("min", -1), ("max", 1)):
        if ranks[name] is not None:
            with np.errstate(invalid="ignore", over="ignore"):
                distance = sign * (floats(ranks[name]).astype(float) - mean.astype(float))
                # What the subtraction itself has rounded off is within the next number.
                distance = np.where(distance > 0, np.nextafter(distance, np.inf), np.minimum(distance, 0) * 0)
            found[name] = {**shape, **planes(rounded(distance, DISTANCE_BYTES, up=True), DISTANCE_BYTES)}
    return found


def floats(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The numbers of a matrix `Packed`, row by row."""
    return np.frombuffer(base64.b64decode(packed["f32"]), dtype="<f4")


def rounded(values: np.ndarray[Any, Any], kept: int, *, up: bool = False) -> np.ndarray[Any, Any]:
    """The numbers as floats whose lower bytes are 0: the nearest, or with `up` the least that is not below.

    `up` is for numbers from 0. What is not finite stays, and all NaN are one.
    """
    with np.errstate(over="ignore"):
        near = values.astype("<f4")
    if up:
        near = np.where(near < values, np.nextafter(near, np.float32(np.inf)), near).astype("<f4")
    words = near.view(np.uint32)
    unit = np.uint32(1 << (32 - 8 * kept))
    below = words & (unit - np.uint32(1))
    more = below != 0 if up else below >= unit >> np.uint32(1)
    # The next word may carry into the exponent, which is the next such float all the same.
    whole = np.where(more & np.isfinite(near), words - below + unit, words - below).astype(np.uint32)
    found: np.ndarray[Any, Any] = np.where(np.isnan(near), np.uint32(0x7FC00000), whole).astype(np.uint32)
    return found.view("<f4")


def planes(values: np.ndarray[Any, Any], kept: int) -> dict[str, Any]:
    """The upper bytes of floats, those of the same place together."""
    words = values.view(np.uint32)
    data = b"".join((words >> np.uint32(24 - 8 * nth)).astype(np.uint8).tobytes() for nth in range(kept))
    return {"bytes": kept, "z": base64.b64encode(zlib.compress(data, 6)).decode()}
