"""The messages between `rlship panels --push` and its child: one push, one answer, each a line of JSON."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Trouble = Literal["no key", "no project", "no run", "other run", "refused", "unavailable"]


class Push(TypedDict):
    """A view to save, with the run whose metrics it shows. `scratch` is a folder for the client's files."""

    mode: str
    base_url: str | None
    entity: str | None
    project: str
    run_id: str
    store_id: str
    state_dir: str
    scratch: str
    spec: dict[str, Any]
    digest: str


class Saved(TypedDict):
    """The view that has the panels, and what was done: it was made or replaced, or kept as it was. A view that is
    "changed" had the panels, until a person changed it.
    """

    done: Literal["made", "updated", "kept", "changed"]
    title: str
    url: str


class Failed(TypedDict):
    """Nothing was done. `text` names what is not there, or is the server's or the client's reason."""

    trouble: Trouble
    text: str


Answer = Saved | Failed
