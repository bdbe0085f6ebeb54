"""Folders of files, and when to list them again. Every name comes from scandir: a name is polled only after it was
listed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from rlship_sidecar.plainfiles import open_folder

WRITERS_FOLDER = "rlship"
SUFFIX = ".jsonl"
PART = "#"  # separates, in the name of a writer that shares a foreign file, the file's name from the writer's
SETTLED_S = 1.0
_PART = re.compile(rf"{PART}(\w+)\Z")  # a part's name has no dot, a file's name has one before its suffix
_ASIDE = re.compile(r" \(replaced \d+\)$")
RELIST_EVERY_S = 10.0
MIN_WAIT_S, MAX_WAIT_S = 0.4, 2.0  # between two listings of a folder on a network filesystem


class Folder:
    """A folder in which files appear, with the rule that decides when to list it again.

    On a local filesystem an unchanged mtime saves the listing. The mtime moves by clock ticks, so a file made in the
    same tick as a listing leaves it unchanged. Therefore the folder is also listed for a while after each change, and
    every `RELIST_EVERY_S` seconds.

    A network filesystem may show an old mtime, so there the folder is listed, less often the longer nothing changed.
    """

    def __init__(self, path: str, root: str, *, local: bool, listing: Callable[[int], Listing] | None = None) -> None:
        """`path` is `root` or lies below it, and no folder on the way may be a link. `listing` lists a descriptor."""
        self.path = path
        self._root = root
        self._local = local
        self._list = listing or list_writers
        self._mtime_ns = -1
        self._changed_at = 0.0
        self._listed_at = 0.0
        self._found: Listing | None = None
        self._wait_s = 0.0

    def look(self, now: float, *, force: bool) -> Listing | None:
        """List the folder, or return None if no listing is due. Raises OSError."""
        if not (self._local or force) and now < self._listed_at + self._wait_s:
            return None
        fd = open_folder(self.path, self._root)
        try:
            if self._local:
                mtime_ns = os.fstat(fd).st_mtime_ns
                if mtime_ns != self._mtime_ns:
                    self._mtime_ns, self._changed_at = mtime_ns, now
                elif not force and now - self._changed_at > SETTLED_S and now - self._listed_at < RELIST_EVERY_S:
                    return None
            found = self._list(fd)
        finally:
            os.close(fd)
        if not self._local:
            if found != self._found:
                self._found, self._changed_at = found, now
            self._wait_s = min(MAX_WAIT_S, max(MIN_WAIT_S, (now - self._changed_at) / 8))
        self._listed_at = now
        return found


class Listing(NamedTuple):
    """The entries of a folder.

    `files` maps names to inodes. `odd` names entries that look like files of this kind but are not regular files, or
    have a name that is not UTF-8: neither the store nor a status could hold it. `folders` are subfolders that may hold
    more files.
    """

    files: dict[str, int]
    odd: list[str]
    folders: tuple[str, ...] = ()


def list_writers(folder: str | int) -> Listing:
    """List the writers' files in a folder, given by path or descriptor, sorted by name. Raises OSError."""
    files: dict[str, int] = {}
    odd: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if not name.endswith(SUFFIX) or name.startswith("."):
                continue
            if not is_utf8(name):
                odd.append(os.fsencode(name).decode("utf-8", "replace"))
            elif entry.is_file(follow_symlinks=False):
                files[name] = entry.inode()
            else:
                odd.append(name)
    return Listing(dict(sorted(files.items())), sorted(odd))


def is_foreign(name: str) -> bool:
    """Whether a file is another framework's, by its name."""
    return "/" in name


def split_part(name: str) -> tuple[str, str]:
    """Split a writer's name into its file and its part. The part is "" if the writer has a file to itself."""
    match = _PART.search(name)
    return (name, "") if match is None else (name[: match.start()], match[1])


def is_aside(name: str) -> bool:
    """True if the name is that of a file that another file replaced; see `Store.set_aside`."""
    return _ASIDE.search(name) is not None


def is_utf8(name: str) -> bool:
    """True if a name can be encoded as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
