"""When a row appears: closing rules and revisions under a fake clock, and what is kept of steps that are open."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from rlship_formats.records import Open
from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.align.units import MAX_KEPT, Patience
from rlship_sidecar.decode.lines import Batch, Note
from rlship_sidecar.rows import Row
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.building import CLOSE, T0, barrier, file, log, rollback
from tests.reference.reduction import exactly, final_rows

BEAT = {"kind": "beat"}


@dataclass
class Job:
    """Ranks of one trainer that write while the clock runs. Ranks promise a beat unless told otherwise."""

    sim: Simulation

    def open(self, name: str, rank: int = 0, **identity: Any) -> None:
        whole = {"id": name, "rank": rank, "beat": 10} | identity
        self.sim.write(f"{name}.jsonl", file(**whole))

    def write(self, name: str, *records: dict[str, Any]) -> None:
        self.sim.write(f"{name}.jsonl", b"".join(json.dumps(record).encode() + b"\n" for record in records))

    def done(self, name: str, *steps: int) -> None:
        """These steps, logged and finished."""
        for step in steps:
            self.write(name, log(step, loss=1.0), barrier(step))

    def rows(self) -> list[tuple[int, str]]:
        """(step, why it appeared) of all rows, after a tick."""
        self.sim.tick()
        return [(row.unit.index, row.arrival.closed) for row in self.sim.rows()]

    def newest(self) -> Row:
        self.sim.tick()
        return self.sim.rows()[-1]

    def wait(self, seconds: float, *beating: str, every: float = 1.0) -> None:
        """Let time pass with a tick each second, in which these ranks beat every ten."""
        self.sim.tick()
        end = self.sim.now + seconds
        while self.sim.now < end:
            self.sim.wait(min(every, end - self.sim.now))
            if beating and int(self.sim.now) % 10 == 0:
                for name in beating:
                    self.write(name, BEAT)
            self.sim.tick()

    @property
    def actor(self) -> Actor:
        return self.sim.experiment.actors["trainer"]


def logged(row: Row) -> dict[str, float]:
    """The figures of what was logged, without those that the barriers measure."""
    return {key: value for key, value in row.values.items() if "/barrier/" not in key}


@contextmanager
def job(**settings: Any) -> Iterator[Job]:
    with simulation(**settings) as sim:
        yield Job(sim)


@contextmanager
def pair(**identity: Any) -> Iterator[Job]:
    """Two ranks that have finished step 0, which is a row."""
    with job() as running:
        for rank in (0, 1):
            running.open(f"r{rank}", rank, world=2, **identity)
            running.done(f"r{rank}", 0)
        assert running.rows() == [(0, "complete")]
        yield running


# Complete ----------------------------------------------------------------------------------------------------------


def test_a_step_is_complete_with_its_last_barrier() -> None:
    """Without any time passing, a row appears with the last expected barrier and not before, metrics or not."""
    with pair() as running:
        running.done("r0", 1)
        running.write("r1", log(1, loss=3.0))
        assert running.rows() == [(0, "complete")]
        running.write("r1", barrier(1))
        assert running.rows() == [(0, "complete"), (1, "complete")]
        assert logged(running.newest()) == {"trainer/loss": 2.0}


def test_a_later_barrier_ends_all_steps_before() -> None:
    """A barrier of step 5 is one of 1 to 5 as well, and the rows appear in the order of their steps."""
    with pair() as running:
        running.done("r0", 1, 3, 5)
        running.write("r1", log(3, loss=1.0), barrier(5))
        assert running.rows()[1:] == [(1, "complete"), (3, "complete"), (5, "complete")]


def test_a_close_is_a_barrier_for_everything() -> None:
    """A rank that closed is waited for no longer and is not missing."""
    with pair() as running:
        running.done("r0", 1)
        running.write("r1", CLOSE)
        assert running.rows()[1:] == [(1, "complete")]
        assert running.newest().coverage.missing == ()


FAILED = {"kind": "close", "reason": "error", "error": "RuntimeError: CUDA out of memory"}


def test_a_rank_that_an_error_ended_is_missing_and_not_waited_for() -> None:
    """Rows go on at once without it and name it, until it is started again, after a restart of the sidecar too."""
    with pair() as running:
        running.done("r0", 1)
        running.write("r1", log(1, loss=1.0), FAILED)
        assert running.rows()[1:] == [(1, "partial")]
        assert running.newest().coverage.missing == ("0.1",)
        running.sim.restart()
        running.done("r0", 2)
        assert running.rows()[2:] == [(2, "partial")]
        assert (running.newest().coverage.expected, running.newest().coverage.missing) == (2, ("0.1",))
        running.open("again", 1, world=2, attempt=1)
        running.done("again", 2, 3)
        running.done("r0", 3)
        running.wait(6)
        final = {row.unit.index: row.coverage.missing for row in running.sim.rows()}
        assert final == {0: (), 1: ("0.1",), 2: (), 3: ()}  # again at step 2


def test_a_roll_is_no_close() -> None:
    """A writer that goes on in another file has not finished anything by that."""
    with pair() as running:
        running.done("r0", 1)
        running.write("r1", {"kind": "close", "reason": "roll"})
        running.wait(20)
        assert running.rows() == [(0, "complete")]


def test_a_torn_barrier_is_none() -> None:
    """A line counts once its LF is there."""
    with pair() as running:
        running.done("r0", 1)
        running.write("r1", log(1, loss=1.0))
        running.sim.write("r1.jsonl", b'{"kind":"barrier","step":1}')
        assert len(running.rows()) == 1
        running.sim.write("r1.jsonl", b"\n")
        assert len(running.rows()) == 2


def test_a_new_attempt_takes_the_place_of_the_old() -> None:
    """Once the restarted rank shows where it begins, the one that died is waited for no longer."""
    with pair() as running:
        running.done("r0", 1)
        running.write("r1", log(1, loss=9.0))
        running.open("again", 1, world=2, attempt=1, t=T0 + 30)
        running.write("again", log(1, loss=3.0))
        assert len(running.rows()) == 1
        running.write("again", barrier(1))
        assert running.rows()[1:] == [(1, "complete")]
        found = {key: value for key, value in logged(running.newest()).items() if "/svc/" not in key}
        assert found == {"trainer/loss": 2.0}


def test_a_rollback_is_waited_for_again() -> None:
    """A rank that went back promises nothing any more from that step on."""
    with pair() as running:
        running.write("r1", log(1, loss=1.0), barrier(2), rollback(1))
        running.done("r0", 1)
        assert len(running.rows()) == 1
        running.done("r1", 1)
        assert running.rows()[1:] == [(1, "complete")]


# Partial -----------------------------------------------------------------------------------------------------------


def test_the_living_are_waited_for() -> None:
    """A rank that beats keeps a step open far beyond the grace time, which begins with its last beat."""
    with pair() as running:
        running.done("r0", 1)
        running.wait(300, "r1")
        assert len(running.rows()) == 1
        running.write("r1", BEAT)
        running.sim.tick()
        running.wait(29.9)
        assert len(running.rows()) == 1
        running.wait(0.2)
        assert running.rows()[1:] == [(1, "partial")]
        assert running.newest().coverage.missing == ("0.1",)


def test_any_line_is_a_sign_of_life() -> None:
    """Metrics of other steps, spans and even lines that cannot be used show that a rank lives."""
    with pair() as running:
        running.done("r0", 1)
        for number in range(10):
            running.sim.write("r1.jsonl", (b'{"kind":"span","step":1}', b"rubbish", b'{"step":0,"m":{}}')[number % 3])
            running.sim.write("r1.jsonl", b"\n")
            running.sim.tick()
            running.wait(25)
        assert (1, "partial") not in running.rows()
        running.wait(6)
        assert (1, "partial") in running.rows()


def test_all_who_are_waited_for_must_be_silent() -> None:
    """One rank that lives is enough to keep a step open; a step that waits for no other rank does not wait for it."""
    with job() as running:
        for rank in range(3):
            running.open(f"r{rank}", rank, world=3)
            running.done(f"r{rank}", 0)
        running.done("r0", 1)
        running.wait(100, "r2")
        assert running.rows() == [(0, "complete")]
        running.done("r2", 1)
        running.wait(1)
        assert running.rows() == [(0, "complete"), (1, "partial")]
        assert running.newest().coverage.missing == ("0.1",)


def test_the_dead_do_not_hold_up_a_hinted_look() -> None:
    """Once a rank is given up, a change event of the last living rank is enough for the row: no timer is waited for."""
    with job() as running:
        for rank in range(3):
            running.open(f"r{rank}", rank, world=3)
            running.done(f"r{rank}", 0)
        for step in range(1, 4):
            running.done("r0", step)
        running.wait(40, "r0", "r2")
        for step in range(1, 4):
            running.done("r2", step)
            running.sim.experiment.tick(running.sim.now, math.inf, only=["r2.jsonl"])
            row = running.sim.rows()[-1]
            assert (row.unit.index, row.arrival.closed) == (step, "partial")


def test_one_hint_is_enough_for_a_large_append() -> None:
    """What a hinted look leaves of a file is read by the next looks, though no further event names it."""
    with job() as running:
        running.open("r0", 0, world=1)
        running.sim.tick()
        running.done("r0", *range(2000))
        experiment, now = running.sim.experiment, running.sim.now
        more = experiment.tick(now, math.inf, only=["r0.jsonl"])
        assert more
        while more:
            more = experiment.tick(now, math.inf, only=())
        assert len(running.sim.rows()) == 2000


def test_nobody_is_waited_for_longer_than_max_wait() -> None:
    """A rank that beats but never finishes the step is left out 600 s after the step's first barrier."""
    with pair() as running:
        running.wait(100, "r0", "r1")
        running.done("r0", 1)
        running.wait(598, "r1", "r0")
        assert len(running.rows()) == 1
        running.wait(4, "r1", "r0")
        assert running.rows()[1:] == [(1, "partial")]


