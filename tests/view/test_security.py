"""Who may ask the server, and what a hostile writer's bytes come to."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship_sidecar.view import answers, app, assets, punctual
from tests.kit.files import CLOSE, barrier, event, file, log, sample
from tests.view.serving import Client, serving, watched

EVIL = '<script>alert("\u202e\u0000")</script>'
LARGE = "x" * 900_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of an experiment with names and texts that are hostile, which is also known as node7.lab."""
    records = (
        log(0, **{"loss": 1.0, EVIL: 2.0}),
        event(EVIL, step=0, attrs={EVIL: LARGE}),
        sample(1.0, step=0, row={"prompt": EVIL, "response": LARGE, EVIL: [EVIL]}),
        {"kind": "run", "config": {EVIL: EVIL, "deep": [[[[EVIL]]]]}, "name": EVIL},
        barrier(0, 5.0),
        CLOSE,
    )
    made = watched(tmp_path_factory.mktemp("outputs") / "run", {"a.jsonl": file(*records, host=EVIL)})
    with serving(made, "node7.lab") as client:
        yield client


def raw(client: Client, lines: list[str]) -> tuple[int, dict[str, str], bytes]:
    """The answer to a request whose lines are sent as they are."""
    address, _, port = client.base.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(address, int(port), timeout=60)
    try:
        connection.connect()
        connection.sock.sendall(("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode("latin-1"))
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def refused(client: Client, headers: dict[str, str], path: str = "/api/experiments") -> tuple[int, str]:
    answer = client.http.get(path, headers=headers)
    return answer.status_code, answer.json()["code"]


def test_no_data_without_the_token(client: Client) -> None:
    """Each of these gets a refusal that says where the token is: none, a wrong one, another scheme, two at once."""
    token = client.token
    for said in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}, {"Authorization": token}):
        assert refused(client, said) == (401, "token")
    host = client.base.removeprefix("http://")
    twice = [f"Authorization: Bearer {token}"] * 2
    assert raw(client, ["GET /api/experiments HTTP/1.1", f"Host: {host}", *twice])[0] == 401
    assert len(token) >= 40
    assert client.get("/api/experiments").status_code == 200


def test_a_token_in_an_address_is_never_taken(client: Client) -> None:
    """Addresses end in logs and histories: even with the right header such a request is refused."""
    for path in (f"/api/experiments?token={client.token}", f"/?token={client.token}", "/api/live?access_token=x"):
        assert client.get(path).json()["code"] == "token"


def test_only_known_names_of_the_host_are_answered(client: Client) -> None:
    """Names of loopback with any port, so that `ssh -L` works, and those that were allowed. No name that leads here by
    DNS rebinding is among them.
    """
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]:8000", "node7.lab", "node7.lab.:80"):
        assert client.get("/api/experiments", {"Host": host}).status_code == 200, host
    for host in (
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8470",
        "localhost@evil",
        "",
        "[::2]",
    ):
        assert client.get("/api/experiments", {"Host": host}).json()["code"] == "host", host
        assert client.get("/", {"Host": host}).status_code == 403, host
    two = ["Host: localhost", "Host: evil.example"]
    assert raw(client, ["GET /api/experiments HTTP/1.1", *two, f"Authorization: Bearer {client.token}"])[0] in (
        400,
        403,
    )


def test_pages_of_other_sites_are_turned_away(client: Client) -> None:
    """By their Origin, also the one of a file or a sandbox, and by what the browser says of the request."""
    for origin in ("http://evil.example", "null", "https://127.0.0.1.evil.example", "http://localhost/x", "file://"):
        assert client.get("/api/experiments", {"Origin": origin}).json()["code"] == "origin", origin
    assert client.get("/api/experiments", {"Sec-Fetch-Site": "cross-site"}).json()["code"] == "origin"
    for origin in (client.base, "http://localhost:1", "http://node7.lab"):
        assert client.get("/api/experiments", {"Origin": origin}).status_code == 200, origin
    assert "access-control-allow-origin" not in client.get("/api/experiments", {"Origin": client.base}).headers


def test_it_only_reads(client: Client) -> None:
    """Any other method than GET and HEAD is refused."""
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = client.http.request(method, "/api/experiments", headers={"Authorization": f"Bearer {client.token}"})
        assert (answer.status_code, answer.json()["code"]) == (405, "method")


