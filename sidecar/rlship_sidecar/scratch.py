"""Temporary folders whose owner may be killed: the next process that makes one removes those left behind.

The owner holds a lock on a file in its folder, which ends with the process. A process id would not do: in another
container it may be another process's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "rlship-"
OWNER = ".owner"
YOUNG_S = 60.0  # a folder this young may be about to be locked


@contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """An empty folder for this process, removed at the end."""
    remove_left_behind()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
    try:
        owner = own(folder)
        try:
            yield folder
        finally:
            os.close(owner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own(folder: Path) -> int:
    """Mark a new folder as this process's; returns the descriptor to close at the end. Raises OSError."""
    owner = os.open(folder / OWNER, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # a filesystem without locks: then nothing shows that a folder is left behind
        os.unlink(folder / OWNER)
    return owner


def remove_left_behind(now: float | None = None) -> None:
    """Remove this user's folders whose owners are gone, as far as that works."""
    now = time.time() if now is None else now
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            folders = [entry.path for entry in entries if entry.name.startswith(PREFIX) and _is_ours(entry, now)]
    except OSError:
        return
    for folder in folders:
        if _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(entry: os.DirEntry[str], now: float) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and now - found.st_ctime > YOUNG_S


def _is_left(folder: str) -> bool:
    """True if a folder has an owner's file that no process locks."""
    try:
        owner = os.open(os.path.join(folder, OWNER), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(owner)
    return True
