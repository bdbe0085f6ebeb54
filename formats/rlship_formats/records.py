"""The parts of records of format version 1: limits, and the facts that outlive their line.

`reading.py` defines what a line is, and what makes it unusable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from rlship_formats.values import DEFAULT_REDUCTION

FORMAT_VERSION = 1
MAX_LINE_BYTES = 1 << 20
MAX_STEP = (1 << 53) - 1
MAX_WORLD = 1 << 20
MAX_RUN_KEYS = 10_000  # of config, and of summary, that are used of one writer
T_MIN, T_MAX = 946_684_800.0, 4_102_444_800.0  # years 2000 to 2100: a time outside comes from a clock that was not set

MAX_OFFSET_S = 1e9
CONFIG = "config"  # the name of events whose attributes are the configuration of their writer


class BadRecord(ValueError):
    """A line that cannot be used; the message is its dead-letter reason. `member` names the member at fault; it is ""
    if no single one is.
    """

    def __init__(self, reason: str, member: str = "") -> None:
        super().__init__(reason)
        self.member = member


@dataclass(frozen=True, slots=True)
class Open:
    """The identity of a file's writer. `t` is Unix seconds (0 where the clock was unusable). `beat` is the promised
    seconds between lines, or None. `job` names the job whose end is the end of its replica, or is None. `agent` is the
    label of that name, which an agent beside the job sets, else ""; `source` is that of what calls the writer in the
    job's place, else "". `pid_space` names the processes that `pid` counts among, or is "".
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
    job: str | None = None
    host: str = ""
    pid: int = 0
    writer: str = ""
    agent: str = ""
    source: str = ""
    pid_space: str = ""


class Definition(NamedTuple):
    """The options that govern a metric's lines, from an entry of a `define` or from the catalogue's entry for the name.

    `reduce` holds the requested reductions in order. It is () in an entry that leaves them to the default.
    `catalogued`: all of it is the catalogue's, and no `define`, span or event asks for it. `asked`: `reduce` is that of
    a `define`.
    """

    reduce: tuple[str, ...] = (DEFAULT_REDUCTION,)
    per_rank: bool = False
    stream: bool = False
    unit: str | None = None
    catalogued: bool = False
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines that the writer had to drop; `first` and `last` are steps, both None where the lines had none."""

    n: int
    first: int | None
    last: int | None


def is_step(value: object) -> TypeGuard[int]:
    """True if a value is a step: an integer in 0..2^53-1, and not a boolean."""
    return type(value) is int and 0 <= value <= MAX_STEP


def time_of(record: dict[str, Any], before: float) -> float:
    """The record's `t` in Unix seconds; if it has none, `before`, the time that earlier lines left."""
    t: Any = record.get("t")
    if (type(t) is float or type(t) is int) and T_MIN <= t <= T_MAX:  # a boolean is not a time
        return float(t)
    return before


def has_time(record: dict[str, Any]) -> bool:
    """True if the record has a plausible `t` of its own."""
    return time_of(record, -1.0) > 0
