"""Foreign files that appear: which of them are recognised, and why the others are left alone."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from rlship_sidecar.errors import UNKNOWN
from rlship_sidecar.tail.foreign.documents import Torn
from rlship_sidecar.tail.foreign.places import NAMED, Places
from rlship_sidecar.tail.foreign.tail import ForeignTail
from rlship_sidecar.tail.listing import Listing, is_foreign
from rlship_sidecar.tail.looks import Look, Repeated, begin
from rlship_sidecar.tail.opening import Opener
from rlship_sidecar.tail.tail import NO_ANSWER

YOUNG_S = 60.0  # an unrecognised file is tried at every look for this long, then as often as folders are listed
RETRY_S = 10.0
MAX_NEWS = 100
MAX_UNKNOWN = 10  # a job may keep many files of its own beside its logs
ODD = (
    "not a regular file in a folder of this experiment, or its name is not UTF-8 or ends in `#word` or ` (replaced 1)`"
)

_Stamp = tuple[int, int]  # size and mtime
_Tried = tuple[_Stamp, dict[str, ForeignTail]]


@dataclass(slots=True)
class _Waiting:
    since: float
    tried_at: float = 0.0
    tried: _Stamp = (-1, -1)
    look: Look[_Tried] | None = None


class Newcomers:
    """The foreign files of an experiment. Threads of the opener's looks list the folders and read the first lines.

    `inodes` maps the names from the last listing to inodes. `oddities` maps each file that is left alone to the reason.
    `torn` are those of them whose data are lacking. `formats` counts the recognised files of each reader.
    """

    def __init__(self, opener: Opener, *, local: bool) -> None:
        self.inodes: dict[str, int] = {}
        self.oddities: dict[str, str] = {}
        self.torn: set[str] = set()
        self.formats: Counter[str] = Counter()
        self._opener = opener
        self._places = Places(opener.directory, opener.readers, local=local)
        self._listing = Repeated(self._places.look, opener.looks)
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
        """One message for each file that is left alone; of those that no reader knows, for the first few."""
        unknown = [name for name, why in self.oddities.items() if why == UNKNOWN]
        unsaid = set(unknown[MAX_UNKNOWN:])
        said = (f"{name}: {why}" for name, why in self.oddities.items() if name not in unsaid)
        more = [f"more than {MAX_UNKNOWN} files that no reader knows; `rlship check FILE` judges each"]
        return [*islice(said, MAX_NEWS), *(more if unsaid else ())]

    def is_working(self, now: float) -> bool:
        """True while the folders are listed, unless that hangs."""
        return self._listing.is_working(now)

    def look(self, now: float, *, force: bool, wait_s: float) -> dict[str, ForeignTail]:
        """List the folders and return the writers of files that are recognised for the first time, by name.

        Waits for the threads for `wait_s`; with `force`, until they are done or hang.
        """
        listed = self._listing(now, force=force, wait_s=wait_s)
        self.inodes = {}
        if listed is not None:
            self._note(listed, now)
        for file, waiting in self._waiting.items():
            due = force or now - waiting.since < YOUNG_S or now - waiting.tried_at >= RETRY_S
            if due and waiting.look is None:
                waiting.tried_at = now
                waiting.look = begin(self._opener.looks, partial(self._try, file, waiting.tried))
        looks = [waiting.look for waiting in self._waiting.values() if waiting.look is not None]
        if self._opener.looks is not None:
            self._opener.looks.wait(looks, math.inf if force else wait_s)
        found: dict[str, ForeignTail] = {}
        for file, waiting in list(self._waiting.items()):
            look = waiting.look
            if look is None:
                continue
            if look.is_done:
                waiting.look = None
                found.update(self._take(file, waiting, look, now, force=force))
            elif look.hung_s(time.monotonic()):
                self.oddities[file] = NO_ANSWER
        for name, problem in dict(self._opener.readers.problems).items():
            self.oddities[f"reader {name}"] = problem
        return found

    def _note(self, listed: Listing, now: float) -> None:
        for name in listed.odd:
            self.oddities[name] = ODD
        for file, inode in listed.files.items():
            if file in self._names:
                self.inodes.update(dict.fromkeys(self._names[file], inode))
            else:
                self._waiting.setdefault(file, _Waiting(now))

    def _try(self, file: str, tried: _Stamp) -> _Tried:
        """The size and time of a file, and the writers in it unless these are as they were. Raises OSError."""
        is_now = os.stat(self._opener.path(file))
        stamp = (is_now.st_size, is_now.st_mtime_ns)
        return stamp, self._opener.recognise(file) if stamp != tried else {}

    def _take(
        self, file: str, waiting: _Waiting, look: Look[_Tried], now: float, *, force: bool
    ) -> dict[str, ForeignTail]:
        if isinstance(look.error, FileNotFoundError):
            del self._waiting[file]
            self._even(file)
            return {}
        if isinstance(look.error, Torn):
            if force or now - waiting.since >= RETRY_S:
                self.torn.add(file)
                self.oddities[file] = look.error.strerror or "not read"
            return {}
        if isinstance(look.error, OSError):
            self.oddities[file] = look.error.strerror or type(look.error).__name__
            return {}
        if look.error is not None:
            raise look.error
        assert look.result is not None
        waiting.tried, tails = look.result
        if file in self.torn or self.oddities.get(file) == NO_ANSWER:
            self._even(file)
        if tails:
            del self._waiting[file]
            self._names[file] = list(tails)
            self.formats.update({tail.reader for tail in tails.values()})
            self._even(file)
        elif waiting.tried[0] and file.endswith(NAMED) and (force or now - waiting.since >= RETRY_S):
            self.oddities[file] = UNKNOWN
        return tails

    def _even(self, file: str) -> None:
        """Nothing is odd about the file any more."""
        self.oddities.pop(file, None)
        self.torn.discard(file)
