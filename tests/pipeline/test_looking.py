"""Files of a network filesystem: many are looked at and read again at once, each when something is expected of it."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlship_sidecar.pipeline.intake import Access
from rlship_sidecar.pipeline.looking import FASTEST_S, IDLE_S, TURNS_PER_S, Schedule
from rlship_sidecar.rows import Row, Unit
from rlship_sidecar.tail.looks import Looks
from rlship_sidecar.tail.tail import Descriptors
from tests.endtoend.hostile import line, metrics, opened
from tests.foreign.test_trainer_state import history
from tests.foreign.titan import put, scalar
from tests.pipeline.simulated import LOCAL, REMOTE, Simulation, simulation

RANKS, MANY = 40, 400
CALL_S = 0.01


@pytest.fixture
def looks() -> Iterator[Looks]:
    running = Looks()
    yield running
    assert running.close() == 0


class Calls:
    """Counts the calls on files: of each path, and the most at a time. Each takes `CALL_S`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: Counter[str] = Counter()
        self.most = self._now = 0
        self._lock = threading.Lock()
        real = Descriptors.look

        def look(
            files: Descriptors, path: str, do: Callable[[int, int | None], object], *, known: bool = False
        ) -> object:
            with self._lock:
                self._now += 1
                self.of[path] += 1
                self.most = max(self.most, self._now)
            time.sleep(CALL_S)
            try:
                return real(files, path, do, known=known)
            finally:
                with self._lock:
                    self._now -= 1

        monkeypatch.setattr(Descriptors, "look", look)


def begin(sim: Simulation, ranks: int = RANKS) -> None:
    for rank in range(ranks):
        sim.write(f"r{rank}.jsonl", opened("trainer", id=f"w{rank}", rank=rank, world=ranks) + b"\n")


def step(sim: Simulation, step: int, ranks: int = RANKS) -> None:
    """All ranks log a step; all but rank 0 finish it."""
    for rank in range(ranks):
        lines = [metrics(step, loss=rank + step)] + [line(kind="barrier", step=step)] * (rank > 0)
        sim.write(f"r{rank}.jsonl", b"\n".join(lines) + b"\n")


def finish_step(sim: Simulation, step: int) -> None:
    sim.write("r0.jsonl", line(kind="barrier", step=step) + b"\n")


def settle(sim: Simulation, seconds: float = 3.0) -> None:
    """Ticks over some seconds of the sidecar's clock."""
    for _ in range(round(seconds / 0.05)):
        sim.tick()
        sim.wait(0.05)


def interrupted_job(sim: Simulation, again: Callable[[], None] = lambda: None) -> dict[Unit, Row]:
    """Rows of a job during which the sidecar ended twice, with a step open, and with a late line for another one."""
    begin(sim)
    for number in range(3):
        step(sim, number)
        if number < 2:
            finish_step(sim, number)
        settle(sim)
    sim.experiment.save()
    again()
    sim.restart()
    settle(sim)
    sim.write("r1.jsonl", metrics(0, loss=100) + b"\n")
    finish_step(sim, 2)
    settle(sim, 8.0)
    sim.finish()
    return sim.final()


def test_rows_are_those_of_a_local_filesystem(monkeypatch: pytest.MonkeyPatch, looks: Looks) -> None:
    """Many looks at once make the rows that one look after the other makes, over restarts too."""
    with simulation(filesystem=LOCAL) as sim:
        expected = interrupted_job(sim)
    calls = Calls(monkeypatch)

    def restarts() -> None:
        calls.most = 0

    with simulation(filesystem=REMOTE, access=Access(4, looks)) as sim:
        found = interrupted_job(sim, restarts)
    assert {unit: (row.values, row.coverage) for unit, row in found.items()} == {
        unit: (row.values, row.coverage) for unit, row in expected.items()
    }
    assert calls.most > 8


