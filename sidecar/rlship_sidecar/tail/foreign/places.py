"""The places in an experiment where readers' files may lie: a few folders, listed no deeper than the patterns reach."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate

from rlship_sidecar.tail.foreign.documents import Documents, Torn
from rlship_sidecar.tail.foreign.readers import Readers
from rlship_sidecar.tail.foreign.tail import recognise, relative_of
from rlship_sidecar.tail.listing import SUFFIX, WRITERS_FOLDER, Folder, Listing, is_aside, is_utf8, split_part

# Unrecognised files with other names, such as logs for people, are not reported.
NAMED = (SUFFIX, ".json", ".parquet", ".zst")

_Pattern = tuple[str, ...]  # the remaining parts of a place's path, one for each folder and one for the file


@dataclass(slots=True)
class _Node:
    """A folder that leads to a place: the patterns to look for in it, and the subfolders found."""

    patterns: set[_Pattern]
    folder: Folder
    folders: dict[str, _Node] = field(default_factory=dict)


class Places:
    """The files of an experiment that match a reader's place, by relative path.

    A file in the experiment's own folder is named `./metrics.jsonl`, so that every foreign name contains a slash.
    """

    def __init__(self, directory: str, readers: Readers, *, local: bool) -> None:
        self._directory = directory
        self._local = local
        patterns = {tuple(place.split("/")) for reader in readers.all for place in reader.places}
        self._root = self._node(directory, "", patterns)

    def _node(self, path: str, relative: str, patterns: set[_Pattern]) -> _Node:
        known = re.compile("|".join(translate(pattern[0]) for pattern in sorted(patterns)) or "(?!)")
        return _Node(
            patterns,
            Folder(path, self._directory, local=self._local, listing=lambda fd: _listed(fd, relative, patterns, known)),
        )

    def look(self, now: float, *, force: bool) -> Listing:
        """List the folders that are due. A folder that cannot be read is reported as odd."""
        found = Listing({}, [])
        waiting = [(self._directory, "", self._root)]
        while waiting:
            path, relative, node = waiting.pop()
            try:
                listed = node.folder.look(now, force=force)
            except FileNotFoundError:
                node.folders = {}
                continue
            except OSError:
                found.odd.append(relative or ".")
                continue
            if listed is not None:
                found.files.update(listed.files)
                found.odd.extend(listed.odd)
                below = {name: node.folders.get(name) for name in listed.folders}
                node.folders = {
                    name: known or self._node(os.path.join(path, name), f"{relative}{name}/", _after(name, node))
                    for name, known in below.items()
                }
            waiting += [(os.path.join(path, name), f"{relative}{name}/", child) for name, child in node.folders.items()]
        return found

    @property
    def folders(self) -> list[str]:
        """The folders that existed at the last look."""
        paths, waiting = [], [(self._directory, self._root)]
        while waiting:
            path, node = waiting.pop()
            paths.append(path)
            waiting += [(os.path.join(path, name), child) for name, child in node.folders.items()]
        return paths


def _after(name: str, node: _Node) -> set[_Pattern]:
    return {pattern[1:] for pattern in node.patterns if len(pattern) > 1 and fnmatchcase(name, pattern[0])}


def _listed(fd: int, relative: str, patterns: Iterable[_Pattern], known: re.Pattern[str]) -> Listing:
    """The entries of one folder that match a place or lead to one. Links are never followed."""
    found, folders = Listing({}, []), []
    with os.scandir(fd) as entries:
        for entry in entries:
            name = entry.name
            if not known.match(name) or name.startswith(".") or (not relative and name == WRITERS_FOLDER):
                continue
            ends = {len(pattern) == 1 for pattern in patterns if fnmatchcase(name, pattern[0])}
            if not is_utf8(name) or is_aside(name) or (True in ends and split_part(name)[1]):
                found.odd.append(os.fsencode(relative + name).decode("utf-8", "replace"))
            elif True in ends and entry.is_file(follow_symlinks=False):
                found.files[f"{relative or './'}{name}"] = entry.inode()
            elif False in ends and entry.is_dir(follow_symlinks=False):
                folders.append(name)
            elif entry.is_symlink() or (name.endswith(SUFFIX) and not entry.is_dir(follow_symlinks=False)):
                found.odd.append(relative + name)
    return found._replace(folders=tuple(folders))


def holds_foreign(directory: str, readers: Readers) -> bool:
    """True if files of another framework make this folder an experiment.

    A file in a folder whose name a reader knows counts by its name alone; other files have to be recognised by their
    content.
    """
    found = Places(directory, readers, local=False).look(0.0, force=True)
    plain = {place.rpartition("/")[0] for reader in readers.all for place in reader.places}
    if any(path.rpartition("/")[0] in plain and not path.startswith("./") for path in found.files):
        return True
    documents = Documents(directory)
    try:
        return any(_recognised(directory, path, readers, documents) for path in sorted(found.files))
    finally:
        documents.close()


def in_place(directory: str, readers: Readers) -> list[str]:
    """The files with something in them that have the name and place of a format that a reader knows, sorted. In a
    folder that is no experiment, no reader knows their content.
    """
    found = Places(directory, readers, local=False).look(0.0, force=True)
    named = sorted(relative_of(path) for path in found.files if path.endswith(NAMED))
    return [path for path in named if _has_content(os.path.join(directory, path))]


def _has_content(path: str) -> bool:
    try:
        return os.lstat(path).st_size > 0
    except OSError:
        return False


def _recognised(directory: str, path: str, readers: Readers, documents: Documents) -> bool:
    try:
        return recognise(os.path.join(directory, path), relative_of(path), readers, documents) is not None
    except Torn:
        return True
    except OSError:
        return False
