"""The fast path against the definition, bit for bit, and both against figures worked out by hand."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.records import Definition, Open
from rlship_formats.values import MOMENT_REDUCTIONS, REDUCTIONS, observe
from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode import bundles, schemas
from rlship_sidecar.decode.bundles import bundle
from rlship_sidecar.decode.lines import Batch, Dense, Schema, Sparse, Value
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.decode.shapes import NO_VALUE, flat, order_of_shapes, shape_of
from rlship_sidecar.reduce.custom import GROUP, Customs
from rlship_sidecar.reduce.general import Manner, reduce_any
from rlship_sidecar.reduce.naming import Naming
from rlship_sidecar.reduce.rates import Seconds
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.unit import reduce_blocks, reduce_unit
from rlship_sidecar.rows import Coverage, Row, Unit
from tests.kit.cases import statistical
from tests.pipeline.simulated import simulation
from tests.reference.building import ALL, define, file, log
from tests.reference.reduction import exactly, final_rows

STEP = Unit("trainer", "step", 1)
RULES = Rules(customs=Customs(()))
TELLING = st.sampled_from((0.0, -0.0, 1.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1.5e308, -1.5e308, 5e-324, -3.0))
NUMBERS = st.one_of(TELLING, TELLING, st.floats(allow_nan=False, allow_infinity=False))


def crew(count: int, replicas: Sequence[str] = ("0",)) -> tuple[Roster, list[Segment]]:
    """A roster of that many ranks, dealt out to the replicas, all past step 1, and their segments in rank order."""
    roster, segments = Roster(), []
    for number in range(count):
        replica, rank = replicas[number % len(replicas)], number // len(replicas)
        writer = Writer(f"f{number}", Open(f"id{number}", "trainer", replica, rank))
        roster.add(writer)
        writer.implicit = False
        writer.segments[0].begins, writer.segments[0].barrier = 0, 1
        segments.append(writer.segments[0])
    return roster, segments


def dense(schema: Schema, values: Sequence[float], offset: int = 0) -> Dense:
    return Dense(1, 1763600000.0 + offset, offset, 0, schema, struct.pack(f"{len(values)}d", *values))


def columns(matrix: Sequence[Sequence[float]], asks: Sequence[str]) -> Row:
    """The row of ranks that each log one line: row i of `matrix` is rank i's."""
    roster, segments = crew(len(matrix))
    names = tuple(f"m{column:03}" for column in range(len(matrix[0])))
    schema = Schemas().of(names, (Definition(tuple(asks)),) * len(names))
    window = UnitLines()
    for segment, values in zip(segments, matrix):
        window.add(segment, dense(schema, values))
    row = reduce_unit(STEP, window, roster, RULES)
    assert reduce_blocks(window, roster, Manner(Naming("trainer"), RULES, None)) is not None, (
        "the fast path was not taken"
    )
    return row


def left_to_right(values: Sequence[float]) -> float:
    total = values[0]
    for value in values[1:]:
        total += value
    return total


def bits(figures: dict[str, float]) -> dict[str, str]:
    return {key: value.hex() for key, value in figures.items()}


