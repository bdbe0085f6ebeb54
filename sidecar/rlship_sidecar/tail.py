"""One growing file: the complete lines from a position on, and never half a line.

The position is the caller's to keep: it moves only once what was read is durable. Everything that a read found out
about the
file besides its lines is in the `Piece` it returns.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add

from rlship_formats.records import MAX_LINE_BYTES

_EXCERPT_BYTES = 120
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO or a link put there must not hold us up


class NotAFile(OSError):
    """The path is not a regular file (a FIFO, a device, a link, a folder)."""


@dataclass(slots=True)
class Piece:
    """Complete lines (without LF) and where each begins; `end` is where the next piece begins.

    `too_long` holds offset and beginning of lines over 1 MiB, which are passed over; `size` is the file's size when it
    was looked at, `more` whether there are bytes beyond those looked through.
    """

    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    too_long: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    size: int = 0
    more: bool = False


class Descriptors:
    """Open files, at most `limit` of them: the least recently read is closed first.

    On a network filesystem a file is opened for every look (`keep=False`): only an open makes the client ask the
    server.
    """

    def __init__(self, limit: int, *, keep: bool) -> None:
        self._limit = max(1, limit)
        self._keep = keep
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
        fd = os.open(path, _FLAGS)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise NotAFile(0, "not a regular file", path)
        self._open[path] = fd
        if len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])
        return fd

    def done(self, path: str) -> None:
        """The look at a file is over."""
        if not self._keep:
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
    its end.
    """

    __slots__ = ("_files", "_long", "_searched", "path")

    def __init__(self, path: str, files: Descriptors) -> None:
        self.path = path
        self._files = files
        self._long = 0  # where the line begins that was searched up to `_searched`
        self._searched = 0

    def twin(self) -> Tail:
        """Another reader of the same file, with nothing searched yet."""
        return Tail(self.path, self._files)

    @property
    def searching(self) -> bool:
        """Whether a line that is too long was not read to its end yet."""
        return self._searched > 0

    def size(self) -> int:
        """The file's size now, in bytes; raises OSError."""
        fd = self._files.kept(self.path)
        if fd is not None:
            return os.lseek(fd, 0, os.SEEK_END)
        try:
            return os.lseek(self._files.get(self.path), 0, os.SEEK_END)
        finally:
            self._files.done(self.path)

    def read(self, position: int, max_bytes: int, *, size: int | None = None) -> Piece:
        """Complete lines from `position` on, out of about `max_bytes`; raises OSError. `size` saves asking for it.

        `position` must be the beginning of a line. A piece without lines and with `end == position` means: nothing
        complete yet.
        """
        try:
            fd = self._files.get(self.path)
            return self._read(fd, position, max_bytes, os.lseek(fd, 0, os.SEEK_END) if size is None else size)
        finally:
            self._files.done(self.path)

    def _read(self, fd: int, position: int, max_bytes: int, size: int) -> Piece:
        piece = Piece(end=position, size=size)
        if size <= position:
            return piece
        if self._searched and self._long == position:
            return self._pass_over(fd, position, piece)
        self._searched = 0
        data = os.pread(fd, min(max_bytes, size - position), position)
        cut = data.rfind(b"\n")
        if cut < 0 and len(data) <= MAX_LINE_BYTES:
            max_bytes = MAX_LINE_BYTES + 1
            data = os.pread(fd, min(max_bytes, size - position), position)
            cut = data.rfind(b"\n")
        if cut < 0:
            if len(data) > MAX_LINE_BYTES:
                self._long, self._searched = position, position + len(data)
                return self._pass_over(fd, position, piece)
            return piece
        lines = data[:cut].split(b"\n")
        starts = accumulate(map(len, lines), initial=position)
        offsets = list(map(add, starts, range(len(lines))))  # one LF each
        piece.end = position + cut + 1
        if max(map(len, lines)) > MAX_LINE_BYTES:
            whole = [(offset, line) for offset, line in zip(offsets, lines) if len(line) <= MAX_LINE_BYTES]
            piece.too_long = [
                (offset, line[:_EXCERPT_BYTES]) for offset, line in zip(offsets, lines) if len(line) > MAX_LINE_BYTES
            ]
            lines, offsets = [line for _, line in whole], [offset for offset, _ in whole]
        piece.lines, piece.offsets = lines, offsets
        piece.more = size - position > max_bytes
        return piece

    def _pass_over(self, fd: int, position: int, piece: Piece) -> Piece:
        """Search on for the end of a line that is too long, a bounded stretch at a time."""
        stretch = 16 * MAX_LINE_BYTES
        data = os.pread(fd, stretch, self._searched)
        cut = data.find(b"\n")
        piece.more = len(data) == stretch or cut >= 0
        if cut < 0:
            self._searched += len(data)
            return piece
        piece.too_long.append((position, os.pread(fd, _EXCERPT_BYTES, position)))
        piece.end = self._searched + cut + 1
        self._searched = 0
        return piece
