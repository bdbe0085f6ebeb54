"""The system calls that write a file, in one place where a test can make them fail."""

from __future__ import annotations

import os


class Disk:
    """The system calls a `LineFile` makes. Tests put faults here."""

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o666)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def sync(self, fd: int) -> None:
        # macOS has no fdatasync.
        getattr(os, "fdatasync", os.fsync)(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)
