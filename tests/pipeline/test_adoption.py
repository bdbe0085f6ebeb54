"""What a process recorded without a step before its first barrier belongs to the barrier's step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlship_sidecar.align.units import Patience
from rlship_sidecar.rows import Row, Unit
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.building import CLOSE, T0, file
from tests.reference.reduction import differing, final_rows

SPAN = {"kind": "span", "t": T0 + 0.5, "dur": 0.5, "name": "rollout", "lane": "main"}
EARLY = (SPAN, {"t": T0 + 1.0, "m": {"prompts": 8}}, {"kind": "event", "t": T0 + 1.0, "name": "loaded"})


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as running:
        yield running


def log_at(step: int, t: float, **metrics: float) -> dict[str, Any]:
    return {"t": t, "step": step, "m": metrics}


def stream_at(t: float, **metrics: float) -> dict[str, Any]:
    return {"t": t, "m": metrics}


def barrier_at(step: int, t: float) -> dict[str, Any]:
    return {"kind": "barrier", "step": step, "t": t}


def adopting(step: int, t: float) -> dict[str, Any]:
    return {"kind": "barrier", "step": step, "t": t, "adopts": True}


def units(sim: Simulation) -> list[tuple[str, str, int]]:
    """The units that have rows with values."""
    return sorted((unit.actor, unit.kind, unit.index) for unit, row in sim.final().items() if row.values)


def lacks_ranks(sim: Simulation, actor: str, kind: str, index: int) -> Row:
    return sim.final()[Unit(actor, kind, index)]


@pytest.mark.parametrize("actor", ["trainer", "reward"])
@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "line by line"])
@pytest.mark.parametrize("first_step_s", [1.5, 45.0, 300.0])
def test_the_first_barrier_adopts(actor: str, apart: bool, first_step_s: float) -> None:
    """Lead or not, however long the step and however the lines arrive: rows of steps, and no others."""
    lines = [*EARLY, log_at(0, T0 + first_step_s, loss=1.0), adopting(0, T0 + first_step_s + 0.25)]
    lines += [log_at(1, T0 + first_step_s + 1, loss=1.0, rollout_s=0.5), barrier_at(1, T0 + first_step_s + 2), CLOSE]
    whole = file(*lines, actor=actor, world=1, beat=10)
    with simulation() as sim:
        if apart:
            for line in whole.splitlines(keepends=True):
                sim.write("a.jsonl", line)
                sim.tick()
                sim.wait(0.2)
        else:
            sim.write("a.jsonl", whole)
        sim.finish()
        assert units(sim) == [(actor, "step", 0), (actor, "step", 1)]
        assert lacks_ranks(sim, actor, "step", 0).values == {
            f"{actor}/loss": 1.0,
            f"{actor}/prompts": 8.0,
            f"{actor}/rollout_s": 0.5,
            f"{actor}/rollout_s/max": 0.5,
            f"{actor}/event/loaded": 1.0,
        }
        assert not differing(final_rows({"a.jsonl": whole}), sim.final())


def test_no_stray_row_appears_while_the_first_step_of_the_lead_lasts(sim: Simulation) -> None:
    """Windows of time with lines that the lead's first barrier will adopt wait for it."""
    whole = file(*EARLY, log_at(0, T0 + 40.0, loss=1.0), adopting(0, T0 + 40.25), CLOSE, world=1, beat=10)
    lines = whole.splitlines(keepends=True)
    sim.write("a.jsonl", b"".join(lines[:4]))
    for second in range(4):
        sim.tick()
        sim.wait(10)
        sim.write("a.jsonl", f'{{"kind":"beat","t":{T0 + 10.0 * (second + 1)}}}\n'.encode())
    sim.tick()
    assert sim.rows() == []
    sim.write("a.jsonl", b"".join(lines[4:]))
    sim.finish()
    assert [(row.unit.kind, row.unit.index) for row in sim.rows()] == [("step", 0)]


