"""What cannot be shown is said, with the way out, and the server goes on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.guards.tree import ROOT
from tests.kit.files import experiment, file, log, sample
from tests.kit.verbs import run_here
from tests.kit.waiting import wait_until
from tests.tabular.stores import row, store
from tests.view.serving import serving, until


def refused(folder: Path, *arguments: object) -> tuple[int, str]:
    done = run_here("view", "--no-open", *arguments, cwd=folder, env={"HOME": str(folder)})
    return done.returncode, done.stderr


def test_what_is_no_experiment_is_refused_at_the_start(tmp_path: Path) -> None:
    """A folder without experiments, or not there; a port in use; a name that no host has: exit codes 1 and 2."""
    code, said = refused(tmp_path, tmp_path)
    assert code == 1 and "no experiment in" in said
    code, said = refused(tmp_path, tmp_path / "nowhere")
    assert code == 1 and "there is no folder" in said
    store(tmp_path / "run", [row(0)]).close()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = refused(tmp_path, "--port", taken.getsockname()[1], "run")
    assert code == 1 and "is in use" in said and "--port 0" in said
    code, said = refused(tmp_path, "--host", "203.0.113.1", "run")
    assert code == 1 and "--host takes an address of this machine" in said
    code, said = refused(tmp_path, "--allow-host", "http://x", "run")
    assert code == 2 and "no name of a host" in said


def test_the_link_is_all_that_is_printed_and_a_signal_ends_it(tmp_path: Path) -> None:
    """One line, whose token works; standard error says how to end the page and to reach it. With an open stream too
    the process ends at once, with exit code 0, and soon with a page that takes none of what it asked for.
    """
    store(tmp_path / "run", [row(0)]).close()
    samples = [sample(1.0, step=0, row={"response": "x" * 190_000}) for _ in range(60)]
    experiment(tmp_path / "run", {"a.jsonl": file(*samples)})  # more than a connection holds unread
    command = [sys.executable, "-m", "rlship", "view", "--no-open", "--port", "0", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        base, _, token = process.stdout.readline().strip().partition("/#token=")
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=base, headers=headers, timeout=60.0) as http:
            assert http.get("/api/experiments").json()["single"]
            large = f"/api/e/{http.get('/api/experiments').json()['experiments'][0]['id']}/rollouts?step=0"
            host, _, port = base.removeprefix("http://").partition(":")
            with http.stream("GET", "/api/live") as stream, socket.create_connection((host, int(port)), 60.0) as asleep:
                next(stream.iter_lines())
                asleep.sendall(
                    f"GET {large} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
                )
                asleep.recv(1)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60.0) == 0
        way = f"ssh -L {port}:localhost:{port} {socket.gethostname()}, then open this address"
        said = f"rlship: Ctrl-C ends the page; from another machine: {way}\n"
        assert (process.stdout.read(), process.stderr.read()) == ("", said)


def test_a_damaged_store_is_said_and_mended_under_an_open_page(tmp_path: Path) -> None:
    """The list has it as unreadable or its answers refuse; once there is a good store, the page goes on."""
    made = store(tmp_path / "run", [row(no) for no in range(3)])
    path = made.path
    with serving(tmp_path / "run") as client, client.events(f"{client.first}/live") as events:
        assert next(events)["row"] == 3
        made.close()
        path.write_bytes(b"SQLite format 3\0" + os.urandom(5000))
        trouble = until(events, "trouble")
        assert str(path) in trouble["error"] and trouble["hint"]
        answer = client.get(f"{client.first}/run")
        assert (answer.status_code, answer.json()["code"]) == (503, "store") and answer.json()["hint"]
        path.unlink()
        again = store_of(tmp_path / "run")
        assert until(events, "store")["store"] == again.store_id
        again.close()


def store_of(folder: Path) -> object:
    shutil.rmtree(folder / "rlship" / "state")  # the server may have a rollup there by now
    return store(folder, [row(0)])


def test_rows_that_no_sidecar_wrote_are_refused(tmp_path: Path) -> None:
    """Whatever stands in a row, the answer is a refusal that says how to go on."""
    made = store(tmp_path / "run", [row(0)])
    for no, body in enumerate((b"{", b"[]", b'{"row":1}', b'{"m":"x"}'), 1):
        made.at_once("insert into rows values (?, ?)", (no, body))
    with serving(tmp_path / "run") as client:
        answer = client.get(f"{client.first}/series")
        said = answer.json()
        assert answer.status_code == 503 and "rlship replay" in said["hint"]
        assert client.ask("/api/experiments")["experiments"]
    made.close()


def test_a_store_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `query` refuses it; with --state-dir a person says that it is to be read."""
    store(tmp_path / "run", [row(0)]).close()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr("rlship_sidecar.ownership.place._our_uid", lambda folder: 12345)
    monkeypatch.setattr("rlship_sidecar.ownership.place._TRUSTED", ())
    with serving(tmp_path / "run") as client:
        entry = client.ask("/api/experiments")["experiments"][0]
        assert entry["state"] == "unreadable" and "belongs to another user" in entry["note"]
        assert client.get(f"/api/e/{entry['id']}/metrics").status_code == 503


def test_an_experiment_that_goes_away_is_said(tmp_path: Path) -> None:
    """Its requests are refused, and the others are answered."""
    for name in ("a", "b"):
        store(tmp_path / name, [row(0)]).close()
    with serving(tmp_path) as client:
        a, b = (one["id"] for one in client.ask("/api/experiments")["experiments"])
        assert client.get(f"/api/e/{'0' * 12}/metrics").json()["code"] == "unknown"
        (tmp_path / "a").rename(tmp_path / ".hidden")
        wait_until(lambda: client.get(f"/api/e/{a}/metrics").status_code in (404, 503))
        assert client.ask(f"/api/e/{b}/metrics")["row"] == 1


def test_a_folder_with_links_is_not_followed(tmp_path: Path) -> None:
    """An experiment that is a link, or whose files are links, is left out and named."""
    store(tmp_path / "outputs" / "a", [row(0)]).close()
    experiment(tmp_path / "elsewhere", {"a.jsonl": file(log(0, secret=1.0))})
    os.symlink(tmp_path / "elsewhere", tmp_path / "outputs" / "linked")
    (tmp_path / "outputs" / "b").mkdir()
    os.symlink(tmp_path / "elsewhere" / "rlship", tmp_path / "outputs" / "b" / "rlship")
    with serving(tmp_path / "outputs") as client:
        listed = client.ask("/api/experiments")
        assert [one["name"] for one in listed["experiments"]] == ["a"]
        assert any("is a link" in why for why in listed["left_out"].values())
