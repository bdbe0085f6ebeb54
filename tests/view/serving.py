"""A server of `rlship view` in this process, asked over loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from rlship_sidecar.config import Config
from rlship_sidecar.daemon import loop
from rlship_sidecar.view import serve
from tests.kit.files import CLOSE, barrier, experiment, file, log


class Client:
    """What the page does: requests with the token in the header."""

    def __init__(self, link: str) -> None:
        self.base, _, self.token = link.partition("/#token=")
        self.http = httpx.Client(base_url=self.base, timeout=60.0)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.http.get(path, headers={"Authorization": f"Bearer {self.token}", **(headers or {})})

    def ask(self, path: str) -> Any:
        """The answer to a request that is not refused."""
        got = self.get(path)
        assert got.status_code == 200, got.text
        return got.json()

    @property
    def first(self) -> str:
        """The path of the first experiment."""
        return f"/api/e/{self.ask('/api/experiments')['experiments'][0]['id']}"

    def ids(self) -> dict[str, str]:
        """The ids of metrics by key."""
        return {one["key"]: one["id"] for one in self.ask(f"{self.first}/metrics")["metrics"]}

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a live stream, but for beats."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with self.http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            yield (event for event in map(json.loads, answer.iter_lines()) if event["kind"] != "beat")


@contextmanager
def serving(directory: Path, *allowed: str, state_dir: str | None = None) -> Iterator[Client]:
    """Serve a folder until the end of the block."""
    link: list[str] = []
    ready = threading.Event()

    def on_ready(said: str) -> None:
        link.append(said)
        ready.set()

    with (
        serve.bind("127.0.0.1", 0) as listening,
        serve.prepared(
            directory, listening=listening, allowed=allowed, state_dir=state_dir, on_ready=on_ready
        ) as server,
    ):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert ready.wait(60.0)
            client = Client(link[0])
            with client.http:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def watched(folder: Path, files: Mapping[str, bytes], **settings: Any) -> Path:
    """An experiment with these files, whose rows a sidecar has made."""
    made = experiment(folder, files)
    loop.watch(made, Config(sinks=[], **settings), once=True)
    return made


def with_a_ledger() -> bytes:
    """The file of a job that trains each of three groups of samples, and one of them twice."""
    records = []
    for step in range(3):
        for hop in ("generated", "trained"):
            told = {"kind": "ledger", "hop": hop, "key": f"g{step}", "n": 4, "t": 1763600001.0 + step}
            records.append(told | ({"step": step} if hop == "trained" else {}))
        if step == 2:
            records.append({"kind": "ledger", "hop": "trained", "key": "g1", "n": 4, "step": 2, "t": 1763600003.5})
        records += [log(step, loss=1.0), barrier(step, 5.0 + step)]
    return file(*records, CLOSE)


def trainer_state(folder: Path) -> Path:
    """The folder of a run of transformers, with the losses 1 / 1, 1 / 2 and 1 / 3."""
    history = [{"step": step, "loss": 1.0 / step, "epoch": 0.1} for step in range(1, 4)]
    (folder / "checkpoint-3").mkdir(parents=True)
    text = json.dumps({"global_step": 3, "log_history": history, "best_metric": None, "epoch": 0.1, "max_steps": 3})
    (folder / "checkpoint-3" / "trainer_state.json").write_text(text)
    return folder


def until(events: Iterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The next event of a kind."""
    return next(event for event in events if event["kind"] == kind)
