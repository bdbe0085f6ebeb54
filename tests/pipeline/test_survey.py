"""What the status says of an experiment."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rlship._version import __version__
from rlship.identity import pid_space
from rlship_sidecar.filesystem import Filesystem
from rlship_sidecar.pids import state
from rlship_sidecar.reduce.rules import ROW_FUNCTION
from rlship_sidecar.report.status import (
    ActorStatus,
    DeadLetterStatus,
    SinkStatus,
    Status,
    WriterStatus,
    read_status,
    write_status,
)
from rlship_sidecar.report.survey import MAX_LISTED, survey
from rlship_sidecar.report.trends import Trends
from tests.kit.waiting import wait_until
from tests.pipeline.simulated import LOCAL, REMOTE, Simulation, simulation
from tests.reference.building import CLOSE, T0, barrier, beat, clock, file, log

WALL = 1763600500.0
# A process that goes on without its first thread, until its standard input ends.
HEADLESS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""
AGAIN = ", or if the job was submitted again, stop the older one"


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as made:
        yield made


@pytest.mark.parametrize("filesystem", [LOCAL, REMOTE])
@pytest.mark.parametrize("hole", [bytes(64), b'{"step":3,' + bytes(64)], ids=["all", "half"])
def test_a_hole_at_the_end_of_a_file_makes_data_incomplete(filesystem: Filesystem, hole: bytes) -> None:
    """Bytes that never arrived are no half a line of a process that died: the status names the file and the byte."""
    with simulation(filesystem=filesystem) as sim:
        whole = file(log(0, x=1.0), barrier(0), CLOSE)
        sim.write("a.jsonl", whole)
        sim.finish()
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).complete
        sim.write("a.jsonl", hole)
        sim.finish()
        told = survey(sim.experiment, [], now=sim.now, wall=0.0)
        (writer,) = told.writers
        assert (told.complete, told.rows) == (False, 1)
        assert writer.note.startswith(f"NUL bytes from byte {len(whole)} on, to the end")
        sim.restart()
        sim.finish()
        assert not survey(sim.experiment, [], now=sim.now, wall=0.0).complete


def status(sim: Simulation, *sinks: SinkStatus) -> Status:
    sim.tick()
    return survey(sim.experiment, sinks, now=sim.now, wall=WALL)


def actor_of(sim: Simulation, name: str = "trainer") -> ActorStatus:
    (found,) = [actor for actor in status(sim).actors if actor.actor == name]
    return found


def more(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_an_empty_experiment(sim: Simulation) -> None:
    """Nothing there is nothing wrong."""
    assert status(sim) == Status(
        experiment=str(sim.directory),
        t=WALL,
        store_id=sim.store.store_id,
        filesystem="tmpfs",
        rows=0,
        complete=True,
        actors=[],
        writers=[],
        sinks=[],
        dead_letters=[],
        dead_letter_count=0,
        dead_value_count=0,
        counts={},
        notes=[],
        lead="trainer",
        row_function=ROW_FUNCTION,
        version=__version__,
    )


def test_a_polled_filesystem_says_so() -> None:
    """Where no change events are used the status tells."""
    with simulation(filesystem=REMOTE) as sim:
        assert status(sim).filesystem == "nfs4 (polled)"


def test_writers(sim: Simulation) -> None:
    """Each file has its identity, its newest step and barrier, its silence, and how much of it is not applied."""
    sim.write("a.jsonl", file(log(3, x=1.0), barrier(3), log(4, x=1.0), rank=2, replica="b", attempt=1) + b"torn")
    sim.write("b.jsonl", file(CLOSE, id="b", actor="reward"))
    sim.write("c.jsonl", b"")
    sim.write("d.jsonl", b"rubbish\n")
    sim.tick()
    sim.wait(7)
    assert status(sim).writers == [
        WriterStatus("a.jsonl", "trainer", "b", 2, 1, 4, 3, WALL - T0, 4, False, awaited=True),
        WriterStatus("b.jsonl", "reward", "0", 0, 0, None, None, WALL - T0, 0, True),
        WriterStatus("c.jsonl", "", "", 0, 0, None, None, 0.0, 0, False, "empty"),
        WriterStatus("d.jsonl", "", "", 0, 0, None, None, 0.0, 0, False, "no open record yet"),
    ]


def test_a_process_is_gone_only_where_that_is_certain(sim: Simulation) -> None:
    """Its id counts among those that this process sees, none has it any more or only a zombie, and its file is read to
    the end, without a close. Whatever lives, ran elsewhere, or does not say where, is silent at most.
    """
    here, ended = pid_space(), subprocess.Popen(["true"])
    assert here is not None
    ended.wait()
    with (
        subprocess.Popen(["true"]) as zombie,
        subprocess.Popen([sys.executable, "-S", "-c", HEADLESS], stdin=subprocess.PIPE) as headless,
    ):
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        wait_until(lambda: state(headless.pid) is None, "the end of the first thread")
        processes: dict[str, dict[str, Any]] = {
            "ended": {"pid": ended.pid, "pid_space": here},
            "zombie": {"pid": zombie.pid, "pid_space": here},
            "headless": {"pid": headless.pid, "pid_space": here},
            "lives": {"pid": os.getpid(), "pid_space": here},
            "elsewhere": {"pid": ended.pid, "pid_space": f"{here}0"},
            "silent": {"pid": ended.pid},
            "odd": {"pid": ended.pid, "pid_space": [here]},
            "group": {"pid": -1, "pid_space": here},
        }
        for rank, (name, said) in enumerate(processes.items()):
            sim.write(f"{name}.jsonl", file(log(0, x=1.0), id=name, rank=rank, **said))
        for name, last in (("closed", more(CLOSE)), ("torn", b'{"t":')):
            sim.write(f"{name}.jsonl", file(id=name, actor=name, **processes["ended"]) + last)
        assert {writer.file for writer in status(sim).writers if writer.gone} == {"ended.jsonl", "zombie.jsonl"}
        sim.write("late.jsonl", file(id="late", actor="late", t=WALL - 1, **processes["ended"]))
        assert [writer.gone for writer in status(sim).writers if writer.file == "late.jsonl"] == [False]


def silences(sim: Simulation, wall: float) -> list[float]:
    sim.tick()
    return [writer.silent_s for writer in survey(sim.experiment, (), now=sim.now, wall=wall).writers]


def test_a_silence_counts_from_the_last_line_whenever_it_was_read(sim: Simulation) -> None:
    """A process that died before this sidecar started is silent since then, also after a restart of the sidecar, and
    with half a line at its end; the time of a beat counts like that of any line.
    """
    sim.write("a.jsonl", file(log(0, x=1), barrier(0, 1.0), beat(60)) + b'{"t":')
    assert silences(sim, T0 + 900) == [840.0]
    sim.wait(10)
    assert silences(sim, T0 + 910) == [850.0]
    sim.wait(10)
    sim.restart()
    assert silences(sim, T0 + 920) == [860.0]


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0], ids=["behind", "ahead"])
def test_a_wrong_clock_gives_no_absurd_silence(sim: Simulation, ahead_s: float) -> None:
    """What the sidecar saw itself bounds it: lines that were not there at its last look are no older than that."""
    sim.write("a.jsonl", file(log(0, x=1), t=T0 + ahead_s))
    assert silences(sim, T0) == [max(0.0, -ahead_s)]
    sim.wait(10)
    silences(sim, T0 + 10)
    sim.wait(10)
    sim.write("a.jsonl", more(log(1, x=1), beat(ahead_s + 20)))
    (silent,) = silences(sim, T0 + 20)
    assert 0.0 <= silent <= 10.0
    sim.wait(5)
    (silent,) = silences(sim, T0 + 25)
    assert 5.0 <= silent <= 15.0


def test_a_known_clock_corrects_the_silence(sim: Simulation) -> None:
    """Where the host's clock was measured, its lines stand at their true time."""
    sim.write("a.jsonl", file(clock(3600.0, after=3600.0), log(0, x=1), t=T0 + 3600, host="n07"))
    assert silences(sim, T0 + 840) == [840.0]


