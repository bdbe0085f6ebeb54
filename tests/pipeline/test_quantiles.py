"""Quantiles, histograms and the sketch against slow functions and exact arithmetic."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlship_formats import sketch as sketching
from rlship_formats.histogram import histogram, merged
from rlship_formats.quantiles import EXACT_UP_TO, quantile
from rlship_formats.sketch import LEAST, Sketch, bucket_of
from rlship_formats.values import Histogram

FINITE = st.floats(allow_nan=False, allow_infinity=False)
CLOSE = st.builds(lambda at, ulps: at + ulps * math.ulp(at), st.sampled_from((1.0, -3.0, 1e-3)), st.integers(0, 9))
TELLING = st.sampled_from((0.0, -0.0, 1.0, 1.7e308, -1.7e308, 5e-324, -5e-324, 1e-310, LEAST, 0.1, 3.0))
OBSERVED = st.lists(st.one_of(FINITE, TELLING, CLOSE), min_size=1, max_size=70)
SHARES = st.sampled_from((0.5, 0.9, 0.95, 0.99))


def ordered(xs: list[float]) -> NDArray[np.float64]:
    return np.sort(np.array(xs, dtype=np.float64))


def slow_quantile(xs: list[float], q: float) -> float:
    ascending = sorted(xs)
    h = (len(ascending) - 1) * q
    i = math.floor(h)
    f = h - i
    found = ascending[i]
    if f:
        step = ascending[i + 1] - ascending[i]
        if math.isinf(step):
            found = ascending[i] * (1.0 - f) + ascending[i + 1] * f
        else:
            found = ascending[i] + f * step
    return found if found else 0.0


def slow_histogram(xs: list[float]) -> Histogram:
    low, high = min(xs) + 0.0, max(xs) + 0.0
    if low == high:
        return Histogram((low, high), (len(xs),))
    edges = [low]
    for j in range(1, 64):
        edges.append(max(edges[-1], low * (1 - j / 64) + high * (j / 64)) + 0.0)
    edges.append(max(edges[-1], high))
    counts = [0] * 64
    for x in xs:
        counts[max(j for j in range(64) if edges[j] <= x)] += 1
    return Histogram(tuple(edges), tuple(counts))


@given(xs=OBSERVED, q=SHARES)
def test_quantiles_are_of_type_7(xs: list[float], q: float) -> None:
    """A quantile lies between the two observations at its place, also where their distance overflows; a zero is 0.0."""
    assert quantile(ordered(xs), q).hex() == slow_quantile(xs, q).hex()


def test_quantiles_by_hand() -> None:
    """The median of 1, 2, 3, 10 is 2.5, their p90 7.9; of one observation every quantile is that."""
    assert quantile(ordered([10.0, 2.0, 3.0, 1.0]), 0.5) == 2.5
    assert quantile(ordered([10.0, 2.0, 3.0, 1.0]), 0.9) == pytest.approx(7.9, rel=1e-15)
    assert quantile(ordered([-0.0]), 0.99).hex() == "0x0.0p+0"


@given(xs=OBSERVED)
def test_histograms_count_every_observation_where_it_is(xs: list[float]) -> None:
    """Edges, which never descend, and counts are those of looking at each observation and bin alone."""
    found = histogram(ordered(xs))
    assert (repr(found.edges), found.counts) == (repr(slow_histogram(xs).edges), slow_histogram(xs).counts)
    assert all(low <= high for low, high in pairwise(found.edges))
    assert found.edges[-1] == max(xs)


def test_a_histogram_by_hand() -> None:
    """64 equal bins from 0 to 64: an edge belongs to the bin above it, the last one to its own."""
    found = histogram(ordered([0.0, 0.5, 1.0, 63.0, 64.0]))
    assert found.edges == tuple(float(edge) for edge in range(65))
    assert (found.counts[0], found.counts[1], found.counts[63], sum(found.counts)) == (2, 1, 2, 5)
    assert histogram(ordered([2.0, 2.0])) == Histogram((2.0, 2.0), (2,))


def test_bins_of_equal_edges_add_up() -> None:
    """Counts add up and edges stay; 513 bins are more than W&B takes, so they become 64."""
    edges = (0.0, 1.0, 2.5)
    nothing = ordered([])
    assert merged([Histogram(edges, (1, 2)), Histogram(edges, (4, 0))], nothing) == Histogram(edges, (5, 2))
    many = Histogram(tuple(map(float, range(514))), (1,) * 513)
    assert merged([Histogram(many.edges[:-1], many.counts[:-1])], nothing).counts == (1,) * 512
    assert (len(merged([many], nothing).counts), sum(merged([many], nothing).counts)) == (64, 513)


def test_other_bins_count_by_their_middles() -> None:
    """From the least to the greatest edge with a count, observations among them."""
    found = merged([Histogram((0.0, 1.0, 9.0), (2, 0)), Histogram((0.0, 64.0), (3,))], ordered([10.25]))
    assert found.edges == tuple(map(float, range(65)))
    assert {place: count for place, count in enumerate(found.counts) if count} == {0: 2, 10: 1, 32: 3}
    assert merged([Histogram((2.0, 2.0), (5,)), Histogram((1.0, 2.0, 2.0), (0, 1))], ordered([])) == (
        Histogram((2.0, 2.0), (6,))
    )
    tiny = 5e-324
    found = merged([Histogram((tiny, tiny), (4,)), Histogram((tiny, 1.0), (1,))], ordered([]))
    assert (found.counts[0], found.counts[32]) == (4, 1)


def test_buckets_have_exact_bounds() -> None:
    """γ^i is the last value of bucket i and the next double the first of bucket i + 1, for γ = 101/99 taken exactly."""
    for i in (-300, -1, 0, 1, 2, 35, 350):
        bound = float(Fraction(101, 99) ** i)
        sizes = np.array([bound, math.nextafter(bound, math.inf)])
        exact = i if Fraction(bound) <= Fraction(101, 99) ** i else i + 1
        assert bucket_of(sizes)[1] == i + 1
        assert bucket_of(sizes)[0] in (i, exact)
    assert bucket_of(np.array([LEAST, 1.0, 1.7976931348623157e308])).tolist() == [-35418, 0, 35488]


@given(xs=st.lists(st.floats(LEAST, allow_infinity=False), min_size=1))
def test_the_bounds_decide(xs: list[float]) -> None:
    """Each value is above the bound of the bucket before its own and not above its own, whatever the logarithm says."""
    bounds = sketching._bounds()
    for x, bucket in zip(xs, bucket_of(np.array(xs)).tolist()):
        place = bucket - sketching._LOWEST + 1
        assert bounds[place - 1] < x <= bounds[place]


@given(xs=OBSERVED, q=st.floats(0, 1))
def test_a_sketch_is_within_one_percent(xs: list[float], q: float) -> None:
    """Its quantile is within 1 % of the observation of that rank, and never beyond the least or greatest; observations
    nearer to zero than any normal double count as zero.
    """
    made = Sketch()
    made.add(xs)
    found = made.value(q)
    true = sorted(xs)[math.floor((len(xs) - 1) * q)]
    assert found is not None
    assert min(xs) <= found <= max(xs)
    if abs(true) >= LEAST:
        assert abs(found / true - 1) <= 0.01 + 1e-15
    else:
        assert found == min(max(0.0, min(xs)), max(xs))


@given(parts=st.lists(st.lists(st.one_of(FINITE, TELLING), max_size=20), max_size=6), data=st.data())
def test_merging_sketches_is_adding_at_once(parts: list[list[float]], data: st.DataObject) -> None:
    """However observations are parted, in whatever order parts are merged and through states: the same sketch."""
    whole, merged, kept = Sketch(), Sketch(), Sketch()
    whole.add([x for part in parts for x in part])
    for part in data.draw(st.permutations(parts)):
        one = Sketch()
        for x in part:
            one.add(x)
        merged.merge(one)
        kept = Sketch.from_state(json.loads(json.dumps(kept.state())))
        kept.merge(Sketch.from_state(json.loads(json.dumps(one.state()))))
    assert merged.state() == kept.state() == whole.state()
    assert merged.value(0.9) == kept.value(0.9) == whole.value(0.9)


def test_an_empty_sketch_has_no_quantile() -> None:
    """Without observations there is no quantile, and merging an empty one changes nothing."""
    made = Sketch()
    assert made.value(0.5) is None
    made.merge(Sketch())
    assert made.state() == Sketch().state()


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1 << 32), sigma=st.sampled_from((0.1, 2.0, 50.0)))
def test_many_observations_are_sketched(seed: int, sigma: float) -> None:
    """Up to 65,536 observations a quantile is exact; from the next one on it is the sketch's, within 1 %."""
    xs = np.random.default_rng(seed).normal(0.0, 1.0, EXACT_UP_TO + 1)
    xs = np.sort(np.sign(xs) * np.exp(sigma * xs))
    for q in (0.5, 0.9, 0.95, 0.99):
        assert quantile(xs[:-1], q).hex() == slow_quantile(xs[:-1].tolist(), q).hex()
        made = Sketch()
        made.add(xs)
        assert quantile(xs, q) == made.value(q)
        assert abs(quantile(xs, q) / xs[math.floor(EXACT_UP_TO * q)] - 1) <= 0.01 + 1e-15
