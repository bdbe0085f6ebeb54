"""Observations that are not finite: the status says of which metric, from whom and where, whatever the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlship_sidecar.report import terminal
from rlship_sidecar.report.status import NonFiniteStatus
from rlship_sidecar.report.survey import survey
from tests.kit.files import CLOSE, T0, barrier, beat, file, lines, log, rollback, stream
from tests.pipeline.simulated import Simulation, simulation


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as made:
        yield made


def rank_file(rank: int, steps: range, value: Callable[[int], Any], *, name: str = "reward", **identity: Any) -> bytes:
    """The file of one rank of two, which logs one metric at each step."""
    records = [record for step in steps for record in (log(step, **{name: value(step)}), barrier(step, step + 0.5))]
    return file(*records, **{"id": f"w{rank}", "rank": rank, "world": 2, "beat": 10} | identity)


def found(sim: Simulation) -> list[NonFiniteStatus]:
    sim.tick()
    return survey(sim.experiment, (), now=sim.now, wall=T0 + 100).nonfinite


def words(sim: Simulation) -> list[str]:
    sim.tick()
    return terminal.shortcomings(survey(sim.experiment, (), now=sim.now, wall=T0 + 100))


def test_a_single_value_leaves_a_trace(sim: Simulation) -> None:
    """One of one rank at one step of sixty, of which the row's value shows nothing; also after a restart."""
    sim.write("0.jsonl", rank_file(0, range(60), lambda step: 1.0))
    sim.write("1.jsonl", rank_file(1, range(60), lambda step: "NaN" if step == 7 else 1.0))
    expected = [NonFiniteStatus("trainer", "step", ["trainer/reward"], ["0.1"], 1, 7, 7)]
    assert found(sim) == expected
    assert words(sim) == ["trainer: reward was not finite: r1, step 7"]
    sim.restart()
    assert found(sim) == expected


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_lasting_one_has_its_first_step(sim: Simulation, word: str) -> None:
    """With the number of rows, the first and the last, and every rank that ever had it; NaN and infinity are alike."""
    sim.write("0.jsonl", rank_file(0, range(30), lambda step: word if step >= 20 else 1.0))
    sim.write("1.jsonl", rank_file(1, range(30), lambda step: word if step >= 5 else 1.0))
    assert words(sim) == ["trainer: reward was not finite: r0-1, 25 rows, steps 5..29"]


def test_metrics_that_were_alike_have_one_line(sim: Simulation) -> None:
    """Those of the same ranks and rows stand together."""
    bad = {f"m{i}": "NaN" for i in range(6)}
    sim.write("0.jsonl", file(log(0, **bad, loss=1.0), log(1, loss="NaN"), barrier(1, 1.0), CLOSE))
    assert words(sim) == [
        "trainer: m0, m1, m2, m3 and 2 more were not finite: r0, step 0",
        "trainer: loss was not finite: r0, step 1",
    ]


@pytest.mark.parametrize(
    ("value", "is_bad"),
    [
        ([1.0, "NaN", 2.0], True),
        (["NaN"] * 2000, True),
        ([1.0, 2.0], False),
        ({"v": [1.0, "NaN"], "w": [1.0, 2.0]}, True),
        ({"v": [1.0, "NaN"], "w": [1.0, 0.0]}, False),
        ({"n": 2, "sum": 3.0}, False),
    ],
    ids=["array", "long array", "finite", "weighted", "without weight", "summary"],
)
def test_every_form_of_a_value(sim: Simulation, value: Any, is_bad: bool) -> None:
    """One observation of many is enough; an unknown field of a summary and one without a weight do not count."""
    sim.write("0.jsonl", file(log(0, a=1.0, x=value, z=1.0), log(1, x=value), barrier(1, 1.0), CLOSE))
    assert [(one.metrics, one.rows) for one in found(sim)] == ([(["trainer/x"], 2)] if is_bad else [])


