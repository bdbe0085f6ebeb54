"""A status for people: columns, and lines that report changes. Pure; this module prints nothing.

Names of actors, files and ranks come from the files and are not trusted: unprintable characters are escaped.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # msgspec would slow down `rlship --help`
    from rlship_sidecar.report.status import (
        ActorStatus,
        AlertStatus,
        ClockStatus,
        DeadLetterStatus,
        LackingStatus,
        NonFiniteStatus,
        ShortStatus,
        SinkStatus,
        Status,
        StreamStatus,
        WriterStatus,
    )

CRITICAL = "critical"  # the severity of an alert
COLUMNS = ("actor", "ranks", "row step", "log step", "lag", "missing", "note")
WRITER_COLUMNS = ("writer", "attempt", "step", "barrier", "silent", "unread", "file", "note")
NOTHING = "-"
MAX_LINES = 20
MAX_ROWS = 100  # rows of one table
MAX_ERROR_CHARS = 2000  # characters of an error or a note, whose end holds the way out
MUCH_UNREAD = 1_000_000  # bytes; a job that writes on always has a few that are not read yet
REPORT_AFTER_S = 10.0  # seconds of trouble before a sink is reported
_COUNT = re.compile(r"\b[0-9]+ (?:file|process)(?:s|es)?\b")  # in notes; one more of them is no news
REPORTED_TO_JOB = "reported to the job"  # how notes of wrong calls begin


def clean(text: str, limit: int = 200) -> str:
    """Return `text` on one line without control characters (they become \\x1b, \\u202e, …), cut to `limit`
    characters.
    """
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def steps_in_words(steps: Iterable[int]) -> str:
    """Format where processes are: `step 3`, or `steps 3..7` where they differ; "" without any step."""
    found = {*steps}
    if not found:
        return ""
    return f"step {min(found)}" if len(found) == 1 else f"steps {min(found)}..{max(found)}"


def duration(seconds: float) -> str:
    """Format seconds, such as 0.8 s, 42 s, 3.5 min, 2.1 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def date(t: float, local: Callable[[float], time.struct_time] = time.localtime) -> str:
    """Format Unix seconds as a date with the time of day, `2026-11-22 14:03:12`; "" if the time cannot be shown."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", local(t))
    except (OverflowError, ValueError, OSError):
        return ""


def counted(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {what}{'s' * (number != 1)}"


def size(count: int) -> str:
    """Format a number of bytes, such as 3105 bytes, 17.2 MB, 1.3 GB."""
    if count < 1_000_000:
        return counted(count, "byte")
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts numbers within names by their value: r2 before r10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((1, int(part), part) if part.isdecimal() else (0, 0, part) for part in parts if part)


def is_of_misuse(note: str) -> bool:
    """True for a note about wrong calls of the job."""
    return note.startswith(f"{REPORTED_TO_JOB} ")


class RankNames:
    """Names the ranks of one status for people: `r17`, or `rep 1 r17` where the actor has other replicas than "0"."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def words(self, actor: str, names: Sequence[str], most: int = 6) -> str:
        """At most `most` of an actor's ranks, and how many more."""
        return _listed(self._words(actor, names), most)

    def places(self, actor: str, names: Sequence[str], most: int = 6) -> str:
        """The same; each rank also with its host and process id if there are at most three."""
        return self._placed(actor, names, self._processes, most)

    def processes(self, writers: Sequence[WriterStatus], most: int = 6) -> str:
        """The same of the ranks of these writers of one actor, each rank once, with the processes of these writers."""
        ranks = list(dict.fromkeys(_rank_of(writer) for writer in writers))
        return self._placed(writers[0].actor, ranks, _newest(writers), most)

    def _placed(
        self, actor: str, names: Sequence[str], where: Mapping[tuple[str, str], WriterStatus], most: int
    ) -> str:
        words = self._words(actor, names)
        if len(names) <= 3:
            from rlship_sidecar.rows import process_place

            found = [where.get((actor, name)) for name in names]
            words = [word + (clean(process_place(w.host, w.pid), 80) if w else "") for word, w in zip(words, found)]
        return _listed(words, most)

    def _words(self, actor: str, names: Sequence[str]) -> list[str]:
        from rlship_sidecar.rows import rank_words

        return [clean(word, 40) for word in rank_words(names, self._replicas.get(actor, ()))] if names else []

    @cached_property
    def _replicas(self) -> dict[str, set[str]]:
        from rlship_sidecar.rows import split_rank

        found: dict[str, set[str]] = {}
        for writer in self._status.writers:
            found.setdefault(writer.actor, set()).add(writer.replica)
        named = [(actor.actor, [*actor.missing, *actor.absent]) for actor in self._status.actors]
        named += [(stream.actor, [*stream.missing, stream.waits_for]) for stream in self._status.streams]
        for actor, names in named:
            found.setdefault(actor, set()).update(part[0] for part in map(split_rank, names) if part is not None)
        return found

    @cached_property
    def _processes(self) -> dict[tuple[str, str], WriterStatus]:
        return _newest(self._status.writers)


