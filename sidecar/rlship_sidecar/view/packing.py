"""Matrices of numbers as an exported file holds them: 24 bits of each float, in planes, deflated.

A 32-bit float keeps its sign, its exponent and 15 bits of its fraction: it is off by at most one part in 65,000. A
minimum is rounded down and a maximum up, so that what is shown as an extreme is never less than it was. The planes are
what makes it small: exponents of neighbours are alike, while the fractions of measured values are noise.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, Literal

import numpy as np

Rounding = Literal["nearest", "down", "up"]
_LOW = np.uint32(0xFF)


def tight(packed: dict[str, Any] | None, rounding: Rounding = "nearest") -> dict[str, Any] | None:
    """A matrix `Packed` in the shorter form: `z24` in place of `f32`."""
    if packed is None:
        return None
    values = np.frombuffer(base64.b64decode(packed["f32"]), dtype="<f4")
    words = rounded(values, rounding).view(np.uint32)
    planes = b"".join(((words >> np.uint32(shift)) & _LOW).astype(np.uint8).tobytes() for shift in (24, 16, 8))
    data = base64.b64encode(zlib.compress(planes, 6)).decode()
    return {"rows": packed["rows"], "columns": packed["columns"], "z24": data}


def rounded(values: np.ndarray[Any, Any], rounding: Rounding) -> np.ndarray[Any, Any]:
    """The floats with their lowest eight bits 0. What is not finite stays; NaN stays NaN."""
    words = values.astype("<f4").view(np.uint32)
    cut = words & ~_LOW
    finite = np.isfinite(values)
    if rounding == "nearest":
        away = (words & _LOW) >= 0x80
    else:
        # Away from zero is up for a positive number and down for a negative one.
        negative = (words >> np.uint32(31)) == 1
        away = ((words & _LOW) != 0) & (negative if rounding == "down" else ~negative)
    # The next word away from zero may carry into the exponent, which is the next float all the same.
    whole = np.where(away & finite, cut + np.uint32(0x100), cut)
    whole = np.where(np.isnan(values), np.uint32(0x7FC00000), whole).astype(np.uint32)
    # A number just below infinity stays finite.
    return np.where(finite & ~np.isfinite(whole.view("<f4")), cut, whole).astype(np.uint32).view("<f4")
