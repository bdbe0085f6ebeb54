"""`trainer_state.json`: rows worked out by hand, and what becomes of documents that are rewritten and removed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from rlship.integrations import trainer
from rlship_formats.foreign import trainer_state
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.tensorboard.sink import event
from rlship_sidecar.sinks.wandb.point import point
from rlship_sidecar.tail.foreign.readers import readers
from tests.foreign.translated import native_files
from tests.kit.files import T0, barrier, define, file, log
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.reduction import differing, final_rows

HISTORY: list[dict[str, Any]] = [
    {"epoch": 0.1, "grad_norm": 1.5, "learning_rate": 5e-06, "loss": 0.5, "kl": None, "step": 10},
    {"epoch": 0.1, "eval_loss": 0.75, "eval_runtime": 3.0, "step": 10},
    {"epoch": 0.2, "grad_norm": float("nan"), "loss": 0.25, "note": "text", "step": 20},
    {"epoch": 0.2, "total_flos": 1e12, "train_loss": 0.375, "step": 20},
]


def save(sim: Simulation, at: int, history: list[dict[str, Any]], folder: str | None = None) -> Path:
    """Write it as the Trainer does: indented, with sorted keys."""
    path = sim.directory / (f"checkpoint-{at}" if folder is None else folder) / "trainer_state.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"global_step": at, "log_history": history}, indent=2, sort_keys=True) + "\n")
    return path


def settle(sim: Simulation) -> None:
    for _ in range(4):
        sim.wait(25.0)
        sim.tick()


def figures(sim: Simulation) -> dict[int, dict[str, float]]:
    return {unit.index: row.values for unit, row in sorted(sim.final().items())}


def history(last: int, value: float = 1.0) -> list[dict[str, Any]]:
    return [{"loss": value * step, "step": step} for step in range(1, last + 1)]


def test_entries_of_a_step_are_one_row() -> None:
    """Train, evaluation and summary entries of a step stand in one row; null and text are nothing, NaN is counted."""
    with simulation() as sim:
        save(sim, 20, HISTORY)
        settle(sim)
        assert figures(sim) == {
            10: {
                "trainer/epoch": 0.1,
                "trainer/grad_norm": 1.5,
                "trainer/learning_rate": 5e-06,
                "trainer/loss": 0.5,
                "trainer/eval_loss": 0.75,
                "trainer/eval_runtime": 3.0,
            },
            20: {
                "trainer/epoch": 0.2,
                "trainer/loss": 0.25,
                "trainer/grad_norm/nonfinite": 1.0,
                "trainer/total_flos": 1e12,
                "trainer/train_loss": 0.375,
            },
        }
        assert not sim.dead()


def test_copies_of_one_history_count_once_and_revise_nothing() -> None:
    """Later checkpoints, and the one at the end, repeat what rows exist of: no row gets a revision."""
    with simulation() as sim:
        for last in (2, 4, 6):
            save(sim, last, history(last))
            settle(sim)
        save(sim, 6, history(6), folder=".")
        settle(sim)
        assert figures(sim) == {step: {"trainer/loss": float(step)} for step in range(1, 7)}
        assert [row.arrival.revision for row in sim.rows()] == [0] * 6
        told = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert told.complete
        assert [writer.format for writer in told.writers] == ["trainer_state"] * 4


def test_the_furthest_history_counts() -> None:
    """Where checkpoints disagree, as after a run went on from an older one, the one that got furthest counts."""
    with simulation() as sim:
        save(sim, 4, history(4, 1.0))
        save(sim, 6, history(2, 1.0) + history(6, 5.0)[2:])
        sim.finish()
        assert [found["trainer/loss"] for found in figures(sim).values()] == [1.0, 2.0, 15.0, 20.0, 25.0, 30.0]


def test_checkpoints_that_are_removed_leave_their_rows() -> None:
    """Trainers keep the last few checkpoints only: rows stay, later ones come, and nothing is amiss."""
    with simulation() as sim:
        for last in (2, 4, 6):
            save(sim, last, history(last))
            settle(sim)
            if last > 2:
                shutil.rmtree(sim.directory / f"checkpoint-{last - 2}")
                settle(sim)
        sim.restart()
        settle(sim)
        sim.finish()
        assert figures(sim) == {step: {"trainer/loss": float(step)} for step in range(1, 7)}
        assert not sim.dead()
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).complete


def test_a_run_that_is_done_again_in_place_supersedes() -> None:
    """The same checkpoint with other values counts as another file: its steps get revisions, others keep theirs."""
    with simulation() as sim:
        save(sim, 4, [*history(4), {"eval_loss": 9.0, "step": 2}])
        settle(sim)
        save(sim, 4, history(4, 2.0))
        settle(sim)
        expected = {step: {"trainer/loss": 2.0 * step} for step in range(1, 5)}
        expected[2]["trainer/eval_loss"] = 9.0
        assert figures(sim) == expected
        assert not sim.dead()
        sim.restart()
        sim.finish()
        assert figures(sim) == expected


def test_a_half_written_document_is_waited_for() -> None:
    """It is written in place: until it is whole nothing is read of it, and nothing is a dead letter."""
    with simulation() as sim:
        path = save(sim, 4, history(4))
        text = path.read_bytes()
        path.write_bytes(text[: len(text) // 2])
        settle(sim)
        assert not sim.rows()
        path.write_bytes(text)
        settle(sim)
        assert len(sim.rows()) == 4
        path.write_bytes(text[: len(text) // 2])
        settle(sim)
        assert "being written" in sim.experiment.sources["checkpoint-4/trainer_state.json"].problem
        path.write_bytes(text)
        settle(sim)
        assert not sim.experiment.sources["checkpoint-4/trainer_state.json"].problem
        assert len(sim.rows()) == 4


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("value", [1.0, 2.0], ids=["grown", "other"])
@pytest.mark.parametrize("mode", ["wb", "r+b"], ids=["cut", "over"])
def test_a_document_that_is_rewritten_slowly_in_place(mode: str, value: float, restarts: bool) -> None:
    """While rows of what it held wait for their close. The new one holds them again: nothing is lost or missed."""
    with simulation() as sim:
        path = save(sim, 4, history(4))
        sim.tick()
        text = json.dumps({"global_step": 6, "log_history": history(6, value)}, indent=2).encode()
        with open(path, mode, buffering=0) as file:
            for begin in range(0, len(text), 60):
                file.write(text[begin : begin + 60])
                sim.wait(0.5)
                sim.tick()
                if restarts:
                    sim.restart()
            file.truncate()
        settle(sim)
        sim.finish()
        assert figures(sim) == {step: {"trainer/loss": value * step} for step in range(1, 7)}
        assert not sim.dead()
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).complete


def test_a_document_that_stays_half_written_is_named() -> None:
    """Nothing is read of it, and at the end the data are not complete."""
    with simulation() as sim:
        path = save(sim, 4, history(4))
        settle(sim)
        path.write_bytes(path.read_bytes()[:-9])
        sim.finish()
        told = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert not told.complete
        assert "being written" in sim.experiment.sources["checkpoint-4/trainer_state.json"].problem
        assert not sim.dead()


@pytest.mark.parametrize("text", [b"", b"{", bytes(40), b'{"log_history": [{"step": 1, "lo'])
def test_a_document_that_was_never_whole_is_named(text: bytes) -> None:
    """It is not taken for another program's: data are incomplete, and a note names it, until it is whole."""
    with simulation() as sim:
        path = sim.directory / "trainer_state.json"
        path.write_bytes(text)
        sim.finish()
        told = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert not told.complete
        assert any(note.startswith("./trainer_state.json: not read, as it is being") for note in told.notes), told.notes
        path.write_text(json.dumps({"global_step": 2, "log_history": history(2)}))
        sim.finish()
        told = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert (told.complete, [note for note in told.notes if path.name in note]) == (True, [])
        assert len(sim.rows()) == 2


