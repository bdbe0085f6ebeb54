"""Files in folders where other users may write: never follow, wait for, or write through what they put there."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

# A FIFO must not block this process, and a link must not lead it elsewhere.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class NotAFile(OSError):
    """The path is not a regular file (a FIFO, a device, a link, a folder)."""


def open_plain(path: str, root: str = "") -> int:
    """Open the regular file at `path` for reading and return its descriptor. Raises OSError, NotAFile.

    With `root`, a folder above it, no folder on the way from `root` may be a link.
    """
    folder, _, name = path.rpartition("/")
    if not root or not path.startswith(f"{root}/"):
        fd = os.open(path, OPEN_FLAGS)
    else:
        at = _walk(folder, root)
        try:
            fd = os.open(name, OPEN_FLAGS, dir_fd=at)
        finally:
            os.close(at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotAFile(0, "not a regular file", path)
    return fd


def open_folder(path: str, root: str) -> int:
    """Open the folder at `path` for listing and return its descriptor.

    No folder on the way from `root` to it may be a link. Raises OSError: NotADirectoryError for a link.
    """
    at = _walk(path, root)
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def _walk(path: str, root: str) -> int:
    """Open the folder `path`, which is `root` or below it, as a base for opening its entries."""
    at = os.open(root, _FOLDER)
    for folder in path[len(root) :].split("/"):
        if folder not in ("", "."):
            try:
                deeper = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
            finally:
                os.close(at)
            at = deeper
    return at


def make_folder(path: Path, *roots: Path) -> None:
    """Make the folder `path` and those on the way to it, but none of `roots`.

    A folder below a root is made only while the root exists. Raises FileNotFoundError for a job's folder that was
    renamed or removed, which must not reappear empty; and other OSErrors.
    """
    root = next((root for root in roots if root in (path, *path.parents)), None)
    if root is None:
        path.mkdir(parents=True, exist_ok=True)
        return
    on_the_way = [folder for folder in (*reversed(path.parents), path) if root in folder.parents]
    os.stat(root)
    for folder in on_the_way:
        with suppress(FileExistsError):
            os.mkdir(folder)


def pinned(folder: str | Path) -> str:
    """A path of this folder for other programs, valid as long as this process lives.

    The path follows a renamed folder, and nothing can be created under it once the folder is removed. Without `/proc`
    it is the folder's own path. Raises OSError.
    """
    fd = os.open(folder, _FOLDER | os.O_NOFOLLOW)
    path = f"/proc/{os.getpid()}/fd/{fd}"
    if os.path.isdir(path):
        return path
    os.close(fd)
    return os.fspath(folder)


def read_plain(path: str | Path, most: int) -> bytes:
    """Read the first `most` bytes of the regular file at `path`. Raises OSError, NotAFile."""
    with open(open_plain(os.fspath(path)), "rb") as file:
        return file.read(most)


def make_plain(path: str | Path) -> int:
    """Create a new, empty file and return its descriptor, for reading and writing. Raises OSError.

    It unlinks the former holder of the name, but never touches a link's target or another name of the same file.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def write_plain(path: str | Path, data: bytes) -> None:
    """Create a new file with `data`, as `make_plain` does. Raises OSError."""
    with open(make_plain(path), "wb") as file:
        file.write(data)
