"""Records that stand on a time axis: spans, events and clock offsets, checked field by field.

Like `rlship_formats.records` this takes a parsed line and gives plain data, or raises `BadRecord` with a dead letter's
reason. `before` is the `t` of the line before, which a record without a usable one takes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlship_formats.records import BadRecord, is_step, time_of

MAIN_LANE = "main"


class Span(NamedTuple):
    """Something that took from `t` (Unix seconds) for `dur` seconds in `lane`, a thread or a task.

    `step` is that of its end, None in a stream. `err` is the name of the exception that left it, or None.
    """

    name: str
    lane: str
    t: float
    dur: float
    step: int | None
    err: str | None


class Event(NamedTuple):
    """Something that happened at `t` (Unix seconds)."""

    name: str
    t: float
    step: int | None
    attrs: dict[str, Any]


class Clock(NamedTuple):
    """At `t` (Unix seconds, of this host's clock) that clock was `offset` seconds ahead of the file server's, give or
    take `err`; None where the record does not say.
    """

    t: float
    offset: float
    err: float | None


def parse_span(record: dict[str, Any], before: float) -> Span:
    """A `span` record; raises BadRecord."""
    lane, err = record.get("lane", MAIN_LANE), record.get("err")
    dur = _finite(record.get("dur"), "bad span")
    if dur < 0 or not isinstance(lane, str) or not (err is None or isinstance(err, str)):
        raise BadRecord("bad span")
    return Span(_name(record, "bad span"), lane, time_of(record, before), dur, step_of(record), err)


def parse_event(record: dict[str, Any], before: float) -> Event:
    """An `event` record; raises BadRecord."""
    attrs = record.get("attrs", {})
    if not isinstance(attrs, dict):
        raise BadRecord("bad event")
    return Event(_name(record, "bad event"), time_of(record, before), step_of(record), attrs)


def parse_clock(record: dict[str, Any], before: float) -> Clock:
    """A `clock` record; raises BadRecord."""
    err = record.get("err")
    offset = _finite(record.get("offset"), "bad clock")
    bound = None if err is None else _finite(err, "bad clock")
    if bound is not None and bound < 0:
        raise BadRecord("bad clock")
    return Clock(time_of(record, before), offset, bound)


def step_of(record: dict[str, Any]) -> int | None:
    """The record's step, None if it has none; raises BadRecord."""
    if "step" not in record:
        return None
    step = record["step"]
    if not is_step(step):
        raise BadRecord("bad step")
    return step


def _name(record: dict[str, Any], reason: str) -> str:
    name = record.get("name")
    if not isinstance(name, str) or not name:
        raise BadRecord(reason)
    return name


def _finite(value: object, reason: str) -> float:
    if isinstance(value, float | int) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            raise BadRecord(reason) from None
        if math.isfinite(number):
            return number
    raise BadRecord(reason)
