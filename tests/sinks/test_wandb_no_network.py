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
