"""Custom reductions of another package, good and bad."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.reference.settings import Accumulator


class Spread:
    """The greatest minus the least observation; weights are passed over."""

    def __init__(self) -> None:
        self.least: float | None = None
        self.greatest: float | None = None

    def add(self, x: float, w: float) -> None:
        self.least = x if self.least is None else min(self.least, x)
        self.greatest = x if self.greatest is None else max(self.greatest, x)

    def merge(self, other: Spread) -> None:
        for x in (other.least, other.greatest):
            if x is not None:
                self.add(x, 1.0)

    def value(self) -> float | None:
        return None if self.least is None or self.greatest is None else self.greatest - self.least


class Recent:
    """Half of what came before plus w·x, and half of all of a later segment: it shows every order."""

    def __init__(self) -> None:
        self.total = 0.0

    def add(self, x: float, w: float) -> None:
        self.total = 0.5 * self.total + w * x

    def merge(self, other: Recent) -> None:
        self.total += 0.5 * other.total

    def value(self) -> Any:
        return self.total


class Nothing(Recent):
    """It has nothing to say."""

    def value(self) -> Any:
        return None


class Endless(Recent):
    """Its value is no finite number."""

    def value(self) -> float:
        return float("inf")


class Word(Nothing):
    """Its value is no number at all."""

    def value(self) -> Any:
        return "7"


class Raising(Recent):
    """It cannot merge."""

    def merge(self, other: Recent) -> None:
        raise RuntimeError("this is what it does")


CUSTOM: Mapping[str, Callable[[], Accumulator]] = {
    "tests.spread": Spread,
    "tests.recent": Recent,
    "tests.nothing": Nothing,
    "tests.endless": Endless,
    "tests.word": Word,
    "tests.raising": Raising,
}