class Midrange:
    """A custom reduction: the middle between the least and the greatest observation; none at zero."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def add(self, x: float, weight: float) -> None:
        self.ends = [min([*self.ends, x]), max([*self.ends, x])]

    def merge(self, other: Midrange) -> None:
        self.ends = [min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])]

    def value(self) -> float | None:
        return (self.ends[0] / 2 + self.ends[1] / 2) or None

    def state(self) -> list[float]:
        return self.ends

    @classmethod
    def from_state(cls, state: list[float]) -> Midrange:
        made = cls()
        made.ends = state
        return made


CUSTOMS = Customs([EntryPoint("here.midrange", f"{__name__}:Midrange", GROUP)])
ALL_ASKS = (*REDUCTIONS, "here.midrange", "here.unknown")
CREWS = st.tuples(st.sampled_from((1, 2, 3, 9, 20)), st.sampled_from((("0",), ("2", "10"), ("x", "1"))))


@st.composite
def windows(draw: st.DrawFn) -> tuple[UnitLines, Roster, Rules, Seconds]:
    """Plain numbers of many ranks under one or more schemas, in any order of arrival, the configuration and times."""
    roster, segments = crew(*draw(CREWS))
    schemas = Schemas()
    groups = draw(st.sampled_from(((("a",),), (("a", "b", "c"),), (("a", "b"), ("c",)), (("a", "a/max"), ("b",)))))
    groups += draw(st.sampled_from(((), (), (("a/max",),), (("z", "a/std"),))))
    window = UnitLines()
    reduce = st.lists(st.sampled_from(ALL_ASKS), min_size=1, max_size=8, unique=True).map(tuple)
    asks = st.builds(Definition, reduce, st.booleans(), catalogued=st.booleans())
    for offset, names in enumerate(groups):
        schema = schemas.of(names, tuple(draw(asks) for _ in names))
        for segment in draw(st.permutations(segments))[: draw(st.integers(1, len(segments)))]:
            values = draw(st.lists(NUMBERS, min_size=len(names), max_size=len(names)))
            window.add(segment, dense(schema, values, offset))
    overrides = draw(st.sampled_from(({}, {}, {"a": ["std", "p90"]}, {"trainer/b": ["max", "max", "last"]})))
    lasted = {segment: draw(st.sampled_from((None, 0.1, 2.0, 1e-300))) for segment in segments}
    times = (lasted.get, dict.fromkeys(segments, 0.7).get, None, 0.0, 10.0, 1e-300)
    return window, roster, Rules(overrides, draw(st.booleans()), CUSTOMS), draw(st.sampled_from(times))


def packed(schemas: Schemas, metrics: dict[str, Any], asks: Mapping[str, Definition], offset: int) -> Dense | Sparse:
    """A line with these values, as JSON has them, each of which holds an observation."""
    seen = {name: observe(value) for name, value in metrics.items()}
    found = {name: one for name, one in seen.items() if one is not None}
    shapes = {name: shape_of(metrics[name], one) for name, one in found.items()}
    if None in shapes.values():
        values = tuple(Value(name, asks[name], one) for name, one in found.items())
        return Sparse(1, 1763600000.0 + offset, offset, 0, values)
    fitting = [shape for shape in shapes.values() if shape is not None]
    order = order_of_shapes(fitting)
    names = tuple([*found][at] for at in order)
    schema = schemas.of(names, tuple(asks[name] for name in names), tuple(fitting[at] for at in order))
    doubles = [x for name, shape in zip(schema.names, schema.shapes) for x in flat(found[name], shape)]
    return dense(schema, doubles, offset)


def parts(
    schemas: Schemas, metrics: dict[str, Any], asks: Mapping[str, Definition], offset: int, *, loosely: bool
) -> list[Dense | Sparse]:
    """The same; `loosely`: its plain numbers by a loose schema of all metrics, and the rest beside them."""
    numbers = {name: x for name, x in metrics.items() if loosely and type(x) is float}
    rest = {name: value for name, value in metrics.items() if name not in numbers}
    found = [packed(schemas, rest, asks, offset)] if rest else []
    if numbers:
        loose = schemas.of((*asks,), (*asks.values(),), loose=True)
        found.append(dense(loose, [numbers.get(name, NO_VALUE) for name in asks], offset))
    return found


WEIGHTS = st.sampled_from((0, -0.0, 1, 2.5, 512, 0.1, 1e16, 1e300))
MAYBE = st.one_of(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(("NaN", "Infinity")))
PAIRS = st.lists(st.tuples(MAYBE, WEIGHTS), min_size=1, max_size=4)
SUMMARIES = st.fixed_dictionaries(
    {"n": st.sampled_from((1, 2, 32, 1 << 32, (1 << 32) + 1))},
    optional={
        **dict.fromkeys(("sum", "min", "max", "first", "last"), NUMBERS),
        **{name: st.sampled_from((0.0, -0.0, 0.5, 3.0, 1e300)) for name in ("w", "m2")},
    },
)
VALUES = st.one_of(
    MAYBE,
    MAYBE,
    st.lists(MAYBE, min_size=1, max_size=5),
    PAIRS.map(lambda pairs: {"v": [x for x, _ in pairs], "w": [w for _, w in pairs]}),
    PAIRS.map(lambda pairs: {"v": [pairs[0][0]], "w": [pairs[0][1]]}),
    SUMMARIES,
)
SETS = (("a",), ("a", "b"), ("a", "b", "c"), ("b", "c"), ("c",), ("d",), ("c", "d"), ("a", "e"), ("a/nonfinite",))
SINGLES = (("a",), ("b",), ("c",), ("d",))


@pytest.fixture(scope="module", autouse=True)
def few_lines_are_laid_together() -> Iterator[None]:
    """Two are enough, so that small examples have bundles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "FEWEST", 2)
        patch.setattr(schemas, "OFTEN", 1)
        yield


