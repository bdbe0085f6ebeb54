"""A folder of files, and when it has to be listed again. scandir is the truth: a name is never polled before it was
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
PART = "#"  # in the name of a writer that shares a foreign file: between the file's and its own
SETTLED_S = 1.0
_PART = re.compile(rf"{PART}(\w+)\Z")  # names of parts have no dot, which those of files have at their end
_ASIDE = re.compile(r" \(replaced \d+\)$")
RELIST_EVERY_S = 10.0


class Folder:
    """A folder that files come into, and when it has to be listed again.

    On a local filesystem an unchanged mtime saves the listing. It moves by clock ticks, so that a file made within one
    after a listing leaves it as it is: therefore not at once after a change, and now and then whatever it says.
    """

    def __init__(self, path: str, root: str, *, local: bool, listing: Callable[[int], Listing] | None = None) -> None:
        """`root` is a folder that it is, or is below: none on the way may be a link. `listing` lists a descriptor."""
        self.path = path
        self._root = root
        self._local = local
        self._list = listing or list_writers
        self._mtime_ns = -1
        self._changed_at = 0.0
        self._listed_at = 0.0

    def look(self, now: float, *, force: bool) -> Listing | None:
        """What is in it; None without a look where none is due. Raises OSError."""
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
        self._listed_at = now
        return found


class Listing(NamedTuple):
    """Files in a folder with their inodes, entries of such names that are none: they are no regular files, or have a
    name that is not UTF-8, which neither the store nor a status could hold; and folders in which there may be more.
    """

    files: dict[str, int]
    odd: list[str]
    folders: tuple[str, ...] = ()


def list_writers(folder: str | int) -> Listing:
    """The writers' files in a folder, or the descriptor of one, all sorted; raises OSError."""
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
    """The file and the part that a writer's name stands for; "" for the part of a writer that has a file to itself."""
    match = _PART.search(name)
    return (name, "") if match is None else (name[: match.start()], match[1])


def is_aside(name: str) -> bool:
    """Whether it is the name of a file that another one took the place of; see `Store.set_aside`."""
    return _ASIDE.search(name) is not None


def is_utf8(name: str) -> bool:
    """Whether a name is text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