def test_every_step_has_its_own_max_wait() -> None:
    """Behind a rank that hangs each step closes 600 s after its own first barrier: rows keep up with the others."""
    with pair() as running:
        for step in range(1, 6):
            running.done("r0", step)
            running.wait(20, "r1")
        running.wait(497, "r1", "r0")
        assert len(running.rows()) == 1
        for step in range(1, 6):
            running.wait(20, "r1", "r0")
            assert running.rows()[1:] == [(closed, "partial") for closed in range(1, step + 1)]


def test_writers_without_a_beat_get_max_wait() -> None:
    """Who promised no beat may be silent; only the time since the first barrier counts."""
    with pair(beat=None) as running:
        running.done("r0", 1)
        running.wait(595)
        assert len(running.rows()) == 1
        running.wait(10)
        assert running.rows()[1:] == [(1, "partial")]


def test_a_silent_writer_without_a_beat_holds_up_one_row() -> None:
    """The rows after the one that waited for it come at once and name it, until it writes again."""
    with pair(beat=None) as running:
        running.wait(20)
        running.done("r0", 1)
        running.wait(300)
        running.done("r0", 2)
        running.wait(305)
        assert running.rows()[1:] == [(1, "partial"), (2, "partial")]
        running.done("r0", 3)
        assert running.rows()[3:] == [(3, "partial")]
        assert running.newest().coverage.missing == ("0.1",)
        running.write("r1", log(1, loss=5.0))
        running.done("r0", 4)
        running.wait(100)
        assert (4, "partial") not in running.rows()
        running.done("r1", 1, 2, 3, 4)
        assert (4, "complete") in running.rows()


