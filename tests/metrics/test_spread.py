"""One number has no spread: the one that the only rank of an actor logged."""

from __future__ import annotations

from typing import Any

import pytest

from rlship_sidecar.rows import Row
from tests.kit.files import CLOSE, T0, barrier, event, file, log, span, stream
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.reduction import differing, final_rows

REWARD = tuple(f"reward/total{end}" for end in ("", "/max", "/min", "/std", "/sum"))


def rows_of(*files: bytes, **settings: Any) -> list[Row]:
    """The final rows, which are the reference's."""
    named = {f"f{number}.jsonl": data for number, data in enumerate(files)}
    with simulation(**settings) as running:
        for name, data in named.items():
            running.write(name, data)
        running.finish()
        assert not differing(final_rows(named, running.overrides), running.final())
        return list(running.final().values())


def keys(row: Row, *, actor: str = "trainer") -> tuple[str, ...]:
    return tuple(sorted(key.removeprefix(f"{actor}/") for key in row.values))


def rank(number: int, *records: dict[str, Any], **identity: Any) -> bytes:
    return file(*records, CLOSE, rank=number, id=f"w{number}", **identity)


# --- The only rank of an actor -------------------------------------------------------------------------------------


def test_the_reward_of_trl() -> None:
    """TRL's mean over all ranks, which rank 0 logs alone, stays one number; `reward/std` was 0 beside TRL's own."""
    (row,) = rows_of(rank(0, log(1, reward=0.5, reward_std=1.0), barrier(1), world=1))
    assert row.values == {"trainer/reward": 0.5, "trainer/reward_std": 1.0}


@pytest.mark.parametrize("world", [None, 1])
def test_one_number_of_the_only_rank(world: int | None) -> None:
    """It has one key: a mean, and no spread."""
    (row,) = rows_of(rank(0, log(1, **{"reward/total": 0.5, "bal/rank_tokens": 7}), barrier(1), world=world))
    assert row.values == {"trainer/reward/total": 0.5, "trainer/bal/rank_tokens": 7}
    assert row.per_rank == {"trainer/bal/rank_tokens": [("0.0", 7.0)], "trainer/reward/total": [("0.0", 0.5)]}
    assert row.coverage.underivable == ()


@pytest.mark.parametrize(
    "records",
    [
        [log(1, **{"reward/total": [0.5, 1.5]})],
        [log(1, **{"reward/total": 0.5}), log(1, **{"reward/total": 1.5})],
        [log(1, **{"reward/total": {"n": 2, "sum": 2.0, "min": 0.5, "max": 1.5, "m2": 0.5}})],
    ],
    ids=["array", "two lines", "summary"],
)
def test_several_observations_of_the_only_rank(records: list[dict[str, Any]]) -> None:
    """The rewards of a batch have a spread."""
    (row,) = rows_of(rank(0, *records, barrier(1), world=1))
    assert keys(row) == REWARD
    assert row.values["trainer/reward/total/std"] == 0.5


@pytest.mark.parametrize("what", ["define", "configuration", "span"])
def test_what_was_asked_for_stays(what: str) -> None:
    """A reduction that a define, the configuration or the kind of record asks for has its key."""
    asked: dict[str, Any] = {"kind": "define", "m": {"reward/total": {"reduce": ["mean", "std"], "per_rank": True}}}
    if what == "define":
        (row,) = rows_of(rank(0, asked, log(1, **{"reward/total": 0.5}), barrier(1)))
        assert keys(row) == tuple(f"reward/total{end}" for end in ("", "/argmax_rank", "/max", "/min", "/std"))
    elif what == "configuration":
        (row,) = rows_of(
            rank(0, log(1, **{"reward/total": 0.5}), barrier(1)), overrides={"reward/total": ["max", "p99"]}
        )
        assert keys(row) == ("reward/total", "reward/total/p99")
    else:
        (row,) = rows_of(rank(0, span("rollout", 0.5, step=1), event("pushed", step=1), barrier(1)))
        assert keys(row) == ("event/pushed", "rollout_s", "rollout_s/max")


@pytest.mark.parametrize(
    "others",
    [
        [rank(1, log(2, loss=1), barrier(2), world=2)],
        [rank(1, log(1, loss=1), barrier(1), world=2)],
        [],
    ],
    ids=["contributes later", "contributes something else", "never opens"],
)
def test_one_rank_of_a_larger_actor(others: list[bytes]) -> None:
    """Where the world is 2, a row in which one rank only has the metric keeps its keys."""
    records = [log(1, **{"reward/total": 0.5}), barrier(1), barrier(2)]
    row = rows_of(rank(0, *records, world=2), *others)[0]
    assert set(keys(row)) >= set(REWARD)


