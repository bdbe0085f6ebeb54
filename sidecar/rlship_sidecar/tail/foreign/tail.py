"""One foreign file as one writer's native lines, with places in the file that its own lines have."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from rlship_formats.foreign.contract import HEAD_BYTES, RESTART_BYTES, BadRecord
from rlship_formats.foreign.native import Bound, Native, ReaderFailed, bind
from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.tail.foreign.documents import Documents, NotWhole
from rlship_sidecar.tail.foreign.readers import Readers
from rlship_sidecar.tail.tail import EXCERPT_BYTES, LINE_BYTES, Bookmark, Descriptors, Piece, Tail

T = TypeVar("T")


class NotRecognised(OSError):
    """No reader knows the file, or the one that does has failed."""


def relative_of(name: str) -> str:
    """The path that readers are told, of a foreign file with this name."""
    return name.removeprefix("./")


def recognise(path: str, relative: str, readers: Readers, documents: Documents) -> Bound | None:
    """Whose file it is, by its head; None: nobody's, so far. Raises OSError; readers that fail are put out."""
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
            found = bind([reader], relative, os.pread(documents.get(path), HEAD_BYTES, 0))
        except NotWhole:
            continue
        except ReaderFailed as error:
            readers.failed(error)
            continue
        if found is not None:
            return found
    return None


def _head(path: str, root: str) -> bytes:
    fd = open_plain(path, root)
    try:
        return os.pread(fd, HEAD_BYTES, 0)
    finally:
        os.close(fd)


class _Stepped(NamedTuple):
    """The last line before `end` that has a step: where it begins, and the step. -1: there is none."""

    end: int = 0
    begin: int = 0
    step: int = -1

    def before(self, begin: int) -> int:
        """The step that counts as the one before a line that begins there."""
        return self.step if begin - self.begin <= RESTART_BYTES else -1


class ForeignTail(Tail):
    """Like `Tail`, of the writer that is `part` of a foreign file. What a line becomes begins where the line does, each
    record a byte after the one before, so that every record has a place of its own; the `open` is at byte 0.

    Whose file it is, is found out when it is first read. `of_document`: it is one that is rewritten whole.
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
        """Another reader of the same file, with nothing searched yet."""
        other = ForeignTail(self.path, self._relative, self._part, self._files, self._documents, self._readers)
        other._native, other.reader, other.of_document = self._native, self.reader, self.of_document
        return other

    def expect(self, reader: str) -> None:
        """The file was read with this reader before."""
        self.of_document = any(one.name == reader and one.lines is not None for one in self._readers.all)

    def bind(self, bound: Bound) -> None:
        """It is known whose file it is."""
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
            os.stat(self.path)  # a file that is gone is not one that no reader knows
            bound = recognise(self.path, self._relative, self._readers, self._documents)
            if bound is not None:
                self._guarded(lambda: self.bind(bound))
        if self._native is None:
            raise NotRecognised(0, "no reader that is installed knows it any more", self.path)
        if self.reader in self._readers.problems:
            raise NotRecognised(0, f"left alone, as {self._readers.problems[self.reader]}", self.path)
        return self._native

    def _guarded(self, do: Callable[[], T]) -> T:
        try:
            return do()
        except ReaderFailed as error:
            self._readers.failed(error)
            raise NotRecognised(0, f"left alone, as {error}", self.path) from error

    def size(self) -> int:
        """The size of what is read, in bytes; raises OSError."""
        self._bound()
        if self.of_document:
            return self._guarded(lambda: self._documents.size(self.path))
        return super().size()

    def check(self, mark: Bookmark) -> None:
        """See `Tail.check`."""
        if self._native is None:
            self._bound()
        self._guarded(lambda: super(ForeignTail, self).check(mark))

    def read(self, start: Bookmark, max_bytes: int, *, size: int | None = None, hold_nul: bool = False) -> Piece:
        """See `Tail.read`; the lines are native ones."""
        native = self._bound()
        piece = self._guarded(lambda: super(ForeignTail, self).read(start, max_bytes, size=size, hold_nul=hold_nul))
        before = self._before(native, start.offset)
        self._stepped = self._guarded(lambda: _translated(piece, native, before))
        return piece

    def _before(self, native: Native, offset: int) -> _Stepped:
        """The last step before a line: the one that was read last, or, elsewhere in the file, what stands there. So a
        restart shows wherever reading begins.
        """
        if not native.restarts or not offset or self._stepped.end == offset:
            return self._stepped if offset else _Stepped()
        begin = max(0, offset - RESTART_BYTES - 1)
        data = self._looking(lambda fd: os.pread(fd, offset - begin, begin))
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
        """The native line whose place this is."""
        start = self._looking(lambda fd: _begin(fd, offset))
        piece = self.read(Bookmark(start), LINE_BYTES)
        return next((line for line, place in zip(piece.lines, piece.offsets) if place == offset), None)


def _begin(fd: int, offset: int) -> int:
    """Where the line begins in which a byte is."""
    for stretch in (LINE_BYTES, MAX_LINE_BYTES + 1):
        begin = max(0, offset - stretch)
        before = os.pread(fd, offset - begin, begin).rfind(b"\n")
        if before >= 0 or not begin:
            return begin + before + 1
    return offset


def _translated(piece: Piece, native: Native, stepped: _Stepped) -> _Stepped:
    """Put native lines in the place of the piece's own. It ends before a line that a rollback comes with, unless that
    is its first: what is read once more, as lines of a later step are, must not hold one.
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
        place = offset or 1  # at byte 0 there is the open
        lines += made
        places += range(place, place + len(made))
        begins += [offset] * len(made)
    piece.lines, piece.offsets, piece.begins = lines, places, begins
    piece.together = begins.count(begins[0]) if begins else 1
    return stepped._replace(end=piece.end)
