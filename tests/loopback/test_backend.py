"""The loopback server itself: faults do what their names say."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tests.loopback.backend import API_KEY, GRAPHQL, LoopbackBackend

UPSERT = "mutation UpsertBucket($name: String) { upsertBucket { bucket { id } } }"
STATUS = "query RunResumeStatus($name: String!) { model { bucket { id } } }"


@pytest.fixture
def backend() -> Iterator[LoopbackBackend]:
    """A server with one empty run, `r` in project `p`."""
    with LoopbackBackend() as server:
        config = json.dumps({"store_id": {"value": "s"}, "_wandb": {"value": {"t": {"1": [1]}}}})
        status, _, _ = post(
            server, "/graphql", {"query": UPSERT, "variables": {"name": "r", "project": "p", "config": config}}
        )
        assert status == 200
        yield server


def post(backend: LoopbackBackend, path: str, body: Any, key: str = API_KEY) -> tuple[int, dict[str, str], Any]:
    connection = http.client.HTTPConnection(backend.url.removeprefix("http://"), timeout=5)
    try:
        token = base64.b64encode(f"api:{key}".encode()).decode()
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Basic {token}"})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), json.loads(response.read() or b"null")
    finally:
        connection.close()


def send(backend: LoopbackBackend, offset: int, *steps: int) -> tuple[int, dict[str, str], Any]:
    lines = [json.dumps({"_step": step}) for step in steps]
    return post(
        backend,
        "/files/loopback/p/r/file_stream",
        {"files": {"wandb-history.jsonl": {"offset": offset, "content": lines}}},
    )


def describe(backend: LoopbackBackend) -> Any:
    _, _, answer = post(backend, "/graphql", {"query": STATUS, "variables": {"name": "r", "project": "p"}})
    return answer["data"]["model"]["bucket"]


def test_lines_are_kept_by_offset(backend: LoopbackBackend) -> None:
    """A line sent again is counted, one with another text is remembered, one that never came is an error."""
    send(backend, 0, 0, 1)
    send(backend, 1, 1, 2)
    send(backend, 2, 9)
    run = backend.run("p", "r")
    assert run.steps() == [0, 1, 9]
    assert run.resent == 1 and run.rewritten == [(2, '{"_step": 2}', '{"_step": 9}')]

    send(backend, 4, 4)
    with pytest.raises(AssertionError, match=r"lines \[3\]"):
        run.steps()


def test_a_resuming_client_is_told_where_the_run_ends(backend: LoopbackBackend) -> None:
    """Line count, tail, config and telemetry mark; with `stale_lines` those of a moment before."""
    send(backend, 0, 0, 1, 2)
    bucket = describe(backend)
    assert bucket["historyLineCount"] == 3 and json.loads(bucket["historyTail"]) == ['{"_step": 2}']
    assert bucket["historyKeys"]["lastStep"] == 2 and json.loads(bucket["wandbConfig"]) == {"t": {"1": [1]}}
    backend.stale_lines = 2
    assert describe(backend)["historyKeys"]["lastStep"] == 0


def test_failures_are_not_applied_and_end_by_their_number(backend: LoopbackBackend) -> None:
    """`fail` answers so many requests with its status and header, then the server is well."""
    backend.fail(429, 2, retry_after_s=3)
    answers = [send(backend, 0, 0) for _ in range(3)]

    assert [status for status, _, _ in answers] == [429, 429, 200]
    assert answers[0][1]["Retry-After"] == "3" and "Retry-After" not in answers[2][1]
    assert backend.run("p", "r").steps() == [0]
    assert [(request.status, request.lines) for request in backend.sent("file_stream")] == [
        (429, (0, 1)),
        (429, (0, 1)),
        (200, (0, 1)),
    ]


def test_failures_can_be_limited_to_an_operation(backend: LoopbackBackend) -> None:
    """Other GraphQL operations go on."""
    backend.fail(403, None, endpoint=GRAPHQL, operation="UpsertBucket")

    assert post(backend, "/graphql", {"query": UPSERT, "variables": {"name": "x"}})[0] == 403
    assert describe(backend)["name"] == "r"


def test_a_cut_reply_is_applied(backend: LoopbackBackend) -> None:
    """The client sees a broken connection, the server has the rows."""
    backend.cut_reply()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        send(backend, 0, 0)

    assert backend.run("p", "r").steps() == [0]
    assert send(backend, 1, 1)[0] == 200


def test_a_hang_holds_and_applies_nothing(backend: LoopbackBackend) -> None:
    """A hanging request waits until `heal` and is then cut."""
    backend.hang(30.0)
    failed = threading.Event()

    def attempt() -> None:
        try:
            send(backend, 0, 0)
        except (http.client.HTTPException, ConnectionError):
            failed.set()

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_until(lambda: len(backend.sent("file_stream")) == 1)
    time.sleep(0.1)
    assert not failed.is_set()
    backend.heal()
    thread.join(5.0)

    assert failed.is_set() and backend.run("p", "r").history == []


def test_down_refuses_and_up_serves_on_the_same_port(backend: LoopbackBackend) -> None:
    """What was taken before is still there after."""
    send(backend, 0, 0)
    url = backend.url
    backend.down()
    with pytest.raises(ConnectionError):
        send(backend, 1, 1)
    backend.up()

    assert backend.url == url and send(backend, 1, 1)[0] == 200
    assert backend.run("p", "r").steps() == [0, 1]


def test_another_key_is_not_let_in(backend: LoopbackBackend) -> None:
    """401, and nothing applied."""
    assert post(backend, "/graphql", {"query": UPSERT, "variables": {"name": "x"}}, key="other")[0] == 401
    assert ("loopback/uncategorized", "x") not in backend.runs


def test_the_same_row_of_another_client_is_no_other_row(backend: LoopbackBackend) -> None:
    """`overwritten` passes over lines in which only the client's clock differs."""
    run = backend.run("p", "r")
    for line in ('{"_step": 0, "_runtime": 1}', '{"_step": 0, "_runtime": 2}', '{"_step": 0, "_runtime": 2, "x": 1}'):
        run.take({"files": {"wandb-history.jsonl": {"offset": 0, "content": [line]}}})

    assert len(run.rewritten) == 2
    assert run.overwritten() == [(0, '{"_step": 0, "_runtime": 2}', '{"_step": 0, "_runtime": 2, "x": 1}')]


