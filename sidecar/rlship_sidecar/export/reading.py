"""One writer's file from end to end, as an export needs it: its `open` record, and its records in file order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from rlship_formats.foreign import trl_completions
from rlship_formats.reading import (
    Barrier,
    Clock,
    Close,
    DeadLetter,
    Event,
    FileReader,
    Ledger,
    Metrics,
    Rollback,
    Run,
    Sample,
    Span,
    Unknown,
)
from rlship_formats.records import Open
from rlship_sidecar.tail.listing import is_foreign
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import START, Descriptors, Position, Tail

READ_BYTES = 1 << 20
MAX_LEFT_OUT = 256  # lines
_KINDS = {
    Metrics: "metrics",
    Span: "span",
    Event: "event",
    Sample: "sample",
    Barrier: "barrier",
    Clock: "clock",
    Run: "run",
    Ledger: "ledger",
}


class Entry(NamedTuple):
    """A record on the time axis. `kind` is span, event, sample, barrier, clock, run, ledger or
    metrics.

    `t` is where it begins, in Unix seconds by its host's clock. `body` is a Span, an Event, a Sample, a Clock, a Run,
    a Ledger or a metrics record's `m`; None for a barrier. `segment` counts the rollbacks before it in its file.
    """

    kind: str
    t: float
    step: int | None
    body: Any
    segment: int = 0


@dataclass(slots=True)
class WriterFile:
    """A writer's file as it was at the first look; lines that are appended later are not part of it.

    `on_read` is called with the number of bytes of each piece that was read, or passed over. `unusable` counts lines
    that cannot be used, by reason. `t` is the greatest time of a record, and `closed` the reason that the writer gave
    for its end, both among the lines read. `labels` are those
    of its `open`. `originals` are the samples of which this file may have copies. `adopted`: so many of its first lines
    are of a step, unless they have one themselves or none on purpose; None: it is not known yet.
    """

    name: str
    tail: Tail
    size: int = 0
    open: Open | None = None
    unusable: dict[str, int] = field(default_factory=dict)
    t: float | None = None
    closed: str | None = None
    on_read: Callable[[int], None] = lambda count: None
    labels: dict[str, str] = field(default_factory=dict)
    originals: Originals | None = None
    adopted: tuple[int, int] | None = None

    @property
    def anew(self) -> WriterFile:
        """The same file, of which nothing is counted."""
        return WriterFile(self.name, self.tail, self.size)

    def refuse(self, reason: str) -> None:
        """Count a line that cannot be used."""
        self.unusable[reason] = self.unusable.get(reason, 0) + 1


class Unreadable(Exception):
    """A writer's file cannot be read. The message gives the reason."""


def lines(file: WriterFile) -> Iterator[bytes]:
    """The complete lines of a file, in bounded memory; raises Unreadable. Lines that are too long are counted as
    unusable.
    """
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
        file.on_read(piece.end - mark.offset)
        mark, more = piece.position(piece.end), piece.more


@contextmanager
def files_of(experiment: Path) -> Iterator[list[WriterFile]]:
    """The files of an experiment by name, including other frameworks'; raises OSError if it has no folder of them."""
    files = Descriptors(1, keep=True, root=str(experiment))  # they are read one after the other
    opener = Opener(str(experiment), files)
    try:
        found = [WriterFile(name, tail) for name, tail in sorted(opener.all().items())]
        originals = Originals(found)
        for file in found:
            file.originals = originals
        yield found
    finally:
        opener.close()
        files.close()


def identify(file: WriterFile) -> None:
    """Find the `open` record of a file; raises Unreadable. Counts no unusable lines: `entries` sees the same lines."""
    reader = FileReader()
    for line in _unjudged(file):
        reader.read(line)
        if reader.opened is not None or reader.unsupported:
            break
    file.open = reader.opened


def clocks(file: WriterFile) -> Iterator[Clock]:
    """Find the `open` record of a file, and read its clock records alone; raises Unreadable.

    Counts no unusable lines: `entries` sees the same lines.
    """
    identify(file)
    if file.open is not None:
        found = list(_clocks(file, all_lines=False))
        if any(math.isnan(clock.t) for clock in found):  # a clock record inherits the `t` of a line that was not read
            found = list(_clocks(file, all_lines=True))
        yield from found


