"""Pictures and other files that a job logs: copied into the experiment by a thread of their own.

Not by the thread that writes lines: a slow copy would hold them up.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque

from .. import threads
from ..notices import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_BYTES = 16 << 20
_MAX_WAITING = 256
_MAX_WAITING_BYTES = 256 << 20
_PIECE = 1 << 20
_EXIT_S = 3.0


class File:
    """One file to copy. `source` is its path now, `digest` the SHA-256 of its content in hex.

    `value` is the job's object. If the file is temporary, the object gets the new path and the old file is removed, as
    the client itself does. `lost()` is called if the copy fails.
    """

    __slots__ = ("digest", "folder", "lost", "name", "size", "source", "temporary", "value")

    def __init__(
        self,
        value: Any,
        source: str,
        digest: str,
        size: int,
        folder: str,
        lost: Callable[[], object],
    ) -> None:
        self.value = value
        self.source = source
        self.digest = digest
        self.size = size
        self.folder = folder
        self.name = f"{digest}.{_extension(source)}"
        self.temporary = bool(getattr(value, "_is_tmp", False))
        self.lost = lost


def file_of(value: Any, folder: str, lost: Callable[[], object]) -> File | None:
    """The file of one of the client's media objects; None for an object without a file of its own."""
    path, digest = getattr(value, "_path", None), getattr(value, "_sha256", None)
    if not isinstance(path, (str, os.PathLike)) or not isinstance(digest, str) or "://" in str(path):
        return None
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        return None
    size = getattr(value, "_size", None)
    if not isinstance(size, int):
        size = os.stat(path).st_size
    return File(value, os.path.abspath(path), digest, size, folder, lost)


def _extension(path: str) -> str:
    found = os.path.splitext(path)[1][1:].lower()
    return found if 0 < len(found) <= 8 and found.isascii() and found.isalnum() else "bin"


class Copier:
    """The thread and its bounded queue. A forked child has one of its own."""

    def __init__(self) -> None:
        self._begin(0)

    def _begin(self, pid: int) -> None:
        """Begin anew: a forked child has neither the thread nor what waited."""
        self._waiting: deque[File] = deque()
        self._bytes = 0
        self._done: set[tuple[str, str]] = set()
        self._lock = threads.lock()
        self._signal = threads.lock()
        self._pid = pid

    def put(self, file: File) -> str | None:
        """Copy it soon. Returns why not, if it cannot be kept."""
        if file.size > MAX_BYTES:
            return f"it has {file.size} bytes, {MAX_BYTES} are allowed"
        if self._pid != os.getpid():
            self._begin(os.getpid())
            self._signal.acquire()
            threads.start(self._run)
        with self._lock:
            if (file.folder, file.name) in self._done:
                return None
            if len(self._waiting) >= _MAX_WAITING or self._bytes + file.size > _MAX_WAITING_BYTES:
                return "too many files wait to be copied"
            self._bytes += file.size
            self._waiting.append(file)
        if self._signal.locked():
            try:
                self._signal.release()
            except RuntimeError:  # another thread has just woken it
                return None
        return None

    def wait(self, seconds: float = _EXIT_S) -> None:
        """Wait until everything is copied, at most so long."""
        deadline = time.monotonic() + seconds
        while self._pid == os.getpid() and self._bytes and time.monotonic() < deadline:
            time.sleep(0.005)

    def _run(self) -> None:
        while True:
            self._signal.acquire()
            while self._waiting:
                with self._lock:
                    file = self._waiting.popleft()
                try:
                    self._copy(file)
                    if len(self._done) < 1 << 16:
                        self._done.add((file.folder, file.name))
                except Exception as error:  # noqa: BLE001 - other files may do better
                    say(f"{file.source} is not kept: {type(error).__name__}: {error}")
                    file.lost()
                with self._lock:
                    self._bytes -= file.size

    def _copy(self, file: File) -> None:
        folder = os.path.join(file.folder, "rlship", "media")
        target = os.path.join(folder, file.name)
        os.makedirs(folder, exist_ok=True)
        if not os.path.isfile(target):
            part = os.path.join(folder, f".{os.getpid()}-{os.urandom(4).hex()}")
            try:
                _write(file, part)
                os.rename(part, target)
            except BaseException:
                if os.path.lexists(part):
                    os.unlink(part)
                raise
        if file.temporary and getattr(file.value, "_path", None) == file.source:
            file.value._path, file.value._is_tmp = target, False
            os.unlink(file.source)


def _write(file: File, path: str) -> None:
    digest, left = hashlib.sha256(), MAX_BYTES
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    with open(descriptor, "wb") as out, open(file.source, "rb") as source:
        while piece := source.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"it grew beyond {MAX_BYTES} bytes")
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != file.digest:
        raise ValueError("its content changed after it was logged")