def _rank_of(writer: WriterStatus) -> str:
    return f"{writer.replica}.{writer.rank}"


def _newest(writers: Iterable[WriterStatus]) -> dict[tuple[str, str], WriterStatus]:
    """The writer of each rank, by actor and rank, that names its process and is of the newest start: of the highest
    attempt, and of one attempt the one that is awaited, else the one that wrote last.
    """
    ordered = sorted(writers, key=lambda one: (one.pid > 0, one.attempt, one.awaited, -one.silent_s))
    return {(one.actor, _rank_of(one)): one for one in ordered}


def _listed(words: Sequence[str], most: int) -> str:
    shown = ", ".join(words[:most])
    return f"{shown} +{len(words) - most}" if len(words) > most else shown


def finished(status: Status) -> bool:
    """True if nothing was left to do: no line is to come, and every sink has all rows."""
    return status.finished and all(sink.next_row >= status.rows for sink in status.sinks)


def not_read(status: Status) -> str:
    """`17.2 MB not read yet` while a sidecar has that much to catch up on; else ""."""
    unread = sum(writer.unread for writer in status.writers)
    return f"{size(unread)} not read yet" if unread >= MUCH_UNREAD else ""


def failures(status: Status, most: int = MAX_LINES) -> list[str]:
    """Name the processes that ended with an error and were not started again: a line for each actor, error and step,
    at most `most`.
    """
    names = RankNames(status)
    found: dict[tuple[str, str, int | None], list[WriterStatus]] = {}
    for writer in status.writers:
        if writer.failure and writer.awaited:
            found.setdefault((writer.actor, writer.failure, writer.step), []).append(writer)
    lines = []
    for (actor, failure, step), writers in sorted(found.items(), key=lambda one: [_rank_of(each) for each in one[1]]):
        at = "" if step is None else f" at step {step}"
        lines.append(f"{clean(actor, 40)} {names.processes(writers)} ended with {clean(failure, 200)}{at}")
    if len(lines) > most:
        lines[most - 1 :] = [f"and {len(lines) - most + 1} more errors that ended processes: rlship status --json"]
    return lines


def gone_writers(status: Status) -> list[WriterStatus]:
    """The processes of the job that have certainly ended, without a close and without an error."""
    return [writer for writer in status.writers if writer.gone and writer.awaited and not writer.failure]


def _newly_gone(previous: Status | None, current: Status, names: RankNames) -> list[str]:
    """Name the processes that have ended without a close since the former status: a line for each actor and step."""
    known = {writer.file for writer in gone_writers(previous)} if previous else set()
    found: dict[tuple[str, int | None], list[WriterStatus]] = {}
    for writer in gone_writers(current):
        if writer.file not in known:
            found.setdefault((writer.actor, writer.step), []).append(writer)
    lines = []
    for (actor, step), writers in found.items():
        at = "" if step is None else f" at step {step}"
        how = "its process is" if len(writers) == 1 else "their processes are"
        lines.append(f"ended without a close: {clean(actor, 40)} {names.processes(writers)}{at}, {how} gone")
    return lines


