"""Quantiles, histograms, rates and custom reductions: the reference on cases worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.reference.building import CLOSE, T0, barrier, beat, define, figures, file, log, rollback, row
from tests.reference.custom import CUSTOM
from tests.reference.figures import held, sketched, value_of_bucket
from tests.reference.rows import ERROR, Histogram, ReferenceRow
from tests.reference.settings import Settings

QUANTILES = ["p50", "p90", "p95", "p99"]


def quantiles(*values: Any) -> dict[str, float]:
    """p50, p90, p95 and p99 over ranks that log these values."""
    files = [file(define(x=QUANTILES), log(1, x=v), rank=rank, id=f"w{rank}") for rank, v in enumerate(values)]
    return {key.removeprefix("x/"): figure for key, figure in figures(*files).items()}


# --- quantiles ---


def test_quantiles_of_type_7() -> None:
    """Of 10, 20, 30, 40: h = 3·0.5 = 1.5 lies half-way from 20 to 30, and 3·0.9 = 2.7 at 30 + 0.7·10."""
    assert quantiles([40, 10], [30, 20]) == {
        "x": 25.0,
        "p90": 30 + (3 * 0.9 - 2) * 10,
        "p95": 30 + (3 * 0.95 - 2) * 10,
        "p99": 30 + (3 * 0.99 - 2) * 10,
    }
    assert quantiles([3, 1, 2])["x"] == 2.0
    assert quantiles(7) == {"x": 7.0, "p90": 7.0, "p95": 7.0, "p99": 7.0}


def test_quantiles_know_no_weights() -> None:
    """Each finite observation counts once, one of weight 0 too; one that is not finite does not."""
    assert quantiles({"v": [1, 2, 30, "NaN"], "w": [0, 100, 0.5, 1]})["x"] == 2.0


def test_quantiles_that_overflow() -> None:
    """Where the difference of two neighbours overflows, each is weighed by itself."""
    assert quantiles([-1.7e308, 1.7e308]) == {
        "x": 0.0,
        "p90": -1.7e308 * (1 - 0.9) + 1.7e308 * 0.9,
        "p95": -1.7e308 * (1 - 0.95) + 1.7e308 * 0.95,
        "p99": -1.7e308 * (1 - 0.99) + 1.7e308 * 0.99,
    }


def test_a_quantile_of_zero_has_no_sign() -> None:
    """Which of 0.0 and -0.0 comes first in the order of size does not matter."""
    assert str(quantiles(-0.0)["x"]) == "0.0"
    assert str(quantiles([-0.0, 0.0, -0.0])["x"]) == "0.0"


def test_quantiles_without_observations() -> None:
    """Without observations they are absent; with a summary among them they are underivable."""
    nothing = row(file(define(x=["p50", "hist"]), log(1, x="NaN")))
    assert (nothing.values, nothing.hists, nothing.coverage.underivable) == ({"trainer/x/nonfinite": 1.0}, {}, ())
    for others in ({"n": 0}, "NaN", 5):
        summed = row(file(define(x=["p50", "hist"]), log(1, x=others), log(1, x={"n": 1, "min": 2, "max": 2})))
        assert summed.coverage.underivable == ("trainer/x", "trainer/x/hist")
    assert quantiles([1, 2, {"n": 1}]) == {}
    assert quantiles([1, 2, 3], {"n": 0})["x"] == 2.0


def many(values: list[float]) -> ReferenceRow:
    """The row of one rank that logs these values in lines of 10,000."""
    lines = [log(1, x=values[at : at + 10_000]) for at in range(0, len(values), 10_000)]
    return row(file(define(x=[*QUANTILES, "count"]), *lines))


def test_65536_observations_are_sorted_and_one_more_is_sketched() -> None:
    """Up to 65,536 observations quantiles are exact; with one more the sketch gives the middle of a bucket."""
    exact = many([float(i) for i in range(65_536)])
    assert exact.values["trainer/x"] == 32767.5
    assert exact.sketched == {}
    more = many([float(i) for i in range(65_537)])
    gamma = 1.01 / 0.99
    assert more.values["trainer/x"] == 2 * gamma ** math.ceil(math.log(32768) / math.log(gamma)) / (gamma + 1)
    assert more.sketched == {
        "trainer/x": 32768.0,
        "trainer/x/p90": 58982.0,
        "trainer/x/p95": 62259.0,
        "trainer/x/p99": 64880.0,
    }
    for key, truth in more.sketched.items():
        assert more.values[key] != truth
        assert abs(more.values[key] - truth) <= 0.01 * truth


def test_the_sketch_keeps_its_word() -> None:
    """Of all sizes and signs, a value and its bucket's differ by less than 1 %; what is all but zero is zero."""
    for exponent in range(-1022, 1024):
        for x in (2.0**exponent, 1.3 * 2.0**exponent, -(2.0**exponent)):
            if abs(value_of_bucket(x)) != math.inf:
                assert abs(value_of_bucket(x) - x) <= ERROR * abs(x)
    assert value_of_bucket(2.0**-1023) == value_of_bucket(-5e-324) == value_of_bucket(0.0) == 0.0


