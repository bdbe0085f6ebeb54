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
        return _regular(os.open(path, OPEN_FLAGS), path)[0]
    at = _walk(folder, root)
    try:
        return _regular(os.open(name, OPEN_FLAGS, dir_fd=at), path)[0]
    finally:
        os.close(at)


class OpenFolder:
    """A folder on the way to which there is no link. Its descriptor is closed with the last reference, so that a thread
    may still use it while another one opens the folder anew.
    """

    def __init__(self, path: str, root: str) -> None:
        self._fd = _walk(path, root)

    def __del__(self) -> None:
        with suppress(AttributeError):  # it could not be opened
            os.close(self._fd)

    def open(self, path: str) -> tuple[int, int]:
        """Open the regular file at `path`, which is in this folder. Returns its descriptor and size. Raises as
        `open_plain`.
        """
        return _regular(self.open_any(path), path)

    def open_any(self, path: str) -> int:
        """Open what is at `path` in this folder, for a reader that knows it by its bytes. Raises OSError."""
        return os.open(path.rpartition("/")[2], OPEN_FLAGS, dir_fd=self._fd)


def _regular(fd: int, path: str) -> tuple[int, int]:
    """A descriptor and the size of its file. Raises NotAFile."""
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode):
        return fd, found.st_size
    os.close(fd)
    raise NotAFile(0, "not a regular file", path)


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
