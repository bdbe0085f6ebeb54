"""How a writer's file ends, and which process it is of."""

from __future__ import annotations

import os
from pathlib import Path

import orjson

from rlship_formats.reading import Body, Close, read_close
from rlship_sidecar.pids import has_ended
from rlship_sidecar.plainfiles import open_plain

TAIL_BYTES = 4096  # a writer's `close` is shorter
HEAD_BYTES = 1 << 16  # so is an `open`, as a rule


def last_close(file: Path) -> Close | None:
    """The `close` that is the last line of a writer's file, if it is one. A file that cannot be read has none."""
    try:
        with open(open_plain(os.fspath(file)), "rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - TAIL_BYTES))
            body: Body = orjson.loads(opened.read().rstrip(b"\n").rpartition(b"\n")[2])
    except (OSError, orjson.JSONDecodeError):
        return None
    return read_close(body, 0.0, None) if isinstance(body, dict) and body.get("kind") == "close" else None


def is_of_ended_process(file: Path) -> bool:
    """Whether a writer's file names a process of this machine that has certainly ended. Of one that ran elsewhere, or
    of a file that cannot be read, that is not known.
    """
    try:
        with open(open_plain(os.fspath(file)), "rb") as opened:
            said = orjson.loads(opened.readline(HEAD_BYTES))
    except (OSError, orjson.JSONDecodeError):
        return False
    if not isinstance(said, dict) or said.get("kind") != "open":
        return False
    space, pid = said.get("pid_space"), said.get("pid")
    return isinstance(space, str) and type(pid) is int and has_ended(space, pid)
