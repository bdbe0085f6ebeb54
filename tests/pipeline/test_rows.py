"""Rows as plain data and as JSON."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.values import Histogram
from rlship_sidecar.rows import Arrival, Coverage, Row, Sample, Unit, count_ranks, name_ranks

LITERAL = (
    b'{"row":7,"actor":"trainer","kind":"step","index":12,"t":1763600001.25,"x":{"global_step":12},'
    b'"m":{"trainer/loss":0.53,"trainer/zero":-0.0,"trainer/big":12345678.5},'
    b'"coverage":{"ranks":["0.0-2","1.0"],"expected":5,"missing":["1.1"],"absent":["1.2-7"],"attempts":[0,1],"gap":3,'
    b'"underivable":["trainer/loss/std"]},'
    b'"arrival":{"revision":1,"changed":["trainer/loss"],"closed":"revision"}}'
)
ROW = Row(
    Unit("trainer", "step", 12),
    1763600001.25,
    {"global_step": 12},
    {"trainer/loss": 0.53, "trainer/zero": -0.0, "trainer/big": 12345678.5},
    Coverage(("0.0-2", "1.0"), 5, ("1.1",), ("1.2-7",), (0, 1), 3, ("trainer/loss/std",)),
    Arrival(7, 1, ("trainer/loss",), "revision"),
)


def test_the_json_of_a_row_is_pinned() -> None:
    """A row is written as this very line, which stores and `rows.jsonl` files hold."""
    assert ROW.to_json() == LITERAL


def test_a_row_written_before_is_read() -> None:
    """That line gives the row, with its arrival, tuples as tuples and the sign of zero."""
    for line in (LITERAL, LITERAL.decode()):
        row = Row.from_json(line)
        assert row == ROW
        assert row.arrival == ROW.arrival
        assert math.copysign(1, row.values["trainer/zero"]) == -1
        assert type(row.coverage.attempts) is tuple


RICH_LITERAL = LITERAL[:-1] + (
    b',"hists":{"trainer/len":{"edges":[0.0,1.5],"counts":[3]}},"per_rank":{"trainer/loss":{"0.0":0.5,"1.0":-0.0}}}'
)
RICH = replace(
    ROW,
    hists={"trainer/len": Histogram((0.0, 1.5), (3,))},
    per_rank={"trainer/loss": [("0.0", 0.5), ("1.0", -0.0)]},
)


def test_histograms_and_values_of_ranks_are_pinned() -> None:
    """A row that has them is written with two more fields, and read back as it was; one without has neither."""
    assert RICH.to_json() == RICH_LITERAL
    again = Row.from_json(RICH_LITERAL)
    assert again == RICH
    assert math.copysign(1, again.per_rank["trainer/loss"][1][1]) == -1
    assert again != ROW


SAMPLED_LITERAL = LITERAL[:-1] + (
    b',"samples":{"rollouts":[{"why":["top"],"rank":"0.1","t":1763600000.5,"score":0.5,"row":{"r":"hi"},"cut":{"r":9}},'
    b'{"why":["random"],"rank":"0.2","t":1763600001.0,"row":{}}]}}'
)
SAMPLED = replace(
    ROW,
    samples={
        "rollouts": [
            Sample(("top",), "0.1", 1763600000.5, 0.5, {"r": "hi"}, {"r": 9}),
            Sample(("random",), "0.2", 1763600001.0, None, {}),
        ]
    },
)


def test_samples_are_pinned() -> None:
    """A row with samples is written with one more field and read back as it was; a changed table ships as a whole."""
    assert SAMPLED.to_json() == SAMPLED_LITERAL
    again = Row.from_json(SAMPLED_LITERAL)
    assert again == SAMPLED != ROW
    assert type(again.samples["rollouts"][0].why) is tuple
    assert SAMPLED.differing(ROW) == ("trainer/samples/rollouts",)
    assert SAMPLED.differing(again) == ()
    other = replace(SAMPLED, samples={"rollouts": [SAMPLED.samples["rollouts"][0]._replace(row={"r": -0.0})]})
    zero = replace(SAMPLED, samples={"rollouts": [SAMPLED.samples["rollouts"][0]._replace(row={"r": 0.0})]})
    assert other.differing(zero) == ("trainer/samples/rollouts",)
    assert SAMPLED.keys()[-1] == "trainer/samples/rollouts"
    assert replace(SAMPLED, unit=Unit("g", "clock", 3)).table_key("t") == "clock/g/samples/t"
    assert replace(SAMPLED, unit=Unit("g", "aligned", 3)).table_key("t") == "g/aligned/samples/t"
    revised = replace(SAMPLED, arrival=Arrival(8, 1, ("trainer/loss",), "revision"))
    assert (revised.shipped_samples, list(SAMPLED.keys())[:1]) == ({}, ["trainer/loss"])


def test_what_differs_between_revisions() -> None:
    """Changed histograms and values of ranks count as changed keys, a zero of the other sign too, and are shipped."""
    hist = Histogram((0.0, 1.5), (4,))
    zero = {"trainer/loss": [("0.0", 0.5), ("1.0", 0.0)]}
    assert RICH.differing(RICH) == ()
    assert replace(RICH, per_rank=zero).differing(RICH) == ("trainer/loss",)
    assert replace(RICH, hists={"trainer/len": hist}).differing(RICH) == ("trainer/len",)
    assert RICH.differing(ROW) == ("trainer/len", "trainer/loss")
    assert RICH.keys() == ("trainer/loss", "trainer/zero", "trainer/big", "trainer/len")
    revised = replace(RICH, arrival=Arrival(8, 1, ("trainer/len",), "revision"))
    assert (revised.shipped, revised.shipped_hists, revised.shipped_per_rank) == ({}, RICH.hists, {})
    revised = replace(RICH, arrival=Arrival(8, 1, ("trainer/loss",), "revision"))
    assert (revised.shipped_hists, revised.shipped_per_rank) == ({}, RICH.per_rank)


@given(
    values=st.dictionaries(st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False), max_size=4),
    index=st.integers(0, (1 << 53) - 1),
    t=st.floats(0, 4e9),
)
def test_every_bit_survives_json(values: dict[str, float], index: int, t: float) -> None:
    """Figures come back with the same bits, whatever they are, and a step up to 2^53-1 exactly."""
    row = Row(Unit("a", "step", index), t, {"global_step": index}, values, Coverage((), 0))
    again = Row.from_json(row.to_json())
    assert again == row
    assert {key: value.hex() for key, value in again.values.items()} == {k: v.hex() for k, v in values.items()}
    assert again.to_json() == row.to_json()


def test_a_unit_is_on_disk_as_it_always_was() -> None:
    """A point's kind names its writer there, whatever that is called; every kind comes back as it was."""
    for unit, kind in (
        (Unit("a", "step", 3), "step"),
        (Unit("a", "aligned", 3), "aligned"),
        (Unit("a", "clock", -3), "clock"),
        (Unit("a", "point", 812, "9f:2c"), "point:9f:2c"),
        (Unit("a", "point", 812, ""), "point:"),
    ):
        assert unit.kind_on_disk == kind
        assert Unit.from_disk("a", kind, unit.index) == unit