@st.composite
def mixed_windows(draw: st.DrawFn) -> tuple[UnitLines, Roster, Rules, Seconds]:
    """Values of all shapes: several lines of a rank, metrics that differ between lines, rules that differ between them,
    and ranks that log the same.
    """
    roster, segments = crew(
        draw(st.sampled_from((1, 2, 3, 5))), draw(st.sampled_from((("0",), ("2", "10"), ("x", "1"))))
    )
    schemas = Schemas()
    reduce = st.lists(st.sampled_from(ALL_ASKS), min_size=1, max_size=5, unique=True).map(tuple)
    asks = st.builds(Definition, reduce, st.booleans(), catalogued=st.booleans())
    names = {name for names in SETS for name in names}
    usual = {name: draw(asks) for name in sorted(names)}
    other = {**usual, "a": draw(asks)} if draw(st.sampled_from((False, False, False, True))) else usual
    window = UnitLines()
    singly = draw(st.booleans())
    groups = draw(st.lists(st.sampled_from(SINGLES if singly else SETS), min_size=1, max_size=4))
    alike, laying, loosely = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    forms = (NUMBERS, MAYBE, VALUES) if singly else (NUMBERS, MAYBE, PAIRS, SUMMARIES, VALUES)
    kinds = {name: draw(st.sampled_from(forms)) for name in sorted(names)}
    offset = 0
    for segment in draw(st.permutations(segments)):
        logged = groups if alike else draw(st.lists(st.sampled_from(groups), max_size=4))
        batch = Batch()
        for group in logged:
            metrics = {}
            for name in group:
                value = draw(kinds[name])
                if kinds[name] is PAIRS:
                    value = {"v": [x for x, _ in value], "w": [w for _, w in value]}
                metrics[name] = value
            offset += 1
            asked = draw(st.sampled_from((usual, usual, other)))
            for line in parts(schemas, metrics, asked, offset, loosely=loosely):
                if isinstance(line, Sparse):
                    window.add(segment, line)
                else:
                    batch.run(0, line.schema).add(1, line.t, offset, line.data)
        if laying:
            bundle(batch, schemas)
        for run in batch.runs.values():
            for t, begin, data in zip(run.ts, run.offsets, run.data):
                window.block(run.schema).add(segment, (t, begin, data))
    if window.empty:
        window.add(segments[0], packed(schemas, {"a": 1.0}, usual, offset))
    overrides = draw(st.sampled_from(({}, {}, {"a": ["std", "p90"]}, {"trainer/b": ["max", "max", "last"]})))
    lasted = {segment: draw(st.sampled_from((None, 0.1, 2.0, 1e-300))) for segment in segments}
    times = (lasted.get, dict.fromkeys(segments, 0.7).get, None, 0.0, 10.0, 1e-300)
    return window, roster, Rules(overrides, draw(st.booleans()), CUSTOMS), draw(st.sampled_from(times))


NAMINGS = (Naming("trainer"), Naming("trainer"), Naming("trainer", prefix="clock/"), Naming("trainer", aligned={"a"}))


@statistical(300)
@given(
    drawn=st.one_of(windows(), mixed_windows(), mixed_windows()), naming=st.sampled_from(NAMINGS), alone=st.booleans()
)
def test_the_fast_path_has_the_bits_of_the_definition(
    drawn: tuple[UnitLines, Roster, Rules, Seconds], naming: Naming, alone: bool
) -> None:
    """Where whole columns are reduced at once, every value has the bits that merged moments give."""
    window, roster, rules, seconds = drawn
    how = Manner(naming, rules, seconds, alone=alone)
    fast, slow = reduce_blocks(window, roster, how), reduce_any(window, how)
    if fast is None:
        return
    assert bits(fast.values) == bits(slow.values)
    assert repr(sorted(fast.hists.items())) == repr(sorted(slow.hists.items()))
    assert repr(sorted(fast.per_rank.items())) == repr(sorted(slow.per_rank.items()))
    assert set(slow.taken) <= set(fast.taken)
    assert (fast.underivable, fast.t, fast.lags) == (slow.underivable, slow.t, slow.lags)
    assert (fast.order.ranks, fast.order.attempts, fast.order.segments) == (
        slow.order.ranks,
        slow.order.attempts,
        slow.order.segments,
    )


