"""The reductions of levels and buckets."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_agents.scrape.figures import buckets
from rlship_agents.scrape.reading import Histogram
from rlship_agents.scrape.reductions import BucketP50, BucketP99, BucketQuantile, GaugeSum
from rlship_sidecar.reduce.custom import GROUP, check

INF = float("inf")


def test_levels_are_added_up_over_sources() -> None:
    """Each source's mean over its observations, then the sum: however often each was looked at."""
    levels = GaugeSum()
    for x, source in ((4.0, 1.0), (6.0, 1.0), (10.0, 1.5), (1.0, 1.25), (1.0, 1.25), (1.0, 1.25)):
        levels.add(x, source)
    assert levels.value() == 5.0 + 10.0 + 1.0


@pytest.mark.parametrize(
    ("bounds", "counts", "p50", "p99"),
    [
        ((1.0, INF), (10, 0), 0.5, 0.99),
        ((1.0, 2.0, 4.0, INF), (0, 10, 0, 0), 1.5, 1.99),
        ((1.0, 2.0, 4.0, INF), (10, 0, 10, 0), 1.0, 3.96),
        ((1.0, 2.0, INF), (0, 0, 5), 2.0, 2.0),
        ((-1.0, 0.0, 1.0, INF), (4, 0, 4, 0), -1.0, 0.98),
        ((-2.0, -1.0, INF), (0, 4, 0), -1.5, -1.01),
    ],
    ids=["one", "second", "gap", "above all", "below zero", "negative"],
)
def test_quantiles_of_buckets(bounds: tuple[float, ...], counts: tuple[float, ...], p50: float, p99: float) -> None:
    """They are what Prometheus' histogram_quantile gives: linear within a bucket, from 0 in a lowest one above 0, at
    the bound of one that is not, and the highest finite bound where they fall above it.
    """
    value = buckets([Histogram(bounds, counts, 0.0)])
    assert value is not None
    for kind, expected in ((BucketP50, p50), (BucketP99, p99)):
        quantile = kind()
        for x, weight in zip(value["v"], value["w"]):
            quantile.add(x, weight)
        assert quantile.value() == pytest.approx(expected)


def test_empty_buckets_have_no_quantile() -> None:
    """Bounds without observations say nothing."""
    quantile = BucketP50()
    quantile.add(1.0, 0.0)
    assert quantile.value() is None


counts = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any)


@given(st.lists(counts, min_size=1, max_size=5))
def test_pooled_buckets_are_those_of_one_histogram(several: list[list[int]]) -> None:
    """Increases that were logged one by one have the quantiles of their sum, in whatever parts they come."""
    bounds = (0.5, 1.0, 2.0, INF)
    observations = []
    for one in several:
        value = buckets([Histogram(bounds, tuple(map(float, one)), 0.0)])
        assert value is not None
        observations += list(zip(value["v"], value["w"]))
    total = [float(sum(column)) for column in zip(*several)]
    for kind in (BucketP50, BucketP99):
        check(kind, observations)
        quantile = kind()
        for x, weight in observations:
            quantile.add(x, weight)
        assert quantile.value() == pytest.approx(plain(kind.q, bounds, total), rel=1e-9)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from([1.0, 1.5, 2.0])), min_size=1, max_size=20))
def test_sums_of_levels_do_not_depend_on_parts(observations: list[tuple[float, float]]) -> None:
    """Wherever the observations are parted, and through their states, they come to the same sum."""
    bounded = [(x if abs(x) > 1e-3 else 1.0, weight) for x, weight in observations]
    check(GaugeSum, [(abs(x), weight) for x, weight in bounded])


def test_they_are_installed() -> None:
    """The entry points name these classes."""
    found = {point.name: point.load() for point in entry_points(group=GROUP) if point.value.startswith("rlship_agents")}
    assert {name for name in found if name.startswith("buckets.")} == {f"buckets.p{q}" for q in (50, 90, 95, 99)}
    assert found["gauge.sum"] is GaugeSum
    for name, kind in found.items():
        if name.startswith("buckets."):
            assert issubclass(kind, BucketQuantile)
            assert f"buckets.p{kind.q * 100:.0f}" == name


def plain(q: float, bounds: tuple[float, ...], weights: list[float]) -> float:
    """The quantile as the definition has it."""
    target, below, low = q * sum(weights), 0.0, 0.0
    for bound, weight in zip(bounds, weights):
        if weight and below + weight >= target:
            return low if bound == INF else low + (bound - low) * (target - below) / weight
        below, low = below + weight, bound
    raise AssertionError("no observations")