def columns(status: Status, width: int | None = None, *, whole: bool = True, values: Sequence[str] = ()) -> list[str]:
    """The actors as a table in aligned columns, lines with the newest `values`, then the footer. A path stays whole.

    With `width`, what is missing and the note move to lines of their own where the table would be wider. Unless it is
    to be `whole`, reports of wrong calls are cut to one line of it each.
    """
    names = RankNames(status)
    cells = _cells_of(status, names)
    table = align([COLUMNS, *cells])
    if width is not None and any(len(line) > width for line in table):
        brief = align([COLUMNS[:-2], *(row[:-2] for row in cells)])
        table = brief[:1]
        for line, row in zip(brief[1:], cells):
            missing = [f"  missing {row[-2]}"] if row[-2] != NOTHING else []
            table += [line, *missing, *([f"  {row[-1]}"] if row[-1] else [])]
    alerts = [f"alert: {alert(one)}" for one in status.alerts[:MAX_LINES]]
    return [clean(status.experiment), *alerts, *table, *values, *footer(status, names, None if whole else width)]


def writer_columns(writers: Iterable[WriterStatus]) -> list[str]:
    """One aligned line for each writer, under a heading."""
    return align([WRITER_COLUMNS, *map(_writer_cells, writers)])


def footer(status: Status, names: RankNames, width: int | None = None) -> list[str]:
    """The lines below the table: rows, sinks, streams, clocks, incomplete data, and notes.

    With `width`, notes of wrong calls are cut to it.
    """
    rows = [f"and {len(status.actors) - MAX_ROWS} more actors: --json"] if len(status.actors) > MAX_ROWS else []
    rows += [f"rows {status.rows}, row function {status.row_function}{_versions(status)}"]
    rows += filter(None, [not_read(status)])
    rows += [f"sink {clean(sink.name)}: {_sink_state(sink, status.running)}" for sink in status.sinks]
    rows += [_stream(stream, names, status.running) for stream in status.streams[:MAX_LINES]]
    rows += [_clock(clock) for clock in status.clocks[:MAX_LINES]]
    rows += shortcomings(status, names)
    cut = width or sys.maxsize
    notes = [(note, f"note: {clean(note, MAX_ERROR_CHARS)}") for note in status.notes[:MAX_ROWS]]
    rows += [clean(line, cut if is_of_misuse(note) else sys.maxsize) for note, line in notes]
    return [*rows, *([f"and {len(status.notes) - MAX_ROWS} more notes: --json"] if status.notes[MAX_ROWS:] else [])]


class Incomplete(Protocol):
    """The fields that report incomplete data."""

    claims: list[str]
    lacking: list[LackingStatus]
    short: list[ShortStatus]
    nonfinite: list[NonFiniteStatus]
    dead_letters: list[DeadLetterStatus]
    dead_letter_count: int
    dead_value_count: int


def shortcomings(status: Incomplete, names: RankNames | None = None) -> list[str]:
    """Explain why data are incomplete (claims, rows that lack ranks, or one metric of a rank, values that were not
    finite, dead letters), one line each.
    """
    found = [clean(claim, MAX_ERROR_CHARS) for claim in status.claims[:MAX_LINES]]
    found += lacking_rows(status)
    found += [_short(short, names) for short in status.short[:MAX_LINES]]
    found += [f"{clean(one.actor)}: {nonfinite(one, names)}, {where_of(one)}" for one in status.nonfinite[:MAX_LINES]]
    if dead := dead_totals(status):
        found.append(dead)
    found += [f"  {_dead_letter(letter)}" for letter in status.dead_letters[:MAX_LINES]]
    return found


def lacking_rows(status: Incomplete) -> list[str]:
    """Count the rows that lack ranks, one line for each actor and kind of rows."""
    return [_lacking(lacking) for lacking in status.lacking[:MAX_LINES]]


