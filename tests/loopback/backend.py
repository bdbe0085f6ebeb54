"""A W&B server on 127.0.0.1 that the real client takes for one: runs, resume, history by line offset, and faults on demand.

    with LoopbackBackend() as backend:
        env = backend.environment(tmp_path)          # WANDB_* and HOME for a client that must see nothing else
        ...                                           # wandb.init(...) in a process with that environment
        run = backend.run("rlship", "my-run-id")
        assert run.steps() == [0, 1, 2]

What a real server does with rewritten lines or stale reads is not known; this one takes every line at the offset it was sent
with, keeps the last text, and remembers in `Run.rewritten` what stood there before. Faults are queued by `fail`, `hang` and
`cut_reply`, each for the next requests of one endpoint; `down` closes the port and every connection, `up` opens it again.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

API_KEY = "0123456789abcdef0123456789abcdef01234567"
ENTITY = "loopback"
FILE_STREAM = "file_stream"
GRAPHQL = "graphql"
HISTORY = "wandb-history.jsonl"
SUMMARY = "wandb-summary.json"


@dataclass(slots=True)
class Run:
    """What the server holds of one run. `history` are the lines as they came, by line number."""

    entity: str
    project: str
    name: str
    display_name: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[str | None] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    """time.time() of the first arrival of each line."""
    rewritten: list[tuple[int, str, str]] = field(default_factory=list)
    """(line number, text before, text after) of lines that came again with another text."""
    resent: int = 0
    """How many lines came again unchanged."""
    finished: bool = False

    def rows(self) -> list[dict[str, Any]]:
        """The history lines, decoded; a line that never came is an AssertionError."""
        missing = [number for number, line in enumerate(self.history) if line is None]
        assert not missing, f"lines {missing} of run {self.name} never came"
        return [json.loads(line) for line in self.history if line is not None]

    def steps(self) -> list[int]:
        """`_step` of every line, in line order."""
        return [row["_step"] for row in self.rows()]

    def value(self, key: str) -> Any:
        """A value of the run's config."""
        return self.config[key]["value"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it was answered: `status` 0 means that no answer was sent."""

    t: float
    endpoint: str
    operation: str
    status: int
    lines: tuple[int, int]
    """Offset and number of the history lines in it."""


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests of an endpoint; None: to all until `heal`."""

    endpoint: str
    operation: str
    times: int | None
    act: Callable[[Answer], None]
    applies: bool


@dataclass(slots=True)
class Answer:
    """The reply to a request, before it is sent."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False


class LoopbackBackend:
    """The server. Use as a context manager, or `up` and `close`. Every method may be called from any thread."""

    def __init__(self, *, api_key: str = API_KEY) -> None:
        self.api_key = api_key
        self.runs: dict[tuple[str, str], Run] = {}
        self.requests: list[Request] = []
        self.stale_lines = 0
        """How many of the newest history lines the answers about a run leave out: a replica that lags."""
        self.lock = threading.RLock()
        self._faults: list[Fault] = []
        self._server: _Server | None = None
        self._released = threading.Event()
        self._port = 0
        self.up()

    def __enter__(self) -> LoopbackBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL; the same after `down` and `up`."""
        return f"http://127.0.0.1:{self._port}"

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for a client process: this server and key, no error reports, and every folder of its own under `home`."""
        return {**isolated(home), "WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.api_key}

    def run(self, project: str, name: str, entity: str = ENTITY) -> Run:
        """The run of that id; KeyError if no client made it."""
        with self.lock:
            return self.runs[f"{entity}/{project}", name]

    def wait_for(self, ready: Callable[[], bool], timeout_s: float = 10.0) -> float:
        """Wait until `ready()`; returns the seconds it took, AssertionError after `timeout_s`."""
        begin = time.monotonic()
        while not ready():
            assert time.monotonic() - begin < timeout_s, f"not so after {timeout_s} s"
            time.sleep(0.01)
        return time.monotonic() - begin

    def sent(self, endpoint: str) -> list[Request]:
        """The requests of one endpoint so far."""
        with self.lock:
            return [request for request in self.requests if request.endpoint == endpoint]

    # Faults

    def fail(
        self,
        status: int,
        times: int | None = 1,
        *,
        endpoint: str = FILE_STREAM,
        operation: str = "",
        retry_after_s: int | None = None,
    ) -> None:
        """Answer the next requests with `status`, without applying them. `operation` limits it to one GraphQL operation."""

        def act(answer: Answer) -> None:
            answer.status = status
            answer.body = json.dumps({"error": f"fault {status}", "errors": [{"message": f"fault {status}"}]}).encode()
            if retry_after_s is not None:
                answer.headers["Retry-After"] = str(retry_after_s)

        self._add(Fault(endpoint, operation, times, act, applies=False))

    def hang(self, seconds: float, times: int | None = 1, *, endpoint: str = FILE_STREAM) -> None:
        """Keep the next requests waiting (until `heal` at most), then close the connection without applying them."""

        def act(answer: Answer) -> None:
            answer.delay_s, answer.cut = seconds, True

        self._add(Fault(endpoint, "", times, act, applies=False))

    def cut_reply(self, times: int | None = 1, *, endpoint: str = FILE_STREAM) -> None:
        """Apply the next requests, then close the connection without an answer."""

        def act(answer: Answer) -> None:
            answer.cut = True

        self._add(Fault(endpoint, "", times, act, applies=True))

    def heal(self) -> None:
        """Forget all faults and let hanging requests go."""
        with self.lock:
            self._faults.clear()
            self._released.set()
            self._released = threading.Event()

    def down(self) -> None:
        """Refuse connections, and cut those that are open."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def up(self) -> None:
        """Listen (again), on the same port."""
        if self._server is None:
            self._server = _Server(self, self._port)
            self._port = self._server.server_address[1]
            self._server.start()

    def close(self) -> None:
        """Stop for good."""
        self.heal()
        self.down()

    def _add(self, fault: Fault) -> None:
        with self.lock:
            self._faults.append(fault)

    # Answers

    def answer(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """The answer to one request, with its faults applied."""
        parts = [part for part in path.split("?")[0].split("/") if part]
        endpoint = GRAPHQL if parts[-1:] == ["graphql"] else FILE_STREAM if parts[-1:] == ["file_stream"] else "storage"
        payload = json.loads(body) if body and endpoint != "storage" else {}
        operation = _operation(payload.get("query", "")) if endpoint == GRAPHQL else ""
        with self.lock:
            fault = self._take(endpoint, operation)
            released = self._released
            answer = Answer()
            if fault is None or fault.applies:
                if endpoint != "storage" and not self._authorized(headers):
                    answer = Answer(401, json.dumps({"errors": [{"message": "user is not logged in"}]}).encode())
                elif endpoint == GRAPHQL:
                    data = self._graphql(operation, payload.get("variables") or {})
                    answer.body = json.dumps({"data": data}).encode()
                elif endpoint == FILE_STREAM:
                    self._stream(self.runs[f"{parts[1]}/{parts[2]}", parts[3]], payload)
            if fault is not None:
                fault.act(answer)
            lines = payload.get("files", {}).get(HISTORY, {}) if endpoint == FILE_STREAM else {}
            span = (lines.get("offset", 0), len(lines.get("content", ())))
            status = 0 if answer.cut else answer.status
            self.requests.append(Request(time.time(), endpoint, operation, status, span))
        if answer.delay_s:
            released.wait(answer.delay_s)
        return answer

    def _take(self, endpoint: str, operation: str) -> Fault | None:
        for fault in self._faults:
            if fault.endpoint == endpoint and fault.operation in ("", operation):
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
                return fault
        return None

    def _authorized(self, headers: dict[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme == "Basic" and base64.b64decode(token).decode().partition(":")[2] == self.api_key

    def _graphql(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        project = given.get("project") or "uncategorized"
        entity = given.get("entity") or ENTITY
        found = self.runs.get((f"{entity}/{project}", given.get("name") or given.get("run") or ""))
        if operation in ("Viewer", "GetViewer", "GetDefaultEntity"):
            return {"viewer": _viewer()}
        if operation == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if operation == "UpsertBucket":
            return {"upsertBucket": self._upsert(entity, project, given)}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        shown = None if found is None else self._describe(found)
        if operation == "RunResumeStatus" or "bucket" in operation.lower():
            return {"model": {"id": project, "name": project, "entity": _entity(entity), "bucket": shown}}
        return {"project": {"id": project, "name": project, "run": shown}}

    def _upsert(self, entity: str, project: str, given: dict[str, Any]) -> dict[str, Any]:
        key = (f"{entity}/{project}", given["name"])
        inserted = key not in self.runs
        run = self.runs.setdefault(key, Run(entity, project, given["name"]))
        run.display_name = given.get("displayName") or run.display_name
        run.group = given.get("groupName") or run.group
        run.tags = given.get("tags") or run.tags
        if given.get("config"):
            run.config = json.loads(given["config"])
        if given.get("summaryMetrics"):
            run.summary = json.loads(given["summaryMetrics"])
        run.finished = False
        return {"bucket": self._describe(run), "inserted": inserted}

    def _describe(self, run: Run) -> dict[str, Any]:
        history = run.history[: max(0, len(run.history) - self.stale_lines)]
        steps = [json.loads(line)["_step"] for line in history[-1:] if line is not None]
        telemetry = run.config.get("_wandb", {}).get("value", {}).get("t")
        return {
            "id": f"{run.project}:{run.name}",
            "name": run.name,
            "displayName": run.display_name or run.name,
            "state": "finished" if run.finished else "running",
            "summaryMetrics": json.dumps(run.summary),
            "config": json.dumps(run.config),
            "wandbConfig": json.dumps({} if telemetry is None else {"t": telemetry}),
            "historyLineCount": len(history),
            "historyTail": json.dumps(history[-1:]),
            "historyKeys": {"lastStep": steps[0] if steps else -1, "keys": {}, "sets": []},
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "tags": run.tags,
            "notes": "",
            "description": "",
            "sweepName": None,
            "project": {"id": run.project, "name": run.project, "entity": _entity(run.entity)},
        }

    def _stream(self, run: Run, payload: dict[str, Any]) -> None:
        files = payload.get("files") or {}
        lines = files.get(HISTORY, {})
        for number, line in enumerate(lines.get("content", ()), lines.get("offset", 0)):
            while number >= len(run.history):
                run.history.append(None)
                run.arrived.append(time.time())
            before = run.history[number]
            if before is not None and before != line:
                run.rewritten.append((number, before, line))
            run.resent += before == line
            run.history[number] = line
        for line in files.get(SUMMARY, {}).get("content", ()):
            run.summary.update(json.loads(line))
        run.finished = run.finished or bool(payload.get("complete"))


def isolated(home: Path) -> dict[str, str]:
    """Variables that keep a W&B client to folders under `home`, with no key, no netrc and no error reports."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "HOME": str(home),
        "NETRC": str(home / "netrc"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "WANDB_CONFIG_DIR": str(home / "config" / "wandb"),
        "WANDB_CACHE_DIR": str(home / "cache" / "wandb"),
        "WANDB_DATA_DIR": str(home / "data" / "wandb"),
        "WANDB_ERROR_REPORTING": "false",
        "NO_PROXY": "127.0.0.1",
    }


def _operation(query: str) -> str:
    words = query.replace("(", " ").replace("{", " ").split()
    return words[1] if len(words) > 1 and words[0] in ("query", "mutation") else ""


def _entity(name: str) -> dict[str, str]:
    return {"id": name, "name": name}


def _viewer() -> dict[str, Any]:
    return {
        "id": "viewer",
        "entity": ENTITY,
        "username": ENTITY,
        "name": ENTITY,
        "email": "",
        "flags": "{}",
        "teams": {"edges": [{"node": {"name": ENTITY}}]},
    }


class _Server(ThreadingHTTPServer):
    """One listening port; remembers its connections so that they can be cut."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, backend: LoopbackBackend, port: int) -> None:
        self.backend = backend
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), name="loopback", daemon=True)
        super().__init__(("127.0.0.1", port), _Handler)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def connected(self, connection: socket.socket) -> Iterator[None]:
        with self._guard:
            self._connections.add(connection)
        try:
            yield
        finally:
            with self._guard:
                self._connections.discard(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is daily business; anything else is a fault of this server and shown."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        with self.server.connected(self.connection):
            super().handle()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer = self.server.backend.answer(self.path, body, {k.lower(): v for k, v in self.headers.items()})
        if answer.cut:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_PUT = do_POST
    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Requests are kept in `LoopbackBackend.requests`, not printed."""
