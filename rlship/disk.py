"""The system calls that write a file, in one place where a test can make them fail."""

from __future__ import annotations

import errno
import os

from .filesystem import is_network

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


# A folder that may be searched but not read can be opened by O_PATH; macOS has no such flag.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk:
    """The system calls a `LineFile` makes. Tests put faults here."""

    def open(self, path: str, flags: int) -> int:
        """Open a file, where neither it nor its folder is a link."""
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
        """Whether `path` lies on a filesystem that other machines read through the network."""
        return is_network(path)

    def make_folder(self, path: str) -> None:
        """Create a folder if it is missing."""
        try:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            _refuse_link(path)
            raise


def _refuse_link(path: str) -> None:
    """Raise OSError if `path` is a link: whoever may write to the experiment's folder could steer the job's writes."""
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
        # Where a mount was taken away, what is left of the path is on another filesystem.
        return os.stat(folder).st_dev == key[0]
    except OSError:  # the descriptor may be good all the same
        return True
    return (status.st_dev, status.st_ino) == key
