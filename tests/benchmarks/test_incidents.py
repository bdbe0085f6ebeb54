"""The benchmark of incidents: what is fixed before it runs, its arithmetic, and a short run of all of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.incidents.__main__ import measure, report
from benchmarks.incidents.found import answer_of
from benchmarks.incidents.job import Job
from benchmarks.incidents.judging import first_impact
from benchmarks.incidents.plan import plan
from benchmarks.incidents.statistics import Share, most

STEPS = plan().steps


def test_the_plan_is_as_large_as_promised() -> None:
    """At least 20 types of 5 incidents, 8 of them kept out and 3 without a cause node, and 40 of 100 runs eventful."""
    types = plan().types
    assert len(types) >= 20 and all(len(kind.incidents) >= 5 for kind in types)
    assert sum(kind.held_out for kind in types) == 8
    assert sum(not kind.node for kind in types) == 3
    assert not any(kind.held_out and not kind.node for kind in types)
    assert [len(plan().healthy), sum(bool(run.events) for run in plan().healthy)] == [100, 40]
    seeds = [one.seed for kind in types for one in kind.incidents]
    assert len({*seeds, *(run.seed for run in plan().healthy)}) == len(seeds) + 100


def test_a_fault_changes_nothing_before_it_begins(tmp_path: Path) -> None:
    """A run is the same with and without its fault up to the fault's step, and with or without files."""
    for kind in plan().types:
        one = kind.incidents[-1]
        well, hurt = Job(one.seed, None, (), None).run(STEPS), Job(one.seed, one, (), None).run(STEPS)
        assert well[: one.step] == hurt[: one.step], kind.name
        assert well != hurt, kind.name
    assert Job(one.seed, one, (), tmp_path / "run").run(STEPS) == hurt


def test_a_healthy_run_has_no_impact() -> None:
    """The oracle sees nothing where nothing went wrong."""
    one = plan().types[0].incidents[0]
    well = Job(one.seed, None, (), None).run(STEPS)
    assert first_impact(well, well, one, plan()) is None


def test_answers() -> None:
    """The places of causes are read as alerts write them, with or without a rank."""
    said = {
        "causes": [
            {"cause": "dead_rank", "place": {"actor": "generator", "rank": "2.0"}, "score": 50.0},
            {"cause": "thermal_straggler", "place": {"actor": "trainer", "rank": 3, "host": "n1"}, "score": 2.0},
            {"cause": "network_fail_slow", "place": {"actor": "trainer"}, "score": 1.0},
        ],
        "unknown": None,
    }
    assert answer_of(said).causes == (
        ("dead_rank", "generator/2.0"),
        ("thermal_straggler", "trainer/0.3"),
        ("network_fail_slow", "trainer"),
    )
    assert answer_of({"causes": [], "unknown": {"actor": "buffer"}}).unknown == "buffer"


def test_intervals() -> None:
    """Wilson's interval and the bound on a Poisson mean have the values that books give."""
    low, high = Share(8, 10).interval()
    assert math.isclose(low, 0.4902, abs_tol=1e-4) and math.isclose(high, 0.9433, abs_tol=1e-4)
    assert math.isclose(most(0), 2.9957, abs_tol=1e-4) and math.isclose(most(3), 7.7537, abs_tol=1e-4)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_short_run(tmp_path: Path) -> None:
    """Alerts see most of the largest incidents, and few episodes in short healthy runs."""
    incidents, healthy = measure(tmp_path, 2, short=True)
    counted = [one for one in incidents if one.impact is not None]
    assert len(counted) >= 20
    assert sum(one.detected["rlship why"] is not None for one in counted) >= 0.6 * len(counted)
    assert sum(len(one.episodes) - one.explained for one in healthy) <= 3
    assert any(line.startswith("| **all**") for line in report(incidents, healthy))
