"""Rows of streams that lost all their lines: what they say goes by the files, and not by what the rows were before."""

from __future__ import annotations

import math

import pytest

from rlship_sidecar.align.units import StreamConfig
from rlship_sidecar.rows import Coverage, Row, Unit
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.building import CLOSE, T0, barrier, clock, file, rollback, stream
from tests.reference.reduction import Settings, differing, final_rows

WINDOW = math.floor(T0 / 10)
STEP_2 = Unit("generator", "aligned", 2)
LEAD = file(barrier(1, 10.0), barrier(2, 20.0), beat=10)
AGAIN = file(rollback(2) | {"t": T0 + 30.0}, barrier(2, 40.0), CLOSE).split(b"\n", 1)[1]


def settle(sim: Simulation) -> None:
    sim.tick()
    sim.wait(70.0)
    sim.tick()


def check(sim: Simulation, settings: Settings | None = None) -> None:
    """At the end every row is as the reference says, empty ones too."""
    sim.finish()
    files = {path.name: path.read_bytes() for path in (sim.directory / "rlship").glob("*.jsonl")}
    assert not differing(final_rows(files, settings=settings or Settings()), sim.final())


def empty(unit: Unit, end: float, x: dict[str, int | float]) -> Row:
    return Row(unit, T0 + end, x, {}, Coverage((), 0))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("known", [1, 2], ids=["one line before", "both lines before"])
def test_a_step_that_the_lead_did_again(known: int, restarts: bool) -> None:
    """Lines of the step's former course are of no step. Its row has the step's new end as its time, whichever of them
    it was made of.
    """
    with simulation() as sim:
        lines = file(stream(12.0, x=1), stream(18.0, x=2), CLOSE, actor="generator", id="g", beat=10).splitlines(True)
        sim.write("t.jsonl", LEAD)
        sim.write("g.jsonl", b"".join(lines[: 1 + known]))
        settle(sim)
        made = sim.final()[STEP_2]
        assert (made.t, made.coverage.ranks) == (T0 + 6.0 * (known + 1), ("0.0",))
        sim.write("t.jsonl", AGAIN)
        settle(sim)
        sim.write("g.jsonl", b"".join(lines[1 + known :]))
        if restarts:
            sim.restart()
        check(sim)
        assert sim.final()[STEP_2] == empty(STEP_2, 40.0, {"global_step": 2})


def test_a_window_whose_lines_a_clock_record_moved() -> None:
    """Its row has the end of the window as its time."""
    window = Unit("generator", "clock", WINDOW + 1)
    with simulation() as sim:
        sim.write("g.jsonl", file(stream(12.5, x=1), actor="generator", host="n"))
        settle(sim)
        assert sim.final()[window].t == T0 + 12.5
        sim.write("n.jsonl", file(clock(100.0), CLOSE, actor="node", host="n", id="n"))
        settle(sim)
        assert sim.final()[window] == empty(window, 20.0, {"clock/elapsed_s": 10.0})
        sim.write("a.jsonl", file(CLOSE, actor="node", id="first", t=T0 - 5.0))
        check(sim)
        assert sim.final()[window] == empty(window, 20.0, {"clock/elapsed_s": 15.0})


def test_an_actor_that_has_no_stream_line_any_more() -> None:
    """A barrier adopted all lines. The row goes on with the step, also where that goes beyond all that was closed."""
    with simulation() as sim:
        sim.write("t.jsonl", LEAD)
        sim.write("g.jsonl", file(stream(12.0, x=1), actor="generator", id="g", beat=10))
        settle(sim)
        assert sim.final()[STEP_2].values == {"generator/x": 1.0}
        sim.write("g.jsonl", file(barrier(7, 50.0) | {"adopts": True}, CLOSE).split(b"\n", 1)[1])
        settle(sim)
        assert sim.final()[STEP_2] == empty(STEP_2, 20.0, {"global_step": 2})
        sim.write("t.jsonl", AGAIN)
        check(sim)
        assert sim.final()[STEP_2] == empty(STEP_2, 40.0, {"global_step": 2})


def test_a_step_that_is_no_more() -> None:
    """With another lead, which has no such step, the row has the time when the experiment began."""
    with simulation() as sim:
        sim.write("t.jsonl", LEAD)
        sim.write("g.jsonl", file(stream(12.0, x=1), CLOSE, actor="generator", id="g"))
        settle(sim)
        sim.streams = StreamConfig("absent")
        sim.restart()
        settle(sim)
        assert sim.final()[STEP_2] == empty(STEP_2, 0.0, {"global_step": 2})
        sim.write("n.jsonl", file(CLOSE, actor="node", id="first", t=T0 - 5.0))
        settle(sim)
        assert sim.final()[STEP_2] == empty(STEP_2, -5.0, {"global_step": 2})
        sim.write("a.jsonl", file(CLOSE, actor="absent", axis="rollout", id="lead"))
        check(sim, Settings(lead="absent"))
        assert sim.final()[STEP_2] == empty(STEP_2, -5.0, {"rollout": 2})
