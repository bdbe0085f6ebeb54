"""Whether the loop counts as alive and as ready."""

from __future__ import annotations

from rlship_sidecar.observe.notify import Notifier
from rlship_sidecar.observe.pulse import STALLED_S, LoopSnapshot, Pulse
from rlship_sidecar.report.headline import headline
from rlship_sidecar.tally import OWN_ACTOR
from tests.cli.sample import a_sink, a_status, an_actor
from tests.kit.clocks import Clock


def test_alive_is_a_loop_that_goes_round() -> None:
    """A loop that has not gone round for too long is unhealthy; before its first round it is starting."""
    clock = Clock()
    pulse = Pulse(clock=clock)
    clock.now += 10 * STALLED_S
    assert pulse.unhealthy() == ""
    pulse.beat()
    clock.now += STALLED_S
    assert pulse.unhealthy() == ""
    clock.now += 1.0
    assert pulse.unhealthy() == "the loop last completed a round 121 s ago; 120 s are allowed"
    pulse.beat()
    assert pulse.unhealthy() == ""


def test_ready_is_a_loop_with_its_stores_open() -> None:
    """It is ready from the first round on, without an experiment and with a sink that cannot be reached; not with an
    experiment that it cannot work on, nor once it was told to stop.
    """
    pulse = Pulse()
    assert pulse.unready() == "starting"
    pulse.beat()
    assert pulse.unready() == ""
    pulse.report(LoopSnapshot([a_status(sinks=[a_sink(state="waiting", error="no route", trouble_s=900.0)])]))
    assert pulse.unready() == ""
    pulse.report(LoopSnapshot([a_status()], (), ["cannot keep the state of /x in /x/rlship/state: disk full"]))
    assert pulse.unready() == "cannot keep the state of /x in /x/rlship/state: disk full"
    pulse.report(LoopSnapshot([a_status()]))
    assert pulse.unready() == ""
    pulse.stopping()
    assert pulse.unready() == "stopping"
    assert pulse.unhealthy() == ""


def test_what_is_said_in_its_life() -> None:
    """READY once, at the first round; each status as it changes; STOPPING once, and the status says so too."""
    said: list[str] = []
    heard: list[bool] = []

    def send(text: str, wait_s: float = 0.0) -> bool:
        said.append(text)
        return True

    pulse = Pulse(Notifier(send), [lambda pulse, last: heard.append(last)])
    pulse.beat()
    pulse.beat()
    pulse.report(LoopSnapshot())
    pulse.report(LoopSnapshot([a_status()]))
    pulse.stopping()
    pulse.stopping()
    pulse.report(LoopSnapshot([a_status()]), last=True)
    assert said == [
        "READY=1",
        "STATUS=no experiment yet",
        "STATUS=step 12, 4/4 ranks, lag 0.8 s",
        "STOPPING=1",
        "STATUS=stopping: step 12, 4/4 ranks, lag 0.8 s",
    ]
    assert heard == [False, False, True]


def test_the_headline_is_of_the_lead_of_the_liveliest_experiment() -> None:
    """Of several experiments it names the one with most rows; its lead's step, ranks that are missing, sinks in trouble
    and lost lines are in it; a control character in a name is not.
    """
    lead = an_actor(step=1204, ranks_seen=64, ranks_expected=64, missing=["0.3-4"], lag_s=0.8)
    own = an_actor(actor=OWN_ACTOR, step=None, ranks_seen=1, ranks_expected=1)
    busy = a_status(
        experiment="/outputs/grpo\x1b[2J",
        rows=999,
        lead="trainer",
        actors=[own, an_actor(actor="a", step=9000), lead],
        sinks=[a_sink(state="waiting")],
        dead_letter_count=2,
    )
    assert headline([a_status(), busy], suspended=1) == (
        "grpo\\x1b[2J: step 1204, 62/64 ranks, 2 missing, lag 0.8 s; sink wandb waiting; 2 dead letters and values; "
        "1 more; 1 is left out for now"
    )


def test_the_headline_without_a_lead_or_steps() -> None:
    """The actor that is furthest speaks for the experiment; one without steps is named; without any it says so."""
    stream = an_actor(actor="generator", step=None, ranks_seen=2, ranks_expected=2, lag_s=0.0)
    assert headline([a_status(actors=[stream, an_actor()])]) == "step 12, 4/4 ranks, lag 0.8 s"
    assert headline([a_status(actors=[stream])]) == "generator, 120 rows, 2/2 ranks, lag 0.0 s"
    assert headline([a_status(actors=[], rows=0)]) == "no lines yet, 0 rows"
