"""One growing file: the complete lines from a bookmark on, and never half a line.

The bookmark is the caller's to keep: it moves only once what was read is durable. Everything that a read found out
about the file besides its lines is in the `Piece` it returns.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import NamedTuple, TypeVar

from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.plainfiles import open_plain

T = TypeVar("T")

KNOWN_BYTES = 64

EXCERPT_BYTES = 120
FREED_AT_ONCE = 4  # descriptors, where the system has none left
LINE_BYTES = 8192  # read for a line at first: most are no longer


class Replaced(OSError):
    """What was read of the file is not in it any more: it was cut and written on, or another one has its name."""


class Bookmark(NamedTuple):
    """Where reading goes on, and by what to tell that what was read is still there: the first bytes of the file and
    those right before `offset`, at most `KNOWN_BYTES` each.

    A writer's first line holds its random id and later lines hold times, so that no other file has the same.
    """

    offset: int = 0
    head: bytes = b""
    before: bytes = b""


START = Bookmark()


@dataclass(slots=True)
class Piece:
    """Complete lines (without LF) and where each begins; `end` is where the next piece begins.

    `too_long` holds offset and beginning of lines over 1 MiB, which are passed over; `size` is the file's size when it
    was looked at, `more` whether there are bytes beyond those looked through. `held`: the next line has NUL bytes, as
    if it had not wholly arrived, and the caller asked to wait for it.

    Of a foreign file: `begins` is where the file's own line begins that a line is made of, `together` how many are made
    of the first, and `dead` are lines that its reader cannot use: offset, reason and beginning.
    """

    start: Bookmark
    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    too_long: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    size: int = 0
    more: bool = False
    held: bool = False
    data: bytes = b""
    data_at: int = 0
    dead: list[tuple[int, str, bytes]] = field(default_factory=list)
    begins: list[int] | None = None
    together: int = 1

    def begin_of(self, line: int) -> int:
        """Where to go on with a line, given its number here."""
        return self.offsets[line] if self.begins is None else self.begins[line]

    def bookmark(self, offset: int) -> Bookmark:
        """The bookmark at the beginning of one of the lines, or at `end`."""
        if offset == self.start.offset:
            return self.start
        at = offset - self.data_at
        head = self.start.head
        if not head and not self.data_at:
            head = self.data[: min(at, KNOWN_BYTES)]
        return Bookmark(offset, head, self.data[max(0, at - KNOWN_BYTES) : at])


class Descriptors:
    """Open files, at most `limit` of them: the least recently read is closed first.

    On a network filesystem a file is opened for every look (`keep=False`): only an open makes the client ask the
    server. `root`: a folder below which no link is followed.
    """

    def __init__(self, limit: int, *, keep: bool, root: str = "") -> None:
        self.root = root
        self._limit = max(1, limit)
        self.keep = keep
        self._open: OrderedDict[str, int] = OrderedDict()

    def kept(self, path: str) -> int | None:
        """The descriptor of a file that is open, which a network filesystem's never is between two looks."""
        return self._open.get(path)

    def get(self, path: str) -> int:
        """A descriptor of the file; raises OSError, NotAFile."""
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        try:
            fd = open_plain(path, self.root)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                raise
            # Whoever else took the last ones: a file that is read now is worth more than those that were read before.
            self.limit_to(max(1, len(self._open) - FREED_AT_ONCE))
            fd = open_plain(path, self.root)
        self.add(path, fd)
        return fd

    def limit_to(self, limit: int) -> None:
        """Keep at most `limit` open from now on."""
        self._limit = max(1, limit)
        while len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])

    def add(self, path: str, fd: int) -> None:
        """Keep an open descriptor as this file's."""
        self._open[path] = fd
        if len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])

    def done(self, path: str) -> None:
        """The look at a file is over."""
        if not self.keep:
            self.forget(path)

    def forget(self, path: str) -> None:
        """Close a file if it is open."""
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close all."""
        while self._open:
            os.close(self._open.popitem()[1])


class Tail:
    """Reads one file forward. It holds no lines between calls, only how far an unfinished long line was searched for
    its end, and how short the file was if it shrank.
    """

    __slots__ = ("_files", "_long", "_searched", "_shrunk_to", "path")

    def __init__(self, path: str, files: Descriptors) -> None:
        self.path = path
        self._files = files
        self._long = 0  # where the line begins that was searched up to `_searched`
        self._searched = 0
        self._shrunk_to = -1

    def twin(self) -> Tail:
        """Another reader of the same file, with nothing searched yet."""
        return Tail(self.path, self._files)

    @property
    def searching(self) -> bool:
        """Whether a line that is too long was not read to its end yet."""
        return self._searched > 0

    @property
    def shrunk(self) -> bool:
        """Whether the file was last seen shorter than what was read of it."""
        return self._shrunk_to >= 0

    def size(self) -> int:
        """The file's size now, in bytes; raises OSError."""
        fd = self._files.kept(self.path)
        if fd is not None:
            return os.lseek(fd, 0, os.SEEK_END)
        return self._looking(_size)

    def read(self, start: Bookmark, max_bytes: int, *, size: int | None = None, hold_nul: bool = False) -> Piece:
        """Complete lines from `start` on, out of about `max_bytes`; raises OSError, Replaced.

        `size` saves asking for it. With `hold_nul` lines from the first with a NUL byte on are left for later: on a
        network filesystem those are bytes that have not arrived yet. A piece without lines and with `end` at the start
        means: nothing complete yet.
        """
        return self._looking(lambda fd: self._read(fd, start, max_bytes, _size(fd) if size is None else size, hold_nul))

    def line_at(self, offset: int) -> bytes | None:
        """The line that begins at a byte, None if no complete one does; raises as `read` does."""
        piece = self.read(Bookmark(offset), LINE_BYTES)
        return piece.lines[0] if piece.lines else None

    def check(self, mark: Bookmark) -> None:
        """Raise Replaced if the file does not hold any more what was read of it; OSError.

        One that is only shorter may have lost its end for the moment. It is another once somebody writes on there.
        """
        self._looking(lambda fd: self._check(fd, mark, _size(fd)))

    def _looking(self, look: Callable[[int], T]) -> T:
        """Do something with a descriptor; once more with a new one where the old one's file is gone from the server."""
        try:
            return look(self._files.get(self.path))
        except OSError as error:
            self._files.forget(self.path)
            if error.errno != errno.ESTALE:
                raise
            return look(self._files.get(self.path))
        finally:
            self._files.done(self.path)

    def _check(self, fd: int, mark: Bookmark, size: int) -> None:
        known = mark.head[:size]
        if os.pread(fd, len(known), 0) != known:
            raise Replaced(0, "another file has its name", self.path)
        if size < mark.offset:
            if self._shrunk_to not in (-1, size):
                raise Replaced(0, "it was cut and is written on", self.path)
            self._shrunk_to = size
            return
        if os.pread(fd, len(mark.before), mark.offset - len(mark.before)) != mark.before:
            raise Replaced(0, "what was read of it is not there any more", self.path)
        self._shrunk_to = -1

    def _read(self, fd: int, start: Bookmark, max_bytes: int, size: int, hold_nul: bool) -> Piece:
        position, lead = start.offset, len(start.before)
        piece = Piece(start, end=position, size=size)
        if size <= position:
            return piece
        self._shrunk_to = -1
        if self._searched and self._long == position:
            return self._pass_over(fd, position, piece)
        self._searched = 0
        data = os.pread(fd, lead + min(max_bytes, size - position), position - lead)
        if not data.startswith(start.before):
            if len(data) < lead:
                return piece  # cut just now
            raise Replaced(0, "what was read of it is not there any more", self.path)
        cut = data.rfind(b"\n", lead)
        if cut < 0 and len(data) - lead <= MAX_LINE_BYTES:
            max_bytes = MAX_LINE_BYTES + 1
            data = os.pread(fd, lead + min(max_bytes, size - position), position - lead)
            cut = data.rfind(b"\n", lead)
        if hold_nul and (nul := data.find(0, lead)) >= 0 and (nul < cut or cut < 0):
            cut = data.rfind(b"\n", lead, nul)
            piece.held = True
        if cut < 0:
            if len(data) - lead > MAX_LINE_BYTES and not piece.held:
                self._long, self._searched = position, position + len(data) - lead
                return self._pass_over(fd, position, piece)
            return piece
        if piece.held:
            data = data[: cut + 1]
        # Whole lines stand before `start`, too: cutting those off here copies less than cutting them off before.
        lines = data.split(b"\n")[data.count(b"\n", 0, lead) : -1]
        starts = accumulate(map(len, lines), initial=position)
        offsets = list(map(add, starts, range(len(lines))))  # one LF each
        piece.data, piece.data_at = data, position - lead
        piece.end = piece.data_at + cut + 1
        if max(map(len, lines)) > MAX_LINE_BYTES:
            whole = [(offset, line) for offset, line in zip(offsets, lines) if len(line) <= MAX_LINE_BYTES]
            piece.too_long = [
                (offset, line[:EXCERPT_BYTES]) for offset, line in zip(offsets, lines) if len(line) > MAX_LINE_BYTES
            ]
            lines, offsets = [line for _, line in whole], [offset for offset, _ in whole]
        piece.lines, piece.offsets = lines, offsets
        piece.more = size - position > max_bytes and not piece.held
        return piece

    def _pass_over(self, fd: int, position: int, piece: Piece) -> Piece:
        """Search on for the end of a line that is too long, a bounded stretch at a time."""
        stretch = 16 * MAX_LINE_BYTES
        data = os.pread(fd, stretch, self._searched)
        cut = data.find(b"\n")
        piece.more = len(data) == stretch or cut >= 0
        if cut < 0:
            self._searched += len(data)
            if self._files.keep and data.count(0) == len(data):
                self._searched = _past_hole(fd, self._searched)
            return piece
        excerpt = os.pread(fd, EXCERPT_BYTES, position)
        piece.too_long.append((position, excerpt))
        piece.end = self._searched + cut + 1
        if not position:
            piece.start = piece.start._replace(head=excerpt[:KNOWN_BYTES])
        piece.data, piece.data_at = data[: cut + 1], self._searched
        self._searched = 0
        return piece


def _size(fd: int) -> int:
    return os.lseek(fd, 0, os.SEEK_END)


def _past_hole(fd: int, at: int) -> int:
    """Where the file has bytes again that were written: a hole of a terabyte costs nothing to make."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError:  # none
        return max(at, _size(fd))
