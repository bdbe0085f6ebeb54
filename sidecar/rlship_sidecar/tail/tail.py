"""Reads one growing file: complete lines from a position on, never half a line.

The caller keeps the position, and moves it only once the lines that were read are durable. Each read returns a `Piece`,
which holds the lines and everything else that the read found out about the file.
"""

from __future__ import annotations

import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple, TypeVar

from rlship_formats.records import MAX_LINE_BYTES
from rlship_sidecar.plainfiles import OpenFolder, open_plain
from rlship_sidecar.tail.looks import Look, Looks

T = TypeVar("T")

KNOWN_BYTES = 64

EXCERPT_BYTES = 120
FREED_AT_ONCE = 4  # descriptors to close when the system has no free one
MAX_WAIT_S = 5.0  # for a file of a network filesystem; as long, and the sidecar goes on without it for now
FOLDER_S = 1.0  # for which a folder stays open between looks
NO_ANSWER = "does not answer"
LINE_BYTES = 8192  # the first read for one line: most lines are no longer


class Replaced(OSError):
    """The file no longer holds what was read of it: it was truncated and rewritten, or another file has its name."""


class Position(NamedTuple):
    """The offset at which reading continues, and the bytes that identify what was read before it.

    `head` holds the first bytes of the file and `before` the bytes right before `offset`, at most `KNOWN_BYTES` each.
    No two files agree in both: a writer's first line holds its random id, and later lines hold times.
    """

    offset: int = 0
    head: bytes = b""
    before: bytes = b""


START = Position()


@dataclass(slots=True)
class Piece:
    """Complete lines without their LF, and the offset of each; the next piece begins at `end`.

    `too_long` holds the offset and the beginning of each line over 1 MiB, which is skipped. `size` is the file's size
    at the time of the read, and `more` is True if bytes beyond `end` were not looked at. `held` is True if the next
    line contains NUL bytes, as if part of it had not arrived, and the caller asked to wait. `hole` is True if the last
    line has no end and contains NUL bytes, and the caller did not.

    Three fields are for foreign files. `begins` holds the offset of the source line of each line. `together` counts the
    lines made of the first source line. `dead` holds offset, reason and beginning of each line that the reader cannot
    use.
    """

    start: Position
    lines: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    too_long: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    size: int = 0
    more: bool = False
    held: bool = False
    hole: bool = False
    data: bytes = b""
    data_at: int = 0
    dead: list[tuple[int, str, bytes]] = field(default_factory=list)
    begins: list[int] | None = None
    together: int = 1

    def begin_of(self, line: int) -> int:
        """The offset from which to read a line again, given its index in this piece."""
        return self.offsets[line] if self.begins is None else self.begins[line]

    def position(self, offset: int) -> Position:
        """The position at the beginning of one of the lines, or at `end`."""
        if offset == self.start.offset:
            return self.start
        at = offset - self.data_at
        head = self.start.head
        if not head and not self.data_at:
            head = self.data[: min(at, KNOWN_BYTES)]
        return Position(offset, head, self.data[max(0, at - KNOWN_BYTES) : at])


class Glance(NamedTuple):
    """What a look at a file found: its size, and the next lines if there are any and they were read at once."""

    size: int
    piece: Piece | None = None


