"""The system calls that write a file, in one place where a test can make them fail."""

from __future__ import annotations

import errno
import os

# The descriptor is no longer good, whatever became of the file: open it again by its path.
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


class Disk:
    """The system calls a `LineFile` makes. Tests put faults here."""

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o666)

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

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)


def in_place(disk: Disk, path: str, key: tuple[int, int]) -> bool:
    """Whether who opens `path` finds the file that `key` (device, inode) is, or would but for a folder's new name."""
    try:
        status = disk.stat(path)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        if os.path.isdir(folder):
            return False
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        # Where a mount was taken away, what is left of the path is on another filesystem.
        return os.stat(folder).st_dev == key[0]
    except OSError:  # it tells nothing of the descriptor
        return True
    return (status.st_dev, status.st_ino) == key