def _versions(status: Status) -> str:
    """The versions of rlship and of what wrote the files; empty for a status that names none."""
    if not status.version:
        return ""
    writers = sorted({clean(writer.writer) for writer in status.writers if writer.writer})
    of_files = f", files by {', '.join(writers[:MAX_ROWS])}" if writers else ""
    return f", rlship {clean(status.version)}{of_files}"


def progress(status: Status) -> str:
    """One line: actors with step, ranks and lag, then rows, sinks that lack rows, and dead letters."""
    parts, streams, names = [], _by_actor(status), RankNames(status)
    for actor in status.actors[:MAX_LINES]:
        lag = f", lag {duration(actor.lag_s)}" if actor.open_units else ""
        missing = f", missing {names.words(actor.actor, actor.missing)}" if actor.missing else ""
        parts.append(f"{clean(actor.actor)} {_place(actor, streams)}, ranks {ranks(actor)}{lag}{missing}")
    if len(status.actors) > MAX_LINES:
        parts.append(f"and {len(status.actors) - MAX_LINES} more actors")
    parts.append(f"rows {status.rows}")
    parts += filter(None, [not_read(status)])
    parts += [f"{clean(sink.name)} {sink.sent} ({sink.state})" for sink in status.sinks if sink.sent < status.rows]
    parts += filter(None, [dead_totals(status)])
    return "; ".join(parts)


def lines(previous: Status | None, current: Status, *, refusals: bool = True) -> list[str]:
    """Report the changes in actors, ranks, sinks, dead letters and notes, one line each. At most MAX_LINES.

    Without `refusals` no sink is reported that refused the rows.
    """
    found = [] if previous else [f"watching {clean(current.experiment)} on {clean(current.filesystem) or 'unknown'}"]
    found += _alert_changes(previous, current)
    actors = {actor.actor: actor for actor in previous.actors} if previous else {}
    streams, names = _by_actor(current), RankNames(current)
    for actor in current.actors:
        found += _actor_changes(actors.get(actor.actor), actor, _place(actor, streams), names)
    short = {one.actor: one for one in previous.short} if previous else {}
    for one in current.short:
        found += _short_changes(short.get(one.actor), one, names)
    found += _nonfinite_changes(previous, current, names)
    sinks = {sink.name: sink for sink in previous.sinks} if previous else {}
    for sink in current.sinks:
        if sink.state == "refused" and not refusals:
            continue
        found += _sink_changes(sinks.get(sink.name), sink)
    known = {(letter.file, letter.reason) for letter in previous.dead_letters} if previous else set()
    found += [_dead_letter(letter) for letter in current.dead_letters if (letter.file, letter.reason) not in known]
    found += _newly_gone(previous, current, names)
    failed = set(failures(previous)) if previous else set()
    found += [line for line in failures(current) if line not in failed]
    noted = {_COUNT.sub("", note) for note in _notes(previous)} if previous else set()
    found += [f"note: {note}" for note in _notes(current) if _COUNT.sub("", note) not in noted]
    if len(found) > MAX_LINES:
        found[MAX_LINES - 1 :] = [f"and {len(found) - MAX_LINES + 1} more changes: see `rlship status`"]
    return found


def alert(one: AlertStatus) -> str:
    """An episode in one line: `critical divergence at trainer/0.3 since step 12: kl 0.2`."""
    place = f" at {clean(one.place, 60)}" if one.place else ""
    values = ", ".join(f"{clean(name, 64)} {value:.4g}" for name, value in one.evidence.items())
    calm = "" if one.state == "firing" else f", calm since step {one.last_step}"
    return f"{one.severity} {clean(one.rule, 64)}{place} since step {one.first_step}{calm}{': ' * bool(values)}{values}"


def _alert_changes(previous: Status | None, current: Status) -> list[str]:
    """The episodes that began, those that are critical now, and those that are not there any more."""
    before = {one.id: one for one in previous.alerts} if previous else {}
    found = [f"alert: {alert(one)}" for one in current.alerts if one.id not in before]
    worse = [one for one in current.alerts if one.id in before and one.severity != before[one.id].severity]
    found += [f"worse: {alert(one)}" for one in worse if one.severity == CRITICAL]
    now = {one.id for one in current.alerts}
    return found + [f"over: {alert(one)}" for id, one in before.items() if id not in now]