def test_a_file_that_grew_is_opened_once(monkeypatch: pytest.MonkeyPatch, looks: Looks) -> None:
    """A look opens a file once, for its size and for what is new."""
    with simulation(filesystem=REMOTE, access=Access(4, looks, poll_s=1.0)) as sim:
        begin(sim)
        settle(sim, 1.5)
        calls = Calls(monkeypatch)
        for number in range(3):
            step(sim, number)
            finish_step(sim, number)
            sim.wait(1.0)
            settle(sim, 0.3)
        assert set(calls.of.values()) == {3}
        assert len(sim.rows()) == 3


class Turns:
    """A schedule under a clock of its own; `looks` counts the looks at each file."""

    def __init__(self, sim: Simulation) -> None:
        self.schedule, self.sources = Schedule(), sim.experiment.sources
        self.now = sim.now
        self.looks: Counter[str] = Counter()
        for source in self.sources.values():
            self.schedule.add(source, self.now)

    def run_until_all(self, grown: Callable[[str], bool]) -> float:
        """Let time pass until each file was seen to have `grown`, once. Returns when."""
        seen: set[str] = set()
        while len(seen) < len(self.sources):
            self.now += 0.02
            taken = self.schedule.take(self.sources, self.now)
            for source in taken:
                source.pace.looked_at = self.now
                if source.name not in seen and grown(source.name):
                    seen.add(source.name)
                    source.pace.grew(self.now)
                    assert source.writer is not None
                    source.writer.segments[0].begins = 0
                    source.writer.segments[0].barrier += 1
            self.schedule.looked(taken, self.now)
        return self.now

    def run(self, seconds: float, grown: Callable[[str], bool] = lambda name: False) -> None:
        """Let time pass. Files that have `grown` are seen to have, at their first look."""
        seen: set[str] = set()
        for _ in range(round(seconds / 0.02)):
            self.now += 0.02
            taken = self.schedule.take(self.sources, self.now)
            for source in taken:
                self.looks[source.name] += 1
                source.pace.looked_at = self.now
                if grown(source.name) and source.name not in seen:
                    seen.add(source.name)
                    source.pace.grew(self.now)
                    assert source.writer is not None
                    source.writer.segments[0].barrier += 1
            self.schedule.looked(taken, self.now)


@pytest.fixture
def turns() -> Iterator[Turns]:
    with simulation() as sim:
        begin(sim, MANY)
        step(sim, 0, MANY)
        finish_step(sim, 0)
        sim.tick()
        running = Turns(sim)
        running.run(5.0, grown=lambda name: True)
        running.looks.clear()
        yield running


def test_idle_files_take_turns(turns: Turns) -> None:
    """Files from which nothing is expected are looked at in turns, so many a second."""
    turns.run(60.0)
    turns.looks.clear()
    turns.run(20.0)
    assert turns.looks.total() < 1.25 * TURNS_PER_S * 20
    assert len(turns.looks) == MANY


def test_the_first_that_finishes_a_step_calls_the_others(turns: Turns) -> None:
    """Once one rank finished a step, the files of the others are looked at."""
    for _ in range(5):
        turns.looks.clear()
        began = turns.now
        turns.run(0.5, grown=lambda name: True)
        assert turns.schedule._groups["trainer"].front == min(
            source.writer.segments[0].barrier for source in turns.sources.values() if source.writer is not None
        )
        turns.run(0.5)
        assert turns.now - began < 1.5
        assert turns.looks.total() < 2.5 * MANY


def test_a_rank_that_is_waited_for_is_looked_at_often(turns: Turns) -> None:
    """While a step waits for a rank, its file is looked at often, however slowly it grew before."""
    turns.run(0.5, grown=lambda name: name != "r7.jsonl")
    turns.looks.clear()
    turns.run(2.0)
    assert turns.looks["r7.jsonl"] >= 4
    assert turns.looks["r7.jsonl"] <= 2.0 / FASTEST_S