def test_lines_that_wait_to_be_read_are_no_silence(sim: Simulation) -> None:
    """While a file is read its newest line is not known yet, however long its lines wait for those of slower files."""
    sim.write("a.jsonl", file(*(log(step, x=1) for step in range(100_000))))
    sim.experiment.tick(sim.now, T0 + 5000)
    (writer,) = survey(sim.experiment, (), now=sim.now, wall=T0 + 5000).writers
    assert writer.unread > 0
    assert writer.silent_s == 0.0
    sim.wait(100)
    (writer,) = survey(sim.experiment, (), now=sim.now, wall=T0 + 5100).writers
    assert writer.silent_s == 0.0
    assert silences(sim, T0 + 5100) == [5100.0]


def test_the_rate_of_steps_falls_with_the_steps(sim: Simulation) -> None:
    """A job whose steps stopped goes on beating, and a clock that is behind does not slow it down."""
    lines = [record for step in range(10) for record in (log(step, x=1) | {"t": T0 + 2.0 * step}, barrier(step))]
    sim.write("a.jsonl", file(*lines))
    sim.tick()
    trends = Trends()
    trends.note(sim.rows())

    def rate(wall: float) -> float | None:
        sim.tick()
        (actor,) = survey(sim.experiment, (), now=sim.now, wall=wall, trends=trends).actors
        return actor.steps_per_s

    assert rate(T0 + 18) == 0.5
    sim.wait(1000)
    sim.write("a.jsonl", more(beat(1018)))
    assert rate(T0 + 1018) == pytest.approx(0.001)
    sim.write("a.jsonl", more(CLOSE))
    assert rate(T0 + 1018) == rate(T0 + 90_000) == 0.5  # it is that of the rows once no process can be late