def test_a_lead_that_never_calls_barrier_has_its_windows_soon() -> None:
    """They wait for `join_s` only."""
    with simulation(patience=Patience(join_s=20.0)) as sim:
        sim.write("a.jsonl", file(*EARLY, stream_at(T0 + 30.0, prompts=8), world=1, beat=10))
        sim.tick()
        sim.wait(25)
        sim.tick()
        assert [row.unit.kind for row in sim.rows()] == ["clock"]


def test_rows_that_lose_their_lines_become_empty() -> None:
    """A first step that outlasts all patience: its windows had rows, which the barrier takes back."""
    whole = file(*EARLY, log_at(0, T0 + 400.0, loss=1.0), adopting(0, T0 + 400.25), CLOSE, actor="reward", beat=10)
    lines = whole.splitlines(keepends=True)
    with simulation() as sim:
        sim.write("a.jsonl", b"".join(lines[:4]))
        for second in range(5):
            sim.tick()
            sim.wait(10)
            sim.write("a.jsonl", f'{{"kind":"beat","t":{T0 + 10.0 * (second + 1)}}}\n'.encode())
        sim.tick()
        assert [row.unit.kind for row in sim.rows()] == ["clock"]
        sim.restart()
        sim.write("a.jsonl", b"".join(lines[4:]))
        sim.finish()
        assert units(sim) == [("reward", "step", 0)]
        assert lacks_ranks(sim, "reward", "step", 0).values["reward/prompts"] == 8.0
        assert sim.experiment.streaming.of("reward").writers == {}


def test_what_has_no_step_on_purpose_stays_a_stream(sim: Simulation) -> None:
    """System metrics, what the writer says of itself, and a process whose barriers adopt nothing."""
    gpu = {"t": T0 + 1.0, "stream": True, "m": {"gpu": 0.5}}
    own = {"kind": "event", "t": T0 + 1.0, "name": "rlship_error", "attrs": {}}
    sim.write("a.jsonl", file(SPAN, gpu, own, log_at(0, T0 + 2.0, loss=1.0), adopting(0, T0 + 3.0), CLOSE))
    sim.write("b.jsonl", file(stream_at(T0 + 1.0, fill=1.0), barrier_at(0, T0 + 3.0), CLOSE, id="b", actor="buffer"))
    sim.finish()
    window = int(T0 // 10)
    assert lacks_ranks(sim, "trainer", "clock", window).values == {"clock/trainer/gpu": 0.5}
    assert lacks_ranks(sim, "trainer", "step", 0).values["trainer/rollout_s"] == 0.5
    assert lacks_ranks(sim, "buffer", "clock", window).values == {"clock/buffer/fill": 1.0}


def test_only_the_first_barrier_adopts(sim: Simulation) -> None:
    """A later one cannot, nor one after a rollback."""
    sim.write("a.jsonl", file(SPAN, barrier_at(0, T0 + 3.0), adopting(1, T0 + 4.0), CLOSE, actor="reward"))
    sim.finish()
    assert units(sim) == [("reward", "clock", int(T0 // 10))]


def test_a_metric_that_was_adopted_counts_as_logged_with_steps() -> None:
    """Its part without a step has the key `…/aligned`, also where the line was in a stream before the barrier came."""
    lead = file(log_at(0, T0 + 1.0, loss=1.0), barrier_at(0, T0 + 9.0), CLOSE, world=1)
    early = {"t": T0 + 1.0, "m": {"tokens": [1, 2]}}
    late = {"t": T0 + 8.0, "stream": True, "m": {"tokens": [3], "fill": 1}}
    other = file(early, adopting(0, T0 + 2.0), late, CLOSE, actor="generator", id="g").splitlines(keepends=True)
    with simulation() as sim:
        sim.write("a.jsonl", lead)
        sim.write("g.jsonl", b"".join(other[:2]))
        sim.tick()
        sim.write("g.jsonl", b"".join(other[2:]))
        sim.finish()
        found = lacks_ranks(sim, "generator", "aligned", 0).values
        assert found == {"generator/tokens/aligned": 3.0, "generator/fill": 1.0}
        assert not differing(final_rows({"a.jsonl": lead, "g.jsonl": b"".join(other)}), sim.final())
