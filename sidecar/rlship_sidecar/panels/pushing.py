"""The child process that saves a view at W&B: a push comes in on standard input, an answer goes out on its output.

It asks for the project's views, and for what those of ours show, and writes at most once.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rlship_sidecar.panels.protocol import Answer, Done, Push, Trouble
from rlship_sidecar.panels.spec import VIEW_TYPE, digest
from rlship_sidecar.panels.versions import Kept, Made, SavedView, Updated, decide, describe
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.wandb import client, online
from rlship_sidecar.sinks.wandb.client import Execute
from rlship_sidecar.sinks.wandb.online import Runs

PAGE = 100
MAX_PAGES = 100
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME_CHARACTERS = 11

VIEWS_QUERY = """
query RlshipViews($project: String!, $entity: String!, $viewType: String!, $first: Int!, $after: String) {
  project(name: $project, entityName: $entity) {
    name
    entityName
    allViews(viewType: $viewType, first: $first, after: $after) {
      edges { node { id name displayName description } }
      pageInfo { endCursor hasNextPage }
    }
  }
}
"""
VIEW_QUERY = """
query RlshipView($id: ID!) {
  view(id: $id) { id spec }
}
"""
# The name and the shape are those of W&B's own page and packages. It makes a view, or replaces that of an id.
UPSERT = """
mutation UpsertView2(
  $id: ID, $entity: String, $project: String, $type: String, $name: String, $displayName: String,
  $description: String, $spec: String
) {
  upsertView(input: {
    id: $id, entityName: $entity, projectName: $project, type: $type, name: $name, displayName: $displayName,
    description: $description, spec: $spec, createdUsing: WANDB_SDK
  }) {
    view { id name }
    inserted
  }
}
"""


class NotThere(Exception):
    """The server lacks what the view is about. `trouble` says what, `elsewhere` where else it may be."""

    def __init__(self, trouble: Trouble, text: str, elsewhere: list[str]) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.elsewhere = elsewhere


def main() -> None:
    """Run one push."""
    parent = os.dup(1)
    os.dup2(2, 1)  # what the client prints is no answer
    asked: Push = json.loads(sys.stdin.buffer.readline())
    _end(parent, _answered(asked))


def _answered(asked: Push) -> Answer:
    try:
        return _push(asked)
    except NotThere as problem:
        return {"trouble": problem.trouble, "text": str(problem), "elsewhere": problem.elsewhere}
    except SinkRefused as problem:
        return {"trouble": "refused", "text": str(problem), "elsewhere": []}
    except SinkUnavailable as problem:
        return {"trouble": "unavailable", "text": str(problem), "elsewhere": []}
    except BaseException as problem:  # noqa: BLE001 - the parent must get a report of every error
        return {"trouble": "unavailable", "text": f"{type(problem).__name__}: {problem}", "elsewhere": []}


def _end(parent: int, answer: Answer) -> NoReturn:
    data = memoryview(json.dumps(answer).encode() + b"\n")
    while data:
        data = data[os.write(parent, data) :]
    os._exit(0)  # the client's own process follows by itself


def _push(asked: Push) -> Answer:
    if asked["base_url"]:
        os.environ["WANDB_BASE_URL"] = asked["base_url"]
    client.keep_in(asked["scratch"])
    client.prepare()
    if client.mode(asked["mode"]) == "offline":
        raise NotThere("no key", "", [])
    execute = client.connect()
    runs = online.runs_at(Path(asked["state_dir"]), asked["entity"], asked["project"], asked["run_id"])
    entity, views = _views(execute, asked, runs)
    run = runs.current
    _require_run(execute, asked, entity, runs)
    shown: dict[str, str] = {}

    def digest_of(view: SavedView) -> str:
        if view.id not in shown:
            shown[view.id] = _shown(execute, entity, view)
        return shown[view.id]

    found = decide(views, asked["digest"], run, digest_of)
    done: Done
    if isinstance(found, Kept):
        done, view = "changed" if found.changed else "kept", found.view
    else:
        done = "updated" if isinstance(found, Updated) else "made"
        view = _save(execute, asked, entity, run, found)
    return {"done": done, "title": view.title, "url": client.view_url(entity, asked["project"], view.name)}


def _views(execute: Execute, asked: Push, runs: Runs) -> tuple[str, list[SavedView]]:
    """The project's entity, and all of its saved views."""
    entity, found, after = asked["entity"] or "", [], None
    for _ in range(MAX_PAGES):
        about = {"entity": entity, "project": asked["project"], "viewType": VIEW_TYPE, "first": PAGE, "after": after}
        project = (execute(VIEWS_QUERY, about) or {}).get("project")
        if project is None:
            place = f"{entity}/{asked['project']}" if entity else asked["project"]
            raise NotThere("no project", place, runs.elsewhere())
        entity = str(project.get("entityName") or entity)
        views = project.get("allViews") or {}
        found += list(_nodes(views))
        page = views.get("pageInfo") or {}
        if not page.get("hasNextPage"):
            break
        after = page.get("endCursor")
    return entity, found


def _nodes(views: Mapping[str, Any]) -> Iterator[SavedView]:
    for edge in views.get("edges") or ():
        if node := edge.get("node"):
            members = (node.get(name) for name in ("id", "name", "displayName", "description"))
            yield SavedView(*(str(member or "") for member in members))


def _require_run(execute: Execute, asked: Push, entity: str, runs: Runs) -> None:
    found = online.read_run(execute, entity, asked["project"], runs.current)
    if found is None or found.store_id != asked["store_id"]:
        trouble: Trouble = "no run" if found is None else "other run"
        raise NotThere(trouble, f"{entity}/{asked['project']}/{runs.current}", runs.elsewhere())


def _shown(execute: Execute, entity: str, view: SavedView) -> str:
    """The digest of what a view shows; "" for one that is gone or cannot be read, which is like no other."""
    found = (execute(VIEW_QUERY, {"entity": entity, "id": view.id}) or {}).get("view") or {}
    try:
        return digest(json.loads(found.get("spec") or ""))
    except (ValueError, RecursionError):
        return ""


def _save(execute: Execute, asked: Push, entity: str, run: str, found: Updated | Made) -> SavedView:
    if isinstance(found, Updated):
        view = found.view
    else:
        name = "".join(secrets.choice(_ALPHABET) for _ in range(_NAME_CHARACTERS))
        view = SavedView("", f"nw-{name}-v", found.title, "")
    about = {
        **({"id": view.id} if view.id else {}),
        "entity": entity,
        "project": asked["project"],
        "type": VIEW_TYPE,
        "name": view.name,
        "displayName": view.title,
        "description": describe(asked["digest"], run),
        "spec": json.dumps(asked["spec"], separators=(",", ":")),
    }
    saved = ((execute(UPSERT, about) or {}).get("upsertView") or {}).get("view")
    if not saved:
        raise SinkRefused(f"W&B did not save the view {view.title}")
    return view._replace(id=str(saved.get("id") or ""), name=str(saved.get("name") or view.name))


if __name__ == "__main__":
    main()
