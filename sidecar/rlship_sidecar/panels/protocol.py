"""The messages between `rlship panels --push` and its child: one push, one answer, each a line of JSON."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, final

Trouble = Literal["no key", "no project", "no run", "other run", "refused", "unavailable"]
Done = Literal["made", "updated", "kept", "changed"]


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


@final
class Saved(TypedDict):
    """The view that has the panels, and what was done: it was made or replaced, or kept as it was. A view that is
    "changed" had the panels, until a person changed it.
    """

    done: Done
    title: str
    url: str


@final
class Failed(TypedDict):
    """Nothing was done. `text` names what is not there, or is the server's or the client's reason. `elsewhere` are the
    projects in which the run was made.
    """

    trouble: Trouble
    text: str
    elsewhere: list[str]


Answer = Saved | Failed