def test_arrival_is_no_part_of_a_comparison() -> None:
    """Rows that differ only in how they arrived are equal; rows that differ in anything else are not."""
    assert Row(ROW.unit, ROW.t, ROW.x, ROW.values, ROW.coverage, Arrival(99, 0, (), "end")) == ROW
    assert Row(ROW.unit, ROW.t, ROW.x, ROW.values, Coverage((), 5), ROW.arrival) != ROW


def test_what_a_revision_ships() -> None:
    """A first row ships all its figures, a revision those that changed and still are there."""
    assert ROW.shipped == {"trainer/loss": 0.53}
    first = Row(ROW.unit, ROW.t, ROW.x, ROW.values, ROW.coverage)
    assert first.shipped == ROW.values
    gone = Row(ROW.unit, ROW.t, ROW.x, {}, ROW.coverage, ROW.arrival)
    assert gone.shipped == {}


def test_runs_of_ranks_have_short_names() -> None:
    """Neighbours of one replica are named by their first and last, whatever characters a replica's name has."""
    assert name_ranks([("0", 0, 0), ("0", 1, 1), ("0", 2, 5), ("0", 7, 7), ("1", 8, 8)]) == ("0.0-5", "0.7", "1.8")
    assert name_ranks([("", 0, 0), ("", 1, 1)]) == (".0-1",)
    assert name_ranks([("a-1.b", 3, 3)]) == ("a-1.b.3",)
    assert name_ranks([]) == ()


@given(
    st.dictionaries(st.sampled_from(("", "0", "a.b", "1-2")), st.sets(st.integers(0, 40), min_size=1), max_size=3),
)
def test_names_stand_for_as_many_ranks(ranks: dict[str, set[int]]) -> None:
    """Counting what names stand for gives the number of ranks that were named."""
    runs = [(replica, rank, rank) for replica in ranks for rank in sorted(ranks[replica])]
    assert count_ranks(name_ranks(runs)) == len(runs)