def one_row() -> Row:
    with simulation() as sim:
        save(sim, 1, history(1))
        sim.finish()
        return sim.rows()[0]


def test_rows_without_a_time_are_not_of_1970() -> None:
    """W&B gets no `_timestamp` and takes that of the arrival; TensorBoard's wall time is that of the writing."""
    row = one_row()
    assert row.t == 0
    assert "_timestamp" not in orjson.loads(point(row).data)
    assert event(row).wall_time > 1.6e9


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"log_history":[],"global_step":"1"}', b'{"log_history":3}'])
def test_other_documents_of_that_name_are_left_alone(text: bytes) -> None:
    """They are named once it is clear that nothing will come of them."""
    with simulation() as sim:
        (sim.directory / "trainer_state.json").write_bytes(text)
        sim.finish()
        assert not sim.rows()
        assert list(sim.experiment.intake.oddities) == ["./trainer_state.json"]
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).complete


def timed(last: int, rank: int, world: int) -> bytes:
    """A callback's file, with a step every 10 s."""
    found: list[dict[str, Any]] = [define(tokens="sum")]
    for step in range(1, last + 1):
        found.append({"step": step, "t": T0 + 10.0 * step, "m": {"loss": step, "tokens": 100}})
        found.append(barrier(step, 10.0 * step + 1.0))
    return file(*found, id=f"n{rank}", rank=rank, world=world, t=T0)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("folder", [None, "."], ids=["checkpoints", "rewritten in place"])