class Descriptors:
    """Open files, at most `limit` of them: the file that was read least recently is closed first.

    On a network filesystem a file is opened for every look (`keep=False`), because only an open makes the client ask
    the server. With `looks`, a thread of it makes that call, and a file that does not answer in time raises an OSError.
    No link below the folder `root` is followed.
    """

    def __init__(self, limit: int, *, keep: bool, root: str = "", looks: Looks | None = None) -> None:
        self.root = root
        self._limit = max(1, limit)
        self.keep = keep
        self.looks = None if keep else looks
        self._folders: dict[str, tuple[OpenFolder, float]] = {}
        self._hanging: dict[str, Look[Any]] = {}
        self._open: OrderedDict[str, int] = OrderedDict()

    def kept(self, path: str) -> int | None:
        """The descriptor of a file if it is open. With `keep=False` no file stays open between two looks."""
        return self._open.get(path)

    def look(self, path: str, look: Callable[[int, int | None], T], *, known: bool = False) -> T:
        """Open the file, call `look` with its descriptor and size, and close it. Any thread may do so. Raises OSError.

        The folder above it is opened as well, but not for each file. A file that `look` knows by its bytes is not
        asked what it is, and its size may be None: each call on it takes as long as the server.
        """
        for again in (False, True):
            fd, size = self._open_anew(path, anew=again, known=known and not again)
            try:
                return look(fd, size)
            except OSError as error:
                # The server no longer has the file behind the descriptor, or it is no file.
                if error.errno not in (errno.ESTALE, errno.ESPIPE, errno.EISDIR) or again:
                    raise
            finally:
                os.close(fd)
        raise AssertionError

    def _open_anew(self, path: str, *, anew: bool, known: bool) -> tuple[int, int | None]:
        if not self.root or not path.startswith(f"{self.root}/"):
            fd = open_plain(path)
            return fd, _size(fd)
        at = path.rpartition("/")[0]
        folder, since = self._folders.get(at, (None, 0.0))
        now = time.monotonic()
        if folder is None or anew or now - since > FOLDER_S:
            folder = OpenFolder(at, self.root)
            self._folders[at] = folder, now
        try:
            return (folder.open_any(path), None) if known else folder.open(path)
        except OSError:  # the folder at this path may be another one by now
            if since and not anew:
                return self._open_anew(path, anew=True, known=known)
            raise

    def in_time(self, path: str, call: Callable[[], T]) -> T:
        """Make a call on a file, of which no more than one may hang. Raises OSError."""
        if self.looks is None or self.looks.is_one_of_them:
            return call()
        if self.is_hanging(path):
            raise OSError(errno.ETIMEDOUT, NO_ANSWER, path)
        look = self.looks.begin(call, urgent=True)
        if not self.looks.wait([look], MAX_WAIT_S):
            self._hanging[path] = look
            raise OSError(errno.ETIMEDOUT, NO_ANSWER, path)
        self._hanging.pop(path, None)
        if look.error is not None:
            raise look.error
        return look.result  # type: ignore[return-value]

    def hangs(self, path: str, look: Look[Any]) -> None:
        """Remember a call on this file that does not return, so that no other one is made meanwhile."""
        self._hanging[path] = look

    def is_hanging(self, path: str) -> bool:
        """True if a call on this file has not returned."""
        look = self._hanging.get(path)
        return look is not None and not look.is_done

    def get(self, path: str) -> int:
        """Return a descriptor of the file, and open the file if needed. Raises OSError, NotAFile."""
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        try:
            fd = open_plain(path, self.root)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                raise
            # Another part of the process may have taken the last descriptors. The file that is read now matters more
            # than the files that were read before it.
            self.limit_to(max(1, len(self._open) - FREED_AT_ONCE))
            fd = open_plain(path, self.root)
        self.add(path, fd)
        return fd

    def limit_to(self, limit: int) -> None:
        """Keep at most `limit` files open from now on."""
        self._limit = max(1, limit)
        while len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])

    def add(self, path: str, fd: int) -> None:
        """Keep `fd` as the descriptor of this file."""
        self._open[path] = fd
        if len(self._open) > self._limit:
            os.close(self._open.popitem(last=False)[1])

    def forget(self, path: str) -> None:
        """Close a file if it is open."""
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])


class OneOpen(Descriptors):
    """One file, which is open for several looks of one thread."""

    def __init__(self, fd: int, size: int) -> None:
        super().__init__(1, keep=False)
        self._fd, self._size = fd, size

    def look(self, path: str, look: Callable[[int, int | None], T], *, known: bool = False) -> T:
        """Call `look` with the descriptor and the size."""
        return look(self._fd, self._size)


