"""The first step at which each metric of two runs parts. Pure.

Rows of one unit are compared, value by value. Only units of steps have a counterpart in another run: windows of time
and points do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.rows import ALIGNED, LEDGER, STEP, Row

KINDS = (ALIGNED, LEDGER, STEP)
_TIMES = ("s", "1/s", "tokens/s", "bytes/s", "TFLOP/s")

Place = tuple[str, str, int]  # actor, kind, step


class Tolerance(NamedTuple):
    """Values agree that differ by at most `absolute`, or by at most `relative` times the larger one's size. Both 0:
    only equal bits agree, so 0.0 and -0.0 do not.
    """

    relative: float = 0.0
    absolute: float = 0.0

    def agree(self, a: float, b: float) -> bool:
        """Whether two finite values count as the same."""
        if a == b:
            return bool(self.relative or self.absolute) or math.copysign(1.0, a) == math.copysign(1.0, b)
        return abs(a - b) <= max(self.absolute, self.relative * max(abs(a), abs(b)))


# What sums in another order differ by: values that are 0 but for rounding have no relative size.
ROUNDING = Tolerance(1e-6, 1e-12)


class Apart(NamedTuple):
    """The values of a metric at a step; None where the row of one run lacks it."""

    step: int
    a: float | None
    b: float | None

    @property
    def size(self) -> float:
        """How far they are apart; infinite where one is missing."""
        return math.inf if self.a is None or self.b is None else abs(self.a - self.b)


@dataclass(slots=True)
class Metric:
    """A metric of an actor at the steps at which both runs have a row.

    `in_a` and `in_b` count the rows that have it, `apart` those in which it differs. `first` is the lowest step at
    which it does, `widest` the one where two values differ by most. `is_rounding`: wherever it differs, its values
    agree within `ROUNDING`.
    """

    actor: str
    kind: str
    key: str
    in_a: int = 0
    in_b: int = 0
    apart: int = 0
    first: Apart | None = None
    widest: Apart | None = None
    is_rounding: bool = True

    @property
    def is_of_one(self) -> bool:
        """Whether only one of the runs has it at all."""
        return not (self.in_a and self.in_b)

    def compare(self, step: int, a: float | None, b: float | None, tolerance: Tolerance) -> None:
        """Take the values of the next step."""
        self.in_a += a is not None
        self.in_b += b is not None
        if a is not None and b is not None and tolerance.agree(a, b):
            return
        self.apart += 1
        self.is_rounding = self.is_rounding and a is not None and b is not None and ROUNDING.agree(a, b)
        found = Apart(step, a, b)
        self.first = self.first or found
        if found.size < math.inf and (self.widest is None or found.size > self.widest.size):
            self.widest = found


class OtherRanks(NamedTuple):
    """The first step of an actor at which rows are made of other ranks, as `Coverage.ranks` names them."""

    actor: str
    step: int
    a: tuple[str, ...]
    b: tuple[str, ...]


class Reach(NamedTuple):
    """The steps of an actor that have a row in a run."""

    lowest: int
    highest: int
    rows: int


@dataclass(slots=True)
class Comparison:
    """All metrics of two runs. `both` counts the units that have a row in both; `reach` is by actor, of A and of B."""

    metrics: dict[tuple[str, str, str], Metric] = field(default_factory=dict)
    ranks: dict[str, OtherRanks] = field(default_factory=dict)
    reach: tuple[dict[str, Reach], dict[str, Reach]] = field(default_factory=lambda: ({}, {}))
    both: int = 0

    def parted(self) -> list[Metric]:
        """The metrics that both runs have and that differ somewhere: the earliest first, those of time last."""
        found = [one for one in self.metrics.values() if one.first is not None and not one.is_of_one]
        found.sort(key=lambda one: one.key)
        found.sort(key=lambda one: (is_of_time(one), one.first.step if one.first is not None else 0))
        return found

    def of_one(self) -> list[Metric]:
        """The metrics that only one of the runs has, by name."""
        return sorted((one for one in self.metrics.values() if one.is_of_one), key=lambda one: (one.key, one.kind))


def compare(a: Iterable[Row], b: Iterable[Row], tolerance: Tolerance) -> Comparison:
    """Compare two runs' newest rows of the kinds `KINDS`, each in the order of (actor, kind, step)."""
    found = Comparison()
    for one, other in _paired(a, b):
        for row, reach in zip((one, other), found.reach):
            if row is not None and row.unit.kind == STEP:
                _reaches(reach, row)
        if one is not None and other is not None:
            found.both += 1
            _compare_rows(found, one, other, tolerance)
    return found


def is_of_time(metric: Metric) -> bool:
    """Whether a metric is a duration or a rate, which differ between any two runs."""
    name = metric.key.removeprefix(f"{metric.actor}/")
    if name.endswith("/rate"):
        return True
    for candidate in (name, name.rpartition("/")[0]):
        known = lookup(metric.actor, candidate) if candidate else None
        if known is not None:
            return known.unit in _TIMES
    return name.startswith("barrier/") or any(part.endswith("_s") for part in name.split("/"))


def _paired(a: Iterable[Row], b: Iterable[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """The rows of one unit beside each other, from two ordered runs."""
    left, right = iter(a), iter(b)
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and place(one) < place(other)):
            yield one, None
            one = next(left, None)
        elif one is None or place(other) < place(one):
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)


def place(row: Row) -> Place:
    """What rows are ordered by."""
    return row.unit.actor, row.unit.kind, row.unit.index


def _reaches(reach: dict[str, Reach], row: Row) -> None:
    actor, step = row.unit.actor, row.unit.index
    before = reach.get(actor, Reach(step, step, 0))
    reach[actor] = Reach(min(before.lowest, step), max(before.highest, step), before.rows + 1)


def _compare_rows(found: Comparison, one: Row, other: Row, tolerance: Tolerance) -> None:
    unit, a, b = one.unit, one.values, other.values
    for key in a if a.keys() == b.keys() else dict.fromkeys((*a, *b)):
        metric = found.metrics.get((unit.actor, unit.kind, key))
        if metric is None:
            metric = found.metrics[unit.actor, unit.kind, key] = Metric(unit.actor, unit.kind, key)
        metric.compare(unit.index, a.get(key), b.get(key), tolerance)
    if unit.kind == STEP and unit.actor not in found.ranks and one.coverage.ranks != other.coverage.ranks:
        found.ranks[unit.actor] = OtherRanks(unit.actor, unit.index, one.coverage.ranks, other.coverage.ranks)
