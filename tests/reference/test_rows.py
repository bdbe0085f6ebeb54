"""How rows are compared: bit by bit, but for what is sketched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from tests.reference.building import T0, barrier, file, log, row
from tests.reference.reduction import final_rows
from tests.reference.rows import Histogram, ReferenceRow, differing, exactly, same_row

UNIT = Unit("trainer", "step", 1)


@pytest.fixture(scope="module")
def whole() -> ReferenceRow:
    """A row that has something of everything."""
    return ReferenceRow(
        unit=UNIT,
        t=7.0,
        x={"global_step": 1},
        values={"trainer/x": 0.0, "trainer/y": 2.0},
        coverage=Coverage(ranks=("0.0",), expected=1),
        hists={"trainer/h": Histogram((0.0, 1.0), (3,))},
        per_rank={"trainer/x": [("0.0", 0.0), ("0.1", 5.0)]},
        tags=["eval"],
        samples={"rollouts": [{"why": ["top"], "score": 1.0, "row": {"a": 1}, "cut": None}]},
    )


@pytest.mark.parametrize(
    "change",
    [
        {"t": 8.0},
        {"x": {"global_step": 2}},
        {"values": {"trainer/x": -0.0, "trainer/y": 2.0}},
        {"values": {"trainer/x": 0.0}},
        {"coverage": Coverage(ranks=("0.0",), expected=2)},
        {"hists": {}},
        {"hists": {"trainer/h": Histogram((-0.0, 1.0), (3,))}},
        {"hists": {"trainer/h": Histogram((0.0, 1.0), (4,))}},
        {"per_rank": {"trainer/x": [("0.0", 0.0), ("0.1", 5.000000000000001)]}},
        {"per_rank": {"trainer/x": [("0.1", 5.0), ("0.0", 0.0)]}},
        {"tags": []},
        {"samples": {}},
        {"samples": {"rollouts": [{"why": ["top"], "score": 1.0, "row": {"a": 1.0}, "cut": None}]}},
        {"samples": {"rollouts": [{"why": ["top"], "score": 1.0, "row": {"a": 1}, "cut": {"a": 3}}]}},
    ],
)
def test_every_difference_shows(whole: ReferenceRow, change: dict[str, Any]) -> None:
    """Another bit anywhere is another row, in both ways of comparing."""
    other = replace(whole, **change)
    assert not same_row(whole, other)
    assert exactly({UNIT: whole}) != exactly({UNIT: other})
    assert len(differing({UNIT: whole}, {UNIT: other})) == 1


def test_equal_rows(whole: ReferenceRow) -> None:
    """A row is the same as its copy, whatever the order of its keys, and whether a sample lacks a cut or has none."""
    turned = dict(reversed(whole.values.items()))
    uncut = {"rollouts": [{"row": {"a": 1}, "why": ["top"], "score": 1.0}]}
    copy = replace(whole, values=turned, samples=uncut)
    assert same_row(whole, copy)
    assert differing({UNIT: whole}, {UNIT: copy}) == []


def test_rows_of_the_pipeline() -> None:
    """The pipeline's rows are compared by what they say; their arrival does not matter."""
    mine = row(file(log(1, loss=2)))
    theirs = Row(UNIT, mine.t, mine.x, {"trainer/loss": 2.0}, mine.coverage)
    assert same_row(mine, theirs)
    assert exactly({UNIT: mine}) == exactly({UNIT: theirs})
    assert not same_row(mine, replace(theirs, values={}))


def test_rows_too_few_and_too_many(whole: ReferenceRow) -> None:
    """Both are reported."""
    assert differing({UNIT: whole}, {})[0].startswith("trainer/step/1 lacks")
    assert differing({}, {UNIT: whole})[0].startswith("trainer/step/1 is too much")


@pytest.mark.parametrize("kind", ["aligned", "clock"])
def test_a_row_that_lost_its_lines(kind: str) -> None:
    """It is not too many if it revises another row, and has every bit of the empty row of its unit."""
    expected = final_rows({"a": file(log(1, x=1), barrier(1, 5.0))})
    unit = Unit("trainer", kind, 1)
    end, x = (T0 + 5.0, {"global_step": 1}) if kind == "aligned" else (20.0, {"clock/elapsed_s": 0.0})
    revised = Arrival(1, 1, (), "revision")
    empty = Row(unit, end, x, {}, Coverage((), 0), revised)  # type: ignore[arg-type]

    def told(row: Row) -> int:
        return len(differing(expected, {**expected, row.unit: row}))

    assert told(empty) == 0
    assert told(replace(empty, arrival=Arrival(1, 0, (), "complete"))) == 1
    for change in ({"t": end + 1.0}, {"x": {"a": 1}}, {"coverage": Coverage((), 1)}, {"tags": ("a",)}):
        assert told(replace(empty, **change)) == 1  # type: ignore[arg-type]
    assert told(replace(empty, unit=Unit("trainer", "step", 2))) == 1
    assert len(differing(expected.where(lambda unit: False), {unit: empty})) == 0
    assert len(differing(dict(expected), {**expected, unit: empty})) == 1


# --- what is sketched ---


def sketch(value: float | None, **change: Any) -> ReferenceRow:
    """A row whose figure `x`, which is 100 in truth, was sketched as this."""
    figures = {"trainer/y": 1.0} if value is None else {"trainer/y": 1.0, "trainer/x": value}
    found = ReferenceRow(UNIT, 7.0, {}, figures, Coverage((), 0), sketched={"trainer/x": 100.0})
    return replace(found, **change)


def test_sketched_figures_may_differ_by_the_stated_error() -> None:
    """1 % of the exact value either way, and not more; it must be there; the rest is compared bit by bit."""
    assert all(same_row(sketch(99.5), sketch(other)) for other in (99.0, 100.0, 101.0))
    assert not any(same_row(sketch(99.5), sketch(other)) for other in (98.9, 101.1, -100.0, None))
    assert not same_row(sketch(99.5), sketch(99.5, values={"trainer/x": 99.5, "trainer/y": 2.0}))


def test_sketched_values_of_ranks() -> None:
    """Each is within the error of its own truth, and what is derived from them goes with the values found."""

    def ranks(zero: float, one: float, **figures: float) -> ReferenceRow:
        named = {f"trainer/x/{name}": figure for name, figure in figures.items()}
        return sketch(
            99.5,
            per_rank={"trainer/x": [("0.0", zero), ("1.3", one)]},
            values={"trainer/x": 99.5, **named},
            sketched_ranks={"trainer/x": {"0.0": 100.0, "1.3": 100.5}},
            chosen={"trainer/x": [f"trainer/x/{name}" for name in figures]},
        )

    mine = ranks(100.0, 100.5, max=100.5, min=100.0, argmax_rank=3.0, argmax_replica=1.0)
    assert same_row(mine, ranks(100.9, 100.5, max=100.9, min=100.5, argmax_rank=0.0, argmax_replica=0.0))
    assert not same_row(mine, ranks(100.9, 100.5, max=100.9, min=100.5, argmax_rank=3.0, argmax_replica=0.0))
    assert not same_row(mine, ranks(100.9, 100.5, max=100.5, min=100.5, argmax_rank=0.0, argmax_replica=0.0))
    assert not same_row(mine, ranks(101.9, 100.5, max=101.9, min=100.5, argmax_rank=0.0, argmax_replica=0.0))
    assert not same_row(mine, ranks(100.0, 100.5, max=100.5, min=100.0, argmax_rank=3.0))
    assert not same_row(mine, sketch(99.5))