def test_up_to_that_step() -> None:
    """Without a world, an actor is larger from the step on at which a second rank begins."""
    first = [record for step in (1, 2, 3) for record in (log(step, **{"reward/total": 0.5}), barrier(step))]
    second = [log(3, loss=1), barrier(3)]
    found = {row.unit.index: keys(row) for row in rows_of(rank(0, *first), rank(1, *second))}
    assert found[1] == found[2] == ("reward/total",)
    assert set(found[3]) >= set(REWARD)


def test_a_second_replica() -> None:
    """A rank of another replica is one more."""
    records = [log(1, **{"reward/total": 0.5}), barrier(1)]
    other = file(log(1, loss=1), barrier(1), CLOSE, replica="1", world=1, id="other")
    (row,) = rows_of(rank(0, *records, world=1), other)
    assert set(keys(row)) >= set(REWARD)


def test_a_rank_that_joins_late_revises(sim: Simulation) -> None:
    """A rank whose first step has a row already makes the actor larger there."""
    files = {
        "a.jsonl": rank(0, log(1, **{"reward/total": 0.5}), barrier(1)),
        "b.jsonl": rank(1, log(1, loss=2), barrier(1)),
    }
    shown = []
    for name, data in files.items():
        sim.write(name, data)
        sim.tick()
        sim.wait(60.0)
        sim.tick()
        (row,) = sim.final().values()
        shown.append("trainer/reward/total/std" in row.values)
    assert shown == [False, True]
    sim.finish()
    assert not differing(final_rows(files), sim.final())


@pytest.mark.parametrize("parent", [None, "x"])
def test_a_rank_that_streams_late_revises(sim: Simulation, parent: str | None) -> None:
    """So does one whose first line without a step lies before the end of a window that has a row, and its children."""
    files = {
        "a.jsonl": rank(0, stream(5, **{"reward/total": 0.5}), actor="reward"),
        "b.jsonl": file(stream(6, other=1), actor="reward", rank=1, id="y", parent=parent),
        "c.jsonl": file(actor="reward", rank=1, id="x"),
    }
    shown = []
    for names in (("a.jsonl", "c.jsonl"), ("b.jsonl",)):
        for name in names:
            sim.write(name, files[name])
        sim.tick()
        sim.wait(700.0)
        sim.tick()
        (row,) = sim.final().values()
        shown.append("clock/reward/reward/total/std" in row.values)
    assert shown == [False, True]
    sim.finish()
    assert not differing(final_rows(files), sim.final())


@pytest.fixture
def sim() -> Any:
    with simulation() as running:
        yield running


def test_a_restart_of_the_only_rank() -> None:
    """Two lives of one rank are one rank; the second one says that it came back."""
    first = rank(0, log(1, **{"reward/total": 0.5}), barrier(1))
    again = file(log(2, **{"reward/total": 0.7}), barrier(2), CLOSE, id="again", attempt=1, t=T0 + 100)
    back = ("svc/recovery_s", "svc/replica_restarts")
    assert [keys(row) for row in rows_of(first, again)] == [("reward/total",), ("reward/total", *back)]


def test_streams_of_the_only_rank() -> None:
    """So it is beside the lead's steps and in windows of time, where the ranks that have streamed so far count."""
    lead = file(log(1, loss=1), barrier(1, after=40), CLOSE)
    one = [stream(after, **{"reward/total": 0.5}) for after in (5, 15, 25)]
    two = [stream(after, other=0.5) for after in (15, 25)]
    found = rows_of(lead, rank(0, *one, actor="reward"), rank(1, *two[:1], actor="reward"))
    windows = [row for row in found if row.unit.kind == "clock"]
    stds = ["clock/reward/reward/total/std" in row.values for row in sorted(windows, key=lambda row: row.unit.index)]
    assert stds == [False, True, True]
    found = rows_of(lead, rank(0, one[0], actor="reward"))
    assert {row.unit.kind: keys(row, actor="reward") for row in found if row.unit.actor == "reward"} == {
        "aligned": ("reward/total",),
        "clock": ("clock/reward/reward/total",),
    }
    (row,) = [row for row in rows_of(rank(0, one[0], actor="reward", world=2)) if row.unit.kind == "clock"]
    assert "clock/reward/reward/total/std" in row.values
