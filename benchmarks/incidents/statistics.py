"""Shares with their intervals, and a bound on a rate."""

from __future__ import annotations

import math
from typing import NamedTuple

Z = 1.959964  # 95 %, two-sided


class Share(NamedTuple):
    """`hits` of so many."""

    hits: int
    of: int

    def interval(self) -> tuple[float, float]:
        """Wilson's interval of 95 %."""
        if not self.of:
            return 0.0, 1.0
        share, square = self.hits / self.of, Z * Z / self.of
        middle = (share + square / 2) / (1 + square)
        half = Z / (1 + square) * math.sqrt(share * (1 - share) / self.of + square / (4 * self.of))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        low, high = self.interval()
        return f"{100 * self.hits / self.of:.0f} % ({100 * low:.0f}–{100 * high:.0f})"


def most(count: int, confidence: float = 0.95) -> float:
    """The greatest mean of a Poisson distribution under which `count` or fewer are not unlikely."""
    low, high = float(count), count + 10.0 + 10 * math.sqrt(count + 1)
    for _ in range(80):
        middle = (low + high) / 2
        if _at_most(count, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(count: int, mean: float) -> float:
    return math.fsum(math.exp(-mean + one * math.log(mean) - math.lgamma(one + 1)) for one in range(count + 1))