def test_a_slow_writer_without_a_beat_gets_max_wait_for_each_step() -> None:
    """It has written since the others ended the step, so it lives."""
    with pair(beat=None) as running:
        running.done("r0", 1)
        running.wait(300)
        running.done("r0", 2)
        running.write("r1", log(1, loss=5.0))
        running.wait(305)
        assert running.rows()[1:] == [(1, "partial")]
        running.wait(300)
        assert running.rows()[-1] == (2, "partial")


def test_a_job_that_died_without_a_barrier() -> None:
    """A step that no rank finished closes after the grace time, without promised beats after max_wait."""
    for identity, seconds in (({}, 30), ({"beat": None}, 600)):
        with pair(**identity) as running:
            running.write("r0", log(1, loss=1.0))
            running.wait(seconds - 2)
            assert len(running.rows()) == 1
            running.wait(4)
            assert running.rows()[1:] == [(1, "partial")]
            assert running.newest().coverage.missing == ("0.0-1",)


def test_patience_is_configured() -> None:
    """Waiting times are those of the configuration."""
    with job(patience=Patience(join_s=1, grace_s=2, max_wait_s=5, implicit_s=1, revise_s=1)) as running:
        running.open("r0", 0, world=2)
        running.open("r1", 1, world=2)
        running.done("r0", 0, 1)
        running.write("r1", log(0, loss=1.0))
        running.wait(2.5)
        assert running.rows() == [(0, "partial"), (1, "partial")]


# Joining -----------------------------------------------------------------------------------------------------------


def test_before_the_first_row_those_who_opened_are_waited_for() -> None:
    """While there is no row, a rank that has opened and lives is waited for however long it loads its model."""
    with job() as running:
        running.open("r0", 0, world=2)
        running.open("r1", 1, world=2)
        running.done("r0", 0)
        running.wait(200, "r1", "r0")
        assert running.rows() == []
        running.done("r1", 0)
        assert running.rows() == [(0, "complete")]