def _actor_changes(before: ActorStatus | None, now: ActorStatus, place: str, names: RankNames) -> list[str]:
    name = clean(now.actor)
    found = []
    if before is None:
        found.append(f"{name}: {ranks(now)} ranks")
    elif not before.missing and present(before) < before.ranks_expected and present(now) == now.ranks_expected:
        found.append(f"{name}: all {now.ranks_expected} ranks")
    missing = set(before.missing) if before else set()
    absent = set(before.absent) if before else set()
    if lost := [rank for rank in now.missing if rank not in missing]:
        found.append(f"{name} {place}: missing {names.places(now.actor, lost)}")
    if before and (back := [rank for rank in before.missing if rank not in now.missing]):
        found.append(f"{name} {place}: {names.words(now.actor, back)} no longer missing")
    if never := [rank for rank in now.absent if rank not in absent]:
        found.append(f"{name}: {names.words(now.actor, never)} {_has(never)} logged no step; not waited for")
    return found


def _sink_changes(before: SinkStatus | None, now: SinkStatus) -> list[str]:
    name = clean(now.name)
    was = before.state if before else ""
    lost = before is not None and _is_lost(before)
    if _is_lost(now):
        if lost:
            return []
        seconds, kept = duration(now.trouble_s), f"rows from {now.next_row} on are kept in the store"
        return [
            f"sink {name}: cannot deliver for {seconds} now, tries again: {clean(now.error, MAX_ERROR_CHARS)}; {kept}"
        ]
    if now.state == "refused":
        return [] if was == "refused" else [refusal(now)]
    if now.state == "closed":
        return [] if was == "closed" else [f"sink {name}: closed, holds {counted(now.next_row, 'row')}{_where(now)}"]
    if before is not None and (lost or was in ("refused", "closed")):
        return [f"sink {name}: delivers again from row {before.next_row} on{_where(now)}"]
    if before is None:
        return [f"sink {name}{_where(now)}"] if now.where else []
    # A change between shipping and idle is not reported, but the place of the rows may be known only now.
    return [f"sink {name}{_where(now)}"] if now.where != before.where and now.where else []


def refusal(sink: SinkStatus) -> str:
    """Report that a sink refused the rows; the end of its error is the way out."""
    return f"sink {clean(sink.name)}: refused: {clean(sink.error, MAX_ERROR_CHARS)}"


def _is_lost(sink: SinkStatus) -> bool:
    return sink.state == "waiting" and sink.trouble_s > REPORT_AFTER_S


def _notes(status: Status) -> list[str]:
    """The notes of the experiment, its actors and its writers, without duplicates.

    The ranks that an actor waits for change too often to be a note.
    """
    notes = [clean(note, MAX_ERROR_CHARS) for note in (*status.claims, *status.notes)]
    notes += [
        f"{clean(actor.actor)}: {clean(actor.note)}" for actor in status.actors if actor.note and not actor.waiting
    ]
    notes += [f"{clean(writer.file)}: {clean(writer.note)}" for writer in status.writers if writer.note]
    return list(dict.fromkeys(notes))


def _by_actor(status: Status) -> dict[str, StreamStatus]:
    return {stream.actor: stream for stream in status.streams}


def _place(actor: ActorStatus, streams: Mapping[str, StreamStatus]) -> str:
    """How far an actor's rows reach: to a step, or without steps to a time."""
    stream = streams.get(actor.actor)
    if actor.step is not None or stream is None:
        return f"step {_number(actor.step)}"
    return _reach(stream)


def reach_of(status: Status, actor: str) -> str:
    """How far the rows of an actor without steps of its own reach."""
    stream = _by_actor(status).get(actor)
    return NOTHING if stream is None else _reach(stream)


