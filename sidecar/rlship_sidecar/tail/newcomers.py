"""Foreign files that appear: which of them are recognised, and why the others are left alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from rlship_sidecar.tail.foreign.places import Places
from rlship_sidecar.tail.foreign.tail import ForeignTail
from rlship_sidecar.tail.listing import SUFFIX, is_foreign
from rlship_sidecar.tail.opening import Opener

NAMED = (SUFFIX, ".json")  # unrecognised files with other names, such as logs for people, are not reported
YOUNG_S = 60.0  # an unrecognised file is tried at every look for this long, then as often as folders are listed
RETRY_S = 10.0
MAX_NEWS = 100
ODD = (
    "not a regular file in a folder of this experiment, or its name is not UTF-8 or ends in `#word` or ` (replaced 1)`"
)
UNKNOWN = "not recognised: no reader knows its first lines; left alone"


@dataclass(slots=True)
class _Waiting:
    since: float
    tried_at: float = 0.0
    tried: tuple[int, int] = (-1, -1)  # size and mtime


class Newcomers:
    """The foreign files of an experiment.

    `inodes` maps the names from the last listing to inodes. `oddities` maps each file that is left alone to the reason.
    `formats` counts the recognised files of each reader.
    """

    def __init__(self, opener: Opener, *, local: bool) -> None:
        self.inodes: dict[str, int] = {}
        self.oddities: dict[str, str] = {}
        self.formats: Counter[str] = Counter()
        self._opener = opener
        self._places = Places(opener.directory, opener.readers, local=local)
        self._waiting: dict[str, _Waiting] = {}
        self._names: dict[str, list[str]] = {}  # the names of the writers in each recognised file

    @property
    def folders(self) -> list[str]:
        """The folders in which foreign files may change or appear."""
        return self._places.folders

    @property
    def unrecognised(self) -> list[str]:
        """The files that may be recognised once they hold more."""
        return list(self._waiting)

    def names_of(self, path: str) -> list[str]:
        """The names of the writers in the file at `path`; the file's own name while it waits to be recognised."""
        relative = os.path.relpath(path, self._opener.directory)
        file = relative if is_foreign(relative) else f"./{relative}"
        return self._names.get(file) or ([file] if file in self._waiting else [])

    def alone(self, names: Iterable[str]) -> bool:
        """True if all these files are foreign."""
        return all(map(is_foreign, names))

    def news(self) -> list[str]:
        """One message for each file that is left alone."""
        return [f"{name}: {why}" for name, why in islice(self.oddities.items(), MAX_NEWS)]

    def look(self, now: float, *, force: bool) -> dict[str, ForeignTail]:
        """List the folders and return the writers of files that are recognised for the first time, by name."""
        listed = self._places.look(now, force=force)
        self.inodes = {}
        for name in listed.odd:
            self.oddities[name] = ODD
        for file, inode in listed.files.items():
            if file in self._names:
                self.inodes.update(dict.fromkeys(self._names[file], inode))
            else:
                self._waiting.setdefault(file, _Waiting(now))
        found: dict[str, ForeignTail] = {}
        for file, waiting in list(self._waiting.items()):
            if force or now - waiting.since < YOUNG_S or now - waiting.tried_at >= RETRY_S:
                found.update(self._try(file, waiting, now, force=force))
        for name, problem in self._opener.readers.problems.items():
            self.oddities[f"reader {name}"] = problem
        return found

    def _try(self, file: str, waiting: _Waiting, now: float, *, force: bool) -> dict[str, ForeignTail]:
        waiting.tried_at = now
        try:
            is_now = os.stat(self._opener.path(file))
            stamp = (is_now.st_size, is_now.st_mtime_ns)
            if stamp != waiting.tried:
                tails = self._opener.recognise(file)
                waiting.tried = stamp
                if tails:
                    del self._waiting[file]
                    self._names[file] = list(tails)
                    self.formats.update({tail.reader for tail in tails.values()})
                    self.oddities.pop(file, None)
                    return tails
        except FileNotFoundError:
            del self._waiting[file]
            return {}
        except OSError as error:
            self.oddities[file] = error.strerror or type(error).__name__
            return {}
        if stamp[0] and file.endswith(NAMED) and (force or now - waiting.since >= RETRY_S):
            self.oddities[file] = UNKNOWN
        return {}
