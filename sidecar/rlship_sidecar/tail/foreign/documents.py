"""Documents, which frameworks rewrite as a whole, presented as files of lines. A changed document is read into
memory.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from rlship_formats.foreign.contract import BadRecord, Reader
from rlship_formats.foreign.native import ReaderFailed, document
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.tail.tail import Descriptors

MAX_BYTES = 256 << 20
# Each document may hold a part of every step, and a document that is not held is parsed again every few steps.
# Therefore the limit is on their total size. One document is held whatever its size.
MAX_OPEN = 128
HELD_BYTES = 256 << 20


class NotWhole(OSError):
    """A document that its reader cannot turn into lines: it is half written, or of another format."""


class _Seen(NamedTuple):
    """The last reading of a document: the stamp that shows a change, the size of its lines, and the problem if it has
    one.
    """

    stamp: tuple[int, int, int]
    size: int
    problem: OSError | None


class Documents(Descriptors):
    """The lines of documents below the folder `root`, as open files in memory. `use` sets the reader of each
    document.
    """

    def __init__(self, root: str) -> None:
        super().__init__(MAX_OPEN, keep=True, root=root)
        self._readers: dict[str, Reader] = {}
        self._seen: dict[str, _Seen] = {}

    def use(self, path: str, reader: Reader) -> None:
        """Use `reader` for this document from now on."""
        if self._readers.get(path) is not reader:
            self._readers[path] = reader
            self._seen.pop(path, None)
            self.forget(path)

    def size(self, path: str) -> int:
        """The size of the lines in bytes. Reads the document only if it changed. Raises what `get` raises."""
        fd, stamp = self._opened(path)
        os.close(fd)
        seen = self._seen.get(path)
        if seen is not None and seen.stamp == stamp:
            if seen.problem is not None:
                raise seen.problem
            return seen.size
        self.get(path)
        return self._seen[path].size

    def get(self, path: str) -> int:
        """Return a descriptor of the lines. Raises OSError, NotAFile, NotWhole, ReaderFailed."""
        fd, stamp = self._opened(path)
        try:
            seen, lines = self._seen.get(path), self._open.get(path)
            if seen is not None and seen.stamp == stamp:
                if seen.problem is not None:
                    raise seen.problem
                if lines is not None:
                    self._open.move_to_end(path)
                    return lines
            self.forget(path)
            data = self._read(path, fd, stamp)
        finally:
            os.close(fd)
        made = os.memfd_create("rlship", os.MFD_CLOEXEC)
        try:
            _write(made, data)
        except OSError:
            os.close(made)
            raise
        self._seen[path] = _Seen(stamp, len(data), None)
        self.add(path, made)
        while len(self._open) > 1 and sum(self._seen[held].size for held in self._open) > HELD_BYTES:
            self.forget(next(iter(self._open)))
        return made

    def _opened(self, path: str) -> tuple[int, tuple[int, int, int]]:
        """Open the document and return its descriptor and stamp. The open makes a network filesystem ask its server."""
        fd = open_plain(path, self.root)
        found = os.fstat(fd)
        return fd, (found.st_ino, found.st_mtime_ns, found.st_size)

    def _read(self, path: str, fd: int, stamp: tuple[int, int, int]) -> bytes:
        reader = self._readers[path]
        if stamp[2] > MAX_BYTES:
            problem: OSError = NotWhole(0, f"not read: it is larger than {MAX_BYTES >> 20} MiB", path)
        else:
            with open(fd, "rb", closefd=False) as file:
                text = file.read(MAX_BYTES + 1)
            try:
                return document(reader, text)
            except BadRecord as bad:
                problem = NotWhole(0, f"not read, as it is being written or no such document: {bad}", path)
            except ReaderFailed:
                self._seen.pop(path, None)
                raise
        self._seen[path] = _Seen(stamp, 0, problem)
        raise problem


def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
