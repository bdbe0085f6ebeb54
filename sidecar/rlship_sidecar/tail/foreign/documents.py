"""Documents, which frameworks rewrite as a whole, presented as files of lines. A changed document is read into
memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rlship_formats.foreign.contract import BadRecord, Reader, Unreadable
from rlship_formats.foreign.native import ReaderFailed, document
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.tail.looks import Looks
from rlship_sidecar.tail.tail import Descriptors

T = TypeVar("T")

MAX_BYTES = 256 << 20
# Each document may hold a part of every step, and a document that is not held is parsed again every few steps.
# Therefore the limit is on their total size. One document is held whatever its size.
MAX_OPEN = 128
HELD_BYTES = 256 << 20


class NotWhole(OSError):
    """A document that its reader cannot turn into lines: it is of another format, or `Torn`."""


class Torn(NotWhole):
    """A document that is half written, damaged or too large. Data are lacking while it stays so."""


class _Seen(NamedTuple):
    """The last reading of a document: the stamp that shows a change, the size of its lines, and the problem if it has
    one.
    """

    stamp: tuple[int, int, int]
    size: int
    problem: OSError | None


class Documents(Descriptors):
    """The lines of documents below the folder `root`, as files in memory. `use` sets the reader of each document.

    The document is opened for every look, which shows whether it changed. The lines of some stay open between looks.
    """

    def __init__(self, root: str, looks: Looks | None = None) -> None:
        super().__init__(MAX_OPEN, keep=False, root=root, looks=looks)
        self._readers: dict[str, Reader] = {}
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def use(self, path: str, reader: Reader) -> None:
        """Use `reader` for this document from now on."""
        with self._lock:
            if self._readers.get(path) is not reader:
                self._readers[path] = reader
                self._seen.pop(path, None)
                self.forget(path)

    def size(self, path: str) -> int:
        """The size of the lines in bytes. Reads the document only if it changed. Raises what `look` raises."""
        fd, stamp = self._opened(path)
        os.close(fd)
        with self._lock:
            seen = self._known(path, stamp)
        return seen.size if seen is not None else self.look(path, lambda fd, size: size or 0)

    def look(self, path: str, look: Callable[[int, int | None], T], *, known: bool = False) -> T:
        """Call `look` with a descriptor of the lines and their size. Any thread may do so.

        Raises OSError, NotAFile, NotWhole, Torn, ReaderFailed.
        """
        lines, size = self._lines(path)
        try:
            return look(lines, size)
        finally:
            os.close(lines)

    def _lines(self, path: str) -> tuple[int, int]:
        """A descriptor of the lines, which the caller closes, and their size."""
        fd, stamp = self._opened(path)
        try:
            with self._lock:
                seen, held = self._known(path, stamp), self._open.get(path)
                if seen is not None and held is not None:
                    self._open.move_to_end(path)
                    return os.dup(held), seen.size
                self.forget(path)
            data = self._read(path, fd, stamp)
        finally:
            os.close(fd)
        made = os.memfd_create("rlship", os.MFD_CLOEXEC)
        try:
            _write(made, data)
            with self._lock:
                self._hold(path, _Seen(stamp, len(data), None), os.dup(made))
        except OSError:
            os.close(made)
            raise
        return made, len(data)

    def _known(self, path: str, stamp: tuple[int, int, int]) -> _Seen | None:
        """The last reading if the document is as it was then. Raises its problem."""
        seen = self._seen.get(path)
        if seen is None or seen.stamp != stamp:
            return None
        if seen.problem is not None:
            raise seen.problem
        return seen

    def _hold(self, path: str, seen: _Seen, lines: int) -> None:
        self.forget(path)
        self._seen[path] = seen
        self.add(path, lines)
        while len(self._open) > 1 and sum(self._seen[held].size for held in self._open) > HELD_BYTES:
            self.forget(next(iter(self._open)))

    def _opened(self, path: str) -> tuple[int, tuple[int, int, int]]:
        """Open the document and return its descriptor and stamp. The open makes a network filesystem ask its server."""
        fd = open_plain(path, self.root)
        found = os.fstat(fd)
        return fd, (found.st_ino, found.st_mtime_ns, found.st_size)

    def _read(self, path: str, fd: int, stamp: tuple[int, int, int]) -> bytes:
        reader = self._readers[path]
        if stamp[2] > MAX_BYTES:
            problem: OSError = Torn(0, f"not read: it is larger than {MAX_BYTES >> 20} MiB", path)
        else:
            with open(fd, "rb", closefd=False) as file:
                text = file.read(MAX_BYTES + 1)
            try:
                return document(reader, text)
            except Unreadable as bad:
                problem = Torn(0, f"not read, as it is being written or was left half written: {bad}", path)
            except BadRecord as bad:
                problem = NotWhole(0, f"not read, as it is no such document: {bad}", path)
            except ReaderFailed:
                self._seen.pop(path, None)
                raise
        self._seen[path] = _Seen(stamp, 0, problem)
        raise problem


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
