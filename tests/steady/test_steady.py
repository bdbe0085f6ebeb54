"""The first seconds, and the first five minutes, of what `python -m tests.steady` does for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.steady.course import Course, Growth, Sample, quantile, table
from tests.steady.run import Plan, run


@pytest.mark.long
def test_twenty_seconds_bring_every_row(tmp_path: Path) -> None:
    """Eight ranks, 5 steps a second, a server that goes away: every row gets to the store and to the server."""
    course = run(Plan(20.0, ranks=8), tmp_path)
    assert len(course.ended) == 100
    assert not course.missing()
    assert course.outages


@pytest.mark.long
@pytest.mark.timeout(600)
def test_five_steady_minutes_change_nothing(tmp_path: Path) -> None:
    """64 ranks, 5 steps a second, a server that goes away twice: every row gets to the store and to the server, and
    neither memory nor open files grow.
    """
    course = run(Plan(300.0), tmp_path)
    print(table(course))
    assert len(course.ended) == 1500
    assert not course.missing()
    assert len(course.outages) == 2
    assert course.growth("memory_mb").ratio <= 1.05
    assert course.growth("files").ratio <= 1.0


def test_growth_and_lags_are_those_after_the_warm_up() -> None:
    """Of 100 samples the second tenth is compared with the last; steps near an outage count for the store alone."""
    course = Course(
        samples=[Sample(t, 10.0 if t < 10 else 20.0 if t < 90 else 21.0, 5, 0.0) for t in range(100)],
        ended={step: float(step) for step in range(100)},
        stored={step: step + 0.5 for step in range(100)},
        arrived={step: step + 1.5 for step in range(99)},
        outages=[(40.0, 60.0)],
    )
    assert course.growth("memory_mb") == Growth(20.0, 21.0)
    assert course.growth("memory_mb").ratio == 1.05
    assert course.missing() == [99]
    assert len(course.stored_lags()) == 90
    course.arrived[99] = 100.5
    assert len(course.arrival_lags()) == 90 - 46
    assert quantile(course.arrival_lags(), 0.99) == 1.5