def test_a_sketched_value_lies_between_the_least_and_the_greatest() -> None:
    """The value of a bucket may lie outside of what was observed, and may even overflow."""
    assert value_of_bucket(1.7976931348623157e308) == math.inf
    for one in (1.7976931348623157e308, -1.7976931348623157e308, 3.0, 5e-324):
        assert sketched([one] * 3, 0.5) == one
    assert sketched([-5.0, -5e-324, 5.0], 0.5) == 0.0


def test_what_a_sketch_stands_for() -> None:
    """x_r with r = floor((n - 1)·q): of five the median is the third and p90 the fourth."""
    assert [held([1, 2, 3, 4, 5], q) for q in (0.5, 0.9, 0.99)] == [3, 4, 4]


# --- histograms ---


def test_a_histogram() -> None:
    """Of 0, 1 and 64 there are 64 bins of width 1: what is on an edge falls to its right, the greatest inside."""
    found = row(file(define(x=["hist", "mean"]), log(1, x=[64, 0, 1, 0.999]))).hists
    assert found == {"trainer/x": Histogram(tuple(map(float, range(65))), (2, 1, *[0] * 61, 1))}


def test_a_histogram_of_equal_values() -> None:
    """Where all values are equal there is one bin; a zero has no sign."""
    assert row(file(define(x=["mean", "hist"]), log(1, x=[7, 7]))).hists == {"trainer/x/hist": Histogram((7, 7), (2,))}
    found = row(file(define(x="hist"), log(1, x=[-0.0, 0.0, -0.0]))).hists["trainer/x"]
    assert str(found) == "Histogram(edges=(0.0, 0.0), counts=(3,))"


def test_edges_never_fall() -> None:
    """Two values 3 units in the last place apart leave room for few edges, which rounding must not turn around."""
    lo = 1.2345678901234567
    hi = lo + 3 * 2.0**-52
    edges, counts = row(file(define(x="hist"), log(1, x=[lo, hi, lo]))).hists["trainer/x"]
    assert list(edges) == sorted(edges)
    assert (edges[0], edges[-1], len(edges)) == (lo, hi, 65)
    assert [lo * (1 - j / 64) + hi * (j / 64) for j in range(65)] != list(edges)
    assert counts[edges.index(lo + 2.0**-52) - 1] == 2
    assert counts[63] == 1


def test_a_histogram_of_everything_finite() -> None:
    """Nothing overflows between the least and the greatest double."""
    edges, counts = row(file(define(x="hist"), log(1, x=[-1.7e308, 0, 1.7e308]))).hists["trainer/x"]
    assert all(map(math.isfinite, edges))
    assert (counts[0], counts[32], counts[63]) == (1, 1, 1)


# --- rates ---


def rate(*files: bytes, step: int = 1) -> tuple[float | None, tuple[str, ...]]:
    """The rate of `x`, the first reduction, and what is underivable."""
    found = row(*files, step=step)
    return found.values.get("trainer/x"), found.coverage.underivable


def test_a_rate() -> None:
    """6 in 4 s and 5 in 2 s are 1.5 + 2.5 = 4 a second."""
    zero = file(define(x="rate"), log(0, x=9), barrier(0, 10), log(1, x=[2, 4]), barrier(1, 14))
    one = file(define(x="rate"), barrier(0, 10), log(1, x={"n": 3, "sum": 5}), barrier(1, 12), rank=1, id="b")
    assert rate(zero, one) == (4.0, ())
    assert rate(zero, one, step=0) == (None, ("trainer/x",))


@pytest.mark.parametrize(
    "records",
    [
        (log(1, x=1), barrier(1, 14)),
        (barrier(0, 10), log(1, x=1)),
        (barrier(0, 10), log(1, x=1), barrier(2, 14)),
        (barrier(0, 10), log(1, x=1), barrier(1, 10)),
        (barrier(0, 10), log(1, x=1), barrier(1, 9)),
        (barrier(0, 10), log(1, x={"n": 1}), barrier(1, 12)),
        (barrier(0, 10), log(1, x=1.7e308), barrier(1, 10.5)),
        (barrier(0, 10), rollback(1), log(1, x=1), barrier(1, 12)),
    ],
    ids=[
        "none before",
        "none",
        "a later one only",
        "no time",
        "time runs back",
        "no sum",
        "overflow",
        "none in the segment",
    ],
)
def test_rates_that_cannot_be_derived(records: tuple[dict[str, Any], ...]) -> None:
    """Without both barriers in one segment, a time between them, and the sum, there is no rate, for any rank."""
    good = file(define(x="rate"), barrier(0, 10), log(1, x=1), barrier(1, 12))
    assert rate(good) == (0.5, ())
    assert rate(good, file(define(x="rate"), *records, rank=1, id="b")) == (None, ("trainer/x",))


