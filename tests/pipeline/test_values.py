"""The arithmetic of partials."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_formats.values import (
    EMPTY,
    MOMENT_REDUCTIONS,
    DeadValue,
    Histogram,
    Moments,
    Observations,
    defined,
    fold,
    merge,
    observe,
    reduce_moments,
)
from tests.kit.cases import few
from tests.reference import snippets

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TAME = st.integers(-8000, 8000).map(lambda n: n / 8)
WEIGHTS = st.one_of(st.just(0.0), st.floats(0, 1e9), st.sampled_from((1.0, 2.0, 0.5)))


def bits(moments: Moments) -> tuple[str | int | None, ...]:
    """Moments such that 0.0 and -0.0, and any two NaNs, compare as they should."""
    return tuple(float(x).hex() if isinstance(x, float) else x for x in moments)


def observed(text: str) -> Observations | None:
    return observe(orjson.loads(text))


def singles(item: Observations) -> list[Moments]:
    """The observations of a value as partials of one observation each."""
    if item.summary is not None:
        return [item.summary]
    ws = item.ws if item.ws is not None else [1.0] * len(item.xs)
    parts = [Moments(1, w, w * x, 0.0, x, x, x, x, 0) for x, w in zip(item.xs, ws)]
    return parts + [EMPTY._replace(nonfinite=1)] * item.nonfinite


@st.composite
def values(draw: st.DrawFn) -> list[Observations]:
    """Observations of the lines of one writer, in all forms."""
    texts = draw(st.lists(snippets.VALUES, max_size=6))
    found = []
    for text in texts:
        try:
            item = observed(text)
        except DeadValue:
            continue
        if item is not None:
            found.append(item)
    return found


def binned(n: int, *bins: Any) -> Observations:
    """A summary of which the number of observations is known, and their bins, if there are any."""
    known = Moments(n, float(n), None, None, None, None, None, None, 0)
    return Observations((), None, 0, known, Histogram(*bins) if bins else None)


# Edges and counts of three observations that are as if absent.
UNUSABLE_BINS = (
    ("[0,1]", "null"),
    ("[0,1]", "[1,2]"),
    ("[0]", "[]"),
    ("[1,0]", "[3]"),
    ('[0,"Infinity"]', "[3]"),
    ("[0,true]", "[3]"),
    ("[0,1]", "[3.0]"),
    ("[0,1]", "[true]"),
    ("[0,1,2]", "[4,-1]"),
    ("[0,1]", "[2]"),
)


@pytest.mark.parametrize("text", snippets.DEAD_VALUES)
def test_a_value_of_no_known_form_is_dead(text: str) -> None:
    """Everything that is no number, array, weighted array or summary is refused with the reason `bad value`."""
    with pytest.raises(DeadValue, match=r"^bad value$"):
        observed(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", None),
        ("[]", None),
        ("[null,null]", None),
        ('{"v":[],"w":[]}', None),
        ('{"v":[null],"w":[5]}', None),
        ('{"n":0,"sum":1}', None),
        ("true", Observations((1.0,), None, 0)),
        ('"NaN"', Observations((), None, 1)),
        ('[1,"Infinity",null,false]', Observations([1.0, 0.0], None, 1)),
        ('{"v":[1,"NaN","NaN",2],"w":[0,0,3,4]}', Observations([1.0, 2.0], [0.0, 4.0], 1)),
        ('{"v":["NaN"],"w":[0]}', Observations([], [], 0)),
        ('{"n":3,"sum":6}', Observations((), None, 0, Moments(3, 3.0, 6.0, None, None, None, None, None, 0))),
        ('{"n":3,"m2":1}', Observations((), None, 0, Moments(3, 3.0, None, None, None, None, None, None, 0))),
        ('{"n":3,"edges":[-1,0,2.5],"counts":[3,0]}', binned(3, (-1.0, 0.0, 2.5), (3, 0))),
        ('{"n":3,"edges":[0,0],"counts":[3]}', binned(3, (0.0, 0.0), (3,))),
        *((f'{{"n":3,"edges":{edges},"counts":{counts}}}', binned(3)) for edges, counts in UNUSABLE_BINS),
        (
            '{"n":3,"w":2,"sum":6,"m2":0,"min":1,"max":3,"first":2,"last":1}',
            Observations((), None, 0, Moments(3, 2.0, 6.0, 0.0, 1.0, 3.0, 2.0, 1.0, 0)),
        ),
    ],
)
def test_what_a_value_holds(text: str, expected: Observations | None) -> None:
    """Nulls go with their weights, non-finite observations count unless of weight 0, unknown stays unknown."""
    assert observed(text) == expected


@settings(max_examples=few(300))
@given(items=values())
def test_folding_is_merging_one_by_one(items: list[Observations]) -> None:
    """The moments of a writer's lines have the bits of a merge of its observations, each alone, from left to right."""
    parts = [part for item in items for part in singles(item)]
    assert bits(fold(items)) == bits(reduce(merge, parts) if parts else EMPTY)


@settings(max_examples=few(300))
@given(items=values())
def test_without_m2_all_else_is_the_same(items: list[Observations]) -> None:
    """Leaving out the squares changes no other field."""
    assert bits(fold(items, with_m2=False)._replace(m2=None)) == bits(fold(items)._replace(m2=None))


