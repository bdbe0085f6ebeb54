"""Rates: sums over the seconds between two barriers of each rank, or over the time of a unit."""

from __future__ import annotations

from typing import Any

import pytest

from rlship_formats.records import Open
from rlship_formats.values import EMPTY, Moments, Observations, fold, merge
from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.align.window import Ended
from rlship_sidecar.reduce.rates import between_barriers, rate
from rlship_sidecar.reduce.values import UNDEFINED


def writer(name: str, segments: int = 1) -> Writer:
    made = Writer(name, Open(name, "trainer"))
    made.segments = [Segment(made, number) for number in range(segments)]
    return made


def ended(segment: Segment, offset: int, t: float, before_t: float | None) -> Ended:
    """A barrier record of a step in that segment."""
    return segment, t, offset, before_t


def of(*xs: float) -> Moments:
    return fold([Observations(xs, None, 0)])


def test_each_rank_over_its_own_time() -> None:
    """Rates of ranks add up: 100 in 2 s and 30 in 10 s are 53 a second, whatever the greater time is."""
    a, b = writer("a").segments[0], writer("b").segments[0]
    seconds = between_barriers([ended(a, 5, 12.0, 10.0), ended(b, 5, 20.0, 10.0)])
    parts = [(a, of(60.0, 40.0)), (b, of(30.0))]
    assert rate(parts, merge(parts[0][1], parts[1][1]), seconds) == 53.0


def test_the_first_barrier_of_the_newest_segment_counts() -> None:
    """Of a step's barriers that of the newest segment with one counts, there the first; a child has its root's."""
    root, child = writer("root", 3), writer("child")
    child.belong_to(root)
    old, new, _ = root.segments
    times = [
        ended(old, 1, 100.0, 10.0),
        ended(new, 9, 300.0, 290.0),
        ended(new, 7, 206.0, 200.0),
        ended(child.segments[0], 1, 2.0, 1.0),
    ]
    for order in (times, times[::-1]):
        seconds = between_barriers(iter(order))
        assert [seconds(segment) for segment in (*root.segments, child.segments[0])] == [6.0] * 4


@pytest.mark.parametrize("before", [None, 50.0, 51.0])
def test_a_rank_without_time_makes_the_rate_underivable(before: float | None) -> None:
    """Where one rank has no barrier before, or one that is not earlier, there is no rate at all: none of a part."""
    a, b = writer("a").segments[0], writer("b").segments[0]
    seconds = between_barriers([ended(a, 5, 12.0, 10.0), ended(b, 5, 50.0, before)])
    assert rate([(a, of(1.0)), (b, of(1.0))], of(1.0, 1.0), seconds) is None
    assert rate([(a, of(1.0)), (b, EMPTY)], of(1.0), seconds) == 0.5, "a rank without observations needs no time"
    assert rate([(a, of(1.0))], of(1.0), between_barriers([])) is None


@pytest.mark.parametrize(("seconds", "expected"), [(4.0, 1.5), (None, None), (0.0, None), (-1.0, None), (1e-320, None)])
def test_a_unit_with_a_time_of_its_own(seconds: float | None, expected: float | None) -> None:
    """A rate is the whole sum over the unit's seconds, underivable where those are not known or not above 0."""
    a = writer("a").segments[0]
    assert rate([(a, of(2.0, 4.0))], of(2.0, 4.0), seconds) == expected


def test_what_is_not_there_has_no_rate() -> None:
    """Without finite observations a rate is absent; with a sum that is not known it is underivable."""
    a = writer("a").segments[0]
    unknown = of(1.0)._replace(sum=None)
    seconds: Any
    for seconds in (2.0, between_barriers([ended(a, 0, 3.0, 1.0)])):
        assert rate([(a, EMPTY)], EMPTY, seconds) is UNDEFINED
        assert rate([(a, unknown)], unknown, seconds) is None
