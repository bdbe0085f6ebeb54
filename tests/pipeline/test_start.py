"""A start looks at each file a bounded number of times, however many there are."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from rlship_sidecar.store.store import Store
from tests.counting import calls
from tests.endtoend.hostile import line, metrics, opened
from tests.pipeline.simulated import REMOTE, Simulation, simulation

FEW, TIMES = 60, 4
LEEWAY = 1.25  # what is done once weighs more with few files


def job(sim: Simulation, ranks: int, kind: str) -> None:
    """The files of a job that is over: two lives of each rank, or streams."""
    for rank in range(ranks):
        if kind == "streams":
            lines = [opened("generator", id=f"g{rank}", replica=str(rank), world=1), line(t=2.0, m={"loss": 1.0})]
            sim.write(f"g{rank}.jsonl", b"\n".join(lines) + b"\n")
            continue
        for life in range(2):
            lived = {"attempt": life} if kind == "attempts" else {"job": f"job{life}"}
            lines = [opened("trainer", id=f"w{rank}-{life}", rank=rank, world=ranks, t=1000.0 * (life + 1), **lived)]
            lines += [metrics(life, loss=1), line(kind="barrier", step=life)]
            sim.write(f"r{rank}-{life}.jsonl", b"\n".join(lines) + b"\n")


@pytest.mark.parametrize("kind", ["attempts", "jobs", "streams"])
def test_reading_and_going_on_take_so_much_for_each_file(kind: str) -> None:
    """Four times as many files take about four times as many calls, at the first reading and after a restart."""
    first, again = [], []
    for ranks in (FEW, FEW * TIMES):
        with simulation() as sim:
            job(sim, ranks, kind)
            first.append(calls(sim.tick))
            sim.experiment.save()
            again.append(calls(sim.restart) + calls(sim.tick))
    assert first[1] < LEEWAY * TIMES * first[0]
    assert again[1] < LEEWAY * TIMES * again[0]


@pytest.mark.parametrize("kind", ["attempts", "streams"])
def test_a_start_asks_the_store_in_one_transaction(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network filesystem, where a transaction costs ten calls, a start and its first tick make a few, however many
    files there are.
    """
    alone: list[str] = []

    class Counting(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if not self.in_transaction and not sql.startswith("pragma"):
                alone.append(sql)
            return super().execute(sql, *values)

    monkeypatch.setattr(Store, "connection_class", Counting)
    with simulation(filesystem=REMOTE, wal=False) as sim:
        job(sim, FEW, kind)
        sim.tick()
        sim.write("late.jsonl", opened("late", id="late") + b"\n" + metrics(0, loss=1) + b"\n")
        sim.tick()
        sim.experiment.save()
        alone.clear()
        sim.restart()
        sim.tick()
        assert sim.store.changed is False
    assert 0 < len(alone) < 16
