"""What earlier processes of a run wrote, for one that resumes it: W&B's client reads this from the server."""

from __future__ import annotations

import json
import os

from .axes import COUNTER
from .places import belongs_to, newest_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

# Of a file that is larger than twice this, the beginning and the end are read.
_END_BYTES = 8 << 20
# At the end of a file, whose lines have the newest values.
_VALUES_BYTES = 4 << 20
_RUN, _EVENT = b'{"kind":"run"', b'{"kind":"event"'
METRICS = (b'{"t":', b'{"stream":')  # how lines of metrics begin


class Earlier:
    """The config and the summary that a run had, and what else was said of it."""

    __slots__ = ("config", "said", "summary")

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}
        self.summary: dict[str, Any] = {}
        self.said: dict[str, Any] = {}  # its name, tags and so on

    def take(self, axis: str, lines: Iterator[tuple[bytes, bool]]) -> None:
        """Take one file. As with the client, its values replace those of before by the key at the top."""
        said: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for line, is_new in lines:
            if line.startswith(_RUN):
                said = joined(said, _parsed(line))
            elif is_new and line.startswith(METRICS):
                record = _parsed(line)
                values.update((key, value) for key, value in record.get("m", {}).items() if type(value) in (int, float))
                if axis != COUNTER and "step" in record:
                    values[axis] = max(record["step"], values.get(axis, 0))
            elif is_new and line.startswith(_EVENT) and b'"name":"texts"' in line:
                values.update((key, text) for key, text in _parsed(line)["attrs"].items() if isinstance(text, str))
        self.config.update(said.pop("config", {}))
        self.summary.update(values)
        for key, value in said.pop("summary", {}).items():
            if value is None:
                self.summary.pop(key, None)
            else:
                self.summary[key] = value
        self.said.update(said)


def read(folder: str, run_id: str) -> Earlier | None:
    """What the files of a run in the folder of an experiment say of it; None if there is no such file."""
    found = None
    for path in reversed(newest_files(folder)):
        try:
            with open(path, "rb") as file:
                opened = belongs_to(file, run_id)
                if opened is not None:
                    found = found or Earlier()
                    found.take(str(opened.get("axis")), _lines(file))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue  # of another process that writes it, or not as rlship writes it
    return found


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file, and whether they are among its newest."""
    size = file.seek(0, os.SEEK_END)
    parts = [(0, size)] if size <= 2 * _END_BYTES else [(0, _END_BYTES), (size - _END_BYTES, _END_BYTES)]
    for start, length in parts:
        file.seek(start)
        at = start
        for line in file.read(length).split(b"\n"):
            yield line, at >= size - _VALUES_BYTES
            at += len(line) + 1


def _parsed(line: bytes) -> dict[str, Any]:
    """The record; an empty one for a line of which a part is missing."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def joined(old: Any, new: Any) -> Any:
    """`new` over `old`, key by key where both are objects with members."""
    if not (isinstance(old, dict) and isinstance(new, dict) and new):
        return new
    return {**old, **{key: joined(old.get(key), value) for key, value in new.items()}}