def test_once_there_is_a_row_a_joiner_has_a_minute() -> None:
    """A restarted rank that shows no step is waited for 60 s after its open, even if it lives on."""
    with pair() as running:
        running.write("r1", CLOSE)
        running.open("again", 1, world=2, attempt=1, t=T0 + 30)
        running.done("r0", 1)
        running.wait(59, "again")
        assert len(running.rows()) == 1
        running.wait(2, "again")
        assert running.rows()[1:] == [(1, "complete")]


def test_ranks_that_never_opened_are_absent_after_a_minute() -> None:
    """The other ranks of the world are waited for 60 s after the first open; then they are absent, not missing."""
    with job() as running:
        running.open("r0", 0, world=4)
        running.done("r0", 0)
        running.wait(59, "r0")
        assert running.rows() == []
        running.wait(2, "r0")
        assert running.rows() == [(0, "complete")]
        assert (running.newest().coverage.missing, running.newest().coverage.absent) == ((), ("0.1-3",))
        running.done("r0", 1)
        assert running.rows() == [(0, "complete"), (1, "complete")]


def test_a_rank_without_a_world_is_not_foreseen() -> None:
    """Writers that do not say how many they are do not wait for each other's first step."""
    with job() as running:
        running.open("r0", 0)
        running.open("r1", 1)
        running.done("r0", 0)
        assert running.rows() == [(0, "complete")]


# Implied barriers --------------------------------------------------------------------------------------------------


def test_the_next_step_is_an_implied_barrier() -> None:
    """A writer without barriers has finished the steps before the one it logs; the newest closes after 10 s."""
    with job() as running:
        running.open("a")
        running.write("a", log(0, loss=1.0), log(1, loss=1.0))
        assert running.rows() == [(0, "complete")]
        running.wait(9)
        running.write("a", log(1, more=1.0))
        running.wait(9.5)
        assert running.rows() == [(0, "complete")]
        running.wait(1)
        assert running.rows() == [(0, "complete"), (1, "partial")]
        assert running.newest().coverage.missing == ()


def test_beats_do_not_hold_the_newest_step_of_implicit_writers() -> None:
    """Only metrics lines put off the ten seconds."""
    with job() as running:
        running.open("a")
        running.write("a", log(0, loss=1.0))
        running.wait(11, "a")
        assert len(running.rows()) == 1


def test_a_barrier_ends_implied_ones() -> None:
    """With its first barrier line a writer is explicit: the newest step is not closed for being quiet."""
    with job() as running:
        running.open("a")
        running.done("a", 0)
        running.write("a", log(1, loss=1.0))
        running.wait(25)
        assert running.rows() == [(0, "complete")]


def test_a_restart_does_not_hurry() -> None:
    """After a restart of the sidecar the ten seconds, and the silence of others, begin anew."""
    with job() as running:
        running.open("a")
        running.write("a", log(0, loss=1.0))
        running.wait(5)
        running.sim.restart()
        assert running.rows() == []
        running.wait(9)
        assert running.rows() == []
        running.wait(2)
        assert len(running.rows()) == 1


# Revisions ---------------------------------------------------------------------------------------------------------


def test_a_row_that_gets_complete_is_revised_at_once() -> None:
    """When the missing rank catches up, its row is revised in the same moment, with what changed."""
    with pair() as running:
        running.done("r0", 1)
        running.wait(31)
        assert running.newest().coverage.missing == ("0.1",)
        running.write("r1", log(1, loss=3.0), barrier(1))
        row = running.newest()
        assert (row.arrival.closed, row.arrival.revision, row.arrival.changed[0]) == ("revision", 1, "trainer/loss")
        assert (logged(row), row.coverage.missing) == ({"trainer/loss": 2.0}, ())


def test_other_revisions_are_rare() -> None:
    """A row that gets a late line every second is revised at most every five seconds, and in the end says all."""
    with pair() as running:
        times = []
        for number in range(30):
            running.write("r0", log(0, loss=float(number)))
            before = len(running.rows())
            if before > len(times) + 1:
                times.append(running.sim.now)
            running.sim.wait(1)
        running.wait(6)
        assert running.newest().arrival.revision >= 6
        assert all(later - earlier >= 5 for earlier, later in pairwise(times))
        assert logged(running.newest()) == {"trainer/loss": (1.0 + sum(range(30)) + 1.0) / 32}


def test_nothing_changed_no_revision() -> None:
    """Late lines that change no figure, time or coverage make no row."""
    with pair() as running:
        running.sim.write("r0.jsonl", b'{"step":0,"m":{}}\n{"kind":"barrier","step":0}\n{"step":0,"m":{"loss":"x"}}\n')
        running.wait(11)
        assert running.rows() == [(0, "complete")]
        assert running.actor.revisions.dirty == {}


