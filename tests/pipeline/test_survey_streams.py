"""What the status says of actors that log without a step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlship_sidecar.align.units import StreamConfig
from rlship_sidecar.report.status import Status, StreamStatus
from rlship_sidecar.report.streams import over_time_only
from rlship_sidecar.report.survey import survey
from tests.pipeline.simulated import Simulation, simulation
from tests.reference.building import CLOSE, T0, barrier, event, file, log, stream


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with simulation() as made:
        yield made


def status(sim: Simulation) -> Status:
    sim.tick()
    return survey(sim.experiment, (), now=sim.now, wall=T0)


def lines(*times: float, replica: str = "0", end: bool = False) -> bytes:
    closing = [CLOSE] if end else []
    return file(*(stream(t, x=1) for t in times), *closing, actor="generator", replica=replica, id=f"g{replica}")


def found(sim: Simulation) -> StreamStatus:
    (one,) = status(sim).streams
    return one


def test_a_rank_that_died_is_named(sim: Simulation) -> None:
    """Once it was silent for `grace_s`, it is missing from the stream and from its actor, which has no steps to say it;
    the row that lacks it stands where charts have it.
    """
    sim.write("g0.jsonl", lines(1, 5))
    sim.write("g1.jsonl", lines(1, replica="1"))
    assert (found(sim).missing, found(sim).silent_s) == ([], 0.0)
    sim.wait(40)
    sim.write("g0.jsonl", b"".join(b'{"t":%.1f,"m":{"x":1}}\n' % (T0 + t) for t in (12, 25)))
    told = status(sim)
    assert [(actor.actor, actor.missing) for actor in told.actors] == [("generator", ["1.0"])]
    assert [(one.missing, one.silent_s) for one in told.streams] == [(["1.0"], 40.0)]
    assert [(one.kind, one.first_s, one.last_s) for one in told.lacking] == [("clock", 10.0, 10.0)]
    assert told.streams[0].elapsed_s == 20.0


def test_all_that_died_are_named(sim: Simulation) -> None:
    """Where no writer is left for a later row the silent ones are named all the same, and the closed ones are not."""
    for replica in range(4):
        sim.write(f"g{replica}.jsonl", lines(1, 5, replica=str(replica), end=replica == 3))
    status(sim)
    sim.wait(31)
    assert (found(sim).missing, found(sim).silent_s) == (["0.0", "1.0", "2.0"], 31.0)


def test_who_came_back_is_not_missing(sim: Simulation) -> None:
    """It is the newest attempt of a rank that is silent or not."""
    sim.write("g0.jsonl", lines(1, 5))
    status(sim)
    sim.wait(31)
    sim.write("again.jsonl", file(stream(7, x=1), actor="generator", attempt=1, id="again"))
    assert found(sim).missing == []


def test_a_lead_without_barriers_is_noted(sim: Simulation) -> None:
    """Nothing can stand beside its steps, and the note says what to call; with a barrier there is no note."""
    sim.write("a.jsonl", file(log(0, x=1), log(1, x=1), CLOSE))
    assert status(sim).notes == []
    sim.write("g0.jsonl", lines(1, 5))
    (note,) = status(sim).notes
    assert note.startswith("the lead trainer never called barrier()")
    assert "without policy_lag" in note
    sim.write("b.jsonl", file(barrier(1), rank=1, id="b"))
    assert status(sim).notes == []


@pytest.mark.parametrize("actor", ["trainer", "probe"])
def test_a_job_without_steps_is_noted(actor: str) -> None:
    """A hundred calls made two rows, and the note names the call that mends it; a step that is logged ends it."""
    with simulation() as sim:
        whole = file(*(stream(0.2 * number, x=1) for number in range(100)), actor=actor, world=1, beat=10)
        sim.write("a.jsonl", whole)
        sim.wait(61)
        sim.tick()
        sim.write("a.jsonl", b'{"t":%.1f,"m":{"x":1}}\n' % (T0 + 95))
        assert status(sim).rows == 2
        (note,) = status(sim).notes
        assert f"a row of {actor} holds all calls of 10 s" in note
        assert "if each call is a step, pass step= to log(), or count_steps=True to init()" in note
        sim.write("b.jsonl", file(log(0, x=1), barrier(0), CLOSE, actor=actor, rank=1, id="b"))
        assert not any("count_steps" in line for line in status(sim).notes)


def test_a_stream_beside_a_lead_with_steps_is_not_noted(sim: Simulation) -> None:
    """Generators have no steps on purpose."""
    sim.write("a.jsonl", file(log(0, x=1), barrier(0, 5.0), log(1, x=1), barrier(1, 30.0), CLOSE))
    sim.write("g0.jsonl", lines(1, 5, 25, 45, end=True))
    sim.finish()
    assert status(sim).notes == []


def test_what_was_logged_before_the_lead_opened_is_noted(sim: Simulation) -> None:
    """As where Ray starts generators first: their first rollouts are beside no step, and the note says for how long.
    What was logged beside an earlier life of the lead is not meant, and the note is there for a second submission, too.
    """
    steps = (log(0, x=1), barrier(0, 14.0), log(1, x=1), barrier(1, 16.0), CLOSE)
    sim.write("g.jsonl", lines(1, 5, 13, 15))
    sim.write("t.jsonl", file(*steps, t=T0 + 12))
    init = "To have it beside the first step, call init() in trainer before the others log"
    over_time = f"this is shown over time only, beside no step. {init}"
    assert status(sim).notes == [f"logged before trainer opened: generator for 11 s; {over_time}"]
    again = (log(1, x=2), barrier(1, 34.0), CLOSE)
    sim.write("t2.jsonl", file(*again, id="t2", t=T0 + 32, attempt=1))
    assert status(sim).notes == []
    sim.write("g2.jsonl", file(stream(27.5, x=1), actor="generator", id="g2", t=T0 + 27, attempt=1))
    assert status(sim).notes == [f"logged before trainer opened: generator for 4.5 s; {over_time}"]


def test_writers_of_streams_one_after_the_other(sim: Simulation) -> None:
    """What counts of two runs in one folder, the note says."""
    sim.write("t.jsonl", file(id="t"))
    sim.write("a.jsonl", lines(1))
    sim.write("b.jsonl", file(stream(25, x=1), actor="generator", id="b", t=T0 + 20))
    counts = "each one's values count up to the next one's start"
    assert status(sim).notes == [f"2 writers of generator/0/r0, one after the other: {counts}"]
    sim.write("c.jsonl", file(log(0, x=1), actor="generator", id="c", t=T0 + 30))
    assert status(sim).notes == [
        "3 writers of generator/0/r0, one after the other: of what has a step the last one's values count, of what has "
        "none each one's up to the next one's start"
    ]


def test_wrong_uses_are_noted(sim: Simulation) -> None:
    """What writers reported to the job is shown word for word and counted, also over a restart."""
    wrong = event("rlship_error", attrs={"where": "log", "error": "no"})
    sim.write("a.jsonl", file(wrong, event("other")))
    sim.write("b.jsonl", file(wrong, event("rlship_error"), rank=1, id="b"))
    for times in ({"log: no": T0}, {}):
        told = status(sim)
        assert told.misuse_t == times
        assert [note for note in told.notes if "report" in note] == [
            "reported to the job by 2 processes: log: no",
            "reported to the job in 1 more report: something else",
        ]
        assert told.counts == {"rlship_error": 3}
        assert told.misuse == {"log: no": 2}
        sim.restart()


@pytest.mark.parametrize("error", ["barrier: step='x' is not a step", "barrier(1) goes back behind barrier(2)"])
def test_a_wrong_use_names_its_call_once(sim: Simulation, error: str) -> None:
    """A message that begins with the call is shown as it is."""
    sim.write("a.jsonl", file(event("rlship_error", attrs={"where": "barrier", "error": error})))
    assert status(sim).misuse == {error: 1}


def test_only_so_many_wrong_uses_are_kept_by_their_text(sim: Simulation) -> None:
    """A job that makes another mistake at each step does not fill the store, and the count leaves out no mistake."""
    wrong = [event("rlship_error", attrs={"where": "log", "error": f"bad {i}"}) for i in range(30)]
    sim.write("a.jsonl", file(*wrong))
    for _ in range(2):
        told = status(sim)
        assert list(told.misuse.values()) == [1] * 20
        assert "reported to the job in 10 more reports: something else" in told.notes
        sim.restart()


def test_other_settings_of_streams_are_known(sim: Simulation) -> None:
    """A start with another lead or window knows the former ones, the next start with the same does not."""
    assert sim.experiment.streaming.made_with is None
    sim.write("g0.jsonl", lines(1, 25))
    sim.tick()
    sim.streams = StreamConfig("learner", 2.0)
    sim.restart()
    assert sim.experiment.streaming.made_with == ("trainer", 10.0)
    sim.tick()
    sim.restart()
    assert sim.experiment.streaming.made_with is None


def test_streams_stand_over_time_only_until_a_step_of_the_lead_ends(sim: Simulation) -> None:
    """Without a lead they do; a lead that has logged nothing yet may have a long first step; the first barrier gives
    aligned rows.
    """
    sim.write("g0.jsonl", lines(1, 5))
    sim.tick()
    assert over_time_only(sim.experiment)
    sim.write("t.jsonl", file(actor="trainer", id="t"))
    sim.tick()
    assert not over_time_only(sim.experiment)
    sim.write("t.jsonl", b'{"t":%.1f,"step":0,"m":{"loss":1}}\n' % (T0 + 6))
    sim.tick()
    assert not over_time_only(sim.experiment)
    sim.write("t.jsonl", b'{"kind":"barrier","t":%.1f,"step":0}\n' % (T0 + 7))
    sim.tick()
    assert not over_time_only(sim.experiment)


@pytest.mark.parametrize("kind", ["streams", "steps without barriers"])
def test_a_lead_without_ends_of_steps_leaves_streams_over_time(sim: Simulation, kind: str) -> None:
    """It logs without a step itself, or never calls `barrier`."""
    logged = [stream(1, x=1)] if kind == "streams" else [log(step, loss=1) for step in range(3)]
    sim.write("g0.jsonl", lines(1, 5))
    sim.write("t.jsonl", file(*logged, CLOSE, actor="trainer", id="t"))
    sim.tick()
    sim.wait(1)
    sim.tick()
    assert over_time_only(sim.experiment)
