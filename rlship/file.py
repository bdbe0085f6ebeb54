"""One writer's file: created once, only appended to, and recovered after a full disk or a vanished mount.

Everything here runs on the writing thread. After an OSError, the next `write_out` continues at the right byte. A line
that may not be whole in the file is given up and counted in a `gap` record. It is never written a second time.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from contextlib import suppress

from .buffer import Tally
from .filesystem import is_network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LINES_AT_ONCE = 1024
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
# With these errors the descriptor is useless, whatever happened to the file: open it again by its path.
LOST = frozenset(
    (
        errno.ESTALE,
        errno.EBADF,
        errno.ENOENT,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOTCONN,
        errno.ECONNABORTED,
        errno.ESHUTDOWN,
    )
)
# O_PATH also opens a folder that may be searched but not read; macOS lacks it.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GROUP_READS = stat.S_IRGRP | stat.S_IXGRP


class Disk:
    """The system calls that write a file, in one place where a test can make them fail."""

    def open(self, path: str, flags: int) -> int:
        """Open a file. Raises OSError if it or its folder is a link."""
        where, name = os.path.split(path)
        try:
            folder = os.open(where, _FOLDER)
        except NotADirectoryError:
            _refuse_link(where)
            raise
        try:
            return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=folder)
        finally:
            os.close(folder)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def sync(self, fd: int) -> None:
        # macOS has no fdatasync.
        getattr(os, "fdatasync", os.fsync)(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def network(self, path: str) -> bool:
        """True if `path` is on a filesystem that other machines read through the network."""
        return is_network(path)

    def make_folder(self, path: str) -> None:
        """Create a folder and those above it, if they are missing. Whom the group of a folder above is meant for may
        write in them, too, whatever the umask.
        """
        if os.path.isdir(path) and not os.path.islink(path):
            return
        above = os.path.dirname(path)
        if above and not os.path.isdir(above):
            self.make_folder(above)
        try:
            os.mkdir(path)
        except FileExistsError:
            _refuse_link(path)
            if not os.path.isdir(path):
                raise
        else:
            _share_with_group(path, above or os.curdir)


def _share_with_group(path: str, above: str) -> None:
    """Let the group write in a new folder where the folder `above` is meant for it. A sidecar of that group keeps its
    state there. A umask that lets the group not even read is heeded.
    """
    made = os.stat(path).st_mode
    if made & _GROUP_READS == _GROUP_READS and not made & stat.S_IWGRP and _is_meant_for_group(above):
        with suppress(OSError):  # the sidecar and `rlship doctor` say it, where it matters
            os.chmod(path, stat.S_IMODE(made) | stat.S_IWGRP)


def _is_meant_for_group(folder: str) -> bool:
    """True if a folder has its set-group-ID bit and lets its group write, or else one above it, up to the first
    without the bit: another process of the job may just have made `folder`, and not have called chmod yet.
    """
    while True:
        mode = os.stat(folder).st_mode
        if not mode & stat.S_ISGID:
            return False
        if mode & stat.S_IWGRP:
            return True
        above = os.path.dirname(folder) or os.curdir
        if above == folder:
            return False
        folder = above


def _refuse_link(path: str) -> None:
    """Raise OSError if `path` is a link: a link lets a user with access to the experiment's folder divert the job's
    writes.
    """
    if os.path.islink(path):
        raise OSError(
            errno.ENOTDIR,
            "it is a link, which is not followed: remove it, or give init() the folder of the experiment it leads to",
            path,
        )


def in_place(disk: Disk, path: str, key: tuple[int, int]) -> bool:
    """True if `path` still refers to the file `key` (device, inode), or would if a folder had kept its name."""
    try:
        status = disk.stat(path)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        if os.path.isdir(folder):
            return False
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        # After an unmount, the remaining part of the path is on another filesystem.
        return os.stat(folder).st_dev == key[0]
    except OSError:  # the descriptor may still be good
        return True
    return (status.st_dev, status.st_ino) == key


class Part:
    """Path and first lines of the next file. The Logger makes it: a second part needs an identity of its own."""

    __slots__ = ("header", "path")

    def __init__(self, path: str, header: list[str]) -> None:
        self.path = path
        self.header = header


class _Piece:
    """Some lines on their way into the file: `pos` bytes of `data` are in it. `steps` has one entry for each line."""

    __slots__ = ("data", "pos", "steps")

    def __init__(self, data: bytes, steps: list[int | None]) -> None:
        self.data = data
        self.pos = 0
        self.steps = steps


class _Doubt:
    """Lines that were written but may still be lost, by their steps: one list for each piece."""

    __slots__ = ("lost", "unseen", "unsynced")

    def __init__(self) -> None:
        # Written since the last sync; counted only if they turn out to be in doubt.
        self.unsynced: list[list[int | None]] = []
        # Synced, but only to the file that the descriptor refers to; the path may refer to another one.
        self.unseen: list[list[int | None]] = []
        self.lost = Tally()

    def lose_unsynced(self) -> None:
        """Count the lines since the last sync as lost, because a sync failed."""
        for steps in self.unsynced:
            for step in steps:
                self.lost.add(step)
        self.unsynced.clear()

    def lose_all(self) -> None:
        """Count all lines in doubt as lost, because the file is gone or was truncated."""
        self.unsynced += self.unseen
        self.unseen.clear()
        self.lose_unsynced()

    def gaps(self, t: float) -> list[str]:
        """The `gap` lines of lost lines, each reported once."""
        lost, self.lost = self.lost, Tally()
        return lost.records(t)


class LineFile:
    """Appends lines to a file of its own.

    `next_part()` names the file and gives its first lines; it is called once, and again only if the file itself is
    gone. `definitions()` gives the lines to repeat where some may have been lost. `release(n)` frees n bytes of the
    buffer, which were written or given up.
    """

    def __init__(
        self,
        next_part: Callable[[], Part],
        definitions: Callable[[], list[str]],
        release: Callable[[int], None],
        clock: Callable[[], float],
        disk: Disk,
        look: float,
    ) -> None:
        self._next_part = next_part
        self._definitions = definitions
        self._release = release
        self._clock = clock
        self._disk = disk
        self._part: Part | None = None
        self._created = False
        self._fd = -1
        self._key = (0, 0)
        self._offset = 0
        self.modified_ns = 0  # the file's time when last read, before any later write; 0: unknown
        self._queue: deque[tuple[list[str], list[int | None]]] = deque()
        self._piece: _Piece | None = None
        # Lines that must be whole in the file before all others: the header, or what follows a line that may be torn.
        self._front: _Piece | None = None
        self._front_lines: list[str] = []
        self._header_safe = False
        self.in_vain = False  # the last file was given up because not even its header could be synced
        self._doubt = _Doubt()
        self._look = look
        self._look_at = 0.0

    @property
    def idle(self) -> bool:
        """True if everything given to `put` is in the file (or was given up)."""
        return self._created and self._front is None and self._piece is None and not self._queue

    @property
    def path(self) -> str | None:
        """The path of the file, or of the one about to be made; None before the first attempt."""
        return None if self._part is None else self._part.path

    def put(self, lines: list[str], steps: list[int | None]) -> None:
        """Queue lines; `steps` has one entry for each."""
        for i in range(0, len(lines), _LINES_AT_ONCE):
            self._queue.append((lines[i : i + _LINES_AT_ONCE], steps[i : i + _LINES_AT_ONCE]))

    def write_out(self) -> int:
        """Write all queued lines and return their number of bytes. Raises OSError; a later call continues."""
        self._ready()
        written = 0
        while (piece := self._current()) is not None:
            data = memoryview(piece.data)[piece.pos :]
            try:
                n = self._disk.write(self._fd, data)
                if n <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                self._after(error)
                raise
            piece.pos += n
            self._offset += n
            written += n
            if piece.pos == len(piece.data):
                self._finish(piece)
        return written

    def sync(self) -> bool:
        """Make all written lines visible to other machines. Returns False if this filesystem cannot sync.

        Raises OSError; then a `gap` is queued and writing goes on.
        """
        try:
            self._disk.sync(self._fd)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTSUP):
                self.forget_unsynced()
                return False
            if error.errno in LOST:
                self._let_go(error)
                raise
            self._doubt.lose_unsynced()
            if self._header_safe:
                self._measure()
                self._break_line()
            else:
                self._abandon()
                self.in_vain = True
            raise
        self.forget_unsynced()
        return True

    def forget_unsynced(self) -> None:
        """Count all written lines as safe: synced, or on a local filesystem, where a returned write is enough."""
        self._doubt.unseen += self._doubt.unsynced
        self._doubt.unsynced.clear()
        self._header_safe = True
        self.in_vain = False

    def close(self) -> None:
        """Close the descriptor. Nothing else may be called afterwards."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)

    def drop_inherited(self) -> None:
        """In a forked child: drop the parent's descriptor without touching the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                status = os.fstat(fd)
                if (status.st_dev, status.st_ino) == self._key:  # otherwise the job closed it and reused the number
                    os.close(fd)
            except OSError:  # the parent's thread was just closing it
                return

    # Opening

    def _ready(self) -> None:
        if self._fd < 0:
            if self._created:
                self._reopen()
            else:
                self._create()
            return
        try:
            status = self._disk.fstat(self._fd)
        except OSError as error:
            self._let_go(error)
            raise
        self.modified_ns = status.st_mtime_ns
        if status.st_size != self._offset and (status.st_dev, status.st_ino) != self._key:
            # The job closed our descriptor and the number now means another file, which must not be written or closed.
            self._fd, self.modified_ns = -1, 0
            self._reopen()
        elif status.st_nlink == 0:
            self._abandon()
            self._create()
        elif status.st_size < self._offset:  # another process truncated it, perhaps in the middle of a line
            self._settle(status.st_size)
        elif time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._look
            if self._part is None or in_place(self._disk, self._part.path, self._key):
                self._doubt.unseen.clear()
            else:
                self._let_go(OSError(errno.ESTALE, os.strerror(errno.ESTALE)))
                self._reopen()

    def _create(self) -> None:
        if self._part is None:
            self._part = self._next_part()
        self._disk.make_folder(os.path.dirname(self._part.path))
        try:
            self._fd = self._disk.open(self._part.path, _APPEND | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            self._part = None  # never share a file: the next attempt takes another name
            raise
        status = self._disk.fstat(self._fd)
        self._key = (status.st_dev, status.st_ino)
        self._offset = 0
        self._created = True
        self._header_safe = False
        self._put_front(self._part.header + self._doubt.gaps(self._clock()))

    def _reopen(self) -> None:
        assert self._part is not None
        try:
            fd = self._disk.open(self._part.path, _APPEND)
        except OSError as error:
            # A missing folder is a mount that has not come back yet. A missing file in its folder is gone for good, and
            # so is a file that a link has replaced.
            gone = isinstance(error, FileNotFoundError) and os.path.isdir(os.path.dirname(self._part.path))
            if not gone and error.errno != errno.ELOOP:
                raise
            self._abandon()
            self._create()
            return
        self._fd = fd
        status = self._disk.fstat(fd)
        self._key = (status.st_dev, status.st_ino)
        self._settle(status.st_size)

    # Trouble

    def _after(self, error: OSError) -> None:
        """After a failed write, find out how much of it is in the file."""
        if error.errno in LOST:
            self._let_go(error)
            return
        try:
            size = self._disk.fstat(self._fd).st_size
        except OSError as second:
            self._let_go(second)
            return
        self._settle(size)

    def _let_go(self, error: OSError) -> None:
        fd, self._fd, self.modified_ns = self._fd, -1, 0
        if fd >= 0 and error.errno != errno.EBADF:
            try:
                self._disk.close(fd)
            except OSError:  # already known to be bad; the file is measured when it is opened again
                return

    def _abandon(self) -> None:
        """Begin a new file: the old one or its header may be gone. A half-written line is written again whole."""
        self._let_go(OSError(errno.ESTALE, os.strerror(errno.ESTALE)))
        self._created = False
        self._part = None
        self._front = None
        self._doubt.lose_all()
        if self._piece is not None:
            self._piece.pos = self._piece.data.rfind(b"\n", 0, self._piece.pos) + 1

    def _measure(self) -> None:
        try:
            self._offset = self._disk.fstat(self._fd).st_size
        except OSError as error:
            self._let_go(error)

    def _settle(self, size: int) -> None:
        """Correct the offset by the file's real size."""
        extra = size - self._offset
        if extra == 0:
            return
        self._offset = size
        if extra < 0:
            if not self._header_safe:
                self._abandon()
                return
            self._doubt.lose_all()
        elif (piece := self._front or self._piece) is not None and extra <= len(piece.data) - piece.pos:
            # The failed call did write bytes. A line it tore is given up; whole ones are not written again.
            piece.pos += extra
            if piece.data[piece.pos - 1 : piece.pos] == b"\n":
                if piece.pos == len(piece.data):
                    self._finish(piece)
                return
        self._break_line()

    def _break_line(self) -> None:
        """Start a new line: an LF ends what stands before it, and a gap counts what may be missing."""
        if self._front is not None:
            self._put_front(["\n", *self._front_lines, *self._doubt.gaps(self._clock())])
            return
        piece = self._piece
        if piece is not None and piece.pos:
            written = piece.data.count(b"\n", 0, piece.pos)
            end = piece.pos
            if piece.data[end - 1 : end] != b"\n":
                end = piece.data.index(b"\n", end) + 1
                self._doubt.lost.add(piece.steps[written])
                written += 1
            self._release(end)
            self._piece = _Piece(piece.data[end:], piece.steps[written:]) if end < len(piece.data) else None
        self._put_front(["\n", *self._doubt.gaps(self._clock()), *self._definitions()])

    def _put_front(self, lines: list[str]) -> None:
        self._front_lines = [line for line in lines if line != "\n"]
        self._front = _Piece("".join(lines).encode(), [])

    # Progress

    def _current(self) -> _Piece | None:
        if self._front is not None:
            return self._front
        if self._piece is None and self._queue:
            lines, steps = self._queue.popleft()
            self._piece = _Piece("".join(lines).encode(), steps)
        return self._piece

    def _finish(self, piece: _Piece) -> None:
        if piece is self._front:
            self._front = None
            return
        self._doubt.unsynced.append(piece.steps)
        self._release(len(piece.data))
        self._piece = None