def _reach(stream: StreamStatus) -> str:
    ends = [f"step {stream.step}"] if stream.step is not None else []
    ends += [f"{stream.elapsed_s:.1f} s after the start"] if stream.elapsed_s is not None else []
    return f"up to {' and '.join(ends)}" if ends else "at the beginning"


def _cells_of(status: Status, names: RankNames) -> list[tuple[str, ...]]:
    streams = _by_actor(status)
    actors = status.actors[:MAX_ROWS]
    return [_actor_cells(actor, streams.get(actor.actor), names, status.running) for actor in actors]


def _actor_cells(actor: ActorStatus, stream: StreamStatus | None, names: RankNames, running: bool) -> tuple[str, ...]:
    # Without a sidecar no step is waited for, and the lag is that of its last moment.
    newest = max((step for step in (actor.step, actor.open_step) if step is not None), default=None)
    absent = f"{names.words(actor.actor, actor.absent)} {_has(actor.absent)} logged no step" if actor.absent else ""
    return (
        clean(actor.actor, 40),
        ranks(actor),
        _number(actor.step),
        _number(newest),
        duration(actor.lag_s) if actor.open_units and running else NOTHING,
        names.places(actor.actor, actor.missing) or NOTHING,
        (clean(actor.note, MAX_ERROR_CHARS) if running or not actor.waiting else "")
        or absent
        or ("" if stream is None or actor.step is not None else _silence(stream) or "see stream"),
    )


def _writer_cells(writer: WriterStatus) -> tuple[str, ...]:
    return (
        clean(f"{writer.actor}/{writer.replica}/r{writer.rank}", 40) if writer.actor else NOTHING,
        str(writer.attempt) if writer.actor else NOTHING,
        _number(writer.step),
        _number(writer.barrier),
        "closed" if writer.closed else "failed" if writer.failure else duration(writer.silent_s),
        f"{writer.unread} B",
        clean(writer.file) + (f" ({clean(writer.format)})" if writer.format else ""),
        clean(writer.note, MAX_ERROR_CHARS),
    )


def is_stopped(sink: SinkStatus, *, is_watched: bool) -> bool:
    """True if the state of a sink is one of the past: it was at work, and no sidecar runs now."""
    return not is_watched and sink.state not in ("refused", "closed")


def _sink_state(sink: SinkStatus, running: bool) -> str:
    error = f": {clean(sink.error, MAX_ERROR_CHARS)};" if sink.error else ","
    held, stopped = f"confirmed {counted(sink.next_row, 'row')}", is_stopped(sink, is_watched=running)
    if sink.sent > sink.next_row and stopped:
        held = f"written {counted(sink.sent, 'row')}, {sink.next_row} of them confirmed, the rest by the next sidecar"
    elif sink.sent > sink.next_row:
        soon = " within 30 s" if not sink.error else " later"
        first = f"{sink.next_row} of them confirmed, the rest" if sink.next_row else "to be confirmed"
        held = f"written {counted(sink.sent, 'row')}, {first}{soon}"
    return f"{'stopped' if stopped else sink.state}{error} {held}{_where(sink)}"


def _where(sink: SinkStatus) -> str:
    return f" -> {clean(sink.where, MAX_ERROR_CHARS)}" if sink.where else ""


def _stream(stream: StreamStatus, names: RankNames, running: bool) -> str:
    behind = f", {duration(stream.lag_s)} behind its newest line" if stream.until is not None else ""
    waits = f", waits for {names.words(stream.actor, [stream.waits_for])}" if stream.waits_for and running else ""
    silence = f" ({_silence(stream)})" if stream.silent_s else ""
    missing = f", missing {names.places(stream.actor, stream.missing)}{silence}" if stream.missing else ""
    return f"stream {clean(stream.actor)}: rows {_reach(stream) if behind else 'not yet'}{behind}{waits}{missing}"


def _silence(stream: StreamStatus) -> str:
    return f"silent for {duration(stream.silent_s)}, did not close" if stream.silent_s else ""