@pytest.mark.parametrize("width", [1, 2, 200])
def test_ranks_are_added_one_after_another(width: int) -> None:
    """24 ranks are added from left to right, however many columns there are: numpy itself adds in pairs."""
    ranks = [1e16, 1.0, -1e16, 1.0, 0.1, 3.0] * 4
    row = columns([[value * (1 + column % 3) for column in range(width)] for value in ranks], ["sum", "mean"])
    for column in range(width):
        values = [value * (1 + column % 3) for value in ranks]
        assert row.values[f"trainer/m{column:03}"] == left_to_right(values)
        assert row.values[f"trainer/m{column:03}/mean"] == left_to_right(values) / 24
    assert float(np.sum(ranks)) != left_to_right(ranks), "these numbers do not tell the two orders apart"


def test_arrival_has_no_part_in_the_order() -> None:
    """Ranks that finish in another order give the same bits, in rank order."""
    roster, segments = crew(3)
    schema = Schemas().of(("a",), (Definition(("sum", "first", "last", "min")),))
    rows = []
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        window = UnitLines()
        for rank in order:
            window.add(segments[rank], dense(schema, [(1e16, 1.0, -1e16)[rank]]))
        rows.append(reduce_unit(STEP, window, roster, RULES))
    assert [row.values for row in rows] == [
        {"trainer/a": 0.0, "trainer/a/first": 1e16, "trainer/a/last": 1e16, "trainer/a/min": -1e16}
    ] * 3


def test_all_reductions_of_a_column() -> None:
    """The eight figures of the ranks 1, 2, 3, 6, by hand; first and last are the lowest rank's."""
    row = columns([[1.0], [2.0], [3.0], [6.0]], MOMENT_REDUCTIONS)
    assert row.values == {
        "trainer/m000": 3.0,
        "trainer/m000/sum": 12.0,
        "trainer/m000/min": 1.0,
        "trainer/m000/max": 6.0,
        "trainer/m000/first": 1.0,
        "trainer/m000/last": 1.0,
        "trainer/m000/std": pytest.approx(math.sqrt(14 / 4), rel=1e-15),
        "trainer/m000/count": 4.0,
    }
    assert row == Row(STEP, 1763600000.0, {"global_step": 1}, row.values, Coverage(("0.0-3",), 4, (), (), (0,), 0, ()))


def test_equal_ranks_have_no_spread() -> None:
    """Ranks with one value have the standard deviation 0; the column beside them has its own."""
    row = columns([[0.97, float(rank)] for rank in range(4)], ["std"])
    assert row.values == {"trainer/m000": 0.0, "trainer/m001": pytest.approx(math.sqrt(1.25), rel=1e-15)}


@pytest.mark.parametrize("zeros", [(0.0, -0.0, 0.0), (-0.0, 0.0, 0.0)])
def test_of_equal_zeros_the_first_counts(zeros: tuple[float, ...]) -> None:
    """The minimum and maximum of 0.0 and -0.0 have the sign of the lowest rank's."""
    figures = columns([[zero, 5.0] for zero in zeros], ["min", "max"]).values
    assert {math.copysign(1, figures["trainer/m000"]), math.copysign(1, figures["trainer/m000/max"])} == {
        math.copysign(1, zeros[0])
    }


def test_an_overflow_is_underivable() -> None:
    """A sum beyond the doubles is absent and listed, the other figures of the row are there."""
    roster, segments = crew(2)
    schema = Schemas().of(("a", "b"), (Definition(("sum", "max")), Definition(("mean",))))
    window = UnitLines()
    for segment in segments:
        window.add(segment, dense(schema, [1.7e308, 2.0]))
    row = reduce_unit(STEP, window, roster, RULES)
    assert row.values == {"trainer/a/max": 1.7e308, "trainer/b": 2.0}
    assert row.coverage.underivable == ("trainer/a",)


def sparse(text: str | float, asks: tuple[str, ...], name: str = "a", offset: int = 0) -> Sparse:
    observations = observe(text)
    assert observations is not None
    return Sparse(1, 1763600000.0, offset, 0, (Value(name, Definition(asks), observations),))


def test_mixed_values_merge_in_rank_order() -> None:
    """Arrays, summaries and plain numbers of one metric make one figure; what one rank asks for holds for all."""
    roster, segments = crew(3)
    window = UnitLines()
    window.add(segments[2], sparse({"n": 2, "sum": 10, "min": 4, "max": 6}, ("mean",)))
    window.add(segments[1], dense(Schemas().of(("a",), (Definition(("mean", "max")),)), [2.0]))
    window.add(segments[0], sparse([1.0, "NaN", 3.0], ("mean", "std")))
    row = reduce_unit(STEP, window, roster, RULES)
    assert row.values == {"trainer/a": 16 / 5, "trainer/a/max": 6.0, "trainer/a/nonfinite": 1.0}
    assert row.coverage.underivable == ("trainer/a/std",)


