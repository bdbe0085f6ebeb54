"""Where to go on in a run that the server has already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlship_sidecar.sinks.contract import SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.wandb import client as wandb_client
from rlship_sidecar.sinks.wandb import online as wandb_online
from rlship_sidecar.sinks.wandb.online import RemoteRun, Runs, ownership_error, read_run
from rlship_sidecar.sinks.wandb.protocol import Rejected
from tests.kit.clocks import Clock

ORDER = {"entity": None, "project": "p", "run_id": "r", "store_id": "s", "rows": 20, "scratch": "/nowhere"}


class Server:
    """Answers queries about a run with one state after the other; the last one stays. A state is (lines, last step) or
    (lines, last step, store); None is no such run.
    """

    def __init__(self, *states: tuple[Any, ...] | None) -> None:
        self.states = list(states)
        self.asked = 0

    def __call__(self, query: str, variables: Mapping[str, Any]) -> Any:
        self.asked += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state is None:
            return {"project": {"run": None}}
        lines, last, store = (*state, "s")[:3]
        config = {"store_id": {"value": store}}
        return {"project": {"run": {"historyLineCount": lines, "historyKeys": {"lastStep": last}, "config": config}}}


@dataclass
class Client:
    starting_step: int
    id: str = "r"
    project: str = "p"
    entity: str = "e"


def fresh(folder: Path) -> Runs:
    return Runs(folder, "http://server/e/p", "r")


def opens(monkeypatch: pytest.MonkeyPatch, starting_step: int) -> list[str]:
    """Let the client go on at that step; the list gets the ids of the runs it opens."""
    opened: list[str] = []

    def init(order: object, run_id: str, mode: str, root: str) -> Client:
        opened.append(run_id)
        return Client(starting_step, run_id)

    monkeypatch.setattr(wandb_client, "init", init)
    return opened


def never_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_client, "init", lambda *order: pytest.fail("the run was opened"))


def test_a_server_that_catches_up_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is opened once line count and last step agree, and goes on there; its id is remembered before."""
    server, clock = Server((8, 5), (8, 6), (8, 7)), Clock()
    opened = opens(monkeypatch, 8)

    run, remote = wandb_online.resume(ORDER, server, fresh(tmp_path), clock=clock, sleep=clock.sleep)
    assert run.starting_step == 8 and remote is not None and remote.lines == 8
    assert server.asked == 4 and clock.now == 1002.0
    assert opened == fresh(tmp_path).made == ["r"]


def test_a_server_that_never_agrees_with_itself_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded wait it is given up for now, before the client has opened the run."""
    never_opens(monkeypatch)

    clock = Clock()
    with pytest.raises(SinkUnavailable, match="8 history lines, but its last step is 5"):
        wandb_online.resume(ORDER, Server((8, 5)), fresh(tmp_path), clock=clock, sleep=clock.sleep)
    assert clock.now <= 1000.0 + wandb_online.SETTLE_S + 2.0
    assert fresh(tmp_path).made == []


@pytest.mark.parametrize("starting_step", [0, 7, 9])
def test_a_client_that_would_go_on_elsewhere_is_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting_step: int
) -> None:
    """Nothing is sent unless the client itself means to go on where the server's lines end."""
    opens(monkeypatch, starting_step)

    with pytest.raises(SinkUnavailable, match=f"8 as the number of rows .* {starting_step} as the step"):
        wandb_online.resume(ORDER, Server((8, 7)), fresh(tmp_path))


@pytest.mark.parametrize(
    ("order", "state", "message"),
    [
        ({"store_id": "ours"}, (8, 7), r"p/r holds 8 rows of another store \(s\).*set \[sink.wandb\] run_id"),
        ({"rows": 7}, (8, 7), r"p/r holds 8 rows, but the store has only 7.*delete that run"),
        ({}, (8, 7, None), "that no rlship store wrote"),
    ],
)
def test_a_run_that_is_not_ours_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: dict[str, Any], state: tuple[Any, ...], message: str
) -> None:
    """Another store's mark, or more rows than the store has: refused before the client could write anything there."""
    never_opens(monkeypatch)

    with pytest.raises(SinkRefused, match=message):
        wandb_online.resume({**ORDER, **order}, Server(state), fresh(tmp_path))