def test_a_rate_of_nothing_is_absent() -> None:
    """Segments without a finite observation need no barriers; without any observation the rate is absent."""
    ask = define(x="rate")
    without = file(ask, log(1, x="NaN"), rank=1, id="b")
    assert rate(file(ask, barrier(0, 10), log(1, x=1), barrier(1, 12)), without) == (0.5, ())
    assert rate(without) == (None, ())


def test_the_barriers_of_a_rate() -> None:
    """The first barrier of the step counts, and the one just before it whatever its step; weights act on the sum."""
    value = {"v": [2, 4], "w": [3, 0]}
    data = file(define(x="rate"), barrier(7, 10), log(1, x=value), barrier(1, 13), barrier(1, 99))
    assert rate(data) == (2.0, ())


def test_the_rate_of_a_child_is_by_its_roots_barriers() -> None:
    """The root's newest segment that has the barrier gives the time, for the child and for the segment before too."""
    root = file(
        define(x="rate"), barrier(0, 1), log(1, x=8), barrier(1, 2), rollback(1), barrier(0, 10), barrier(1, 14)
    )
    assert rate(root) == (2.0, ())
    child = file(define(x="rate"), barrier(0, 1), log(1, x=2), barrier(1, 2), parent="a", id="b")
    assert rate(root, child) == (2.5, ())


def test_rates_add_up_from_the_first() -> None:
    """-0.0 over a second is -0.0: adding begins with the first term."""
    found, _ = rate(file(define(x="rate"), barrier(0, 1), log(1, x=-0.0), barrier(1, 2)))
    assert str(found) == "-0.0"


# --- custom reductions ---


def custom(name: str, *files: bytes) -> tuple[float | None, tuple[str, ...]]:
    """The figure of a custom reduction of `x`, and what is underivable."""
    found = row(*files, reductions={"x": ["mean", name]}, settings=Settings(custom=CUSTOM))
    return found.values.get(f"trainer/x/{name}"), found.coverage.underivable


def test_a_custom_reduction() -> None:
    """It is asked for by its name, which has a dot, and its figure stands under that name."""
    data = file(define(x=["tests.spread", "max"]), log(1, x=[4, 9, 6]))
    assert row(data, settings=Settings(custom=CUSTOM)).values == {"trainer/x": 5.0, "trainer/x/max": 9.0}


def test_order_in_custom_reductions() -> None:
    """In file order within a segment, in merge order over segments: (0.5·8 + 2·4) + 0.5·6 = 15."""
    zero = file(log(1, x={"v": [8, "NaN", 4], "w": [1, 1, 2]}))
    one = file(log(1, x=6), rank=1, id="b")
    assert custom("tests.recent", one, zero) == (15.0, ())


def test_custom_reductions_that_give_nothing() -> None:
    """None is absent, and so is the figure where there is no finite observation, installed or not."""
    assert custom("tests.nothing", file(log(1, x=1))) == (None, ())
    for name in ("tests.spread", "no.such"):
        assert custom(name, file(log(1, x="NaN"))) == (None, ())
    assert custom("tests.recent", file(log(1, x="NaN")), file(log(1, x=3), rank=1, id="b")) == (3.0, ())


@pytest.mark.parametrize("name", ["no.such", "tests.endless", "tests.word", "tests.raising"])
def test_custom_reductions_that_fail(name: str) -> None:
    """One that is not installed, raises, or gives no finite number has an underivable figure, and the rest stays."""
    files = [file(log(1, x=1)), file(log(1, x=3), rank=1, id="b")]
    assert custom(name, *files) == (None, (f"trainer/x/{name}",))
    assert row(*files, reductions={"x": ["mean", name]}, settings=Settings(custom=CUSTOM)).values["trainer/x"] == 2.0


def test_custom_reductions_need_observations() -> None:
    """A summary does not say what it is made of."""
    summed = file(log(1, x=1), log(1, x={"n": 1, "sum": 2}))
    assert custom("tests.spread", summed) == (None, ("trainer/x/tests.spread",))


def test_names_of_custom_reductions() -> None:
    """A name with a dot of at most 100 characters is taken as it is; a longer one, or one without a dot, is dead."""
    long = "a." + "é" * 98
    assert row(file(define(x=long), log(1, x=1))).coverage.underivable == ("trainer/x",)
    assert row(file(define(x=long), log(1, x=1), CLOSE)).values == {}
    assert figures(file(define(x=long + "é"), log(1, x=1))) == {"x": 1.0}
    assert figures(file(define(x="median"), log(1, x=1), beat(T0))) == {"x": 1.0}
