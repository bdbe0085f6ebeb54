"""The lines of one writer's file, one after the other: no I/O, no clock.

`FileReader` decides what cannot be used. This module explains why, and reports which other rules are broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from rlship_formats.reading import (
    Barrier,
    Close,
    DeadEntry,
    DeadLetter,
    Define,
    Event,
    FileReader,
    Later,
    Metrics,
    Record,
    Rollback,
    Sample,
    Span,
    Unknown,
)
from rlship_formats.records import T_MAX, T_MIN, Open
from rlship_sidecar.checking import syntax
from rlship_sidecar.checking.finding import ERROR, HOLE, WARNING, Finding, Reason, shown
from rlship_sidecar.checking.members import bad_entry, bad_record, bad_value

MAX_NAME = 1000
_MAX_NAMES = 100_000  # of metrics, kept for the defines after them
_SHORTEST_ID = 11  # 64 random bits as characters, if each is one of about 64
_WHOLE = {
    "not an object": Reason("the line is JSON, but not an object", 'write one object a line: {"t":…,"step":…,"m":{…}}'),
    "no open record": Reason(
        "no usable `open` stands before it", "write an `open` as the first line of every file; see section 5.1"
    ),
    "second open record": Reason(
        "the file has an `open` already", "open a new file in each process: never append to an existing one"
    ),
}
_TOO_LONG = Reason(
    "the line has more than 1048576 bytes",
    "split it between metrics or within an array; cut texts, and record that in `cut`",
)


class FileCheck:
    """The state after the lines so far, to judge the next one. `errors` and `warnings` are counts."""

    def __init__(self) -> None:
        self.errors = 0
        self.warnings = 0
        self.lines = 0
        self._reader = FileReader()
        self._closed = False
        self._promised = -1  # the highest barrier of the segment
        self._tagged: set[tuple[int, str]] = set()
        self._further: dict[str, tuple[str, str]] = {}  # keys of further reductions: the metric and its reduction
        self._logged: set[str] = set()

    def line(self, line: bytes, at: int) -> list[Finding]:
        """Check a line (without its LF) that begins at the byte `at`."""
        self.lines += 1
        return self._counted([*self._looked(line, at)])

    def too_long(self, at: int) -> list[Finding]:
        """Report a line that exceeds the maximum length."""
        self.lines += 1
        return self._counted([self._found(at, ERROR, "line too long", _TOO_LONG)])

    def end(self, size: int, complete: int, *, hole: bool = False) -> list[Finding]:
        """Check the end of a file of `size` bytes, of which `complete` bytes are lines with an LF. `hole`: NUL bytes
        follow them.
        """
        found = []
        if not self.lines:
            why = Reason(
                "the file has no line that ends in an LF",
                "write an `open`, and an LF after it, as soon as there is a file",
            )
            found.append(self._at_end(complete, "no line", why))
        elif size > complete and hole:
            found.append(self._at_end(complete, "unfinished line", Reason(HOLE[0].format(size - complete), HOLE[1])))
        elif size > complete:
            why = Reason(
                f"{size - complete} bytes after the last LF are not a line yet, and readers ignore them",
                "nothing, if the process died in a write or still writes; otherwise end each record with an LF",
            )
            found.append(self._at_end(complete, "unfinished line", why))
        return self._counted(found)

    def _counted(self, found: list[Finding]) -> list[Finding]:
        errors = sum(one.level == ERROR for one in found)
        self.errors += errors
        self.warnings += len(found) - errors
        return found

    def _found(self, at: int, level: str, what: str, reason: Reason, metric: str | None = None) -> Finding:
        return Finding(self.lines, at, level, what, reason.why, reason.fix, reason.column, metric)

    def _at_end(self, at: int, what: str, reason: Reason) -> Finding:
        return Finding(self.lines + 1, at, WARNING, what, reason.why, reason.fix)

    def _looked(self, line: bytes, at: int) -> Iterator[Finding]:
        record = self._reader.read(line)
        if record is None:
            return
        if record == DeadLetter("line too long"):
            yield self._found(at, ERROR, "line too long", _TOO_LONG)
            return
        if record == DeadLetter("not JSON"):
            yield self._found(at, ERROR, "not JSON", syntax.not_json(line))
            return
        body = orjson.loads(line)
        for name in syntax.twice(line):
            why = f"the name {shown(name)} occurs twice in one object, and readers take the last"
            yield self._found(at, WARNING, "duplicate name", Reason(why, "write each once"))
        if isinstance(record, DeadLetter):
            yield self._found(at, ERROR, record.reason, _WHOLE.get(record.reason) or bad_record(record, body))
            return
        for name, what in _dead_entries(record):
            reason = (bad_entry if isinstance(record, Define) else bad_value)(name, body["m"][name])
            yield self._found(at, ERROR, what, reason, name)
        for what, reason in self._rules(record, body):
            yield self._found(at, WARNING, what, reason)

    def _rules(self, record: Record, body: dict[str, Any]) -> Iterator[tuple[str, Reason]]:
        if isinstance(record, Unknown):
            why = f"`kind` is {shown(body['kind'])}, which readers ignore"
            yield "unknown kind", Reason(why, "a metrics record has no `kind`")
            return
        if isinstance(record, Open):
            yield from _open_rules(body)
        elif self._closed:
            why = "it follows a `close`, which ends the file"
            yield "after close", Reason(why, "write the `close` last")
        if not isinstance(record, Define):
            yield from _time_rules(body)
        if not isinstance(record, Open):
            yield from self._step_rules(record)
        yield from _name_rules(body)
        if isinstance(record, (Define, Metrics)):
            yield from self._key_rules(record)
        if isinstance(record, Close):
            self._closed = True

    def _step_rules(self, record: Later) -> Iterator[tuple[str, Reason]]:
        if isinstance(record, Rollback):
            self._promised = record.step - 1
            self._tagged.clear()
        elif isinstance(record, Barrier):
            self._promised = max(self._promised, record.step)
        elif isinstance(record, (Metrics, Span, Event, Sample)) and record.step is not None:
            if isinstance(record, Event) and record.tag:
                yield from self._tag_rules(record.step, record.tag)
            if record.step <= self._promised:
                why = f"step {record.step} comes after barrier {self._promised}, which promised that it would not"
                fix = "write the barrier when the step is done; where the process goes back, write a rollback first"
                yield "behind its barrier", Reason(why, fix)

    def _key_rules(self, record: Define | Metrics) -> Iterator[tuple[str, Reason]]:
        """A metric under the key of a reduction that a define asks for: the metric has the key. Each is found once."""
        if isinstance(record, Metrics):
            found = self._further.keys() & record.m.keys() if self._further else ()
            if len(self._logged) < _MAX_NAMES:
                self._logged.update(record.m)
        else:
            for name, asked in record.m.items():
                self._further.update((f"{name}/{more}", (name, more)) for more in (asked.reduce or ())[1:])
            found = self._further.keys() & self._logged
        for key in sorted(found):
            name, more = self._further.pop(key)
            why = f"{shown(key)} is a metric and the key of the {more} of {shown(name)}: rows have the metric alone"
            yield "shared key", Reason(why, "give one of the two another name")

    def _tag_rules(self, step: int, tag: str) -> Iterator[tuple[str, Reason]]:
        if (step, tag) in self._tagged:
            yield "tag twice", Reason(f"the tag {shown(tag)} of step {step} is in the file already", "write it once")
        self._tagged.add((step, tag))


def _dead_entries(record: Record) -> list[DeadEntry]:
    """The values, or entries of a `define`, that cannot be used."""
    if isinstance(record, Metrics):
        return record.observed()[1]
    return record.dead if isinstance(record, Define) else []


def _open_rules(record: dict[str, Any]) -> Iterator[tuple[str, Reason]]:
    missing = [name for name in ("rlship", "t", "host", "pid", "writer") if name not in record]
    if missing:
        yield "incomplete open", Reason(f"{', '.join(f'`{name}`' for name in missing)} should be present", "write them")
    rank, world = record.get("rank", 0), record.get("world")
    if world is not None and rank >= world:
        why = Reason(
            f"rank {rank} is not below world {world}", "count ranks from 0, or leave `world` out if it is not known"
        )
        yield "rank beyond world", why
    if len(record["id"]) < _SHORTEST_ID:
        why = Reason(f"the id {shown(record['id'])} is too short to be unique", "write 16 random hex digits")
        yield "short id", why


def _time_rules(record: dict[str, Any]) -> Iterator[tuple[str, Reason]]:
    fix = "write Unix time in seconds, as a number such as 1763600000.123"
    t = record.get("t")
    if t is None:
        yield "no time", Reason("`t` is missing, so the time of the record before it counts", fix)
    elif isinstance(t, bool) or not isinstance(t, (int, float)):
        yield "absurd time", Reason(f"`t` is {shown(t)}, not a number, so the time of the record before it counts", fix)
    elif not T_MIN <= t <= T_MAX:
        unit = "milliseconds" if T_MIN <= t / 1e3 <= T_MAX else "nanoseconds" if T_MIN <= t / 1e9 <= T_MAX else ""
        why = f"`t` is {shown(t)}, not within the years 2000 to 2100" + (f": it looks like {unit}" if unit else "")
        yield "absurd time", Reason(why + "; the time of the record before it counts", fix)


def _name_rules(record: dict[str, Any]) -> Iterator[tuple[str, Reason]]:
    names = record["m"] if isinstance(record.get("m"), dict) else ()
    for name in names:
        if len(name) > MAX_NAME:
            why = f"the name {shown(name)} has {len(name)} characters"
            yield "long name", Reason(why, f"names have at most {MAX_NAME}; put texts into events or samples")
            return