def test_two_stores_that_make_a_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both found no such run: the one whose mark was overwritten is refused, and so is one that finds rows in a run
    that it never made. In its own run, of which it was shown nothing, it waits.
    """
    opens(monkeypatch, 0)
    with pytest.raises(SinkRefused, match=r"another store \(t\)"):
        wandb_online.resume(ORDER, Server(None, (0, -1, "t")), fresh(tmp_path))
    (tmp_path / "wandb-runs.json").unlink()

    opens(monkeypatch, 3)
    with pytest.raises(SinkRefused, match="another program wrote 3 rows into the run p/r while"):
        wandb_online.resume(ORDER, Server(None, (3, 2)), fresh(tmp_path))
    with pytest.raises(SinkUnavailable, match="0 as the number of rows"):
        wandb_online.resume(ORDER, Server(None, (3, 2)), fresh(tmp_path))


def test_a_run_that_is_gone_is_made_again_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that the store made and the server does not know is written from row 0 and reported; a first one is not."""
    opens(monkeypatch, 0)
    order = {**ORDER, "offline_root": str(tmp_path)}

    assert wandb_online.open_run(order, Server(None, (0, -1)), fresh(tmp_path))[1:] == (0, [])
    _, held, notes = wandb_online.open_run(order, Server(None, (0, -1)), fresh(tmp_path))
    assert held == 0 and notes == ["the run p/r is gone from the server: all rows are sent again, from row 0"]
    assert wandb_online.open_run(order, Server((0, -1)), fresh(tmp_path))[1:] == (0, [])


def test_an_id_that_the_server_does_not_give_again_has_a_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id of a deleted run is lost for good: the next start opens a run with the next free one, and says so; later
    starts go on there.
    """
    order = {**ORDER, "offline_root": str(tmp_path)}
    opens(monkeypatch, 0)
    wandb_online.open_run(order, Server(None, (0, -1)), fresh(tmp_path))

    def taken(order: object, run_id: str, mode: str, root: str) -> Client:
        raise wandb_client.Deleted(f"HTTP 409: run {run_id} was previously created and deleted")

    monkeypatch.setattr(wandb_client, "init", taken)
    with pytest.raises(SinkReopen, match="r is followed by r-2"):
        wandb_online.open_run(order, Server(None), fresh(tmp_path))
    opened = opens(monkeypatch, 0)
    _, held, notes = wandb_online.open_run(order, Server(None, (0, -1)), fresh(tmp_path))
    assert opened == ["r-2"] and held == 0
    assert notes == [
        "the run p/r was deleted on the server, which does not give its id again: all rows are sent to a new run, r-2"
    ]
    opened = opens(monkeypatch, 5)
    assert wandb_online.open_run(order, Server((5, 4)), fresh(tmp_path))[1:] == (5, [])
    assert opened == ["r-2"] and fresh(tmp_path).made == ["r", "r-2"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("HTTP 409: run r was previously created and deleted; try a new run name", wandb_client.Deleted),
        ("HTTP 409: conflict", SinkUnavailable),
        ("HTTP 403: permission denied", Rejected),
        ("user is not logged in", Rejected),
        ("fault 403", Rejected),
        ("timed out", SinkUnavailable),
        ('Post "http://10.0.0.1:24031/graphql": connection refused', SinkUnavailable),
        ("dial tcp: lookup wandb-403.example: no such host", SinkUnavailable),
        ("bad gateway, request 9f401c2e", SinkUnavailable),
    ],
)
def test_what_a_failed_init_means(text: str, kind: type[Exception]) -> None:
    """The client gives no more than a text: a deleted run and a lack of rights are distinguished from an outage by
    it.
    """
    assert type(wandb_client._failed_init(text)) is kind


def test_what_an_authentication_error_means() -> None:
    """The client calls everything so that goes wrong while the key is checked: only a key that cannot be one is refused
    for good; a wandb-core that died at that moment is an outage.
    """
    error = Exception("An error occurred while verifying credentials with http://server:.")
    assert type(wandb_client._translated(error, None)) is SinkRefused
    for cause in (ConnectionResetError(), TimeoutError()):
        assert type(wandb_client._translated(error, cause)) is SinkUnavailable


def test_the_position_is_the_servers_and_watches_over_the_run(tmp_path: Path) -> None:
    """The number of rows at the server; another store's mark is refused at once, and a run that is not known any more
    makes the sink begin anew, but not before the server had some seconds to learn of it.
    """
    clock = Clock()
    states = [(3, 2), (3, 2, None), None, (4, 3), None, None, None, (5, 4, "t")]
    position = wandb_online.position_of(ORDER, Server(*states), Client(0), clock=clock)

    assert [position().rows for _ in range(4)] == [3, 3, 0, 4]
    assert position().rows == 0
    clock.sleep(wandb_online.GONE_S - 0.1)
    assert position().rows == 0
    clock.sleep(0.1)
    with pytest.raises(SinkReopen, match="p/r is gone"):
        position()
    with pytest.raises(SinkRefused, match=r"another store \(t\) has taken the run p/r over from this one \(s\)"):
        position()


def test_what_a_crash_leaves_of_the_notes_on_runs_is_no_obstacle(tmp_path: Path) -> None:
    """An empty or torn file is as good as none; other runs' notes are kept."""
    for torn in ("", '{"http'):
        (tmp_path / "wandb-runs.json").write_text(torn)
        assert fresh(tmp_path).current == "r"
    fresh(tmp_path).making()
    other = Runs(tmp_path, "http://server/e/other", "r")
    assert other.made == [] and other.replace() == "r"
    other.making()
    assert (fresh(tmp_path).made, fresh(tmp_path).replace()) == (["r"], "r-2")
    assert Runs(tmp_path, "http://server/e/other", "r").made == ["r"]


