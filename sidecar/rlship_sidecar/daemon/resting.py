"""Experiments at rest: they are finished and delivered, and this process holds nothing of them open.

An experiment is finished once every writer has closed or was silent for `SILENT_S`, and every row is made and revised.
Every sink has confirmed all rows or refused for good. It stays open for `LINGER_S` after its last line, unless others
wait for its place. Then its sinks, store and lease are closed. The process keeps its status, its counts and the
footprint of its files.

Every `LOOK_EVERY_S` its files are compared with the footprint: names, sizes and times. After a change the experiment is
opened again. On a local filesystem the loop looks, and opens no file; that takes at most `LOOK_SHARE` of a core. On a
network filesystem threads look, and open each file, at most `TURNS_PER_S` a second. With many files the looks are
further apart.

If the limits do not allow all experiments to be open, one that has all its rows gives its place to the next. Such an
experiment waits only for a sink, or for silent writers. It takes its turn again later.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.pipeline.looking import TURNS_PER_S
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.report.status import Status
from rlship_sidecar.tail.listing import SUFFIX
from rlship_sidecar.tail.looks import Look, Looks, begin
from rlship_sidecar.tally import Tally

T = TypeVar("T")
_Traits = tuple[str, object, int]  # the path, what shows a change, and the modification time in ns

SILENT_S = 600.0
LINGER_S = 5.0
LOOK_EVERY_S = 5.0
LOOK_SHARE = 0.01
FILES_EACH = 32  # that one thread opens for a look
MAX_SIGHTINGS = 8  # experiments that threads look at together
SIGHT_S = 0.02
UNSEEN = 0  # in place of what was seen of files of which one hangs: they count as changed
_SLICE_S = 0.05  # seconds of looking between two rounds over the open experiments


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an experiment's files look like from outside.

    It covers each writer's file in the folder `writers`, the foreign `files`, and the entries of `folders`. With
    `opens`, each file is opened first, because the filesystem otherwise returns stale attributes.
    """

    writers: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    state_dir: str
    opens: bool
    seen: int = UNSEEN

    def names(self) -> tuple[list[_Traits], list[str]]:
        """What the folders look like, and the paths of all files."""
        found: list[_Traits] = [(self.state_dir, _inode(self.state_dir), 0)]
        for folder in (self.writers, *self.folders):
            try:
                changed_ns = os.stat(folder).st_mtime_ns
                # Other names may come and go among the writers' files.
                found.append((folder, 0 if folder == self.writers else changed_ns, changed_ns))
            except OSError as error:
                found.append((folder, error.errno, 0))
        try:
            with os.scandir(self.writers) as entries:
                paths = sorted(entry.path for entry in entries if entry.name.endswith(SUFFIX))
        except OSError:
            paths = []
        return found, [*paths, *self.files]

    def traits(self, paths: Iterable[str]) -> list[_Traits]:
        """What files look like."""
        return [self._of_file(path) for path in paths]

    def _of_file(self, path: str) -> _Traits:
        try:
            if not self.opens:
                found = os.lstat(path)
            else:
                fd = open_plain(path)
                try:
                    found = os.fstat(fd)
                finally:
                    os.close(fd)
        except OSError as error:
            return path, error.errno, 0
        return path, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns), found.st_mtime_ns


class FilesSeen(NamedTuple):
    """What a look at a footprint's files found: `number` is another one once any of them changed. `newest`: when the
    newest was written or created, by its own time, in Unix seconds. `files`: how many there are.
    """

    number: int
    newest: float
    files: int


class Sighting:
    """A look at a footprint's files. Where they have to be opened, threads of `looks` do it, many files at once."""

    def __init__(self, footprint: Footprint, looks: Looks | None) -> None:
        self.footprint = footprint
        self._looks = looks if footprint.opens else None
        self._names = begin(self._looks, footprint.names)
        self._parts: list[Look[list[_Traits]]] | None = None

    def _under_way(self) -> list[Look[Any]]:
        if self._parts is None and self._names.is_done:
            _, paths = _result(self._names)
            chunks = [paths[at : at + FILES_EACH] for at in range(0, len(paths), FILES_EACH)]
            self._parts = [begin(self._looks, partial(self.footprint.traits, chunk)) for chunk in chunks]
        looks: list[Look[Any]] = [self._names, *(self._parts or [])]
        return [look for look in looks if not look.is_done]

    def seen(self) -> FilesSeen | None:
        """What it found, or None while threads look or hang."""
        if self._under_way():
            return None
        folders, paths = _result(self._names)
        found = [*folders, *(one for part in self._parts or [] for one in _result(part))]
        number = hash(tuple((path, what) for path, what, _ in found))
        return FilesSeen(number, max(changed_ns for *_, changed_ns in found) / 1e9, len(paths))

    def wait(self) -> FilesSeen | None:
        """What it found, or None if a file hangs."""
        while looks := self._under_way():
            if self._looks is None or not self._looks.wait(looks, math.inf):
                return None
        return self.seen()

    @property
    def hangs(self) -> bool:
        """True if nothing but calls that hang is left of it."""
        now = time.monotonic()
        looks = self._under_way()
        return bool(looks) and all(look.hung_s(now) for look in looks)