def test_a_deleted_run_is_gone_and_its_id_is_taken(backend: LoopbackBackend) -> None:
    """No client finds it, its history is refused, and a new one of that id too; another id is as free as ever."""
    send(backend, 0, 0)
    assert backend.delete_run("p", "r").steps() == [0]
    other = {"query": UPSERT, "variables": {"name": "other", "project": "p"}}
    assert post(backend, "/graphql", other)[0] == 200

    assert describe(backend) is None and send(backend, 1, 1)[0] == 404
    status, _, body = post(backend, "/graphql", {"query": UPSERT, "variables": {"name": "r", "project": "p"}})
    assert status == 409 and "previously created and deleted" in body["errors"][0]["message"]


def test_a_deleted_project_can_be_made_again(backend: LoopbackBackend) -> None:
    """Its runs are gone, and ids are free."""
    backend.delete_project("p")
    _, _, answer = post(backend, "/graphql", {"query": STATUS, "variables": {"name": "r", "project": "p"}})
    assert answer["data"]["model"] is None

    assert post(backend, "/graphql", {"query": UPSERT, "variables": {"name": "r", "project": "p"}})[0] == 200
    assert describe(backend)["historyLineCount"] == 0


def test_views_are_made_replaced_and_given_by_the_page(backend: LoopbackBackend) -> None:
    """A mutation without an id makes a view, one with an id replaces it; an unknown project or id is an error."""
    upsert = "mutation UpsertView2($id: ID) { upsertView { view { id } } }"
    views = "query RlshipViews($project: String!) { project { name } }"

    def ask(query: str, **variables: Any) -> Any:
        return post(backend, "/graphql", {"query": query, "variables": variables})[2]

    about = {"project": "p", "displayName": "d", "description": "why", "spec": "{}"}
    made = [ask(upsert, name=f"nw-{number}-v", **about)["data"]["upsertView"] for number in range(3)]
    assert [one["inserted"] for one in made] == [True] * 3
    again = ask(upsert, id=made[0]["view"]["id"], name="nw-0-v", **{**about, "displayName": "e"})["data"]["upsertView"]
    assert (again["inserted"], again["view"], backend.views.titles()) == (False, made[0]["view"], ["d", "d", "e"])
    for wrong in ({"id": "none"}, {"project": "q"}):
        assert "not found" in ask(upsert, **{"name": "n", **about, **wrong})["errors"][0]["message"]

    first = ask(views, project="p", first=2)["data"]["project"]
    assert [edge["node"]["name"] for edge in first["allViews"]["edges"]] == ["nw-0-v", "nw-1-v"]
    page = first["allViews"]["pageInfo"]
    (rest,) = ask(views, project="p", first=2, after=page["endCursor"])["data"]["project"]["allViews"]["edges"]
    assert page["hasNextPage"] and rest["node"]["name"] == "nw-2-v" and rest["node"]["description"] == "why"
    assert ask(views, project="q", first=2)["data"]["project"] is None