def test_a_late_evaluation_ships_only_its_own_keys() -> None:
    """A new metric for a closed step is one revision with that key as the change."""
    with pair() as running:
        running.write("r0", log(0, **{"eval/score": 0.7}))
        assert running.newest().shipped == {"trainer/eval/score": 0.7}


def test_a_dirty_row_survives_a_restart() -> None:
    """What was dirty when the sidecar ended is revised after it started again, once."""
    with pair() as running:
        running.write("r0", log(0, loss=4.0))
        running.sim.tick()
        running.write("r0", log(0, loss=6.0))
        running.sim.tick()
        assert len(running.actor.revisions.dirty) == 1
        running.sim.restart()
        assert logged(running.newest()) == {"trainer/loss": 3.0}
        running.wait(20)
        assert running.newest().arrival.revision == 2


def test_a_gap_told_late_is_a_revision() -> None:
    """Dropped lines of a closed step appear in its row."""
    with pair() as running:
        running.write("r1", {"kind": "gap", "n": 7, "from": 0, "to": 3})
        assert (running.newest().coverage.gap, running.newest().arrival.revision) == (7, 1)


# Memory ------------------------------------------------------------------------------------------------------------


def test_a_rank_a_thousand_steps_behind() -> None:
    """At most 64 open steps keep values while a rank is behind and catches up; rows are those of the files."""
    steps = 1000
    with job() as running:
        files = {}
        for rank in (0, 1):
            records = [record for step in range(steps) for record in (log(step, loss=step + 0.1 * rank), barrier(step))]
            files[f"r{rank}.jsonl"] = file(*records, id=f"r{rank}", rank=rank, world=2, beat=10)
        running.sim.write("r0.jsonl", files["r0.jsonl"])
        slow = files["r1.jsonl"].splitlines(keepends=True)
        running.sim.write("r1.jsonl", b"".join(slow[:3]))
        running.sim.tick()
        assert len(running.actor.open) == steps - 1
        at = 3
        for share in (1, 5, 40, 200, 900, len(slow)):
            running.sim.write("r1.jsonl", b"".join(slow[at : at + share]))
            at += share
            while running.sim.experiment.tick(running.sim.now, math.inf):
                assert_bounded(running.actor)
            assert_bounded(running.actor)
        assert [row.unit.index for row in running.sim.rows()] == list(range(steps))
        assert {row.arrival.closed for row in running.sim.rows()} == {"complete"}
        assert exactly(running.sim.final()) == exactly(final_rows(files))


def assert_bounded(actor: Actor) -> None:
    kept = sum(unit.window is not None for unit in actor.open.values())
    assert kept == actor.kept <= MAX_KEPT


def test_a_restart_with_many_open_steps() -> None:
    """Started again with 300 open steps, the sidecar keeps 64 of them and makes the same rows."""
    with job() as running:
        running.open("r0", 0, world=2)
        running.open("r1", 1, world=2)
        running.done("r0", *range(300))
        running.done("r1", 0)
        running.wait(6)  # positions alone are saved every five seconds
        running.sim.restart()
        assert_bounded(running.actor)
        assert len(running.actor.open) == 299
        running.done("r1", *range(1, 300))
        running.sim.tick()
        rows = running.sim.rows()
        assert [row.unit.index for row in rows] == list(range(300))
        assert all(logged(row) == {"trainer/loss": 1.0} and row.coverage.ranks == ("0.0-1",) for row in rows)


# The pure part -----------------------------------------------------------------------------------------------------


class NoRows:
    """An actor without any row."""

    def lacks_ranks(self, step: int) -> bool | None:
        return None

    def rows_between(self, first: int, last: int, *, partial: bool) -> list[tuple[int, bool]]:
        return []


@pytest.mark.parametrize("count", [1, 500])
def test_marks_alone_open_no_step(count: int) -> None:
    """Barriers, gaps and closes of steps without metrics make no unit."""
    actor = Actor("trainer", NoRows())
    writers = [Writer(f"f{n}", Open(f"w{n}", "trainer", rank=n, world=count)) for n in range(count)]
    for writer in writers:
        actor.add_writer(writer, 0.0)
        actor.apply(writer, Batch(notes=[Note("barrier", 0, 9), Note("close", 0, -1)], begins=9, consumed=2), 1.0)
    assert actor.closings(1e6) == actor.closings(1e6, end=True) == []
    assert actor.revisions.dirty == {}
