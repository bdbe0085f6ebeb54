"""The benchmark of incidents: what is fixed before it runs, its arithmetic, and a short run of all of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.incidents.__main__ import measure, report
from benchmarks.incidents.found import Rows, answer_of, episodes_of, rows_of, why
from benchmarks.incidents.job import Job
from benchmarks.incidents.judging import NAMES, first_impact
from benchmarks.incidents.plan import Plan, plan, reseeded
from benchmarks.incidents.statistics import Share, most
from rlship_sidecar import bounded_toml
from rlship_sidecar.why.graph import graph_of
from tests.alerts.rows import T0, row

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


def test_fresh_runs_differ_in_their_seeds_alone() -> None:
    """All runs are others, the same ones for the same text, and everything else is as planned."""

    def seeds(planned: Plan) -> list[int]:
        incidents = [one.seed for kind in planned.types for one in kind.incidents]
        return [*incidents, *(run.seed for run in planned.healthy), *planned.real.seeds, *planned.real.healthy]

    once = reseeded(plan(), "7")
    assert seeds(once) == seeds(reseeded(plan(), "7")) != seeds(reseeded(plan(), "8"))
    assert all(one != other for one, other in zip(seeds(once), seeds(plan())))
    sizes = [[(one.step, one.size, one.at) for kind in of.types for one in kind.incidents] for of in (once, plan())]
    assert sizes[0] == sizes[1]


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


def test_answers(tmp_path: Path) -> None:
    """The causes that `rlship why` may show are read with their places; a run in which no rule fires has no cause."""
    said = {
        "causes": [
            {"cause": "rank_lost", "place": "generator/2.0", "weight": 50.0, "host": None},
            {"cause": "unknown", "place": "trainer", "weight": 4.0, "host": None},
            {"cause": "network_slow", "place": "network", "weight": 0.1, "host": None},
        ]
    }
    assert answer_of(said).causes == (("rank_lost", "generator/2.0"), ("unknown", "trainer"))
    one = next(kind for kind in plan().types if kind.name == "nonfinite_gradient").incidents[-1]
    for name, incident, expected in (("well", None, ()), ("hurt", one, ("nan", "trainer"))):
        Job(one.seed, incident, (), tmp_path / name).run(one.step + 20)
        rows_of(tmp_path / name, tmp_path / f"{name}.state")
        causes = why(tmp_path / name, tmp_path / f"{name}.state").causes
        assert (causes[0] if incident else causes) == expected


def test_a_row_in_the_middle_of_a_rollback_is_no_frame() -> None:
    """A replay may make a row while it has read the rollback of some ranks only: the step's old lineage, half an hour
    later. Only the newest row and what the step was before count.
    """
    former = [row(at, {"loss": 1.0}, t=T0 + 10 * at) for at in range(30)]
    mixed = row(20, {"loss": 1.0}, t=T0 + 2100)
    again = [row(at, {"loss": 1.0}, t=T0 + 1900 + 10 * at, lineage=(0, 0, 1)) for at in range(20, 30)]
    past = {one.unit.index: [one] for one in former[20:]}

    assert [one.rule for one in episodes_of(Rows([*former, mixed], {}))[0]] == ["stall"]
    assert episodes_of(Rows([*former, mixed, *again], past)) == ([], 40)


def test_every_name_is_one_of_the_graph() -> None:
    """Each type whose cause has a node is given a cause of the graph, and places that the graph has."""
    table = bounded_toml.decode(NAMES.read_bytes())
    graph = graph_of({})
    kinds = {kind.name: kind for kind in plan().types}
    for name, kind in kinds.items():
        assert bool({name, *table["names"].get(name, ())} & set(graph.causes)) == kind.node, name
    assert {cause for causes in table["names"].values() for cause in causes} <= set(graph.causes)
    assert {place for places in table["places"].values() for place in places} <= {
        cause.at for cause in graph.causes.values()
    }
    assert {*table["names"], *table["places"]} <= set(kinds)


def test_intervals() -> None:
    """Wilson's interval and the bound on a Poisson mean have the values that books give."""
    low, high = Share(8, 10).interval()
    assert math.isclose(low, 0.4902, abs_tol=1e-4) and math.isclose(high, 0.9433, abs_tol=1e-4)
    assert math.isclose(most(0), 2.9957, abs_tol=1e-4) and math.isclose(most(3), 7.7537, abs_tol=1e-4)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_short_run(tmp_path: Path) -> None:
    """Alerts see most of the largest incidents, and few episodes in short healthy runs."""
    incidents, healthy = measure(plan(), tmp_path, 2, short=True)
    counted = [one for one in incidents if one.impact is not None]
    assert len(counted) >= 20
    assert sum(one.detected["rlship why"] is not None for one in counted) >= 0.6 * len(counted)
    assert sum(len(one.episodes) - one.explained for one in healthy) <= 3
    assert any(line.startswith("| **all**") for line in report(incidents, healthy))