def _clock(clock: ClockStatus) -> str:
    way = "ahead" if clock.offset_s >= 0 else "behind"
    offset = f"{abs(clock.offset_s):.3f} s {way} ± {clock.error_s:.3f} s"
    return f"clock of {clean(clock.host, 40)}: {offset}, {duration(clock.age_s)} ago"


def _lacking(lacking: LackingStatus) -> str:
    verb = "lacks" if lacking.rows == 1 else "lack"
    return f"{clean(lacking.actor)}: {counted(lacking.rows, 'row')} {verb} ranks, {_units_of(lacking)}"


def _units_of(found: LackingStatus | NonFiniteStatus) -> str:
    """`step 7`, `steps 5..60`, `over time, 40.0 s after the start`."""
    first, last = found.first, found.last
    if found.first_s is not None and found.last_s is not None:
        begin = f"{found.first_s:.1f}" if first == last else f"{found.first_s:.1f}..{found.last_s:.1f}"
        return f"over time, {begin} s after the start"
    what = {"step": "step", "aligned": "beside step", "clock": "window"}.get(found.kind, "byte")
    return f"{what} {first}" if first == last else f"{what}s {first}..{last}"


def nonfinite(found: NonFiniteStatus, names: RankNames | None, most: int = 4) -> str:
    """Which metrics were NaN or infinite, and whose, at most `most` of each: `loss, kl were not finite: r1`."""
    from rlship_sidecar.rows import rank_words

    metrics = [clean(_bare(found, key), 60) for key in found.metrics]
    more = f" and {len(metrics) - most} more" if len(metrics) > most else ""
    if names is None:
        ranks = _listed([clean(word) for word in rank_words(found.ranks)], most)
    else:
        ranks = names.words(found.actor, found.ranks, most)
    return f"{', '.join(metrics[:most])}{more} {'was' if len(metrics) == 1 else 'were'} not finite: {ranks}"


def where_of(found: NonFiniteStatus) -> str:
    """In which rows: `step 7`, `56 rows, steps 5..60`."""
    return _units_of(found) if found.rows == 1 else f"{found.rows} rows, {_units_of(found)}"


def _bare(found: NonFiniteStatus, key: str) -> str:
    return key.removeprefix("clock/").removeprefix(f"{found.actor}/")


def _nonfinite_changes(previous: Status | None, current: Status, names: RankNames) -> list[str]:
    """The metrics of which an observation was not finite for the first time, or of which that is so of other ranks."""
    known = {(key, *one.ranks) for one in previous.nonfinite for key in one.metrics} if previous else set()
    new = [one for one in current.nonfinite if any((key, *one.ranks) not in known for key in one.metrics)]
    return [f"{clean(one.actor)}: {nonfinite(one, names)}, {where_of(one)}" for one in new]


def _short(short: ShortStatus, names: RankNames | None) -> str:
    where = _steps(short.first, short.last)
    lack = "lacks" if short.rows == 1 else "lack"
    of = f"; of the newest {short.of_newest}" if short.of_newest else ""
    what = left_out(short.actor, short.metrics, names, varied=short.varied)
    gone = left_out(short.actor, short.stopped, names, verb="stopped logging")
    later = f". Later rows lack it too and do not say so: {gone}" if gone else ""
    return f"{clean(short.actor)}: {counted(short.rows, 'row')} {lack} a metric of a rank, {where}{of}: {what}{later}"


def left_out(
    actor: str,
    metrics: Mapping[str, Sequence[str]],
    names: RankNames | None,
    most: int = 4,
    varied: Sequence[str] = (),
    verb: str = "left out",
) -> str:
    """Which ranks left out which metrics, at most `most` of each: `r3 left out loss, grad_norm; r4-7 left out kl`.

    Of the metrics `varied`, each row lacks only some of these ranks: `some of r4-7 left out kl`.
    """
    from rlship_sidecar.rows import rank_words

    by_ranks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for key, ranks in metrics.items():
        of = "some of " if key in varied else ""
        by_ranks.setdefault((of, tuple(ranks)), []).append(clean(key.removeprefix(f"{actor}/"), 60))

    def words(ranks: tuple[str, ...]) -> str:
        return ", ".join(map(clean, rank_words(ranks))) if names is None else names.words(actor, ranks)

    parts = [
        f"{of}{words(ranks)} {verb} {', '.join(found[:most])}"
        + (f" and {len(found) - most} more" if len(found) > most else "")
        for (of, ranks), found in by_ranks.items()
    ]
    return "; ".join(parts[:most]) + (f"; and {len(parts) - most} more" if len(parts) > most else "")


