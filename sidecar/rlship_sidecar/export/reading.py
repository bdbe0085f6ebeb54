"""One writer's file from end to end, as an export needs it: who wrote it, and its records in file order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from rlship_formats.records import (
    KNOWN_KINDS,
    BadRecord,
    Open,
    UnsupportedVersion,
    parse_define,
    parse_gap,
    parse_open,
    time_of,
)
from rlship_formats.timeline import (
    Clock,
    Event,
    Sample,
    Span,
    parse_clock,
    parse_event,
    parse_sample,
    parse_span,
    step_of,
)
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import START, Descriptors, Tail

READ_BYTES = 1 << 20


class Entry(NamedTuple):
    """A record that stands on the time axis. `kind` is span, event, sample, barrier, clock or metrics; `t` is where it
    begins, in Unix seconds by its host's clock; `body` is a Span, an Event, a Sample, a Clock or a metrics record's
    `m`, None for a barrier.
    """

    kind: str
    t: float
    step: int | None
    body: Any


@dataclass(slots=True)
class WriterFile:
    """A writer's file as it was when it was first looked at: what is appended afterwards is left for the next time.

    `unusable` counts by reason what could not be used of it. `t` and `closed` are of what was read: the greatest `t` of
    a record, and the reason that the writer gave for its end.
    """

    name: str
    tail: Tail
    size: int = 0
    open: Open | None = None
    unusable: dict[str, int] = field(default_factory=dict)
    t: float | None = None
    closed: str | None = None

    def refuse(self, reason: str) -> None:
        """Count something that cannot be used."""
        self.unusable[reason] = self.unusable.get(reason, 0) + 1


class Unreadable(Exception):
    """A writer's file cannot be read. The message says why."""


def lines(file: WriterFile) -> Iterator[bytes]:
    """The complete lines of a file, in bounded memory; raises Unreadable. Lines that are too long are refused."""
    tail = file.tail.twin()
    mark, more = START, True
    while more:
        try:
            file.size = file.size or tail.size()
            piece = tail.read(mark, READ_BYTES, size=file.size)
        except OSError as problem:
            raise Unreadable(problem.strerror or str(problem)) from problem
        for _ in piece.too_long:
            file.refuse("line too long")
        for _, reason, _ in piece.dead:
            file.refuse(reason)
        yield from piece.lines
        mark, more = piece.bookmark(piece.end), piece.more


@contextmanager
def files_of(experiment: Path) -> Iterator[list[WriterFile]]:
    """The files of an experiment, of other frameworks too, by name; raises OSError where there are none."""
    files = Descriptors(1, keep=True, root=str(experiment))  # they are read one after the other
    opener = Opener(str(experiment), files)
    try:
        yield [WriterFile(name, tail) for name, tail in sorted(opener.all().items())]
    finally:
        opener.close()
        files.close()


def identify(file: WriterFile) -> None:
    """Find out who writes a file; raises Unreadable. Refuses nothing: `entries` sees the same lines."""
    for line in _unjudged(file):
        try:
            record = orjson.loads(line)
            if isinstance(record, dict) and record.get("kind") == "open":
                file.open = parse_open(record)
                return
        except UnsupportedVersion:
            return
        except ValueError:  # of which BadRecord is one
            continue


def clocks(file: WriterFile) -> Iterator[Clock]:
    """Find out who writes a file, and go through its clock records alone; raises Unreadable.

    Records that the filesystem stamps with its clients' own time (`client_time`) prove nothing and are passed over.
    Other lines are not parsed, so that a record without a time of its own has none here and is passed over. Refuses
    nothing: `entries` sees the same lines.
    """
    identify(file)
    if file.open is None:
        return
    for line in _unjudged(file):
        if b'"clock"' not in line:
            continue
        try:
            record = orjson.loads(line)
            if not isinstance(record, dict) or record.get("kind") != "clock" or record.get("client_time") is True:
                continue
            clock = parse_clock(record, 0.0)
        except ValueError:
            continue
        if clock.t:
            yield clock


def _unjudged(file: WriterFile) -> Iterator[bytes]:
    """The lines of a file, counting nothing."""
    seen = WriterFile(file.name, file.tail, file.size)
    for line in lines(seen):
        file.size = seen.size
        yield line


def entries(file: WriterFile) -> Iterator[Entry]:
    """What a file has for the time axis, in file order; raises Unreadable. Lines that cannot be used are refused."""
    opened: Open | None = None
    foreign = False
    t = 0.0
    for line in lines(file):
        try:
            record = orjson.loads(line)
        except ValueError:
            if line.strip(b" \t\r"):
                file.refuse("not JSON")
            continue
        try:
            if not isinstance(record, dict):
                raise BadRecord("not an object")
            kind = record.get("kind", "metrics")
            if kind == "open":
                if opened is not None or foreign:
                    raise BadRecord("no open record" if foreign else "second open record")
                opened = file.open = parse_open(record)
                t = file.t = opened.t
                continue
            if opened is None:
                raise BadRecord("no open record")
            entry = _entry(kind, record, t)
        except UnsupportedVersion as bad:
            foreign = True
            file.refuse(str(bad))
            continue
        except BadRecord as bad:
            file.refuse(str(bad))
            continue
        if entry is not None:
            t = entry.t
            file.t = max(t, file.t or t)
            yield entry
        elif isinstance(kind, str) and kind in KNOWN_KINDS:
            t = time_of(record, t)
            file.t = max(t, file.t or t)
            if kind == "close":
                reason = record.get("reason")
                file.closed = reason if isinstance(reason, str) else ""


def _entry(kind: object, record: dict[str, Any], before: float) -> Entry | None:
    """A record as an entry, None for one that is not on the time axis; raises BadRecord where rows have a dead letter,
    so that the same `t` is handed on.
    """
    if "kind" not in record:
        step, metrics = step_of(record), record.get("m")
        if not isinstance(metrics, dict):
            raise BadRecord("bad metrics")
        return Entry("metrics", time_of(record, before), step, metrics)
    body: Span | Event | Sample | Clock
    if kind == "span":
        body = parse_span(record, before)
        return Entry("span", body.t, body.step, body)
    if kind == "event":
        body = parse_event(record, before)
        return Entry("event", body.t, body.step, body)
    if kind == "sample":
        body = parse_sample(record, before)
        return Entry("sample", body.t, body.step, body)
    if kind == "clock":
        body = parse_clock(record, before)
        return Entry("clock", body.t, None, body)
    if kind == "barrier" or kind == "rollback":
        step = step_of(record)
        if step is None:
            raise BadRecord("bad step")
        return Entry("barrier", time_of(record, before), step, None) if kind == "barrier" else None
    if isinstance(kind, str) and kind in KNOWN_KINDS:
        step_of(record)
    if kind == "define":
        parse_define(record)
    elif kind == "gap":
        parse_gap(record)
    return None
