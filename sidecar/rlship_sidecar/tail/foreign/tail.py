"""Reads one writer of a foreign file as native lines, whose offsets are offsets in that file."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from rlship_formats.foreign.contract import HEAD_BYTES, RESTART_BYTES, BadRecord
from rlship_formats.foreign.native import Bound, Native, ReaderFailed, bind
from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.tail.foreign.documents import Documents, NotWhole, Torn
from rlship_sidecar.tail.foreign.readers import Readers
from rlship_sidecar.tail.tail import EXCERPT_BYTES, LINE_BYTES, Descriptors, Glance, Piece, Position, Replaced, Tail

T = TypeVar("T")


class NotRecognised(OSError):
    """No reader recognises the file, or the reader that does has failed."""


def relative_of(name: str) -> str:
    """The path by which readers know the foreign file with this name."""
    return name.removeprefix("./")


def recognise(path: str, relative: str, readers: Readers, documents: Documents) -> Bound | None:
    """Find the reader that recognises a file by its head; None if no reader does so far.

    Excludes readers that fail. Raises OSError, and Torn for a document that may be its reader's once it is whole.
    """
    torn: Torn | None = None
    head: bytes | None = None
    for reader in readers.of(relative):
        if reader.lines is None and head is None:
            head = _head(path, documents.root)
    while head is not None:
        try:
            found = bind((reader for reader in readers.of(relative) if reader.lines is None), relative, head)
        except ReaderFailed as error:
            readers.failed(error)
            continue
        if found is not None:
            return found
        break
    for reader in readers.of(relative):
        if reader.lines is None:
            continue
        documents.use(path, reader)
        try:
            found = bind([reader], relative, documents.look(path, lambda fd, size: os.pread(fd, HEAD_BYTES, 0)))
        except Torn as error:
            torn = error
            continue
        except NotWhole:
            continue
        except ReaderFailed as error:
            readers.failed(error)
            continue
        if found is not None:
            return found
    if torn is not None:
        raise torn
    return None


def _head(path: str, root: str) -> bytes:
    fd = open_plain(path, root)
    try:
        return os.pread(fd, HEAD_BYTES, 0)
    finally:
        os.close(fd)


class _Stepped(NamedTuple):
    """The last line before `end` that has a step: where it begins, and the step; -1 if no line has one."""

    end: int = 0
    begin: int = 0
    step: int = -1

    def before(self, begin: int) -> int:
        """The step that precedes a line at offset `begin`; -1 if the last step lies too far back."""
        return self.step if begin - self.begin <= RESTART_BYTES else -1


class ForeignTail(Tail):
    """A `Tail` of the writer that is `part` of a foreign file.

    Every native line has an offset of its own: those of one source line count up from that line's offset. The `open`
    record is at byte 0.

    The first read finds the reader. `of_document` is True for a document that is rewritten as a whole.
    """

    __slots__ = ("_documents", "_native", "_part", "_readers", "_relative", "_stepped", "of_document", "reader")

    def __init__(
        self, path: str, relative: str, part: str, files: Descriptors, documents: Documents, readers: Readers
    ) -> None:
        super().__init__(path, files)
        self._relative = relative
        self._part = part
        self._documents = documents
        self._readers = readers
        self._native: Native | None = None
        self._stepped = _Stepped()
        self.reader = ""
        self.of_document = False

    def twin(self) -> ForeignTail:
        """Return another tail of the same file, with no search under way."""
        other = ForeignTail(self.path, self._relative, self._part, self._files, self._documents, self._readers)
        other._native, other.reader, other.of_document = self._native, self.reader, self.of_document
        return other

    def opened_once(self, work: Callable[[Tail], T]) -> T:
        """See `Tail.opened_once`."""
        self._bound()
        return self._guarded(lambda: super(ForeignTail, self).opened_once(work))

    def expect(self, reader: str) -> None:
        """Set `of_document` by the reader that read this file before."""
        self.of_document = any(one.name == reader and one.lines is not None for one in self._readers.all)

    def bind(self, bound: Bound) -> None:
        """Use the reader and translation that were found for this file."""
        name = f"{self._relative}#{self._part}" if self._part else self._relative
        for translation in bound.translations:
            if translation.part == self._part:
                self._native = Native(bound.reader, translation, name)
                self.reader = bound.reader.name
        if self._native is not None and bound.reader.lines is not None:
            self._documents.use(self.path, bound.reader)
            self._files, self.of_document = self._documents, True

    def _bound(self) -> Native:
        if self._native is None:
            bound = self._files.in_time(self.path, self._recognised)
            if bound is not None:
                self._guarded(lambda: self.bind(bound))
        if self._native is None:
            raise NotRecognised(0, "no reader that is installed knows it any more", self.path)
        if self.reader in self._readers.problems:
            raise NotRecognised(0, f"left alone, as {self._readers.problems[self.reader]}", self.path)
        return self._native

    def _recognised(self) -> Bound | None:
        os.stat(self.path)  # raises FileNotFoundError for a removed file, which is no unrecognised one
        return recognise(self.path, self._relative, self._readers, self._documents)

    def _guarded(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except ReaderFailed as error:
            self._readers.failed(error)
            raise NotRecognised(0, f"left alone, as {error}", self.path) from error

    def size(self) -> int:
        """The size of what is read, in bytes. Raises OSError."""
        self._bound()
        if self.of_document:
            return self._guarded(lambda: self._files.in_time(self.path, lambda: self._documents.size(self.path)))
        return super().size()

    def look(self, mark: Position, max_bytes: int, *, check: bool, hold_nul: bool) -> Glance:
        """See `Tail.look`; the lines that it brings along are `translated` later."""
        self._bound()
        return self._guarded(lambda: super(ForeignTail, self).look(mark, max_bytes, check=check, hold_nul=hold_nul))

    def check(self, mark: Position) -> None:
        """See `Tail.check`."""
        if self._native is None:
            self._bound()
        self._guarded(lambda: super(ForeignTail, self).check(mark))

    def read(self, start: Position, max_bytes: int, *, size: int | None = None, hold_nul: bool = False) -> Piece:
        """See `Tail.read`; the lines of the piece are native lines."""
        self._bound()
        return self.translated(
            self._guarded(lambda: super(ForeignTail, self).read(start, max_bytes, size=size, hold_nul=hold_nul))
        )

    def _check(self, fd: int, mark: Position, size: int) -> None:
        # A document is whole when it is read: it has not lost its end for a moment, it was rewritten.
        if self.of_document and size < mark.offset:
            raise Replaced(0, "it was written anew", self.path)
        super()._check(fd, mark, size)

    def _read(
        self, fd: int, start: Position, max_bytes: int, size: int | None, hold_nul: bool, data: bytes = b""
    ) -> Piece:
        # A document that was rewritten often holds the same bytes before `start`, under a heading of the same length.
        # Its lines are another writer's.
        if self.of_document and start.head:
            self._check(fd, start, os.fstat(fd).st_size if size is None else size)
        return super()._read(fd, start, max_bytes, size, hold_nul, data)

    def translated(self, piece: Piece) -> Piece:
        """See `Tail.translated`: its lines as native lines."""
        native = self._bound()
        before = self._before(native, piece.start.offset)
        self._stepped = self._guarded(lambda: _translated(piece, native, before))
        return piece

    def _before(self, native: Native, offset: int) -> _Stepped:
        """The last step before `offset`: remembered if reading continues there, else read from the file.

        So a restart is noticed wherever reading begins.
        """
        if not native.restarts or not offset or self._stepped.end == offset:
            return self._stepped if offset else _Stepped()
        begin = max(0, offset - RESTART_BYTES - 1)
        data = self._looking(lambda fd, size: os.pread(fd, offset - begin, begin))
        end = offset
        for raw in reversed(data.split(b"\n")[1 if begin else 0 : -1]):
            end -= len(raw) + 1
            try:
                _, step = self._guarded(partial(native.lines_after, -1, raw))
            except BadRecord:
                continue
            if step >= 0:
                return _Stepped(offset, end, step)
        return _Stepped(offset)

    def line_at(self, offset: int) -> bytes | None:
        """The native line with this offset, or None."""
        start = self._looking(lambda fd, size: _begin(fd, offset))
        piece = self.read(Position(start), LINE_BYTES)
        return next((line for line, place in zip(piece.lines, piece.offsets) if place == offset), None)


def _begin(fd: int, offset: int) -> int:
    """The offset of the line that contains the byte at `offset`."""
    for chunk in (LINE_BYTES, MAX_LINE_BYTES + 1):
        begin = max(0, offset - chunk)
        before = os.pread(fd, offset - begin, begin).rfind(b"\n")
        if before >= 0 or not begin:
            return begin + before + 1
    return offset


def _translated(piece: Piece, native: Native, stepped: _Stepped) -> _Stepped:
    """Replace the piece's source lines by native lines.

    The piece ends before a line that brings a rollback, unless that line is its first. A range that is read again, as
    lines of a later step are, must not contain a rollback.
    """
    lines: list[bytes] = []
    places: list[int] = []
    begins: list[int] = []
    if not piece.start.offset and piece.end:
        lines, places, begins = [native.opening], [0], [0]
    for raw, offset in zip(piece.lines, piece.offsets):
        if not raw.strip(b" \t\r"):
            continue
        before = stepped.before(offset)
        try:
            made, step = native.lines_after(before, raw)
        except BadRecord as bad:
            piece.dead.append((offset, str(bad), raw[:EXCERPT_BYTES]))
            continue
        if 0 <= step < before and native.restarts and offset > piece.start.offset:
            piece.end, piece.more, piece.held = offset, True, False
            piece.too_long = [(at, line) for at, line in piece.too_long if at < offset]
            break
        if step >= 0:
            stepped = _Stepped(0, offset, step)
        place = offset or 1  # the `open` record has byte 0
        lines += made
        places += range(place, place + len(made))
        begins += [offset] * len(made)
    piece.lines, piece.offsets, piece.begins = lines, places, begins
    piece.together = begins.count(begins[0]) if begins else 1
    return stepped._replace(end=piece.end)
