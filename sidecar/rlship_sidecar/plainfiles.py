"""Files where others may write too: nothing that was put in their place is followed, waited for, or written through."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

# A FIFO or a link put there must not hold us up, or lead elsewhere.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class NotAFile(OSError):
    """The path is not a regular file (a FIFO, a device, a link, a folder)."""


def open_plain(path: str, root: str = "") -> int:
    """A descriptor of the regular file at `path`, for reading. With `root`, a folder that it is below, no folder on the
    way from there may be a link. Raises OSError, NotAFile.
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
    """A descriptor of the folder at `path`, to be listed; no folder on the way from `root` to it may be a link. Raises
    OSError: NotADirectoryError for a link.
    """
    at = _walk(path, root)
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)


def _walk(path: str, root: str) -> int:
    """A descriptor of the folder `path`, which is `root` or below it, to open what is in it."""
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
    """Make the folder `path` and those on the way to it, but none of `roots`: what lies below one of them is made only
    while that is there. Raises FileNotFoundError once a job's folder was renamed or removed, which must not come back
    as an empty one; and other OSErrors.
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
    """A path of this folder for other programs, as long as this process lives. It stays with a folder that is renamed,
    and under one that is removed nothing can be made. The folder's own path where `/proc` does not show it. Raises
    OSError.
    """
    fd = os.open(folder, _FOLDER | os.O_NOFOLLOW)
    path = f"/proc/{os.getpid()}/fd/{fd}"
    if os.path.isdir(path):
        return path
    os.close(fd)
    return os.fspath(folder)


def read_plain(path: str | Path, most: int) -> bytes:
    """The first `most` bytes of the regular file at `path`; raises OSError, NotAFile."""
    with open(open_plain(os.fspath(path)), "rb") as file:
        return file.read(most)


def make_plain(path: str | Path) -> int:
    """A descriptor of a new, empty file, for reading and writing. What had the name is removed, and nothing else is
    touched: not what a link or another name of the same file leads to. Raises OSError.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def write_plain(path: str | Path, data: bytes) -> None:
    """Make a new file of `data`, as `make_plain` does; raises OSError."""
    with open(make_plain(path), "wb") as file:
        file.write(data)
