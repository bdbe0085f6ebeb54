"""One thing that is wrong with a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

ERROR = "error"  # it cannot be used: a dead letter, or a dead value
WARNING = "warning"  # it is used, but perhaps not as its writer intended, or it breaks a rule of the format
# Why, and what to do, where bytes that are no line end a file.
HOLE = (
    "{} bytes after the last LF hold NUL bytes: what was written there is lacking",
    "look for the end of the file on the host that wrote it; a crash, or a network filesystem, left the hole",
)

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """`line` counts from 1; `at` is the byte where the line begins. `column` is the byte within it, from 1, if it is
    known.

    `metric` names the value that cannot be used, if the rest of the line can.
    """

    line: int
    at: int
    level: str
    what: str
    why: str
    fix: str
    column: int | None = None
    metric: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields that are set."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a line or value cannot be used, and what to write instead."""

    why: str
    fix: str
    column: int | None = None


def shown(value: object) -> str:
    """A value as the line has it, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
