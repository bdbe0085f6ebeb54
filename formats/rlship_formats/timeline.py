"""Records that stand on a time axis: spans, events, samples and clock offsets, with all that they tell.

Whether a record can be used is decided as for rows, by `rlship_formats.standing` and `rlship_formats.records`, which
raise `BadRecord`. What only a time axis shows is left out where it is unusable. `before` is the `t` of the line before,
which a record without a usable one takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rlship_formats import records
from rlship_formats.records import BadRecord, is_step, time_of
from rlship_formats.standing import stands_for

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


class Sample(NamedTuple):
    """A row of `table`, offered at `t` (Unix seconds). `score` None: none, or not a finite one; `pri` is in 0..1. `cut`
    is what the record says of texts that were shortened, None if nothing.
    """

    table: str
    t: float
    step: int | None
    score: float | None
    pri: float
    row: dict[str, Any]
    cut: Any


class Clock(NamedTuple):
    """At `t` (Unix seconds, of this host's clock) that clock was `offset` seconds ahead of the file server's, give or
    take `err`.
    """

    t: float
    offset: float
    err: float


def parse_span(record: dict[str, Any], before: float) -> Span:
    """A `span` record; raises BadRecord."""
    step, t = step_of(record), time_of(record, before)
    dur = stands_for("span", record, t).value
    lane, err = record.get("lane"), record.get("err")
    return Span(
        record["name"],
        lane if isinstance(lane, str) else MAIN_LANE,
        t,
        dur,
        step,
        err if isinstance(err, str) else None,
    )


def parse_event(record: dict[str, Any], before: float) -> Event:
    """An `event` record; raises BadRecord."""
    step, t = step_of(record), time_of(record, before)
    stands_for("event", record, t)
    attrs = record.get("attrs")
    return Event(record["name"], t, step, attrs if isinstance(attrs, dict) else {})


def parse_sample(record: dict[str, Any], before: float) -> Sample:
    """A `sample` record; raises BadRecord."""
    step, t = step_of(record), time_of(record, before)
    facts = stands_for("sample", record, t).sample
    assert facts is not None
    return Sample(facts.table, t, step, facts.score, facts.pri, record["row"], record.get("cut"))


def parse_clock(record: dict[str, Any], before: float) -> Clock:
    """A `clock` record; raises BadRecord."""
    step_of(record)
    return Clock(time_of(record, before), *records.parse_clock(record))


def step_of(record: dict[str, Any]) -> int | None:
    """The record's step, None if it has none; raises BadRecord."""
    if "step" not in record:
        return None
    step = record["step"]
    if not is_step(step):
        raise BadRecord("bad step")
    return step
