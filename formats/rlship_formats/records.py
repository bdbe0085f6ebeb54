"""What records of format version 1 are made of: limits, and the facts that outlive their line.

What a line is, and what makes it unusable, is in `reading.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from rlship_formats.values import DEFAULT_REDUCTION

FORMAT_VERSION = 1
MAX_LINE_BYTES = 1 << 20
MAX_STEP = (1 << 53) - 1
MAX_WORLD = 1 << 20
T_MIN, T_MAX = 946_684_800.0, 4_102_444_800.0  # years 2000 to 2100: outside, a clock was not set

MAX_OFFSET_S = 1e9


class BadRecord(ValueError):
    """A line that cannot be used; the message is its dead-letter reason. `member` names the member at fault, "" where
    it is not a single one.
    """

    def __init__(self, reason: str, member: str = "") -> None:
        super().__init__(reason)
        self.member = member


@dataclass(frozen=True, slots=True)
class Open:
    """Who writes a file. `t` is Unix seconds (0 where the clock was unusable); `beat` the promised seconds between
    lines, or None; `agent` what writes of its own accord beside the job, by the label of that name, else "".
    """

    id: str
    actor: str
    replica: str = "0"
    rank: int = 0
    world: int | None = None
    attempt: int = 0
    axis: str = "global_step"
    t: float = 0.0
    beat: float | None = None
    parent: str | None = None
    host: str = ""
    pid: int = 0
    writer: str = ""
    agent: str = ""


class Asks(NamedTuple):
    """What governs a metric's lines: by an entry of a `define`, or by what is known of the metric's name.

    `reduce` are the reductions asked for, the first one first; () in an entry that leaves them to the default.
    """

    reduce: tuple[str, ...] = (DEFAULT_REDUCTION,)
    per_rank: bool = False
    stream: bool = False
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines that the writer had to drop; `first` and `last` are steps, both None where the lines had none."""

    n: int
    first: int | None
    last: int | None


def is_step(value: object) -> TypeGuard[int]:
    """Whether a value is a step: an integer in 0..2^53-1, and not a boolean."""
    return type(value) is int and 0 <= value <= MAX_STEP


def time_of(record: dict[str, Any], before: float) -> float:
    """The record's `t` in Unix seconds, or `before`, the one handed on to it, where it has none of its own."""
    t: Any = record.get("t")
    if (type(t) is float or type(t) is int) and T_MIN <= t <= T_MAX:  # a boolean is not a time
        return float(t)
    return before


def has_time(record: dict[str, Any]) -> bool:
    """Whether the record has a `t` of its own that is not absurd."""
    return time_of(record, -1.0) > 0