def test_the_head_of_a_stream_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEAD of a live stream is answered whole, so that the connection takes the next request; and no more streams are
    open than the bound, those of the list too.
    """
    for path in ("/api/live", f"{client.first}/live"):
        head = [f"HEAD {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {client.token}"]
        assert raw(client, head)[0] == 200
    monkeypatch.setattr(app, "MAX_SUBSCRIBERS", 1)
    with client.events("/api/live") as events:
        next(events)
        assert client.get("/api/live").json()["error"] == "1 pages are open already"


def test_it_leaves_the_experiment_as_it_is(tmp_path: Path) -> None:
    """Whatever is asked, no file of an experiment that a sidecar watched changes, and none appears beside them."""
    made = watched(
        tmp_path / "run", {"a.jsonl": file(log(0, loss=1.0), event("saved", step=0), barrier(0, 5.0), CLOSE)}
    )

    def files() -> dict[str, tuple[int, int]]:
        found = [path for path in made.rglob("*") if path.is_file()]
        return {os.fspath(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}

    before = files()
    with serving(made) as client:
        for name in answers.ANSWERS:
            path = f"{client.first}/{name}"
            client.get(path if name != "ranks" else f"{path}?m={client.ids()['trainer/loss']}")
        with client.events(f"{client.first}/live") as events:
            next(events)
    assert files() == before


def test_every_answer_binds_the_browser(client: Client) -> None:
    """No inline script, nothing from another host, no sniffing, no copy kept: on data, files and refusals alike."""
    for answer in (client.get("/api/experiments"), client.get("/nothing.js"), client.http.get("/api/experiments")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "http" not in policy
        kept = {"x-content-type-options": "nosniff", "cache-control": "no-store", "referrer-policy": "no-referrer"}
        assert {name: answer.headers[name] for name in kept} == kept


def test_no_path_leads_out_of_the_page(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither dots nor links nor other kinds of files: only plain files of the page's folder are sent."""
    page = tmp_path / "page"
    (page / "sub").mkdir(parents=True)
    (tmp_path / "secret.js").write_text("secret")
    (page / "index.html").write_text("<!doctype html>")
    (page / "notes.txt").write_text("secret")
    (page / ".hidden.js").write_text("secret")
    os.symlink(tmp_path / "secret.js", page / "link.js")
    os.symlink(tmp_path, page / "folder")
    os.mkfifo(page / "pipe.js")
    monkeypatch.setattr(assets, "FOLDER", page)
    assert client.http.get("/").text == "<!doctype html>"
    host = client.base.removeprefix("http://")
    for path in (
        *("/../secret.js", "/%2e%2e/secret.js", "/sub/..%2f..%2fsecret.js", "//etc/passwd", "/etc/passwd", "/link.js"),
        *(
            "/folder/secret.js",
            "/.hidden.js",
            "/notes.txt",
            "/pipe.js",
            "/sub",
            "/index.html%00.js",
            "/\\..\\secret.js",
        ),
    ):
        status, _, body = raw(client, [f"GET {path} HTTP/1.1", f"Host: {host}"])
        assert status == 404 and b"secret" not in body.replace(b"secret.js", b""), path
    for one in ("..", "%2e%2e", "run", "/", "%00"):
        assert client.get(f"/api/e/{one}/overview").status_code in (400, 404)


def test_hostile_names_and_texts_are_bounded_strings(client: Client) -> None:
    """They come as JSON strings, however long they are in the files: the page sets them as text."""
    path = client.first
    keys = [one["key"] for one in client.ask(f"{path}/metrics")["metrics"]]
    assert f"trainer/{EVIL}" in keys
    events = client.ask(f"{path}/events")["events"]
    assert events[0]["name"] == EVIL and len(events[0]["attrs"][EVIL]) == 4_000
    rollouts = client.ask(f"{path}/rollouts?step=0")["tables"][0]
    assert rollouts["samples"][0]["prompt"] == EVIL
    assert len(rollouts["samples"][0]["response"]) == 200_000
    said = {one["key"]: one["value"] for one in client.ask(f"{path}/run")["keys"]}
    assert said[EVIL] == EVIL and said["name"] == EVIL
    raw_text = client.get(f"{path}/events").text
    assert "\x00" not in raw_text and json.loads(raw_text)


def test_parameters_are_checked(client: Client) -> None:
    """A parameter that is unknown, given twice or no number is named with what is allowed."""
    path = client.first
    for query in ("points=1e9", "points=x", "from=9&to=1", "axis=evil", "nope=1", "points=1&points=2", "from=nan"):
        answer = client.get(f"{path}/series?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "parameter"), query
        assert answer.json()["error"]
    assert client.get(f"{path}/series?m={'a,' * 20_000}").status_code in (400, 414)


def test_a_request_that_does_not_arrive_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Connections on which the head of a request is never whole are closed, the first request or a later one, so that
    they take no other page's place. The others go on, and nothing of it is written to the terminal.
    """
    monkeypatch.setattr(punctual, "REQUEST_S", 0.2)
    address, _, port = client.base.removeprefix("http://").partition(":")
    whole = f"GET / HTTP/1.1\r\nHost: {address}:{port}\r\n\r\n".encode()
    for said in (b"", b"GET / HTTP/1.1\r\nHost:", whole + b"GET /", b"no request\r\n\r\n"):
        with socket.create_connection((address, int(port)), 60.0) as connection:
            connection.sendall(said)
            while connection.recv(65536):
                pass
    with client.events("/api/live") as events:
        next(events)
        assert client.get("/api/experiments").status_code == 200
    assert capfd.readouterr() == ("", "")