@given(items=values(), nonfinite=st.integers(0, 3))
def test_the_empty_partial_is_neutral(items: list[Observations], nonfinite: int) -> None:
    """Merging with no observations, on either side, changes nothing but the count of non-finite ones."""
    moments = fold(items)
    nothing = EMPTY._replace(nonfinite=nonfinite)
    expected = bits(moments._replace(nonfinite=moments.nonfinite + nonfinite))
    if moments.n:
        assert bits(merge(moments, nothing)) == expected
        assert bits(merge(nothing, moments)) == expected
    assert bits(merge(EMPTY, EMPTY)) == bits(EMPTY)


@settings(max_examples=few(200))
@given(xs=st.lists(TAME, min_size=2, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_the_standard_deviation_is_right(xs: list[float], cuts: list[int]) -> None:
    """Cut into partials anywhere and merged, m2/w is the exact population variance within 1e-9, and numpy's."""
    edges = sorted({0, len(xs), *(cut for cut in cuts if cut < len(xs))})
    parts = [fold([Observations(xs[low:high], None, 0)]) for low, high in pairwise(edges)]
    total = reduce(merge, parts)
    assert total.m2 is not None
    exact = statistics.pvariance([Fraction(x) for x in xs])
    assert total.m2 / total.w == pytest.approx(float(exact), rel=1e-9, abs=1e-9)
    assert reduce_moments(total, "std") == pytest.approx(float(np.std(xs)), rel=1e-9, abs=1e-6)


@given(st.floats(-1e6, 1e6), st.lists(st.floats(0.01, 100), min_size=1, max_size=50))
def test_equal_values_have_no_spread(x: float, ws: list[float]) -> None:
    """Rounding in m2 makes no standard deviation of values that are all the same."""
    xs = [x] * len(ws)
    assert reduce_moments(fold([Observations(xs, None, 0), Observations(xs, ws, 0)]), "std") == 0.0


@settings(max_examples=few(200))
@given(pairs=st.lists(st.tuples(TAME, st.integers(0, 32).map(float)), min_size=1, max_size=40))
def test_weights_act_as_repetitions(pairs: list[tuple[float, float]]) -> None:
    """Mean, sum and std with whole-number weights are those of the values repeated as often; the others are not."""
    weighted = fold([Observations([x for x, _ in pairs], [w for _, w in pairs], 0)])
    repeated = [Fraction(x) for x, w in pairs for _ in range(int(w))]
    assert (weighted.n, weighted.w) == (len(pairs), float(len(repeated)))
    assert (weighted.min, weighted.max) == (min(x for x, _ in pairs), max(x for x, _ in pairs))
    assert reduce_moments(weighted, "sum") == float(sum(repeated))
    if repeated:
        assert reduce_moments(weighted, "mean") == pytest.approx(float(statistics.mean(repeated)), rel=1e-12, abs=1e-12)
        assert weighted.m2 is not None
        assert weighted.m2 / weighted.w == pytest.approx(float(statistics.pvariance(repeated)), rel=1e-9, abs=1e-8)
    else:
        assert not defined(weighted, "mean")
        assert not defined(weighted, "std")


@given(xs=st.lists(FINITE, max_size=6), ws=st.lists(WEIGHTS, min_size=6, max_size=6))
def test_a_figure_is_finite_or_none(xs: list[float], ws: list[float]) -> None:
    """Whatever overflows gives no figure, never an infinity or NaN, and nothing raises."""
    total = fold([Observations(xs, ws[: len(xs)], 0)])
    for reduction in MOMENT_REDUCTIONS:
        if defined(total, reduction):
            found = reduce_moments(total, reduction)
            assert found is None or math.isfinite(found)


@pytest.mark.parametrize("field", ["sum", "min", "max", "m2"])
def test_an_unknown_field_stays_unknown(field: str) -> None:
    """One summary that lacks a field makes it unknown in the merge, on either side; first and last are their side's."""
    whole: dict[str, Any] = {"n": 2, "sum": 3, "m2": 1, "min": 1, "max": 2, "first": 1, "last": 2}
    lacking = {name: x for name, x in whole.items() if name != field}
    a, b = observe(whole), observe(lacking)
    assert a is not None and a.summary is not None and b is not None and b.summary is not None
    for merged in (merge(a.summary, b.summary), merge(b.summary, a.summary)):
        assert getattr(merged, field) is None
        assert (merged.n, merged.w, merged.first, merged.last) == (4, 4.0, 1.0, 2.0)
        assert (merged.m2 is None) == (field in ("sum", "m2"))


def test_ties_keep_the_first() -> None:
    """Among 0.0 and -0.0 the one that came first is the minimum and the maximum."""
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        total = fold([Observations([first, second], None, 0)])
        assert total.min is not None and total.max is not None
        assert math.copysign(1, total.min) == math.copysign(1, total.max) == math.copysign(1, first)


def test_what_exists_for_which_observations() -> None:
    """Without finite observations only the count exists; without weight neither mean nor std."""
    nothing = EMPTY._replace(nonfinite=2)
    assert [name for name in MOMENT_REDUCTIONS if defined(nothing, name)] == ["count"]
    weightless = fold([Observations([1.0, 3.0], [0.0, 0.0], 0)])
    assert [name for name in MOMENT_REDUCTIONS if not defined(weightless, name)] == ["mean", "std"]
    assert (
        reduce_moments(nothing, "count"),
        reduce_moments(weightless, "count"),
        reduce_moments(weightless, "sum"),
    ) == (0.0, 2.0, 0.0)
