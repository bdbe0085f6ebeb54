"""TorchTitan's structured logs: rows worked out by hand."""

from __future__ import annotations

import io
import json

import pytest

from rlship_sidecar.export.selection import Selection
from rlship_sidecar.export.trace import export
from rlship_sidecar.rows import Row, Unit
from tests.foreign.titan import T, instant, line, put, scalar, span
from tests.pipeline.simulated import Simulation, simulation

A, B = "training.global_rank_0.20260101-000000-AAAAAA.jsonl", "training.global_rank_1.20260101-000000-BBBBBB.jsonl"


def step(sim: Simulation, index: int, actor: str = "trainer") -> Row:
    return sim.final()[Unit(actor, "step", index)]


def test_spans_scalars_instants_errors_and_tags_of_two_ranks() -> None:
    """Durations are in seconds, by mean and maximum; scalars are means; instants and errors count; tags are tags."""
    with simulation() as sim:
        error = "[step 1] optim_error: RuntimeError: CUDA OOM"
        put(
            sim.directory,
            A,
            span("fwd_bwd", 1.0, 250.0, 1),
            line("event", "optim_error", 1.2, step=1, message=error),
            span("optim", 1.25, 50.0, 1),
            scalar("local_valid_tokens", 10.0, 1.3, 1, step_tags=["gc", "eval"]),
            instant("saved", 1.4, 1),
            span("fwd_bwd", 2.0, 500.0, 2),
        )
        put(
            sim.directory,
            B,
            span("fwd_bwd", 1.5, 750.0, 1, rank=1),
            scalar("local_valid_tokens", 30.0, 1.6, 1, rank=1),
            span("fwd_bwd", 2.0, 300.0, 2, rank=1),
        )
        sim.tick()
        assert step(sim, 1).values == {
            "trainer/fwd_bwd_s": 0.5,
            "trainer/fwd_bwd_s/max": 0.75,
            "trainer/event/optim_error": 1.0,
            "trainer/optim_s": 0.05,
            "trainer/optim_s/max": 0.05,
            "trainer/local_valid_tokens": 20.0,
            "trainer/event/saved": 1.0,
        }
        assert step(sim, 1).tags == ("eval", "gc")
        assert step(sim, 1).t == pytest.approx(T + 1.6)
        assert step(sim, 1).coverage.ranks == ("0.0-1",)
        assert not sim.dead()


def test_an_instant_may_be_called_like_the_start_of_a_span() -> None:
    """`training_start` is an instant by its type; it has no step, and is a row over time."""
    with simulation() as sim:
        put(sim.directory, A, instant("training_start", 0.0), span("step", 1.0, 100.0, 1))
        sim.finish()
        assert [row.values for row in sim.rows() if row.unit.kind == "clock"] == [
            {"clock/trainer/event/training_start": 1.0}
        ]


def test_values_that_are_not_finite_are_counted() -> None:
    """Bare NaN and Infinity enter no figure; the row says how many there were."""
    with simulation() as sim:
        put(sim.directory, A, scalar("loss", float("nan"), 1, 1), scalar("loss", float("inf"), 1, 1))
        put(sim.directory, A, scalar("loss", 2.0, 1, 1))
        sim.finish()
        assert step(sim, 1).values == {"trainer/loss": 2.0, "trainer/loss/nonfinite": 2.0}


def test_a_restart_is_a_new_file_whose_steps_count() -> None:
    """Steps that were done again are those of the later file; the others stay."""
    with simulation() as sim:
        put(sim.directory, A, *(scalar("loss", 1.0, at, at) for at in (1, 2, 3)))
        later = "training.global_rank_0.20260101-000100-CCCCCC.jsonl"
        put(sim.directory, later, *(scalar("loss", 5.0, 30 + at, at) for at in (3, 4)))
        sim.finish()
        assert {unit.index: row.values["trainer/loss"] for unit, row in sim.final().items()} == {
            1: 1.0,
            2: 1.0,
            3: 5.0,
            4: 5.0,
        }
        assert {row.coverage.attempts for row in sim.rows()} == {(0,)}


def test_a_row_of_two_lives_says_so() -> None:
    """A metric that only the former life logged stays, and so the row names two attempts, as a native one would."""
    with simulation() as sim:
        put(sim.directory, A, *(scalar("loss", 1.0, at, at) for at in (1, 2, 3)), scalar("val", 7.0, 3, 3))
        later = "training.global_rank_0.20260101-000100-CCCCCC.jsonl"
        put(sim.directory, later, *(scalar("loss", 5.0, 30 + at, at) for at in (3, 4)))
        sim.finish()
        rows = {unit.index: row for unit, row in sim.final().items()}
        assert {key: rows[3].values[key] for key in ("trainer/loss", "trainer/val")} == {
            "trainer/loss": 5.0,
            "trainer/val": 7.0,
        }
        assert {step: row.coverage.attempts for step, row in rows.items()} == {1: (0,), 2: (0,), 3: (0, 1), 4: (0,)}


def test_two_generators_of_one_rank_that_run_at_one_time_both_count() -> None:
    """Ranks count within a mesh: files of one source and rank that overlap for more than a minute are no restart."""
    with simulation() as sim:
        for name, value in (("AAAAAA", 1.0), ("BBBBBB", 3.0)):
            lines = [scalar("load", value, 40.0 * at, at, source="rl_generator") for at in (1, 2, 3, 4)]
            put(sim.directory, f"rl_generator.global_rank_0.20260101-000000-{name}.jsonl", *lines)
        sim.finish()
        assert [row.values for _, row in sorted(sim.final().items())] == [{"generator/load": 2.0}] * 4


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{\n", "not JSON"),
        (b"[]\n", "not an object"),
        (line("instant", "metric_value", 1, step=1, event_name="x"), "bad scalar"),
        (line("event", "optim_end", 1, step=1), "bad span"),
        (line("text", "words", 1, step=1), "bad log_type"),
        (line("instant", "", 1, step=1), "no name"),
        (line("instant", "x", 1, step=-1), "bad step"),
        (line("instant", "x", 1e12, step=1), "bad time"),
    ],
)
def test_lines_that_cannot_be_used_are_dead_letters(raw: bytes, reason: str) -> None:
    """Each is named with its place; the lines around it count."""
    with simulation() as sim:
        before = scalar("loss", 1.0, 1, 1)
        put(sim.directory, A, before, raw, scalar("loss", 3.0, 1, 1))
        sim.finish()
        assert step(sim, 1).values == {"trainer/loss": 2.0}
        assert sim.dead() == [(f"structured_logs/{A}", len(before), reason, None)]


def test_spans_and_events_are_drawn() -> None:
    """A trace has the spans of each task at their times, and instants and errors as events."""
    with simulation() as sim:
        put(
            sim.directory,
            A,
            span("fwd_bwd", 1.0, 250.0, 1),
            span("generate", 1.2, 500.0, 1, task_name="Task-3"),
            instant("saved", 1.4, 1),
        )
        stream = io.BytesIO()
        told = export(sim.directory, stream, Selection(), align_clocks=True)
        assert (told.spans, told.events, told.complete) == (2, 1, True)
        drawn = {found["name"]: found for found in json.loads(stream.getvalue())["traceEvents"] if "ts" in found}
        assert drawn["fwd_bwd"]["dur"] == 250_000
        assert drawn["generate"]["ts"] - drawn["fwd_bwd"]["ts"] == -50_000
        assert drawn["saved"]["ts"] - drawn["fwd_bwd"]["ts"] == 650_000
