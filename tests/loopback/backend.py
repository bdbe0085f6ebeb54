"""A W&B server on 127.0.0.1 that the real client takes for one: runs, resume, history by line offset, faults on demand.

    with LoopbackBackend() as backend:
        env = backend.environment(tmp_path)          # WANDB_* and HOME for a client that must see nothing else
        ...                                          # wandb.init(...) in a process with that environment
        assert backend.run("rlship", "my-run-id").steps() == [0, 1, 2]

What a real server does with rewritten lines or stale reads is not known; this one takes every line at the offset it was
sent with, keeps the last text, and remembers in `Run.rewritten` what stood there before. What the real one is known to
do with a run that was deleted, `delete_run` does: its id is not given again. Faults are queued by `fail`,
`hang` and `cut_reply`, each for the next requests of one endpoint; `down` closes the port and every connection, `up`
opens it again; `stale_lines` makes answers lag behind what was taken.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.loopback.artifacts import ARTIFACT_OPERATIONS, Artifacts
from tests.loopback.runs import ENTITY, HISTORY, Run, entity_object, viewer
from tests.loopback.server import Answer, Server
from tests.loopback.views import VIEW_OPERATIONS, Refused, Views

API_KEY = "0123456789abcdef0123456789abcdef01234567"
FILE_STREAM = "file_stream"
GRAPHQL = "graphql"


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


class LoopbackBackend:
    """The server. Use as a context manager, or `up` and `close`. Every method may be called from any thread."""

    def __init__(self, *, api_key: str = API_KEY, port: int = 0) -> None:
        """Port 0 is any free one."""
        self.api_key = api_key
        self.runs: dict[tuple[str, str], Run] = {}
        self.requests: list[Request] = []
        self.stale_lines = 0
        """How many of the newest history lines the answers about a run leave out: a replica that lags."""
        self.keeps_summaries = True
        """Whether what a client says of the summary is kept. If not, the summary has the values of the last lines, as
        if the client had died right after them.
        """
        self.stored: dict[str, bytes] = {}
        """What was uploaded, by the name under which it was."""
        self.lock = threading.RLock()
        self.artifacts = Artifacts()
        self.alerts: list[dict[str, Any]] = []
        self.views = Views()
        self._faults: list[Fault] = []
        self._deleted: set[tuple[str, str]] = set()
        self._server: Server | None = None
        self._released = threading.Event()
        self._port = port
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
        """Variables for a client process: this server and key, no error reports, folders of its own under `home`."""
        return {**isolated(home), "WANDB_BASE_URL": self.url, "WANDB_API_KEY": self.api_key}

    def run(self, project: str, name: str, entity: str = ENTITY) -> Run:
        """The run of that id; KeyError if no client made it."""
        with self.lock:
            return self.runs[f"{entity}/{project}", name]

    def sent(self, endpoint: str) -> list[Request]:
        """The requests of one endpoint so far."""
        with self.lock:
            return [request for request in self.requests if request.endpoint == endpoint]

    def delete_run(self, project: str, name: str, entity: str = ENTITY) -> Run:
        """Forget a run, and answer 409 to a client that would make one of that id again; returns what it held."""
        with self.lock:
            key = (f"{entity}/{project}", name)
            self._deleted.add(key)
            return self.runs.pop(key)

    def delete_project(self, project: str, entity: str = ENTITY) -> None:
        """Forget all runs of a project; it can be made again, with runs of any id."""
        with self.lock:
            for key in [key for key in self.runs if key[0] == f"{entity}/{project}"]:
                del self.runs[key]

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
        """Answer the next requests with `status`, without applying them. `operation` limits it to one GraphQL one,
        `retry_after_s` adds that header.
        """

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
            self._server = Server(self.answer, self._port)
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
        name = path.partition("?")[0].partition("/storage/")[2]
        operation = _operation(payload.get("query", "")) if endpoint == GRAPHQL else ""
        with self.lock:
            fault = self._take(endpoint, operation)
            released = self._released
            answer = Answer()
            if fault is None or fault.applies:
                if endpoint != "storage" and not self._authorized(headers):
                    answer = Answer(401, json.dumps({"errors": [{"message": "user is not logged in"}]}).encode())
                elif operation == "UpsertBucket" and self._is_deleted(payload.get("variables") or {}):
                    gone = "run was previously created and deleted; try a new run name"
                    answer = Answer(409, json.dumps({"errors": [{"message": gone}]}).encode())
                elif endpoint == GRAPHQL:
                    try:
                        data = self._graphql(operation, payload.get("variables") or {})
                        answer.body = json.dumps({"data": data}).encode()
                    except Refused as why:
                        answer.body = json.dumps({"data": None, "errors": [{"message": str(why)}]}).encode()
                elif endpoint == FILE_STREAM:
                    run = self.runs.get((f"{parts[1]}/{parts[2]}", parts[3]))
                    if run is None:
                        answer = Answer(404)
                    else:
                        run.take(payload, summary=self.keeps_summaries)
                else:
                    self.stored[name] = body
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
        place, name = _key(given)
        entity, _, project = place.partition("/")
        found = self.runs.get((place, name))
        if operation in ("Viewer", "GetViewer", "GetDefaultEntity"):
            return {"viewer": viewer()}
        if operation == "ServerFeaturesQuery":
            return {"serverInfo": {"features": []}}
        if operation == "UpsertBucket":
            return {"upsertBucket": self._upsert(entity, project, given)}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/storage/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}
        if operation == "NotifyScriptableRunAlert":
            self.alerts.append(given)
            return {"notifyScriptableRunAlert": {"success": True}}
        if operation in ARTIFACT_OPERATIONS:
            return self.artifacts.answer(operation, given, self.url)
        if operation in VIEW_OPERATIONS:
            return self.views.answer(operation, given, {key[0] for key in self.runs})
        if all(key[0] != place for key in self.runs):
            return {"model": None, "project": None}
        shown = None if found is None else found.describe(self.stale_lines)
        if operation == "RunResumeStatus" or "bucket" in operation.lower():
            return {"model": {"id": project, "name": project, "entity": entity_object(entity), "bucket": shown}}
        return {"project": {"id": project, "name": project, "run": shown}}

    def _is_deleted(self, given: dict[str, Any]) -> bool:
        return _key(given) in self._deleted

    def _upsert(self, entity: str, project: str, given: dict[str, Any]) -> dict[str, Any]:
        key = (f"{entity}/{project}", given["name"])
        inserted = key not in self.runs
        run = self.runs.setdefault(key, Run(entity, project, given["name"]))
        run.display_name = given.get("displayName") or run.display_name
        run.group = given.get("groupName") or run.group
        run.tags = run.tags if given.get("tags") is None else given["tags"]
        run.notes = given.get("notes") or run.notes
        run.job_type = given.get("jobType") or run.job_type
        if given.get("config"):
            run.config = json.loads(given["config"])
        if given.get("summaryMetrics") and self.keeps_summaries:
            run.summary = json.loads(given["summaryMetrics"])
        run.finished = False
        return {"bucket": run.describe(self.stale_lines), "inserted": inserted}


def _key(given: dict[str, Any]) -> tuple[str, str]:
    """Which run the variables of a query are about: ("<entity>/<project>", id)."""
    project = given.get("project") or "uncategorized"
    return f"{given.get('entity') or ENTITY}/{project}", given.get("name") or given.get("run") or ""


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
