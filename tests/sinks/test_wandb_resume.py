"""Where to go on in a run that the server has already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rlship_sidecar.sinks import wandb_child
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from tests.sinks.fakes import Clock

ORDER = {"entity": None, "project": "p", "run_id": "r", "store_id": "s", "online_root": "/nowhere"}


class Server:
    """Answers queries about a run with one state after the other; the last one stays."""

    def __init__(self, *states: tuple[int, int]) -> None:
        self.states = list(states)
        self.asked = 0

    def __call__(self, query: str, variables: Mapping[str, Any]) -> Any:
        self.asked += 1
        lines, last = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        keys = {"lastStep": last}
        return {
            "project": {"run": {"historyLineCount": lines, "historyKeys": keys, "config": {"store_id": {"value": "s"}}}}
        }


class Client:
    def __init__(self, starting_step: int) -> None:
        self.starting_step = starting_step


def test_a_server_that_catches_up_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is opened once line count and last step agree, and goes on there."""
    server, clock = Server((8, 5), (8, 6), (8, 7)), Clock()
    monkeypatch.setattr(wandb_child, "_init", lambda order, mode, root: Client(8))

    assert wandb_child._resume(ORDER, server, clock=clock, sleep=clock.sleep)[1] == 8
    assert server.asked == 3 and clock.now == 1002.0


def test_a_server_that_never_agrees_with_itself_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded wait it is given up for now, before the client has opened the run."""
    monkeypatch.setattr(wandb_child, "_init", lambda order, mode, root: pytest.fail("the run was opened"))

    clock = Clock()
    with pytest.raises(SinkUnavailable, match="8 history lines, but its last step is 5"):
        wandb_child._resume(ORDER, Server((8, 5)), clock=clock, sleep=clock.sleep)
    assert clock.now <= 1000.0 + wandb_child.SETTLE_S + 2.0


@pytest.mark.parametrize("starting_step", [0, 7, 9])
def test_a_client_that_would_go_on_elsewhere_is_an_outage(monkeypatch: pytest.MonkeyPatch, starting_step: int) -> None:
    """Nothing is sent unless the client itself means to go on where the server's lines end."""
    monkeypatch.setattr(wandb_child, "_init", lambda order, mode, root: Client(starting_step))

    with pytest.raises(SinkUnavailable, match=f"8 as the number of rows .* {starting_step} as the step"):
        wandb_child._resume(ORDER, Server((8, 7)))


def test_a_strangers_run_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's mark is checked before the client could write its own over it."""
    monkeypatch.setattr(wandb_child, "_init", lambda order, mode, root: pytest.fail("the run was opened"))

    with pytest.raises(SinkRefused, match="p/r holds 8 rows of another store"):
        wandb_child._resume({**ORDER, "store_id": "ours"}, Server((8, 7)))