def _clocks(file: WriterFile, *, all_lines: bool) -> Iterator[Clock]:
    """The clock records of a file.

    Without `all_lines` it parses only lines that may be clock records, as they are few. Then a record without a time of
    its own has the time NaN.
    """
    reader = FileReader()
    for line in _unjudged(file):
        # A backslash may hide the word, because JSON can write any character as an escape.
        if not all_lines and reader.opened is not None:
            if b'"clock"' not in line and b"\\" not in line:
                continue
            reader.t = math.nan
        record = reader.read(line)
        if isinstance(record, Clock):
            yield record


def _unjudged(file: WriterFile) -> Iterator[bytes]:
    """The lines of a file, counting nothing."""
    seen = WriterFile(file.name, file.tail, file.size)
    for line in lines(seen):
        file.size = seen.size
        yield line


def _lines_with(words: Collection[bytes], lines: Iterator[bytes], reader: FileReader) -> Iterator[bytes]:
    """The lines that hold one of `words`, all up to the `open` record, and rollbacks, which the reader counts.

    A record without a time of its own has that of the last record before it, which may be on a line that is left out.
    So the lines left out since the last one that was read are kept, and the last record among them gives its time.
    """
    left_out: list[bytes] = []
    words = (*words, b'"rollback"')
    for line in lines:
        # A backslash may hide a word, because JSON can write any character as an escape.
        if reader.opened is None or b"\\" in line or any(map(line.__contains__, words)):
            _take_time(reader, left_out)
            yield line
            continue
        left_out.append(line)
        if len(left_out) == MAX_LEFT_OUT:
            _take_time(reader, left_out)


def _take_time(reader: FileReader, lines: list[bytes]) -> None:
    """Give the reader the time that it would have after these lines, and forget them."""
    before = reader.t
    while lines:
        reader.t = math.nan
        record = reader.read(lines.pop())
        if record is not None and not isinstance(record, (DeadLetter, Unknown)) and not math.isnan(record.t):
            lines.clear()
            return
    reader.t = before


_TABLES = (trl_completions.TABLE, trl_completions.OF_EVALUATION)


class Originals:
    """The samples that an experiment's own files have of tables that files of other frameworks copy."""

    def __init__(self, files: Iterable[WriterFile]) -> None:
        self._files = [file for file in files if not is_foreign(file.name)]
        self._counts: Counter[tuple[object, ...]] | None = None
        self._texts: set[bytes] = set()
        self._of_copies: dict[str, Counter[int | None]] = {}  # by file, how many samples it has of each step

    def has(self, file: WriterFile, sample: Sample) -> bool:
        """Whether a file of the rank has a sample that this one, of another framework's file, is a copy of.

        So it is if that file has as many samples of a table of completions at the step, or one with equal prompt and
        response.
        """
        opened = file.open
        if opened is None or opened.writer != trl_completions.READER.name:
            return False
        if self._counts is None:
            self._counts = self._counted()
        if file.name not in self._of_copies:
            steps = (entry.step for entry in entries(file.anew) if entry.kind == "sample")
            self._of_copies[file.name] = Counter(steps)
        every = self._of_copies[file.name][sample.step]
        for table in _TABLES:
            place = (*_rank(opened), table, sample.step)
            there = self._counts[place]
            if there > 0 and (there >= every or _text(place, sample) in self._texts):
                return True
        return False

    def _counted(self) -> Counter[tuple[object, ...]]:
        found: Counter[tuple[object, ...]] = Counter()
        for file in self._files:
            one = file.anew
            with suppress(Unreadable):  # reading the file for itself reports that
                for entry in entries(one, [b'"sample"']):
                    if entry.kind == "sample" and entry.body.table in _TABLES and one.open is not None:
                        place = (*_rank(one.open), entry.body.table, entry.step)
                        found[place] += 1
                        self._texts.add(_text(place, entry.body))
        return found


def _rank(opened: Open) -> tuple[str, str, int]:
    return opened.actor, opened.replica, opened.rank


def _text(place: tuple[object, ...], sample: Sample) -> bytes:
    row = sample.row
    said = [repr(place), row.get("prompt"), row.get("completion", row.get("response"))]
    try:
        return blake2b(orjson.dumps(said), digest_size=16).digest()
    except orjson.JSONEncodeError:  # nested too deeply
        return b""