def test_only_non_finite_observations_leave_a_count() -> None:
    """A metric that is NaN on all ranks has no mean, a count of 0 and a count of non-finite observations."""
    roster, segments = crew(2)
    window = UnitLines()
    for segment in segments:
        window.add(segment, sparse("NaN", ("mean", "count")))
    row = reduce_unit(STEP, window, roster, RULES)
    assert row.values == {"trainer/a/count": 0.0, "trainer/a/nonfinite": 2.0}
    assert row.coverage.underivable == ()


def test_the_configuration_wins() -> None:
    """The actor's own entry is preferred to the metric's, repeated reductions count once, and an empty list is no
    list.
    """
    assert Rules({"loss": ["max"], "trainer/loss": ["min", "min", "sum"]}).chosen("trainer", "loss") == ("min", "sum")
    assert Rules({"loss": ["max"], "trainer/loss": ["min"]}).chosen("generator", "loss") == ("max",)
    assert Rules({"trainer/loss": []}).chosen("trainer", "loss") is None
    assert RULES.chosen("trainer", "loss") is None


def both(files: dict[str, bytes], order: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Final rows of the pipeline, the files arriving in that order, and of the reference."""
    with simulation() as sim:
        for name in order:
            sim.write(name, files[name])
            sim.tick()
        sim.finish()
        return exactly(sim.final()), exactly(final_rows(files))


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_keys_that_coincide_across_lines_have_one_owner(order: tuple[str, ...]) -> None:
    """A metric called `loss/max` owns that key, whether it or the maximum of another rank's `loss` came first."""
    files = {
        "a": file(log(1, **{"loss/max": 5.0}), id="a", rank=0, world=2),
        "b": file(define(loss=["mean", "max"]), log(1, loss=1.0), id="b", rank=1, world=2),
    }
    named = {f"{name}.jsonl": data for name, data in files.items()}
    live, expected = both(named, [f"{name}.jsonl" for name in order])
    assert live == expected
    assert f"'trainer/loss/max': '{(5.0).hex()}'" in live["trainer/step/1"]


def test_first_and_last_of_a_child_are_its_parents_rank() -> None:
    """A child that names another rank counts for its parent's: first and last are its own if that is the lowest."""
    files = {
        "a.jsonl": file(define(x=ALL), log(1, x=1.0), id="r1", rank=1),
        "p.jsonl": file(id="r0", rank=0),
        "c.jsonl": file(define(x=ALL), log(1, x=2.0), id="c", rank=5, parent="r0"),
    }
    live, expected = both(files, list(files))
    assert live == expected
    assert f"'trainer/x/first': '{(2.0).hex()}'" in live["trainer/step/1"]


def test_what_a_newer_attempt_rewrote_does_not_count() -> None:
    """Of one rank the newest attempt that has a metric counts for it, an older one for what the newer did not log."""
    files = {
        "old.jsonl": file(log(1, a=1.0, b=10.0), id="old"),
        "new.jsonl": file(log(1, a=2.0), id="new", attempt=1),
    }
    live, expected = both(files, list(files))
    assert live == expected
    text = live["trainer/step/1"]
    assert f"'trainer/a': '{(2.0).hex()}', 'trainer/b': '{(10.0).hex()}'" in text
    assert "attempts=(0, 1)" in text


def test_a_line_without_any_usable_value_still_makes_a_row() -> None:
    """A step whose only line has nothing usable has a row without figures, with the time and axis of that line."""
    with simulation() as sim:
        sim.write("a.jsonl", file({"step": 1, "m": {"a": "x"}, "t": 1763600007.0}, axis="episode"))
        sim.finish()
        (row,) = sim.rows()
    assert (row.values, row.t, row.x, row.coverage.ranks) == ({}, 1763600007.0, {"episode": 1}, ())


def test_a_hundred_ranks_with_two_hundred_metrics() -> None:
    """The common unit, many ranks with one line each, is reduced by whole columns to the right figures."""
    matrix = [[float(rank * column) for column in range(200)] for rank in range(100)]
    row = columns(matrix, ["mean", "std", "min", "max"])
    assert row.values["trainer/m001"] == 49.5
    assert row.values["trainer/m199/max"] == 199.0 * 99
    assert row.coverage.ranks == ("0.0-99",)