def test_a_file_that_cannot_be_read_keeps_the_experiment_unfinished(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it holds is unknown, so no one can say that all is a row; once it can be read and has closed, it is."""
    real = os.open

    def no_access(path: Any, *args: Any, **more: Any) -> int:
        if os.path.basename(os.fspath(path)) == "b.jsonl":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *args, **more)

    sim.write("a.jsonl", file(log(0, x=1.0), barrier(0), CLOSE))
    sim.write("b.jsonl", file(log(0, x=1.0), barrier(0), CLOSE, id="b", rank=1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_access)
        found = status(sim)
        assert not found.finished and not found.complete
        (lost,) = [writer for writer in found.writers if writer.unreadable]
        assert (lost.file, lost.note) == ("b.jsonl", "Permission denied")
    sim.wait(100)
    assert status(sim).finished


@pytest.mark.parametrize(
    ("identity", "finished"),
    [
        ({"attempt": 1}, True),
        ({}, True),
        ({"t": T0 - 1}, False),
        ({"rank": 1}, False),
        ({"rank": 1, "attempt": 1}, False),
    ],
    ids=["started again", "at an equal attempt", "before", "another rank", "a later attempt of another rank"],
)
def test_a_writer_that_died_is_done_once_its_rank_was_started_again(
    sim: Simulation, identity: dict[str, Any], finished: bool
) -> None:
    """Nothing is to come once every writer closed, or a later attempt took its rank, and every row is made."""
    died = [log(0, loss=1), barrier(0)]
    sim.write("a.jsonl", file(*died, id="a"))
    assert not status(sim).finished
    sim.write("b.jsonl", file(log(1, loss=2), barrier(1), CLOSE, **{"id": "b", "t": T0 + 1} | identity))
    sim.tick()
    sim.wait(700)
    assert status(sim).finished is finished


def test_a_rank_that_an_error_ended_is_awaited_until_it_is_started_again(sim: Simulation) -> None:
    """The status has the error, and the experiment is not finished, after a restart of the sidecar too."""
    failed = {"kind": "close", "reason": "error", "error": "RuntimeError: CUDA out of memory"}
    sim.write("a.jsonl", file(log(0, loss=1), barrier(0), log(1, loss=1), failed, id="a"))
    sim.finish()
    for _ in range(2):
        (writer,) = status(sim).writers
        assert (writer.failure, writer.step, writer.closed) == ("RuntimeError: CUDA out of memory", 1, False)
        assert (writer.awaited, status(sim).finished) == (True, False)
        sim.restart()
        sim.tick()
    sim.write("b.jsonl", file(log(1, loss=1), barrier(1), CLOSE, id="b", attempt=1, t=T0 + 1))
    sim.finish()
    assert status(sim).finished


def test_children_are_not_awaited(sim: Simulation) -> None:
    """A pool ends its workers by SIGTERM, so they never close: the job is done once their root closed."""
    sim.write("a.jsonl", file(log(0, loss=1), id="a"))
    sim.write("b.jsonl", file(log(0, loss=2), id="b", parent="a"))
    sim.write("c.jsonl", file(log(0, loss=3), id="c", parent="b"))
    sim.finish()
    assert [writer.awaited for writer in status(sim).writers] == [True, False, False]
    assert not status(sim).finished
    sim.write("a.jsonl", more(barrier(0), CLOSE))
    sim.finish()
    assert [writer.awaited for writer in status(sim).writers] == [False, False, False]
    assert status(sim).finished


def test_two_writers_of_one_rank_at_one_time_are_both_waited_for(sim: Simulation) -> None:
    """One that goes on beside a later one of equal attempt has not been started again."""
    sim.write("a.jsonl", file(log(0, loss=1), barrier(0), beat(90), id="a"))
    sim.write("b.jsonl", file(log(0, loss=2), barrier(0), CLOSE, id="b", t=T0 + 1))
    sim.finish()
    assert not status(sim).finished
    sim.write("a.jsonl", more(CLOSE))
    sim.finish()
    assert status(sim).finished


def test_a_rank_that_the_job_goes_on_without_is_done(sim: Simulation) -> None:
    """Of a world of two one died, and the next attempt has a world of one."""
    sim.write("a.jsonl", file(log(0, loss=1), barrier(0), id="a", world=2))
    sim.write("b.jsonl", file(log(0, loss=1), barrier(0), id="b", rank=1, world=2))
    assert [writer.awaited for writer in status(sim).writers] == [True, True]
    sim.write("c.jsonl", file(log(1, loss=1), barrier(1), CLOSE, id="c", world=1, attempt=1, t=T0 + 1))
    sim.finish()
    assert status(sim).finished
    assert [writer.awaited for writer in status(sim).writers] == [False, False, False]


def test_who_writes_beside_the_job(sim: Simulation) -> None:
    """An agent of a node, a scrape under an actor of the job, and the sidecar itself observe; a label of the job's own
    makes no writer an observer.
    """
    for id, actor, labels in (
        ("a", "generator", {"agent": "scrape"}),
        ("b", "generator", {"agent": "3"}),
        ("c", "node", {}),
        ("d", "rlship", None),
        ("e", "trainer", ["agent"]),
    ):
        sim.write(f"{id}.jsonl", file(id=id, actor=actor, labels=labels))
    assert [writer.observes for writer in status(sim).writers] == [True, False, True, True, False]


def test_an_actor_whose_step_waits(sim: Simulation) -> None:
    """The oldest open step says since when and for whom it waits, once that is worth saying."""
    for rank in range(6):
        sim.write(f"r{rank}.jsonl", file(log(0, x=1.0), barrier(0), id=f"r{rank}", rank=rank, world=6, beat=10))
    sim.tick()
    sim.write("r0.jsonl", more(log(1, x=1.0), barrier(1), log(2, x=1.0)))
    assert actor_of(sim) == ActorStatus("trainer", 6, 6, 0, 2, 2, 0.0)
    sim.wait(3)
    whom = "0.1 0.2 0.3 and 2 more"
    note = "step 1 has waited 3 s for r1, r2, r3 and 2 more; goes on without them after 30 s of silence"
    assert actor_of(sim) == ActorStatus("trainer", 6, 6, 0, 2, 2, 3.0, note=note, waiting=whom)
    for rank in range(2, 6):
        sim.write(f"r{rank}.jsonl", more(barrier(1)))
    found = actor_of(sim)
    assert found.waiting == "0.1"
    assert found.note.endswith("waited 3 s for r1; goes on without it after 30 s of silence")


def test_a_step_that_waits_for_slower_ranks(sim: Simulation) -> None:
    """Ranks that have written since it began to wait are said to be at a step; silence counts once it lasts."""
    for rank in range(3):
        sim.write(f"r{rank}.jsonl", file(log(0, x=1.0), barrier(0), id=f"r{rank}", rank=rank, world=3, beat=10))
    sim.tick()
    sim.write("r0.jsonl", more(*(record for step in range(1, 6) for record in (log(step, x=1.0), barrier(step)))))
    sim.tick()
    sim.wait(3)
    sim.write("r1.jsonl", more(log(1, x=1.0)))
    found = actor_of(sim)
    assert found.note == "step 1 has waited 3 s for 2 ranks: r2 is furthest behind, at step 0; r1 is at step 1"
    assert found.waiting == "0.2 0.1"
    sim.write("r2.jsonl", more(log(1, x=1.0)))
    assert actor_of(sim).note == "step 1 has waited 3 s for r1, r2; both are at step 1"
    sim.wait(16)
    assert actor_of(sim).note.endswith("waited 19 s for r1, r2; goes on without them after 30 s of silence")


def test_a_rank_that_hangs_or_is_gone_is_named_first(sim: Simulation) -> None:
    """Of ranks that wait for each other before their barrier, the one that is at an earlier step is named, and so is
    one whose process is gone or that is silent. The step goes on without that one only once the others finish it.
    """
    here, ended = pid_space(), subprocess.Popen(["true"])
    ended.wait()
    ranks = [f"r{rank}" for rank in range(8)]
    for rank, name in enumerate(ranks):
        process = {"pid": ended.pid, "pid_space": here, "host": "vm"} if name == "r6" else {}
        opened = file(log(9, x=1.0), barrier(9), id=name, rank=rank, world=8, beat=10, **process)
        sim.write(f"{name}.jsonl", opened)
    sim.tick()
    others = [name for name in ranks if name != "r6"]

    def beats(names: list[str]) -> None:
        for name in names:
            sim.write(f"{name}.jsonl", more({"kind": "beat"}))

    for name in others:
        sim.write(f"{name}.jsonl", more(log(10, x=1.0)))
    sim.tick()
    sim.wait(3)
    beats(ranks)
    which, at = f"r6 (vm pid {ended.pid})", "7 others are at step 10"
    begin = "step 10 has waited"
    assert actor_of(sim).note == f"{begin} 3 s for 8 ranks: {which} is furthest behind, at step 9; {at}"
    assert actor_of(sim).waiting == "0.6 0.0 0.1 and 5 more"
    sim.wait(7)
    beats(others)
    without = "7 others are alive, at step 10; goes on without r6 once the others finish the step"
    assert actor_of(sim).note == f"{begin} 10 s for 8 ranks: {which} is gone, at step 9; {without}"
    beats(["r6"])
    sim.tick()
    sim.wait(16)
    beats(others)
    silent = f"r6 (vm pid {ended.pid}) has been silent for 16 s, at step 9"
    sim.write("r6.jsonl", b'{"t":')  # of a file that is not read to its end nothing is certain
    assert actor_of(sim).note == f"{begin} 26 s for 8 ranks: {silent}; 7 others are alive, at step 10"
    sim.wait(15)
    beats(others)
    found = actor_of(sim)
    assert (found.step, found.note.endswith(without)) == (9, True)
    for name in others:
        sim.write(f"{name}.jsonl", more(barrier(10)))
    found = actor_of(sim)
    assert (found.step, found.missing) == (10, ["0.6"])


def test_a_step_that_waits_for_writers_without_beats(sim: Simulation) -> None:
    """The note names the wait that holds for them. One for which a step waited so long is not named again."""
    for rank, seconds in enumerate((10, None, 10)):
        sim.write(f"r{rank}.jsonl", file(log(0, x=1.0), barrier(0), id=f"r{rank}", rank=rank, world=3, beat=seconds))
    sim.tick()
    sim.write("r0.jsonl", more(log(1, x=1.0), barrier(1)))
    sim.tick()
    sim.wait(3)
    end = "waited 3 s for r1, r2; goes on without them after 600 s, as some write no beats"
    assert actor_of(sim).note.endswith(end)
    sim.write("r2.jsonl", more(barrier(1)))
    assert actor_of(sim).note.endswith("waited 3 s for r1; goes on without it after 600 s, as it writes no beats")
    sim.wait(600)
    sim.tick()
    sim.write("r2.jsonl", more({"kind": "beat"}))
    sim.write("r0.jsonl", more(log(2, x=1.0), barrier(2)))
    sim.tick()
    sim.wait(3)
    assert actor_of(sim).note.endswith("step 2 has waited 3 s for r2; goes on without it after 30 s of silence")


def test_ranks_that_are_missing_or_absent(sim: Simulation) -> None:
    """Those of the newest row are named, absent ones count as expected, and unopened ones are what a step waits for."""
    sim.write("a.jsonl", file(log(0, x=1.0), barrier(0), id="a", world=4, beat=10))
    sim.write("b.jsonl", file(log(0, x=1.0), id="b", rank=1, world=4, beat=10))
    sim.tick()
    sim.wait(3)
    assert actor_of(sim).ranks_expected == 4
    sim.write("b.jsonl", more(barrier(0)))
    sim.tick()
    assert actor_of(sim).waiting == "ranks that have not opened yet"
    whom = "ranks that have not opened yet"
    assert (
        actor_of(sim).note == f"step 0 has waited 3 s for {whom}; goes on without them 60 s after the first rank opened"
    )
    sim.wait(60)
    sim.tick()
    sim.write("a.jsonl", more(log(1, x=1.0), barrier(1)))
    sim.tick()
    sim.wait(31)
    found = actor_of(sim)
    assert (found.step, found.missing, found.absent) == (1, ["0.1"], ["0.2-3"])
    assert (found.ranks_seen, found.ranks_expected) == (2, 4)
    whole = status(sim)
    assert (whole.complete, whole.rows, [lack.rows for lack in whole.lacking]) == (False, 2, [1])
    sim.write("b.jsonl", more(log(1, x=1.0), barrier(1)))
    assert (status(sim).complete, status(sim).rows, actor_of(sim).missing) == (True, 3, [])


def test_what_could_not_be_used(sim: Simulation) -> None:
    """Dead lines and dead values are counted apart and exactly, the first of each is shown, data is incomplete."""
    sim.write("a.jsonl", file(log(0, x="bad", y=1.0), log(1, x="bad")) + b"rubbish\n" * 1500 + b'{"kind":"new"}\n')
    found = status(sim)
    begin = len(file(log(0, x="bad", y=1.0), log(1, x="bad")))
    assert (found.dead_letter_count, found.dead_value_count, found.complete) == (1500, 2, False)
    assert found.dead_letters == [
        DeadLetterStatus("a.jsonl", "bad value", 2, len(file()), '"x": "bad"'),
        DeadLetterStatus("a.jsonl", "not JSON", 1500, begin, "rubbish"),
    ]
    assert found.counts["unknown kinds"] == 1


def test_the_list_of_dead_letters_is_short(sim: Simulation) -> None:
    """However many files have dead letters, the status lists some and counts all."""
    for number in range(MAX_LISTED + 20):
        sim.write(f"f{number:03}.jsonl", b"rubbish\n")
    found = status(sim)
    assert (len(found.dead_letters), found.dead_letter_count) == (MAX_LISTED, MAX_LISTED + 20)


def test_writers_that_claim_one_rank_are_counted(sim: Simulation) -> None:
    """Writers that claim one rank at one time are reported at once, with how many they are and the way out, and data
    are incomplete. One after the other they are restarts, which is a note; later attempts are no news at all.
    """
    sim.write("a.jsonl", file({"kind": "beat", "t": T0 + 20.5}, id="a", actor="reward"))
    assert status(sim).notes == []
    sim.write("b.jsonl", file(id="b", actor="reward", t=T0 + 20))
    sim.write("c.jsonl", file(id="c", actor="reward", t=T0 + 21))
    sim.write("d.jsonl", file(id="d", actor="buffer"))
    sim.write("e.jsonl", file(id="e", actor="buffer", attempt=1))
    found = status(sim)
    assert (found.claims, found.complete) == ([], True)
    assert found.notes == ["3 writers of reward/0/r0, one after the other: the last one's values count"]
    sim.write("a.jsonl", more({"kind": "beat", "t": T0 + 30}))
    found = status(sim)
    assert (found.notes, found.complete) == ([], False)
    assert found.claims == [f"3 writers claim reward/0/r0 at one time: set rank or replica{AGAIN}"]


def test_ranks_of_which_the_same_is_said_share_a_line(sim: Simulation) -> None:
    """A job of many ranks that was submitted again makes one note, not one for each rank; so it is with claims, and
    with replicas. Ranks with more writers have a line of their own.
    """
    for rank in (0, 1, 2, 3, 10, 11):
        for time in range(3 if rank == 10 else 2):
            writer = f"r{rank}-{time}"
            sim.write(f"{writer}.jsonl", file(id=writer, rank=rank, t=T0 + 20 * time))
    for replica in range(10):
        for time in range(2):
            writer = f"g{replica}-{time}"
            beat = {"kind": "beat", "t": T0 + 30}
            sim.write(f"{writer}.jsonl", file(beat, id=writer, actor="generator", replica=str(replica), t=T0 + time))
    found = status(sim)
    counts = "one after the other: the last one's values count"
    assert sorted(found.notes) == [
        f"2 writers each of trainer r0-3, r11, {counts}",
        f"3 writers of trainer/0/r10, {counts}",
    ]
    named = ", ".join(f"rep {replica} r0" for replica in range(8))
    assert found.claims == [
        f"2 writers each claim generator {named} and 2 more at one time: set rank or replica{AGAIN}"
    ]


def test_a_short_overlap_is_a_restart(sim: Simulation) -> None:
    """A rank whose older writer ended 6 s after the newer one began was submitted again: once the newer one has gone on
    for as long, it is no claim, and data are complete. Two that go on together claim the rank, however short.
    """
    sim.write("a.jsonl", file({"kind": "beat", "t": T0 + 12}, id="a"))
    sim.write("b.jsonl", file({"kind": "beat", "t": T0 + 15}, id="b", t=T0 + 6))
    assert status(sim).claims == [f"2 writers claim trainer/0/r0 at one time: set rank or replica{AGAIN}"]
    sim.write("b.jsonl", more({"kind": "beat", "t": T0 + 18}))
    found = status(sim)
    assert (found.claims, found.complete) == ([], True)
    assert found.notes == ["2 writers of trainer/0/r0, one after the other: the last one's values count"]
    sim.write("b.jsonl", more({"kind": "beat", "t": T0 + 200}))
    sim.write("a.jsonl", more({"kind": "beat", "t": T0 + 66}))
    assert status(sim).claims == []
    sim.write("a.jsonl", more({"kind": "beat", "t": T0 + 66.5}))
    assert status(sim).claims == [f"2 writers claim trainer/0/r0 at one time: set rank or replica{AGAIN}"]


def test_two_agents_of_a_node_are_a_note(sim: Simulation) -> None:
    """Two that began together, before they saw each other, take nothing from the job's data; two scrapes of one engine
    count it twice, which is a claim.
    """
    for actor, agent in (("node", "sysmon"), ("generator", "scrape")):
        sim.write(
            f"{actor}.jsonl", file({"kind": "beat", "t": T0 + 30}, id=actor, actor=actor, labels={"agent": agent})
        )
        later = file({"kind": "beat", "t": T0 + 25}, id="b", actor=actor, t=T0 + 20, labels={"agent": agent})
        sim.write(f"{actor}-b.jsonl", later)
        found = status(sim)
        if agent == "sysmon":
            assert (found.claims, found.complete) == ([], True)
            assert found.notes == ["2 agents of node/0/r0 at one time, which all count"]
    assert found.claims == [f"2 writers claim generator/0/r0 at one time: set rank or replica{AGAIN}"]


def test_files_that_cannot_be_read_are_named(sim: Simulation) -> None:
    """What is no file is noted, and a file that shrank or vanished says so."""
    (sim.directory / "rlship" / "folder.jsonl").mkdir()
    sim.write("a.jsonl", file(log(0, x=1.0)))
    sim.write("b.jsonl", file(id="b", actor="reward"))
    assert status(sim).notes == ["folder.jsonl: not a regular file, or its name is not UTF-8"]
    os.truncate(sim.directory / "rlship" / "a.jsonl", 10)
    (sim.directory / "rlship" / "b.jsonl").unlink()
    sim.experiment.intake.files.close()
    size = len(file(log(0, x=1.0)))
    assert [writer.note for writer in status(sim).writers] == [
        f"shorter than what was read of it (10 < {size} bytes): not read further",
        "not there any more; what was read of it still counts",
    ]


def test_a_file_that_is_removed_while_it_is_read_is_named(sim: Simulation) -> None:
    """A local file stays open, so its lines still count; it is named while it is missing, and data are incomplete."""
    sim.write("r0.jsonl", file(log(0, x=1.0), barrier(0)))
    sim.write("r1.jsonl", file(log(0, x=1.0), barrier(0), CLOSE, rank=1, id="b"))
    assert status(sim).complete
    for name in ("r0.jsonl", "r1.jsonl"):
        away, place = sim.directory / name, sim.directory / "rlship" / name
        place.rename(away)
        sim.wait(11.0)
        with away.open("ab") as still_open:
            still_open.write(more(log(1, x=1.0), barrier(1)))
        found = status(sim)
        gone = "not there any more; what was read of it still counts"
        assert [writer.note for writer in found.writers if writer.file == name] == [gone]
        assert not found.complete
        assert sim.experiment.sources["r0.jsonl"].at_step == 1
        away.rename(place)
        sim.wait(11.0)
        found = status(sim)
        assert [writer.note for writer in found.writers] == ["", ""] and found.complete


def test_a_status_survives_its_file(sim: Simulation) -> None:
    """What is written to `status.json` is read back the same; without a file there is no status."""
    assert read_status(sim.directory) is None
    sim.write("a.jsonl", file(log(0, x="bad")) + b"torn")
    found = status(sim, SinkStatus("jsonl", "idle", 3, 3, where="rows.jsonl"))
    write_status(sim.directory, found)
    assert read_status(sim.directory) == found
    assert sorted(path.name for path in sim.directory.iterdir()) == ["rlship", "status.json"]


def test_looking_changes_nothing(sim: Simulation) -> None:
    """Two looks at the same moment are equal, and rows come as without the looks."""
    sim.write("a.jsonl", file(log(0, x=1.0), barrier(0), world=2, beat=10))
    assert status(sim) == status(sim)
    sim.finish()
    assert len(sim.rows()) == 1


def run(**members: Any) -> dict[str, Any]:
    return {"kind": "run", **members}


def outcome_of(sim: Simulation) -> str:
    found = status(sim).run
    assert found is not None
    return found.outcome


def test_a_run_is_running_while_a_process_of_the_lead_lives(sim: Simulation) -> None:
    """Of the lead's newest start: other actors do not count. Killed processes are silent, and so it is unknown."""
    assert status(sim).run is None
    sim.write("a.jsonl", file(run(config={"lr": {"of": 1}}, facts={"git": "9f2c"}, t=WALL - 1), id="a", beat=10))
    assert outcome_of(sim) == "running"
    sim.wait(3600.0)
    sim.write("g.jsonl", file({**log(0, x=1), "t": WALL - 1}, id="g", actor="generator", beat=10))
    assert outcome_of(sim) == "unknown"
    sim.write("b.jsonl", file({**log(0, x=1), "t": WALL - 1}, id="b", attempt=1, t=WALL - 2, beat=10))
    assert outcome_of(sim) == "running"
    sim.wait(2.0)
    sim.write("b.jsonl", more({"kind": "close", "reason": "error", "error": "OOM"}))
    assert outcome_of(sim) == "failed"
    found = status(sim).run
    assert found is not None
    assert (found.config, found.config_keys, found.facts) == ({"lr.of": 1}, 1, {"git": "9f2c"})


def test_the_status_of_a_run_is_bounded(sim: Simulation) -> None:
    """The first hundred keys of a part, no long values, and how many keys there are."""
    sim.write("a.jsonl", file(run(config={f"k{number}": number for number in range(300)}, summary={"x": "y" * 2000})))
    found = status(sim).run
    assert found is not None
    assert (len(found.config), found.config_keys, found.summary) == (100, 300, {"x": None})


def test_the_step_is_where_the_job_is(sim: Simulation) -> None:
    """A rank that went back to a checkpoint is at the step that it does again, whatever rows there are behind it."""
    sim.write("a.jsonl", file(*(line for step in range(6) for line in (log(step, loss=step), barrier(step))), id="a"))
    assert status(sim).actors[0].step == 5
    sim.write("a.jsonl", more({"kind": "rollback", "step": 2}, log(2, loss=9), barrier(2)))
    assert status(sim).actors[0].step == 2
    sim.write("a.jsonl", more(*(line for step in range(3, 8) for line in (log(step, loss=9), barrier(step)))))
    assert status(sim).actors[0].step == 7
