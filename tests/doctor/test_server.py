"""What is found out about W&B's server: by requests to a server on this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rlship_sidecar.doctor import server
from rlship_sidecar.sinks.contract import SinkRefused
from tests.loopback.backend import API_KEY, GRAPHQL, LoopbackBackend, isolated


@pytest.fixture
def backend() -> Iterator[LoopbackBackend]:
    """A W&B server."""
    with LoopbackBackend() as one:
        yield one


def test_a_key_that_the_server_takes(tmp_path: Path, backend: LoopbackBackend) -> None:
    """One question is asked, and makes no run."""
    found = server.look({}, backend.environment(tmp_path))
    assert (found.address, found.key, found.trouble, found.is_rejected) == (backend.url, "WANDB_API_KEY", "", False)
    assert len(backend.sent(GRAPHQL)) == 1 and not backend.runs


def test_a_key_that_the_server_does_not_take(tmp_path: Path, backend: LoopbackBackend) -> None:
    """The answer 401 is the server's, not trouble on the way."""
    found = server.look({}, {**backend.environment(tmp_path), "WANDB_API_KEY": "f" * 40})
    assert (found.trouble, found.is_rejected) == ("", True)


def test_the_other_sources_of_a_key(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A file that a variable names, and the entry of the server's host in a netrc."""
    plain = {**isolated(tmp_path), "WANDB_BASE_URL": backend.url}
    file = tmp_path / "key"
    file.write_text(API_KEY + "\n")
    found = server.look({}, {**plain, "WANDB_API_KEY_FILE": str(file)})
    assert (found.key, found.is_rejected) == ("WANDB_API_KEY_FILE", False)
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine elsewhere login user password x\nmachine 127.0.0.1 login user password {API_KEY}\n")
    netrc.chmod(0o600)
    found = server.look({}, plain)
    assert (found.key, found.trouble, found.is_rejected) == (str(netrc), "", False)
    netrc.write_text("machine elsewhere login user password x\n")
    assert server.look({}, plain).key == ""


def test_the_settings_of_the_sink_win(tmp_path: Path, backend: LoopbackBackend) -> None:
    """`base_url` and `mode` count before the variables; offline asks no server, and `disabled` is refused."""
    env = {**backend.environment(tmp_path), "WANDB_BASE_URL": "http://127.0.0.1:1"}
    assert server.look({"base_url": backend.url}, env).trouble == ""
    before = len(backend.sent(GRAPHQL))
    assert server.look({"base_url": backend.url, "mode": "offline"}, env).mode == "offline"
    assert server.look({"base_url": backend.url}, {**env, "WANDB_MODE": "dryrun"}).mode == "offline"
    assert len(backend.sent(GRAPHQL)) == before
    with pytest.raises(SinkRefused, match="disabled"):
        server.look({}, {**env, "WANDB_MODE": "disabled"})


def test_a_server_that_is_not_there(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A closed port is trouble, and says why."""
    backend.down()
    assert "refused" in server.look({}, backend.environment(tmp_path)).trouble


def test_a_server_that_hangs_costs_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the connection and says nothing is given up."""
    monkeypatch.setattr(server, "ANSWERS_WITHIN_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {**isolated(tmp_path), "WANDB_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        began = time.monotonic()
        found = server.look({}, {**env, "WANDB_API_KEY": API_KEY})
    assert found.trouble and time.monotonic() - began < 3


def test_the_key_follows_no_redirection(tmp_path: Path, backend: LoopbackBackend) -> None:
    """A server that sends the question elsewhere gives no answer, and the other place gets no key."""

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(302)
            self.send_header("Location", f"{backend.url}/graphql")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as moved:
        thread = threading.Thread(target=moved.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{moved.server_port}"
            found = server.look({}, {**backend.environment(tmp_path), "WANDB_BASE_URL": address})
        finally:
            moved.shutdown()
            thread.join()
    assert found.trouble == "HTTP 302 Found"
    assert not backend.sent(GRAPHQL)
