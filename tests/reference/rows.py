"""The reference's rows, and how they are compared with the pipeline's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlship_sidecar.rows import Coverage, Row, Unit

ERROR = 0.01 * (1 + 1e-9)
"""The relative error of a sketched quantile; logarithms of two libraries may put a value on either side of an edge."""

NOTHING = 2.0**-1022
"""A sketch counts what is nearer to zero as zero."""


class Histogram(NamedTuple):
    """One edge more than counts."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class ReferenceRow:
    """A row as docs/semantics.md has it, and for the comparison: `sketched`, what the sketched figures are exactly, by
    key; `sketched_ranks`, the same for values of ranks, by key and rank; `chosen`, the keys of the figures that are
    derived from such values, by the key of those.
    """

    unit: Unit
    t: float
    x: dict[str, int | float]
    values: dict[str, float]
    coverage: Coverage
    hists: dict[str, Histogram] = field(default_factory=dict)
    per_rank: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    sketched: dict[str, float] = field(default_factory=dict, compare=False)
    sketched_ranks: dict[str, dict[str, float]] = field(default_factory=dict, compare=False)
    chosen: dict[str, list[str]] = field(default_factory=dict, compare=False)


AnyRow = Row | ReferenceRow


class FinalRows(dict[Unit, ReferenceRow]):
    """The row of every unit. `empty` makes that of a stream's unit which had lines and lost them all: no unit of these,
    but one of which a row may have been made.
    """

    def __init__(self, rows: Mapping[Unit, ReferenceRow], empty: Callable[[Unit], ReferenceRow]) -> None:
        super().__init__(rows)
        self.empty = empty

    def where(self, wanted: Callable[[Unit], bool]) -> FinalRows:
        """Those of some units."""
        return FinalRows({unit: row for unit, row in self.items() if wanted(unit)}, self.empty)


def exactly(rows: Mapping[Unit, AnyRow]) -> dict[str, str]:
    """The rows as text in which every bit of a float shows, so that 0.0 and -0.0 differ; for comparing with `==`."""
    return {name(unit): text(row) for unit, row in sorted(rows.items())}


def differing(expected: Mapping[Unit, ReferenceRow], found: Mapping[Unit, AnyRow]) -> list[str]:
    """What differs, in words: rows that lack, rows too many, and pairs that are not `same_row`. Empty is equal.

    Of `FinalRows` a unit of a stream that has no line may have a row, the empty one, if that revises an earlier row.
    """
    told = [f"{name(unit)} lacks: {text(expected[unit])}" for unit in sorted(expected.keys() - found.keys())]
    told += [
        f"{name(unit)} is too much: {text(found[unit])}"
        for unit in sorted(found.keys() - expected.keys())
        if not (isinstance(expected, FinalRows) and is_empty_row(found[unit], expected))
    ]
    told += [
        f"{name(unit)}\n  is     {text(found[unit])}\n  not    {text(expected[unit])}"
        for unit in sorted(expected.keys() & found.keys())
        if not same_row(expected[unit], found[unit])
    ]
    return told


def is_empty_row(row: AnyRow, expected: FinalRows) -> bool:
    """Whether it revises a row of a stream's unit that has no line any more, and says what is to be said of that."""
    if row.unit.kind not in ("aligned", "clock") or not (isinstance(row, Row) and row.arrival.revision):
        return False
    return same_row(expected.empty(row.unit), row)


def same_row(expected: ReferenceRow, found: AnyRow) -> bool:
    """Whether all bits are the same, but for sketched quantiles: those lie within the stated error of the exact ones,
    and what is derived from them agrees with the values found.
    """
    left, right = parts(expected), parts(found)
    for key, exact in expected.sketched.items():
        if not near(exact, found.values.get(key)):
            return False
    for key, exact_values in expected.sketched_ranks.items():
        values = getattr(found, "per_rank", {}).get(key, [])
        if [rank for rank, _ in values] != [rank for rank, _ in expected.per_rank[key]]:
            return False
        if not all(near(exact_values[rank], value) for rank, value in values if rank in exact_values):
            return False
        for figure in expected.chosen.get(key, ()):
            if chosen(values, figure.rpartition("/")[2]) != found.values.get(figure):
                return False
            left["values"].pop(figure)
            right["values"].pop(figure)
        left["per_rank"].pop(key)
        right["per_rank"].pop(key)
    for key in expected.sketched:
        left["values"].pop(key)
        right["values"].pop(key)
    return bool(left == right)


def near(exact: float, found: float | None) -> bool:
    return found is not None and abs(found - exact) <= max(ERROR * abs(exact), NOTHING if abs(exact) < NOTHING else 0.0)


def chosen(values: Sequence[tuple[str, float]], what: str) -> float:
    """The greatest or least of the values of ranks, or who has the greatest: the first in order among equals."""
    if what == "min":
        return min(value for _, value in values)
    greatest = max(value for _, value in values)
    if what == "max":
        return greatest
    replica, _, rank = next(name for name, value in values if value == greatest).rpartition(".")
    return float(rank) if what == "argmax_rank" else float(replica)


def name(unit: Unit) -> str:
    return f"{unit.actor}/{unit.kind_on_disk}/{unit.index}"


def text(row: AnyRow) -> str:
    """One line with all that the row says; parts that say nothing are left out."""
    return " ".join(f"{part}={value}" for part, value in parts(row).items() if value not in ({}, [], None))


def parts(row: AnyRow) -> dict[str, Any]:
    """The row's parts in plain values, floats in hexadecimal, dictionaries sorted."""
    return {
        "t": float(row.t).hex(),
        "x": {key: float(value).hex() for key, value in sorted(row.x.items())},
        "values": {key: float(figure).hex() for key, figure in sorted(row.values.items())},
        "coverage": row.coverage,
        "hists": {
            key: ([float(edge).hex() for edge in hist.edges], [int(count) for count in hist.counts])
            for key, hist in sorted(getattr(row, "hists", {}).items())
        },
        "per_rank": {
            key: [(rank, float(value).hex()) for rank, value in values]
            for key, values in sorted(getattr(row, "per_rank", {}).items())
        },
        "tags": list(getattr(row, "tags", ())),
        "asked": list(getattr(row, "asked", ())),
        "samples": {
            table: [shown(sample if isinstance(sample, dict) else sample._asdict()) for sample in samples]
            for table, samples in sorted(getattr(row, "samples", {}).items())
        },
    }


def shown(sample: Mapping[str, Any]) -> str:
    """JSON with sorted names; what is null is left out."""
    return json.dumps({name: value for name, value in sorted(sample.items()) if value is not None}, sort_keys=True)