def _adoption(file: WriterFile) -> tuple[int, int]:
    """How many lines stand before the first barrier record, if it adopts them, and its step; (0, 0) if none does."""
    reader = FileReader()
    for number, line in enumerate(_unjudged(file)):
        if reader.opened is None or b"\\" in line or b'"barrier"' in line or b'"rollback"' in line:
            record = reader.read(line)
            if isinstance(record, Barrier):
                return (number, record.step) if record.adopts else (0, 0)
            if isinstance(record, Rollback):
                break
    return 0, 0


def _step_of(file: WriterFile, record: Any, lines_read: int) -> int | None:
    """The step of a record, which is its own or that of the barrier that adopts it."""
    step: int | None = getattr(record, "step", None)
    if step is not None or getattr(record, "stream", True):
        return step
    if isinstance(record, Event) and record.is_about_writer:
        return None
    if file.adopted is None:
        file.adopted = _adoption(file)
    before, of_barrier = file.adopted
    return of_barrier if lines_read <= before else None


class _Counted:
    """Lines, and how many of the file's were read, with those `before` them."""

    def __init__(self, lines: Iterator[bytes], before: int = 0) -> None:
        self.count = before
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.count += 1
            yield line


def entries(file: WriterFile, words: Collection[bytes] = ()) -> Iterator[Entry]:
    """The entries of a file for the time axis, in file order; raises Unreadable. Counts lines that cannot be used.

    With `words`, only lines that hold one of them are read, and counted. Samples that are copies are left out. The step
    of a record that a barrier adopts is the barrier's.
    """
    reader, counted = FileReader(), _Counted(lines(file))
    found = _lines_with(words, iter(counted), reader) if words else iter(counted)
    yield from _entries(file, found, counted, reader)


class FileStretch(NamedTuple):
    """Whole lines of a file from byte `start` to `stop`, the time that the first of them inherits, and how many
    rollbacks stand before it.
    """

    start: int
    stop: int
    t: float
    segment: int = 0


def entries_in(file: WriterFile, stretches: Iterable[FileStretch], words: Collection[bytes]) -> Iterator[Entry]:
    """The entries in some stretches of a native file whose `open` is known, on lines that hold one of `words`; raises
    Unreadable.
    """
    for stretch in stretches:
        reader = FileReader(file.open, t=stretch.t, segment=stretch.segment)
        counted = _Counted(_lines_in(file, stretch), _count_before(file, stretch.start))
        yield from _entries(file, _lines_with(words, iter(counted), reader), counted, reader)


def _count_before(file: WriterFile, start: int) -> int:
    """How many lines stand before a byte; of more than a barrier adopts, no more are counted."""
    if file.adopted is None:
        file.adopted = _adoption(file)
    first = _lines_in(file, FileStretch(0, start, 0.0))
    return sum(1 for _ in islice(first, file.adopted[0]))


def _lines_in(file: WriterFile, stretch: FileStretch) -> Iterator[bytes]:
    tail, at = file.tail.twin(), stretch.start
    while at < stretch.stop:
        try:
            piece = tail.read(Position(at), min(READ_BYTES + 1, stretch.stop - at))
        except OSError as problem:
            raise Unreadable(problem.strerror or str(problem)) from problem
        if piece.end == at:
            return
        yield from piece.lines
        file.on_read(piece.end - at)
        at = piece.end


def _entries(file: WriterFile, found: Iterator[bytes], counted: _Counted, reader: FileReader) -> Iterator[Entry]:
    for line in found:
        record = reader.read(line)
        if record is None or isinstance(record, Unknown):
            continue
        if isinstance(record, DeadLetter):
            file.refuse(record.reason)
            continue
        if isinstance(record, Open):
            file.open, file.labels, file.t = record, reader.labels, record.t
            continue
        file.t = max(record.t, file.t or record.t)
        if isinstance(record, Close):
            file.closed = record.reason
        kind = _KINDS.get(type(record))
        if kind is not None:
            body = record.m if isinstance(record, Metrics) else None if isinstance(record, Barrier) else record
            if isinstance(record, Sample) and file.originals is not None and file.originals.has(file, record):
                continue
            yield Entry(kind, record.t, _step_of(file, record, counted.count), body, reader.segment)
