"""One job, three sinks: each holds exactly the rows of the store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)

from rlship_sidecar.rows import Row
from tests.endtoend.evidence import check_rows, revisions, shipped, state_of, stored
from tests.endtoend.job import crew
from tests.endtoend.sidecar import watching
from tests.sinks.readback import offline_rows, run_folder

STEPS = 12
LOST_FROM = 8  # where rank 2 of the trainer dies
SETTINGS = {"RLSHIP_GRACE_S": "3", "RLSHIP_REVISE_S": "0.3"}


@dataclass(frozen=True)
class Finished:
    """A job that ran to its end under a daemon that was then stopped."""

    experiment: Path
    rows: list[Row]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """Three actors, one of them in two replicas and one on an axis of its own, a rank that dies, and late lines."""
    tmp = tmp_path_factory.mktemp("same")
    experiment = tmp / "job"
    sinks = ("wandb", "tensorboard", "jsonl")
    with (
        watching(experiment.parent, *sinks, home=tmp / "home", settings=SETTINGS) as sidecar,
        crew(experiment, "trainer", 3) as trainers,
        crew(experiment, "generator", 2, replica="a") as left,
        crew(experiment, "generator", 2, replica="b") as right,
        crew(experiment, "env", 1, axis="episode") as envs,
    ):
        trainers[0].define({"lr": "last", "busy_s": ["max", "mean", "std"]})
        for step in range(STEPS):
            for rank, worker in enumerate(trainers):
                if rank == 2 and step == LOST_FROM:
                    worker.flush()
                    worker.kill()
                if rank < 2 or step < LOST_FROM:
                    worker.log({"loss": 1 / (step + rank + 1), "lr": 1e-3 * step, "busy_s": 0.1 * rank}, step)
                    worker.barrier(step)
            for rank, worker in enumerate(left + right):
                worker.log({"reward": [0.1 * step, rank]}, step, weight=[1 + rank, 0.5])
                worker.log({"length": {"n": 3, "sum": 10 * step, "min": 0, "max": 9}, "odd": float("inf")}, step)
                worker.barrier(step)
            envs[0].log({"return": -step}, 100 * step)
            envs[0].barrier(100 * step)
        # Late: a new metric of a step that is closed, and one more observation of another.
        for worker in (*trainers[:2], *left, *right, *envs):
            worker.flush()
        sidecar.until(lambda: len(units(experiment)) == 3 * STEPS)
        left[1].log({"evaluation": 0.75}, 2)
        right[0].log({"reward": 4.0}, 3)
        left[1].flush()
        right[0].flush()
        sidecar.until(lambda: sum(row.arrival.revision > 0 for row in shipped(experiment)) == 2)
        for worker in (*trainers[:2], *left, *right, *envs):
            worker.end()
        assert sidecar.stop() == 0, sidecar.said()
    yield Finished(experiment, stored(experiment))


# The catalogue's further reductions of a reward, whose values of each rank are kept, too.
ADDED = ("/nonfinite", *(f"/reward/{name}" for name in ("min", "max", "argmax_rank", "std", "sum")))


def units(experiment: Path) -> set[object]:
    return {row.unit for row in shipped(experiment)}


def points(row: Row, *, lifted: bool) -> dict[str, Any]:
    """What a point of this row has to hold, said once more: coverage, and the figures that are new."""
    about, arrival = f"zz_rlship/{row.unit.actor}", row.arrival
    expected: dict[str, Any] = {f"{about}/ranks/expected": row.coverage.expected}
    lost = row.unit.actor == "trainer" and row.unit.index >= LOST_FROM
    expected[f"{about}/ranks/in"] = row.coverage.expected - lost
    expected[f"{about}/ranks/missing"] = int(lost)
    expected[f"{about}/ranks/short"] = 0
    if lost:
        expected[f"{about}/missing_ranks"] = "0.2"
    if arrival.revision:
        expected[f"{about}/revision"] = arrival.revision
    new = arrival.changed if arrival.revision else row.values
    return {**expected, **{shown_as(key, lifted=lifted): row.values[key] for key in new}}


def shown_as(key: str, *, lifted: bool) -> str:
    """The name of this job's metrics: at TensorBoard reward and loss stand first, and last stands what rlship adds."""
    if key.endswith(("/reward", "/loss")):
        return f"aa_headline/{key}" if lifted else key
    added = "/barrier/" in key or key.endswith(ADDED)
    return f"zz_rlship/{key}" if added else key


def test_the_store_holds_what_the_files_say(finished: Finished) -> None:
    """The rows are those of the reference; the dead rank is named in each row it is missing from; there are two
    revisions.
    """
    check_rows(finished.experiment, finished.rows)
    assert len(finished.rows) == 3 * STEPS + 2
    for row in finished.rows:
        lost = row.unit.actor == "trainer" and row.unit.index >= LOST_FROM
        assert row.coverage.missing == (("0.2",) if lost else ())
    assert revisions(finished.rows, "generator", 2)[1].arrival.changed == ("generator/evaluation",)
    assert sorted(revisions(finished.rows, "generator", 3)[1].arrival.changed) == [
        "generator/reward",
        "generator/reward/argmax_rank",
        "generator/reward/max",
        "generator/reward/std",
        "generator/reward/sum",
    ]


def test_rows_jsonl(finished: Finished) -> None:
    """The jsonl sink's file is the store's rows, arrival included."""
    assert [row.to_json() for row in shipped(finished.experiment)] == [row.to_json() for row in finished.rows]


def test_wandb(finished: Finished) -> None:
    """The offline run has one history line for each row, in order, with the records' time and nothing else."""
    history = offline_rows(state_of(finished.experiment))
    for found in history:
        found.pop("_runtime")
    assert history == [
        {"_step": row.arrival.row_number, "_timestamp": row.t, **row.x, **points(row, lifted=False)}
        for row in finished.rows
    ]


def test_tensorboard(finished: Finished) -> None:
    """TensorBoard reads, for each key, the newest row of each step that has it, in the order of steps: x axis as step,
    the records' time as wall time.
    """
    accumulator = EventAccumulator(
        str(run_folder(state_of(finished.experiment) / "tensorboard")), size_guidance={"scalars": 0}
    )
    accumulator.Reload()
    found = {
        tag: [(event.step, event.wall_time, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
    expected: dict[str, dict[int, tuple[int, float, float]]] = {}
    for row in finished.rows:
        (x,) = row.x.values()
        for key, value in points(row, lifted=True).items():
            if not isinstance(value, str):
                (single,) = struct.unpack("f", struct.pack("f", value))
                expected.setdefault(key, {})[int(x)] = (int(x), row.t, single)
    assert found == {tag: sorted(points.values()) for tag, points in expected.items()}
