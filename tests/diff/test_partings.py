"""The first step at which metrics part, against comparing every pair of values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.diff.partings import Metric, Tolerance, compare, is_of_time, place
from rlship_sidecar.rows import Row
from tests.tabular.stores import row

VALUES = st.sampled_from((0.0, -0.0, 1.0, 1.0 + 2**-52, 1.5, -3.0, 1e300))
UNITS = st.tuples(st.sampled_from(("gen", "trainer")), st.sampled_from(("aligned", "step")), st.integers(0, 5))
RUNS = st.dictionaries(UNITS, st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3), max_size=12)

Run = dict[tuple[str, str, int], dict[str, float]]


def rows_of(run: Run) -> list[Row]:
    made = [
        row(no, step, actor=actor, kind=kind, values=values)
        for no, ((actor, kind, step), values) in enumerate(run.items())
    ]
    return sorted(made, key=place)


def obvious(a: Run, b: Run, tolerance: Tolerance) -> dict[Any, Any]:
    """By metric: how many values differ, the lowest step at which one does, and the greatest difference."""
    found: dict[Any, Any] = {}
    for actor, kind, step in a.keys() & b.keys():
        left, right = a[actor, kind, step], b[actor, kind, step]
        for key in left.keys() | right.keys():
            apart, first, far = found.get((actor, kind, key), (0, math.inf, -1.0))
            one, other = left.get(key), right.get(key)
            if one is None or other is None:
                found[actor, kind, key] = (apart + 1, min(first, step), far)
                continue
            limit = max(tolerance.absolute, tolerance.relative * max(abs(one), abs(other)))
            if abs(one - other) > limit or (tolerance == (0, 0) and repr(one) != repr(other)):
                found[actor, kind, key] = (apart + 1, min(first, step), max(far, abs(one - other)))
            else:
                found[actor, kind, key] = (apart, first, far)
    return found


@given(RUNS, RUNS, st.sampled_from((Tolerance(), Tolerance(relative=0.4), Tolerance(absolute=0.5))))
def test_each_metric_parts_where_its_values_do(a: Run, b: Run, tolerance: Tolerance) -> None:
    """Only units that both have count; a value that one row lacks is a difference without a size."""
    found = compare(rows_of(a), rows_of(b), tolerance)
    assert found.both == len(a.keys() & b.keys())
    assert {
        key: (
            one.apart,
            math.inf if one.first is None else one.first.step,
            -1.0 if one.widest is None else one.widest.size,
        )
        for key, one in found.metrics.items()
    } == obvious(a, b, tolerance)


@given(RUNS)
def test_a_run_equals_itself(a: Run) -> None:
    """Nothing parts, and every metric is of both."""
    found = compare(rows_of(a), rows_of(a), Tolerance())
    assert (found.parted(), found.of_one(), found.ranks) == ([], [], {})


def test_the_earliest_parting_comes_first_and_those_of_time_last() -> None:
    """Metrics in the order in which a reader looks for a cause."""
    a = {("trainer", "step", n): {"trainer/x": 0.0, "trainer/a": 0.0, "trainer/perf/step_s": 0.0} for n in range(9)}
    b = {unit: dict(values) for unit, values in a.items()}
    b["trainer", "step", 0]["trainer/perf/step_s"] = b["trainer", "step", 3]["trainer/x"] = 1.0
    b["trainer", "step", 5]["trainer/a"] = 1.0
    found = compare(rows_of(a), rows_of(b), Tolerance())
    assert [one.key for one in found.parted()] == ["trainer/x", "trainer/a", "trainer/perf/step_s"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("trainer/perf/tokens_per_s", True),
        ("trainer/upd/forward_s/max", True),
        ("trainer/rollout_s", True),
        ("verifier/answers/rate", True),
        ("trainer/barrier/last_rank", True),
        ("trainer/loss", False),
        ("trainer/grad_norm", False),
        ("trainer/reward/total/mean", False),
    ],
)
def test_what_is_of_time(key: str, expected: bool) -> None:
    """By the catalogue's unit, else by its name."""
    assert is_of_time(Metric("trainer" if key.startswith("trainer") else "verifier", "step", key)) is expected