def test_minutes_of_both_beside_each_other(folder: str | None, world: int) -> None:
    """A callback that logs with times for minutes, on each rank, and a history that comes in pieces behind it: each
    value counts once, and rows have what the document alone has.
    """
    with simulation() as sim:
        read = [0] * world
        for last in (5, 12, 20, 30, 33):
            for rank in range(world):
                data = timed(min(last, 30), rank, world)
                sim.write(f"w{rank}.jsonl", data[read[rank] :])
                read[rank] = len(data)
            settle(sim)
            if last > 5:
                entries = [
                    {"loss": 1.0 * step, "tokens": 100, "epoch": 0.5, "step": step} for step in range(1, last - 2)
                ]
                save(sim, last - 3, entries, folder)
                settle(sim)
        rows = {unit.index: row for unit, row in sim.final().items()}
        assert rows.keys() == set(range(1, 31))
        for step, row in rows.items():
            known = {name: row.values[f"trainer/{name}"] for name in ("loss", "tokens", "epoch")}
            assert known == {"loss": step, "tokens": 100.0 * world, "epoch": 0.5}
            ranks = "0.0" if world == 1 else "0.0-1"
            assert (row.coverage.ranks, row.coverage.expected, row.coverage.missing) == ((ranks,), world, ())
        status = survey(sim.experiment, [], now=sim.now, wall=sim.now)
        assert status.claims == []
        # Rows of several ranks do not show what came from the former document, so they stay as they were.
        assert bool(sim.dead()) == (world == 2 and folder == ".")


def test_beside_a_callback() -> None:
    """A callback that logs what the document repeats is no second writer to worry about, and a row has each value
    once, whichever comes first.
    """
    for first in ("callback", "document"):
        with simulation() as sim:
            if first == "document":
                save(sim, 2, history(2))
                settle(sim)
            sim.write("a.jsonl", file(*(line for step in (1, 2) for line in (log(step, loss=step), barrier(step)))))
            settle(sim)
            save(sim, 2, history(2))
            save(sim, 2, history(2), folder=".")
            settle(sim)
            status = survey(sim.experiment, [], now=sim.now, wall=sim.now)
            assert {step: row["trainer/loss"] for step, row in figures(sim).items()} == {1: 1.0, 2: 2.0}
            assert status.claims == []
            assert [note for note in status.notes if "writers" in note] == []
            told = "reads 2 files of trainer_state beside the job's own lines, which is fine"
            assert any(note.startswith(told) for note in status.notes), status.notes


def same_as_reference(sim: Simulation, own: bytes) -> None:
    """Against the other implementation of the rows, given what the readers make of the files."""
    files = {"a.jsonl": own, **native_files(sim.directory, readers().all)}
    assert differing(final_rows(files), sim.final()) == []


@pytest.mark.parametrize("first", ["calls", "document"])
def test_beside_calls_of_wandb(first: str) -> None:
    """transformers gives W&B other names than the document has. Each value counts once, as W&B's calls have it; the
    document's count where those are not: a step before rlship was there, and what it alone has.
    """
    calls: dict[int, dict[str, float]] = {
        2: {"train/loss": 0.5, "train/epoch": 0.1},
        3: {"train/loss": 0.25, "train/epoch": 0.2, "eval/loss": 0.75, "test/loss": 0.125},
    }
    lines = [line for step, m in calls.items() for line in (log(step, **m), barrier(step))]
    own = file(*lines, axis="train/global_step")
    entries: list[dict[str, Any]] = [
        {"loss": 1.0, "epoch": 0.05, "step": 1},
        {"loss": 0.5, "epoch": 0.1, "more": 3.0, "step": 2},
        {"loss": 0.25, "epoch": 0.2, "step": 3},
        {"eval_loss": 0.75, "epoch": 0.2, "step": 3},
        {"test_loss": 0.125, "epoch": 0.2, "step": 3},
        {"train_loss": 0.4, "train_runtime": 9.0, "total_flos": 1e12, "epoch": 0.2, "step": 3},
    ]
    with simulation() as sim:
        if first == "calls":
            sim.write("a.jsonl", own)
            settle(sim)
        save(sim, 3, entries)
        settle(sim)
        if first == "document":
            sim.write("a.jsonl", own)
            settle(sim)
        save(sim, 3, entries, folder=".")
        settle(sim)
        assert figures(sim) == {
            1: {"trainer/loss": 1.0, "trainer/epoch": 0.05},
            2: {f"trainer/{name}": value for name, value in calls[2].items()} | {"trainer/more": 3.0},
            3: {f"trainer/{name}": value for name, value in calls[3].items()},
        }
        rows = {unit.index: row for unit, row in sim.final().items()}
        assert [(row.coverage.lives, row.coverage.attempts) for row in rows.values()] == [(1, (0,))] * 3
        assert rows[3].x == {"train/global_step": 3}
        same_as_reference(sim, own)
        if first == "calls":  # W&B's rows need no revision for what they have
            assert [row.arrival.revision for row in sim.rows() if row.unit.index == 3] == [0]


def test_results_are_named_alike() -> None:
    """What the callback takes for results of a training is what its history is read by."""
    assert trainer_state.RESULTS == trainer.RESULTS


def test_a_value_that_is_not_finite_counts_once() -> None:
    """NaN counts as W&B's calls have it."""
    own = file(log(1, **{"train/loss": "NaN", "train/epoch": 0.1}), barrier(1))
    with simulation() as sim:
        sim.write("a.jsonl", own)
        save(sim, 1, [{"loss": float("nan"), "epoch": 0.1, "step": 1}])
        settle(sim)
        (row,) = sim.final().values()
        assert row.values == {"trainer/train/epoch": 0.1, "trainer/train/loss/nonfinite": 1.0}
        same_as_reference(sim, own)
