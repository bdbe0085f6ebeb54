"""A key but no network: what holds the rows back is named soon, with what to do about it."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlship_sidecar.sinks.ship import TroubleWatch
from rlship_sidecar.sinks.wandb import client
from tests.endtoend.sidecar import RLSHIP, environment
from tests.kit.cases import long
from tests.kit.files import CLOSE, barrier, experiment, file, log

KEY = "0123456789" * 4
NAMED_WITHIN_S = 10.0


@contextmanager
def no_server(kind: str) -> Iterator[str]:
    """The address of a server that is not there: its port is closed, or it takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if kind == "black hole":
            listening.listen(100)
        yield address


@pytest.mark.parametrize("kind", [*long("closed port"), "black hole"])
def test_what_holds_rows_back_is_named(tmp_path: Path, kind: str) -> None:
    """`watch --once` with the real client says within 10 s of its start to deliver that no server answers, and names
    `mode=offline`. It ends with 1, and its last words have the reason.
    """
    home, job = tmp_path / "home", tmp_path / "job"
    home.mkdir()
    experiment(job, {"a.jsonl": file(log(0, loss=1.0), barrier(0, 1.0), CLOSE, world=1)})
    (job / "rlship.toml").write_text("drain_s = 12\n")
    with no_server(kind) as address:
        settings = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": address}
        command = [*RLSHIP, "watch", str(job), "--once", "--no-table", "--sink", "wandb"]
        process = subprocess.Popen(
            command, env=environment(home, settings), stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        guard = threading.Timer(90.0, process.kill)
        guard.start()
        try:
            assert process.stderr is not None
            said: list[tuple[float, str]] = [(time.monotonic(), line) for line in process.stderr]
            code = process.wait()
        finally:
            guard.cancel()
    began = next(at for at, line in said if "watching" in line)
    named = next(((at, line) for at, line in said if "holds rows back" in line), None)
    assert named is not None, said
    assert named[0] - began < NAMED_WITHIN_S
    assert address in named[1]
    assert 'mode = "offline" in [sink.wandb], or WANDB_MODE=offline' in named[1]
    assert code == 1
    lacking = next(line for _, line in said if "lacks rows 0 to 0" in line)
    assert "offline" in lacking and "stopped while rows were on their way" not in lacking


@pytest.mark.parametrize("kind", ["closed port", "black hole"])
def test_the_client_being_busy_is_not_the_reason(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Where the client says only that its own process is busy, the message says what a connection comes to."""
    from wandb.sdk.lib.service.service_connection import WandbApiFailedError

    text = "Failed to initialize API resources: the service process is busy and did not respond in time."
    with no_server(kind) as address:
        monkeypatch.setattr(client, "server", lambda: address)
        monkeypatch.delenv("http_proxy", raising=False)
        found = str(client._translated(Exception(text), WandbApiFailedError(text)))
    why = f"cannot connect to {address}: Connection refused" if kind == "closed port" else f"{address} did not answer"
    assert found.startswith(f"sink wandb: {why}")
    assert "busy" not in found and found.endswith("WANDB_MODE=offline")


@pytest.mark.parametrize("settings", [{}, {"WANDB_API_KEY": KEY}, {"WANDB_MODE": "offline"}])
def test_a_lacking_key_is_said_at_once(tmp_path: Path, settings: dict[str, str]) -> None:
    """A sidecar that watches says it before there is any row, and only where nothing chose a mode."""
    home, folder = tmp_path / "home", tmp_path / "outputs"
    home.mkdir()
    folder.mkdir()
    command = [*RLSHIP, "watch", str(folder), "--no-table", "--sink", "wandb"]
    process = subprocess.Popen(
        command, env=environment(home, settings), stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    guard = threading.Timer(90.0, process.kill)
    guard.start()
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()
        told = first + process.stderr.read()
        process.wait()
    finally:
        guard.cancel()
    assert told.count("no W&B API key: runs are written offline") == (0 if settings else 1)


def test_trouble_is_counted_from_its_beginning() -> None:
    """A sink that names its trouble after 5 s has been in trouble for 5 s then, and is reported after 10 s in all."""
    trouble = TroubleWatch()
    assert trouble.look("", 0, 100.0, 5.0) == 0.0
    assert trouble.look("no answer", 0, 105.0, 5.0) == 5.0
    assert trouble.look("no answer", 0, 110.0, 0.0) == 10.0
