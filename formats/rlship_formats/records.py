"""Records of format version 1: the envelope of a line, checked field by field.

A line is parsed by the caller (`orjson.loads`); this module turns the resulting object into plain data or raises
`BadRecord` with one of the reasons listed in formats/SPEC.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from rlship_formats.values import DEFAULT_REDUCTION, is_reduction

FORMAT_VERSION = 1
MAX_LINE_BYTES = 1 << 20
MAX_STEP = (1 << 53) - 1
MAX_WORLD = 1 << 20
T_MIN, T_MAX = 946_684_800.0, 4_102_444_800.0  # years 2000 to 2100: outside, a clock was not set

MAX_OFFSET_S = 1e9

KNOWN_KINDS = frozenset(
    ("open", "define", "span", "event", "sample", "barrier", "rollback", "gap", "clock", "beat", "close")
)


class BadRecord(ValueError):
    """A line that cannot be used; the message is its dead-letter reason."""


class UnsupportedVersion(BadRecord):
    """An `open` record of another format version: nothing in its file can be used."""


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
    """The record's `t` in Unix seconds, or that of the line before where it is missing or absurd."""
    t = record.get("t")
    if isinstance(t, (float, int)) and not isinstance(t, bool) and T_MIN <= t <= T_MAX:
        return float(t)
    return before


def _text(record: dict[str, Any], field: str, default: str | None) -> str:
    value = record.get(field, default)
    if not isinstance(value, str) or not value:
        raise BadRecord("bad open record")
    return value


def _integer(record: dict[str, Any], field: str, low: int, high: int, default: int) -> int:
    value = record.get(field, default)
    if type(value) is not int or not low <= value <= high:
        raise BadRecord("bad open record")
    return value


def parse_open(record: dict[str, Any]) -> Open:
    """The identity in an `open` record; raises BadRecord."""
    version = record.get("rlship", FORMAT_VERSION)
    if type(version) is not int:
        raise BadRecord("bad open record")
    if version != FORMAT_VERSION:
        raise UnsupportedVersion("unsupported format version")
    replica = record.get("replica", "0")
    if type(replica) is int:
        replica = str(replica)
    if not isinstance(replica, str):
        raise BadRecord("bad open record")
    beat = record.get("beat")
    if beat is not None and (type(beat) not in (int, float) or beat <= 0):
        raise BadRecord("bad open record")
    host, pid, writer = record.get("host"), record.get("pid"), record.get("writer")
    labels = record.get("labels")
    agent = labels.get("agent") if isinstance(labels, dict) else None
    return Open(
        id=_text(record, "id", None),
        actor=_text(record, "actor", None),
        replica=replica,
        rank=_integer(record, "rank", 0, MAX_WORLD - 1, 0),
        world=_integer(record, "world", 1, MAX_WORLD, 1) if record.get("world") is not None else None,
        attempt=_integer(record, "attempt", 0, MAX_STEP, 0),
        axis=_text(record, "axis", "global_step"),
        t=time_of(record, 0.0),
        beat=None if beat is None else float(beat),
        parent=_text(record, "parent", None) if record.get("parent") is not None else None,
        host=host if isinstance(host, str) else "",
        pid=pid if type(pid) is int else 0,
        writer=writer if isinstance(writer, str) else "",
        agent=agent if isinstance(agent, str) else "",
    )


def parse_gap(record: dict[str, Any]) -> Gap:
    """A `gap` record; raises BadRecord."""
    n, first, last = record.get("n"), record.get("from"), record.get("to")
    if type(n) is not int or n < 1:
        raise BadRecord("bad gap")
    if "from" not in record and "to" not in record:
        return Gap(n, None, None)
    if not (is_step(first) and is_step(last) and first <= last):
        raise BadRecord("bad gap")
    return Gap(n, first, last)


def parse_clock(record: dict[str, Any]) -> tuple[float, float]:
    """Offset and error bound of a `clock` record, in seconds; raises BadRecord."""
    offset, err = record.get("offset"), record.get("err")
    if not isinstance(offset, (float, int)) or not isinstance(err, (float, int)):
        raise BadRecord("bad clock")
    if isinstance(offset, bool) or isinstance(err, bool):
        raise BadRecord("bad clock")
    if not (-MAX_OFFSET_S <= offset <= MAX_OFFSET_S and 0 <= err <= MAX_OFFSET_S):
        raise BadRecord("bad clock")
    return float(offset), float(err)


def parse_define(record: dict[str, Any]) -> tuple[dict[str, Asks], list[str]]:
    """What a `define` asks for per metric, and the metrics whose entry is unusable; raises BadRecord."""
    metrics = record.get("m")
    if not isinstance(metrics, dict):
        raise BadRecord("bad define")
    asked: dict[str, Asks] = {}
    bad: list[str] = []
    for name, entry in metrics.items():
        asks = _asks(entry)
        if asks is None or not name:
            bad.append(name)
        else:
            asked[name] = asks
    return asked, bad


def _asks(entry: Any) -> Asks | None:
    if not isinstance(entry, dict):
        return None
    wanted: Any = ()
    if "reduce" in entry:
        wanted = entry["reduce"]
        if isinstance(wanted, str):
            wanted = [wanted]
        if not isinstance(wanted, list) or not wanted or not all(is_reduction(name) for name in wanted):
            return None
    unit = entry.get("unit")
    return Asks(
        tuple(dict.fromkeys(wanted)),
        entry.get("per_rank") is True,
        entry.get("stream") is True,
        unit if isinstance(unit, str) else None,
    )
