"""The name of a writer's file and its first line."""

from __future__ import annotations

import os

from ._version import __version__
from .jsondata import json_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .identity import Identity


def file_name(identity: Identity, writer: str) -> str:
    """`<actor>-<replica>-r<rank>-<host>-<pid>-<id>.jsonl`, for people: who wrote it is in the first line."""
    names = [safe(identity.actor), safe(identity.replica), f"r{identity.rank}", safe(identity.host)]
    return "-".join([*names, str(os.getpid()), writer]) + ".jsonl"


def safe(text: str) -> str:
    """A part of a file name: at most 48 letters, digits, `.` and `_`, and no leading dot."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._") else "_" for c in text[:48])
    return "_" + kept[1:] if kept.startswith(".") else kept or "_"


def open_record(
    identity: Identity,
    writer: str,
    *,
    axis: str,
    beat: float,
    t: float,
    parent: str | None,
    labels: Mapping[str, str],
) -> str:
    """The `open` line. `t` is Unix seconds, `beat` the seconds after which a silent writer says that it lives."""
    fields = {
        "kind": "open",
        "rlship": 1,
        "id": writer,
        "actor": identity.actor,
        "replica": identity.replica,
        "rank": identity.rank,
        "world": identity.world,
        "attempt": identity.attempt,
        "axis": axis,
        "beat": beat,
        "host": identity.host,
        "pid": os.getpid(),
        "t": round(t, 6),
        "writer": f"python/{__version__}",
        "parent": parent,
        "labels": dict(labels) or None,
    }
    return json_value({name: value for name, value in fields.items() if value is not None}) + "\n"