@pytest.mark.parametrize("ranks", [0, MANY])
def test_ranks_that_are_written_after_the_first_one_was_seen_follow_soon(turns: Turns, ranks: int) -> None:
    """After a long pause, in the middle of a job or before its first step, ranks go on one after the other."""
    if not ranks:
        for source in turns.sources.values():
            assert source.writer is not None
            source.writer.segments[0].begins, source.writer.segments[0].barrier = None, -1
        turns.schedule = Schedule()
        for source in turns.sources.values():
            turns.schedule.add(source, turns.now)
    turns.run(90.0)
    began = turns.now
    seen = turns.run_until_all(lambda name: turns.now > began + 0.5 * int(name[1:-6]) / MANY)
    assert seen - began < 2.0


def test_files_without_steps_do_not_all_wait_for_the_same_time() -> None:
    """Of many files that began together and are quiet, some are looked at at any time: the first one calls the rest."""
    with simulation() as sim:
        begin(sim, MANY)
        sim.tick()
        quiet = Turns(sim)
        quiet.run(2.0)
        for _ in range(20):
            quiet.looks.clear()
            quiet.run(0.1)
            assert quiet.looks.total() > 0


def test_opens_are_bounded(turns: Turns) -> None:
    """`opens_per_s` bounds the opens, whatever is expected."""
    turns.schedule = Schedule(opens_per_s=100.0, every_s=0.1)
    for source in turns.sources.values():
        turns.schedule.add(source, turns.now)
    turns.run(10.0)
    assert 900 < turns.looks.total() < 1100
    assert len(turns.looks) == MANY
    assert max(turns.looks.values()) - min(turns.looks.values()) <= 1


def test_a_small_actor_is_looked_at_twice_a_second_at_least() -> None:
    """A few files are looked at twice a second though nothing is expected of them."""
    with simulation() as sim:
        begin(sim, 4)
        sim.tick()
        small = Turns(sim)
        small.run(60.0)
        small.looks.clear()
        small.run(10.0)
        assert min(small.looks.values()) >= 10.0 / IDLE_S / 2
        assert not math.isinf(small.schedule.next_due())


def foreign_job(sim: Simulation) -> dict[Unit, Row]:
    """Rows of a job of another framework: two files that grow, checkpoints, a restart, a file that nothing reads."""
    for number in range(1, 7):
        for rank in range(2):
            name = f"training.global_rank_{rank}.20260101-000000-AAAAAA.jsonl"
            put(sim.directory, name, scalar("loss", number + rank, number + 0.1, number, rank=rank))
        if number % 2 == 0:
            folder = sim.directory / f"checkpoint-{number}"
            folder.mkdir()
            state = {"global_step": number, "log_history": history(number)}
            (folder / "trainer_state.json").write_text(json.dumps(state))
        settle(sim)
        if number == 3:
            put(sim.directory, "strange.jsonl", b'{"what":"is this"}\n')
            sim.experiment.save()
            sim.restart()
    settle(sim, 12.0)
    assert set(sim.experiment.intake.oddities) == {"structured_logs/strange.jsonl"}
    sim.finish()
    return sim.final()


def test_foreign_files_are_looked_at_by_the_threads(monkeypatch: pytest.MonkeyPatch, looks: Looks) -> None:
    """On a network filesystem threads list the folders and open the files of other frameworks; the rows are those of a
    local filesystem.
    """
    with simulation(filesystem=LOCAL) as sim:
        expected = foreign_job(sim)
    threads: Counter[str] = Counter()
    real = os.open

    def note(path: str, *arguments: Any, **keywords: Any) -> int:
        if isinstance(path, str) and path.startswith(("/dev/shm", "/tmp", "training.", "trainer_state", ".")):
            threads[threading.current_thread().name] += 1
        return real(path, *arguments, **keywords)

    with simulation(filesystem=REMOTE, access=Access(4, looks)) as sim:
        monkeypatch.setattr(os, "open", note)
        found = foreign_job(sim)
        monkeypatch.undo()
    assert {unit: (row.values, row.coverage) for unit, row in found.items()} == {
        unit: (row.values, row.coverage) for unit, row in expected.items()
    }
    assert set(threads) == {"rlship-look"}
    assert threads.total() > 100
