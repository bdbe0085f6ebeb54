"""Documents that are rewritten whole, as files of lines: each is read into memory when it has changed."""

from __future__ import annotations

import os
from typing import NamedTuple

from rlship_formats.foreign.contract import BadRecord, Reader
from rlship_formats.foreign.native import ReaderFailed, document
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.tail.tail import Descriptors

MAX_BYTES = 256 << 20
# A step may be in every document, and what is not held is parsed again for each few steps: so their sizes count, not
# how many they are. One is held whatever its size.
MOST_OPEN = 128
HELD_BYTES = 256 << 20


class NotWhole(OSError):
    """A document that no reader can make lines of: half written, or another one."""


class _Seen(NamedTuple):
    """A document as it was: by what to see that it changed, and how many bytes its lines have, or what is wrong."""

    stamp: tuple[int, int, int]
    size: int
    problem: OSError | None


class Documents(Descriptors):
    """The lines of documents, all below the folder `root`, as open files. Each has a reader; `use` says which."""

    def __init__(self, root: str) -> None:
        super().__init__(MOST_OPEN, keep=True, root=root)
        self._readers: dict[str, Reader] = {}
        self._seen: dict[str, _Seen] = {}

    def use(self, path: str, reader: Reader) -> None:
        """Read this document with this reader from now on."""
        if self._readers.get(path) is not reader:
            self._readers[path] = reader
            self._seen.pop(path, None)
            self.forget(path)

    def size(self, path: str) -> int:
        """How many bytes the lines have now; raises as `get` does. Reads the document only if it changed."""
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
        """A descriptor of the lines; raises OSError, NotAFile, NotWhole, and ReaderFailed."""
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
        """The document itself, and by what to see that it changed. Opening it makes a network filesystem look."""
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