def test_a_step_that_is_made_again_leaves_no_trace(sim: Simulation) -> None:
    """After a rollback its row counts no such observation any more; as long as one row does, the metric is named."""
    records = [log(0, x=1.0), barrier(0, 1.0), log(1, x="NaN"), barrier(1, 2.0), log(2, x="NaN"), barrier(2, 3.0)]
    sim.write("0.jsonl", file(*records, beat=10))
    assert words(sim) == ["trainer: x was not finite: r0, 2 rows, steps 1..2"]
    sim.write("0.jsonl", lines(rollback(1), log(1, x=1.0), barrier(1, 5.0)))
    sim.wait(60)
    assert [one.rows for one in found(sim)] == [1]
    sim.write("0.jsonl", lines(log(2, x=1.0), barrier(2, 6.0)))
    sim.wait(60)
    assert found(sim) == []


def test_a_restarted_rank_supersedes_what_it_had(sim: Simulation) -> None:
    """Of two lives of a rank the newer one counts, and of another rank its own value still does."""
    sim.write("0.jsonl", rank_file(0, range(3), lambda step: "NaN" if step == 2 else 1.0))
    sim.write("1.jsonl", rank_file(1, range(3), lambda step: "NaN"))
    sim.write("2.jsonl", rank_file(1, range(3), lambda step: 1.0, id="again", attempt=1, t=T0 + 50))
    assert [(one.ranks, one.first, one.rows) for one in found(sim)] == [(["0.0"], 2, 1)]


def test_a_late_one_is_found(sim: Simulation) -> None:
    """A line that comes after its row makes a revision, which counts it."""
    sim.write("0.jsonl", rank_file(0, range(3), lambda step: 1.0))
    sim.wait(100)
    assert found(sim) == []
    sim.write("1.jsonl", rank_file(1, range(3), lambda step: "NaN" if step == 1 else 1.0))
    sim.wait(60)
    assert [(one.ranks, one.first, one.rows) for one in found(sim)] == [(["0.1"], 1, 1)]


def test_what_is_logged_without_a_step_is_named_with_its_time(sim: Simulation) -> None:
    """In rows beside steps and over time."""
    sim.write("0.jsonl", file(log(0, loss=1.0), barrier(0, 30.0), log(1, loss=1.0), barrier(1, 60.0), CLOSE))
    records = [stream(float(at), score="NaN" if at == 15 else 1.0) for at in range(5, 60, 10)]
    sim.write("1.jsonl", file(*records, beat(70.0), CLOSE, id="v", actor="verifier"))
    kinds = {one.kind: one for one in found(sim)}
    assert kinds.keys() >= {"clock"} and all(one.ranks == ["0.0"] and one.rows == 1 for one in kinds.values())
    (line,) = [line for line in words(sim) if "over time" in line]
    assert line.startswith("verifier: score was not finite: r0, over time, ")


def test_of_varied_metrics_the_newest_life_that_has_one_counts(sim: Simulation) -> None:
    """A rank's later life supersedes what an earlier one says of a metric only where it has the metric, also where
    lines of other metrics share a schema.
    """

    def lines_of(steps: range, but: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
        varied = ({name: 1.0 for place, name in enumerate("abcdef") if place != step % 6} for step in steps)
        return [
            record for step, m in zip(steps, varied) for record in (log(step, **(m | but.get(step, {}))), barrier(step))
        ]

    sim.write("0.jsonl", file(*lines_of(range(14), {9: {"b": "NaN"}, 12: {"a": "NaN"}}), id="w0", beat=10))
    life = {"id": "w1", "attempt": 1, "t": T0 + 200}
    sim.write("1.jsonl", file(*lines_of(range(4, 14), {}), **life, beat=10))
    assert found(sim) == [NonFiniteStatus("trainer", "step", ["trainer/a"], ["0.0"], 1, 12, 12)]


def test_a_later_life_of_varied_metrics_supersedes_no_metric_that_it_lacks(sim: Simulation) -> None:
    """Not what an earlier life says of the metric in a line that shares no schema with others, either."""
    sim.write("0.jsonl", file(log(5, a="NaN", b=1.0, c=1.0, d=1.0), barrier(5), id="w0", beat=10))
    varied = ({name: 1.0 for place, name in enumerate("abcdef") if place != step % 5} for step in range(6))
    records = [record for step, m in enumerate(varied) for record in (log(step, **m), barrier(step))]
    sim.write("1.jsonl", file(*records, id="w1", attempt=1, t=T0 + 200, beat=10))
    assert found(sim) == [NonFiniteStatus("trainer", "step", ["trainer/a"], ["0.0"], 1, 5, 5)]