class Tail:
    """Reads one file forward.

    Between calls it holds no lines, only two facts: how far an unfinished long line was searched for its end, and how
    short the file was if it shrank.
    """

    __slots__ = ("_files", "_long", "_searched", "_shrunk_to", "path")

    def __init__(self, path: str, files: Descriptors) -> None:
        self.path = path
        self._files = files
        self._long = 0  # offset of the line that was searched up to `_searched`
        self._searched = 0
        self._shrunk_to = -1

    def twin(self) -> Tail:
        """Return another tail of the same file, with no search under way."""
        return Tail(self.path, self._files)

    def opened_once(self, work: Callable[[Tail], T]) -> T:
        """Call `work` with another tail of the file, which opens it once. Raises OSError, and what `work` raises."""

        def look(fd: int, size: int | None) -> T:
            twin = self.twin()
            if size is not None:  # it was opened for this look
                twin._files = OneOpen(fd, size)
            return work(twin)

        return self._looking(look)

    @property
    def searching(self) -> bool:
        """True while the end of a line that is too long has not been found."""
        return self._searched > 0

    @property
    def shrunk(self) -> bool:
        """True if the file was last seen shorter than what was read of it."""
        return self._shrunk_to >= 0

    @property
    def is_hanging(self) -> bool:
        """True if a call on the file has not returned."""
        return self._files.is_hanging(self.path)

    def hangs(self, look: Look[Any]) -> None:
        """Remember a call on the file that does not return, so that no other one is made meanwhile."""
        self._files.hangs(self.path, look)

    def translated(self, piece: Piece) -> Piece:
        """The piece of a glance as `read` would have given it. Raises what `read` raises."""
        return piece

    def size(self) -> int:
        """The current size of the file in bytes. Raises OSError."""
        fd = self._files.kept(self.path)
        if fd is not None:
            return os.lseek(fd, 0, os.SEEK_END)
        return self._looking(lambda fd, size: _size(fd) if size is None else size)

    def read(self, start: Position, max_bytes: int, *, size: int | None = None, hold_nul: bool = False) -> Piece:
        """Read complete lines from `start` on, out of about `max_bytes`. Raises OSError, Replaced.

        `size` saves a system call. With `hold_nul`, lines from the first NUL byte on are left for later: on a network
        filesystem NUL bytes are bytes that have not arrived. A piece that has no lines and ends at its start means that
        no line is complete yet.
        """

        return self._looking(
            lambda fd, opened: self._read(fd, start, max_bytes, opened if size is None else size, hold_nul)
        )

    def look(self, mark: Position, max_bytes: int, *, check: bool, hold_nul: bool) -> Glance:
        """Look at the file with one open: its size, and what follows `mark` if that is no more than `max_bytes`.

        Where nothing follows, it compares what was read with the file, if it should `check` or the file shrank. On a
        network filesystem any thread may look, but one at a time. Raises OSError, Replaced.
        """

        reads = bool(max_bytes and mark.before) and not self._searched

        def look(fd: int, size: int | None) -> Glance:
            data = b""
            if size is None:
                size, data = _ahead(fd, mark, max_bytes) if reads else (_size(fd), b"")
            if mark.offset < size <= mark.offset + max_bytes:
                return Glance(size, self._read(fd, mark, max_bytes, size, hold_nul, data))
            if size < mark.offset or (size == mark.offset and (check or self.shrunk)):
                self._check(fd, mark, size)
            return Glance(size)

        return self._looking(look, known=reads)

    def line_at(self, offset: int) -> bytes | None:
        """The complete line that begins at `offset`, or None. Raises what `read` raises."""
        piece = self.read(Position(offset), LINE_BYTES)
        return piece.lines[0] if piece.lines else None

    def check(self, mark: Position) -> None:
        """Raise Replaced if the file no longer holds what was read of it. Raises OSError.

        A file that only became shorter may have lost its end for the moment. Once a writer appends to it, it counts as
        replaced.
        """
        self._looking(lambda fd, size: self._check(fd, mark, _size(fd) if size is None else size))

    def _looking(self, look: Callable[[int, int | None], T], *, known: bool = False) -> T:
        """Call `look` with a descriptor, and with the size if the file was opened for this look and is not `known`.

        If the server no longer has the file behind the descriptor, open the file anew and call `look` again.
        """
        files, path = self._files, self.path
        if not files.keep:
            return files.in_time(path, lambda: files.look(path, look, known=known))
        try:
            return look(files.get(path), None)
        except OSError as error:
            files.forget(path)
            if error.errno != errno.ESTALE:
                raise
            return look(files.get(path), None)

    def _check(self, fd: int, mark: Position, size: int) -> None:
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

    def _read(
        self, fd: int, start: Position, max_bytes: int, size: int | None, hold_nul: bool, data: bytes = b""
    ) -> Piece:
        position, lead = start.offset, len(start.before)
        if size is None:
            size, data = (_size(fd), b"") if self._searched else _ahead(fd, start, max_bytes)
        piece = Piece(start, end=position, size=size)
        if size <= position:
            return piece
        self._shrunk_to = -1
        if self._searched and self._long == position:
            return self._pass_over(fd, position, piece)
        self._searched = 0
        data = data or os.pread(fd, lead + min(max_bytes, size - position), position - lead)
        if not data.startswith(start.before):
            if len(data) < lead:
                return piece  # truncated during this read
            raise Replaced(0, "what was read of it is not there any more", self.path)
        cut = data.rfind(b"\n", lead)
        if cut < 0 and len(data) - lead <= MAX_LINE_BYTES:
            max_bytes = MAX_LINE_BYTES + 1
            data = os.pread(fd, lead + min(max_bytes, size - position), position - lead)
            cut = data.rfind(b"\n", lead)
        if hold_nul and (nul := data.find(0, lead)) >= 0 and (nul < cut or cut < 0):
            cut = data.rfind(b"\n", lead, nul)
            piece.held = True
        elif cut < 0:
            piece.hole = data.find(0, lead) >= 0
        if cut < 0:
            if len(data) - lead > MAX_LINE_BYTES and not piece.held:
                self._long, self._searched = position, position + len(data) - lead
                return self._pass_over(fd, position, piece)
            return piece
        if piece.held:
            data = data[: cut + 1]
        # `before` may contain whole lines. Dropping them from the list copies less than slicing the bytes would.
        lines = data.split(b"\n")[data.count(b"\n", 0, lead) : -1]
        starts = accumulate(map(len, lines), initial=position)
        offsets = list(map(add, starts, range(len(lines))))  # one LF each
        piece.data, piece.data_at = data, position - lead
        piece.end = piece.data_at + cut + 1
        if len(data) > MAX_LINE_BYTES and max(map(len, lines)) > MAX_LINE_BYTES:
            whole = [(offset, line) for offset, line in zip(offsets, lines) if len(line) <= MAX_LINE_BYTES]
            piece.too_long = [
                (offset, line[:EXCERPT_BYTES]) for offset, line in zip(offsets, lines) if len(line) > MAX_LINE_BYTES
            ]
            lines, offsets = [line for _, line in whole], [offset for offset, _ in whole]
        piece.lines, piece.offsets = lines, offsets
        piece.more = size - position > max_bytes and not piece.held
        return piece

    def _pass_over(self, fd: int, position: int, piece: Piece) -> Piece:
        """Continue to search for the end of a line that is too long, at most `chunk` bytes at a time."""
        chunk = 16 * MAX_LINE_BYTES
        data = os.pread(fd, chunk, self._searched)
        cut = data.find(b"\n")
        piece.more = len(data) == chunk or cut >= 0
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


def _ahead(fd: int, start: Position, max_bytes: int) -> tuple[int, bytes]:
    """The size of a file, and what follows `start` with the bytes before it: mostly one call tells that this is all."""
    lead = len(start.before)
    data = os.pread(fd, lead + max_bytes, start.offset - lead)
    if data and len(data) < lead + max_bytes and data.startswith(start.before):
        return start.offset - lead + len(data), data
    return _size(fd), data


def _size(fd: int) -> int:
    return os.lseek(fd, 0, os.SEEK_END)


def _past_hole(fd: int, at: int) -> int:
    """The next offset that holds data. Skips holes, because a hole of a terabyte costs nothing to make."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError:  # no data follows
        return max(at, _size(fd))