def _result(look: Look[T]) -> T:
    if look.error is not None:
        raise look.error
    return look.result  # type: ignore[return-value]


def footprint(experiment: Experiment, state_dir: Path) -> Footprint:
    """The files of an experiment, at which nothing has looked yet."""
    intake = experiment.intake
    folders = [folder for folder in intake.folders if folder != intake.folder]
    return Footprint(
        intake.folder, tuple(folders), tuple(intake.foreign_paths), str(state_dir), not experiment.filesystem.local
    )


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


@dataclass(slots=True)
class Resting:
    """What the process keeps of an experiment at rest.

    `lacks` describes the rows that its sinks lack; it is not empty if the experiment only gave up its place. `refused`
    describes the sinks that refused rows for good.
    """

    footprint: Footprint
    status: Status
    tally: Tally
    refused: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)

    @property
    def all_refused(self) -> bool:
        """True if the experiment has sinks and all of them refuse rows."""
        return bool(self.status.sinks) and all(sink.state == "refused" for sink in self.status.sinks)


class Rest:
    """The experiments at rest, with the schedule of looks at their files. `lacking` are those that only gave up their
    place.
    """

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._sightings: dict[Path, Sighting] = {}
        self.all: dict[Path, Resting] = {}
        self.lacking: set[Path] = set()
        self._left: deque[Path] = deque()  # the experiments that this turn has yet to look at
        self._turn_at = 0.0
        self._cost_s = 0.0
        self._opened = 0

    def add(self, path: Path, kept: Resting) -> None:
        """Put an experiment to rest."""
        self.all[path] = kept
        if kept.lacks:
            self.lacking.add(path)

    def remove(self, path: Path) -> Resting | None:
        """Forget an experiment, which was removed or is opened again. Returns what was kept of it."""
        self.lacking.discard(path)
        return self.all.pop(path, None)

    def look(self, now: float) -> list[Path]:
        """Look at the files of some experiments, for at most `_SLICE_S`; return the experiments that changed."""
        if not (self._left or self._working()):
            if now < self._turn_at:
                return []
            self._left.extend(path for path in self.all if path not in self._sightings)  # a file of those hangs
            self._turn_at = now + max(LOOK_EVERY_S, self._cost_s / LOOK_SHARE, self._opened / TURNS_PER_S)
            self._cost_s, self._opened = 0.0, 0
        began = time.thread_time()
        changed: list[Path] = []
        while self._left and time.thread_time() < began + _SLICE_S and self._working() < MAX_SIGHTINGS:
            path = self._left.popleft()
            if path in self.all:
                self._sightings[path] = Sighting(self.all[path].footprint, self._looks)
                changed += self._changed(path)
        for path in list(self._sightings):
            changed += self._changed(path)
        self._cost_s += time.thread_time() - began
        return changed

    def _working(self) -> int:
        return sum(not sighting.hangs for sighting in self._sightings.values())

    def _changed(self, path: Path) -> list[Path]:
        """The experiment at this path, if it is known by now that its files changed."""
        sighting = self._sightings.get(path)
        seen = sighting.seen() if sighting is not None else None
        if sighting is None or seen is None:
            return []
        del self._sightings[path]
        if sighting.footprint.opens:
            self._opened += seen.files
        resting = self.all.get(path)
        return [path] if resting is not None and resting.footprint.seen != seen.number else []

    @property
    def next_look(self) -> float:
        """The time of the next look, in monotonic seconds."""
        if self._working():
            return time.monotonic() + SIGHT_S
        return 0.0 if self._left else self._turn_at