def answer(**run: Any) -> Any:
    return lambda query, variables: {"project": {"run": run}}


def test_what_a_server_says_of_a_run() -> None:
    """Lines, last step and store are read whether config and keys come as JSON text or as objects."""
    text = answer(historyLineCount=5, historyKeys='{"lastStep": 4}', config='{"store_id": {"value": "s"}}')
    objects = answer(historyLineCount=5, historyKeys={"lastStep": 4}, config={"store_id": {"value": "s"}})
    fresh = answer(historyLineCount=0, historyKeys=None, config=None)

    assert read_run(text, "e", "p", "r") == read_run(objects, "e", "p", "r") == RemoteRun(5, 5, "s")
    assert read_run(fresh, "e", "p", "r") == RemoteRun(0, 0, None)
    assert read_run(lambda query, variables: {"project": None}, "e", "p", "r") is None
    assert read_run(lambda query, variables: {"project": {"run": None}}, "e", "p", "r") is None


def test_which_runs_are_ours() -> None:
    """Ours, a new one, and an empty one without a mark may be continued; anything else is objected to by name."""
    assert ownership_error(None, "s", 5, "p/r") is None
    assert ownership_error(RemoteRun(5, 5, "s"), "s", 5, "p/r") is None
    assert ownership_error(RemoteRun(0, 0, None), "s", 5, "p/r") is None
    assert "another store (t)" in (ownership_error(RemoteRun(0, 0, "t"), "s", 5, "p/r") or "")
    assert "that no rlship store wrote" in (ownership_error(RemoteRun(5, 5, None), "s", 5, "p/r") or "")
    assert "6 rows, but the store has only 5" in (ownership_error(RemoteRun(6, 6, "s"), "s", 5, "p/r") or "")


def test_a_run_is_settled_when_lines_and_steps_agree() -> None:
    """Line number and `_step` are the same thing; where they differ, the server has not caught up."""
    assert RemoteRun(5, 5, "s").settled
    assert not RemoteRun(5, 7, "s").settled
