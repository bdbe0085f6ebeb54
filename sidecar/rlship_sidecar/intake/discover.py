"""Which experiments and which writers' files there are. scandir is the truth: a name is never polled before it was
listed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

WRITERS_FOLDER = "rlship"
SUFFIX = ".jsonl"
SETTLED_S = 1.0
RELIST_EVERY_S = 10.0


def experiments(directory: Path) -> list[Path]:
    """The folder itself if it is an experiment, else its subfolders that are, sorted; raises OSError where it cannot be
    read.
    """
    if is_experiment(directory):
        return [directory]
    with os.scandir(directory) as entries:
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [Path(folder) for folder in sorted(folders) if is_experiment(folder)]


def is_experiment(folder: str | Path) -> bool:
    """Whether a folder has a writers' folder in it, and not a Python package of that name, as a checkout may have."""
    writers = os.path.join(folder, WRITERS_FOLDER)
    return os.path.isdir(writers) and not os.path.exists(os.path.join(writers, "__init__.py"))


def barred(directory: Path) -> list[str]:
    """Subfolders that may be experiments but cannot be looked into, sorted."""
    with os.scandir(directory) as entries:
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK))


class Folder:
    """The folder that writers put their files into, and when it has to be listed again.

    On a local filesystem an unchanged mtime saves the listing. It moves by clock ticks, so that a file made within one
    after a listing leaves it as it is: therefore not at once after a change, and now and then whatever it says.
    """

    def __init__(self, path: str, *, local: bool) -> None:
        self.path = path
        self._local = local
        self._mtime_ns = -1
        self._changed_at = 0.0
        self._listed_at = 0.0

    def look(self, now: float, *, force: bool) -> Listing:
        """`listing`, or nothing without a look where none is due; raises OSError."""
        if self._local:
            mtime_ns = os.stat(self.path).st_mtime_ns
            if mtime_ns != self._mtime_ns:
                self._mtime_ns, self._changed_at = mtime_ns, now
            elif not force and now - self._changed_at > SETTLED_S and now - self._listed_at < RELIST_EVERY_S:
                return Listing({}, [])
        found = listing(self.path)
        self._listed_at = now
        return found


class Listing(NamedTuple):
    """Writers' files in a folder with their inodes, and entries of such names that are none (sorted): they are no
    regular files, or have a name that is not UTF-8, which neither the store nor a status could hold.
    """

    files: dict[str, int]
    odd: list[str]


def listing(folder: str) -> Listing:
    """List a folder; raises OSError."""
    files: dict[str, int] = {}
    odd: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.endswith(SUFFIX) or name.startswith("."):
                continue
            if not _is_utf8(name):
                odd.append(os.fsencode(name).decode("utf-8", "replace"))
            elif entry.is_file(follow_symlinks=False):
                files[name] = entry.inode()
            else:
                odd.append(name)
    return Listing(dict(sorted(files.items())), sorted(odd))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
