"""How the child learns how far its rows have come, with a server in the test's hands."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb import child as wandb_child
from rlship_sidecar.sinks.wandb.child import Acknowledgements, Destination
from rlship_sidecar.sinks.wandb.online import Held
from rlship_sidecar.sinks.wandb.protocol import FromChild, LastWord, ParentPipe, Rejected
from rlship_sidecar.sinks.wandb.told import PROOF_S, Proof
from tests.kit.waiting import wait_until


class Said(ParentPipe):
    """Keeps what is said instead of sending it; after the last word the thread stands still, as the process would."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.messages: list[FromChild] = []
        self.last: dict[str, object] = {}

    def send(self, message: FromChild) -> None:
        self.messages.append(message)

    def end(self, word: LastWord) -> None:  # type: ignore[override]
        self.last = dict(word)
        threading.Event().wait()


def server(position: Callable[[], Held]) -> Destination:
    """A destination of which nothing was told beside rows."""
    return Destination(position, lambda: pytest.fail("asked for the summary"), Proof())


def ask(position: Callable[[], int], *, logged: int = 5, stall_s: float = 60.0) -> Said:
    """A flush that waits for `logged` rows of a run that began at row 0."""
    said = Said()
    acknowledgements = Acknowledgements(said, server(lambda: Held(position(), "")), 0, stall_s)
    acknowledgements.logged(logged)
    acknowledgements.hurry(1)
    return said


def test_progress_is_told_and_never_more_than_was_sent() -> None:
    """Each step forward is reported, one back is not, and rows that another client sent do not count as ours."""
    answers = [2, 1, 4, 9]
    said = ask(lambda: answers.pop(0) if len(answers) > 1 else answers[0])

    wait_until(lambda: {"acked": 5, "described": "", "settled": 1} in said.messages)
    assert [message["acked"] for message in said.messages if "acked" in message][:3] == [2, 4, 5]
    assert said.last == {}


def test_a_flush_of_rows_that_arrived_long_ago_is_answered() -> None:
    """Nothing is on its way: the answer comes without a question to the server."""
    said = Said()
    acknowledgements = Acknowledgements(said, server(lambda: pytest.fail("asked")), 7, 60.0)
    acknowledgements.hurry(1)
    wait_until(lambda: said.messages == [{"acked": 7, "described": "", "settled": 1}])


def test_the_run_data_are_awaited_like_rows() -> None:
    """Until the server shows them: those of before do not count, and a flush without news is answered."""
    answers = [Held(5, ""), Held(5, "old"), Held(5, "new")]
    said = Said()
    acknowledgements = Acknowledgements(
        said, server(lambda: answers.pop(0) if len(answers) > 1 else answers[0]), 5, 60.0
    )
    acknowledgements.described("new")
    acknowledgements.hurry(1)
    wait_until(lambda: {"acked": 5, "described": "new", "settled": 1} in said.messages)
    assert answers == [Held(5, "new")]
    assert all(message.get("described", "") in ("", "new") for message in said.messages)


def test_a_flush_waits_until_the_server_shows_the_summary() -> None:
    """The rows are acknowledged before; the flush is answered once the summary is as it was told."""
    proof, said, shown = Proof(), Said(), {"loss": 0.5}
    acknowledgements = Acknowledgements(said, Destination(lambda: Held(1, ""), lambda: shown, proof), 0, 60.0)
    proof.expect({"loss": 42.0})
    acknowledgements.logged(1)
    acknowledgements.hurry(1)
    wait_until(lambda: {"acked": 1, "described": "", "settled": 0} in said.messages)
    assert {"acked": 1, "described": "", "settled": 1} not in said.messages
    shown["loss"] = 42.0
    wait_until(lambda: {"acked": 1, "described": "", "settled": 1} in said.messages)


def test_a_value_that_the_server_never_shows_does_not_hold_rows_back() -> None:
    """It is given up after a while, and for good. One that a line displaced since is not awaited either."""
    now = [0.0]
    proof = Proof(lambda: now[0])
    proof.expect({"refused": 1.0, "displaced": 2.0, "rounded": 0.1})
    proof.forget(["displaced"])
    proof.look({"rounded": 0.1 * (1 + 1e-15)})
    assert not proof.is_complete
    now[0] = PROOF_S + 1.0
    proof.look({})
    assert proof.is_complete
    proof.expect({"refused": 3.0})
    assert proof.is_complete


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        (Rejected("key"), "rejected"),
        (SinkRefused("mark"), "refused"),
        (SinkReopen("gone"), "reopen"),
        (ZeroDivisionError("bug"), "unavailable"),
    ],
)
def test_what_ends_the_child(problem: Exception, word: str) -> None:
    """Each kind of end has its own last word, also an unforeseen one."""

    def position() -> int:
        raise problem

    said = ask(position)
    wait_until(lambda: said.last != {})
    assert list(said.last) == [word] and str(problem) in str(said.last[word])


def test_an_outage_is_told_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is reported, and is no stall however long it lasts; an answer ends the trouble."""
    monkeypatch.setattr(wandb_child, "ACK_FAST_MAX_S", 0.05)
    down = threading.Event()
    down.set()

    def position() -> int:
        if down.is_set():
            raise SinkUnavailable("no answer")
        return 0

    said = ask(position, stall_s=0.3)
    wait_until(lambda: said.messages.count({"trouble": "no answer"}) >= 10)
    assert said.last == {}
    down.clear()
    wait_until(lambda: {"trouble": ""} in said.messages)
    wait_until(lambda: said.last != {})
    assert "the server answers, but took nothing for 0.3 s" in str(said.last["unavailable"])


def test_a_client_that_never_answers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the server or the client hangs cannot be told apart: after some minutes a new client is tried."""
    monkeypatch.setattr(wandb_child, "ACK_FAST_MAX_S", 0.05)
    monkeypatch.setattr(wandb_child, "UNANSWERED_S", 0.3)

    def position() -> int:
        raise SinkUnavailable("busy")

    said = ask(position)
    wait_until(lambda: said.last != {})
    assert said.last == {"unavailable": "busy; no answer for 0.3 s"}
    assert len(said.messages) > 3