def _short_changes(before: ShortStatus | None, now: ShortStatus, names: RankNames) -> list[str]:
    """The metrics that ranks have newly left out: in the newest such row, and in rows before it."""
    known = before.metrics if before is not None else {}
    last = _new_ranks(known, now.of_last)
    others = _new_ranks(known, _new_ranks(now.of_last, now.metrics))
    found = [(f"step {now.last}", last), *_at_steps(now, others)]
    return [f"{clean(now.actor)} {at}: {left_out(now.actor, new, names)}" for at, new in found if new]


def _at_steps(short: ShortStatus, ranks: Mapping[str, Sequence[str]]) -> list[tuple[str, dict[str, list[str]]]]:
    """Where these ranks of each metric are short, the newest steps first."""
    from rlship_sidecar.align.lineage import rank_names
    from rlship_sidecar.rows import each_rank

    found: dict[tuple[int, int], dict[str, list[str]]] = {}
    for metric, names in ranks.items():
        left = {*each_rank(names)}
        for of, first, last in short.spans.get(metric, ()):
            here = left & {*each_rank(of)}
            left -= here
            if here:
                found.setdefault((last, first), {})[metric] = list(rank_names(here))
    return [(_steps(first, last), new) for (last, first), new in sorted(found.items(), reverse=True)]


def _steps(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first}..{last}"


def _new_ranks(known: Mapping[str, Sequence[str]], metrics: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The ranks of each metric that are not `known` for it; without the metrics that have none."""
    from rlship_sidecar.align.lineage import rank_names
    from rlship_sidecar.rows import each_rank

    new = {key: {*each_rank(ranks)} - {*each_rank(known.get(key, ()))} for key, ranks in metrics.items()}
    return {key: list(rank_names(ranks)) for key, ranks in new.items() if ranks}


def dead_totals(status: Incomplete) -> str:
    """`3 dead letters, 1 dead value`, or ""."""
    letters, values = status.dead_letter_count, status.dead_value_count
    found = [counted(letters, "dead letter")] if letters else []
    found += [counted(values, "dead value")] if values else []
    return ", ".join(found)


def _dead_letter(letter: DeadLetterStatus) -> str:
    where = f"{clean(letter.file)} byte {letter.offset}"
    times = f" ({letter.count} times)" if letter.count > 1 else ""
    excerpt = f": {clean(letter.excerpt, 60)}" if letter.excerpt else ""
    return f"dead: {clean(letter.reason)}{times}, {where}{excerpt}"


def ranks(actor: ActorStatus) -> str:
    """`3/4`: the present and the expected number of an actor's ranks."""
    return f"{present(actor)}/{actor.ranks_expected}"


def present(actor: ActorStatus) -> int:
    """The number of ranks in the newest row. Without rows of steps, the ranks that have opened a file and did not
    die.
    """
    from rlship_sidecar.rows import count_ranks

    if actor.step is None:
        return max(0, actor.ranks_seen - count_ranks(actor.missing))
    return max(0, actor.ranks_expected - count_ranks(actor.missing) - count_ranks(actor.absent))


def _has(ranks: Sequence[str]) -> str:
    return "has" if _one(ranks) else "have"


def _one(ranks: Sequence[str]) -> bool:
    return len(ranks) == 1 and "-" not in ranks[0].rpartition(".")[2]


def _number(step: int | None) -> str:
    return NOTHING if step is None else str(step)


def align(cells: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of cells as lines, each column as wide as its widest cell."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
