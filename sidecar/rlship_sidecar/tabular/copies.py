"""The copy of a store that only a writer could read, because its owner was killed or frozen within a commit.

A copy is as large as the store. So who looks again and again keeps it until the store's files change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlship_sidecar.ownership.inherit import COMPANIONS, copy_as_it_lies
from rlship_sidecar.scratch import scratch

Identity = tuple[object, ...]


@dataclass(eq=False, slots=True)
class _Kept:
    """A copy in a temporary folder, of files that were like this."""

    path: Path
    identity: Identity
    folder: ExitStack
    users: int = field(default=0)


class StoreCopy:
    """Keeps the copy of one store for those who read it; any thread may ask. There is at most one copy, beside those
    of former files that are still read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: _Kept | None = None

    def is_of(self, path: Path) -> bool:
        """Whether the copy is that of the store as its files are now."""
        with self._lock:
            return self._kept is not None and self._kept.identity == _identity(path)

    @contextmanager
    def lent(self, path: Path) -> Iterator[Path]:
        """The copy of a store, which is made unless it is that of the files as they are now. Raises OSError and
        sqlite3.Error.
        """
        with self._lock:
            identity = _identity(path)
            if self._kept is None or self._kept.identity != identity:
                self._let_go()
                self._kept = _made(path, identity)
            kept = self._kept
            kept.users += 1
        try:
            yield kept.path
        finally:
            with self._lock:
                kept.users -= 1
                if kept is not self._kept and not kept.users:
                    kept.folder.close()

    def close(self) -> None:
        """Remove the copy, once no thread reads it."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None and not kept.users:
            kept.folder.close()


def _identity(path: Path) -> Identity:
    """What changes with the files of a store: which there are, and of each its inode, size and time."""
    found: list[object] = []
    for suffix in COMPANIONS:
        try:
            one = os.stat(f"{path}{suffix}")
        except FileNotFoundError:
            continue
        found += [suffix, one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns]
    return tuple(found)


def _made(path: Path, identity: Identity) -> _Kept:
    with ExitStack() as stack:
        copy = stack.enter_context(scratch("store")) / "store.db"
        copy_as_it_lies(path, copy)
        return _Kept(copy, identity, stack.pop_all())
