"""Experiments at rest: they are finished and delivered, and this process holds nothing of them open.

An experiment is finished once every writer has closed or was silent for `SILENT_S`, and every row is made and revised.
Every sink has confirmed all rows or refused for good. It stays open for `LINGER_S` after its last line, unless others
wait for its place. Then its sinks, store and lease are closed. The process keeps its status, its counts and the
footprint of its files.

Every `LOOK_EVERY_S` its files are compared with the footprint: names, sizes and times, without opening any. After a
change the experiment is opened again. The looks take at most `LOOK_SHARE` of a core; with many files they are further
apart.

If the limits do not allow all experiments to be open, one that has all its rows gives its place to the next. Such an
experiment waits only for a sink, or for silent writers. It takes its turn again later.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.plainfiles import open_plain
from rlship_sidecar.report.status import Status
from rlship_sidecar.tail.listing import SUFFIX
from rlship_sidecar.tally import Tally

SILENT_S = 600.0
LINGER_S = 5.0
LOOK_EVERY_S = 5.0
LOOK_SHARE = 0.01
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
    seen: int = 0

    def look(self) -> int:
        """A number that changes once any of the files changes."""
        found: list[object] = [_inode(self.state_dir)]
        for folder in self.folders:
            try:
                found.append((folder, os.stat(folder).st_mtime_ns))
            except OSError as error:
                found.append((folder, error.errno))
        found.extend(self._of_file(path) for path in self._paths())
        return hash(tuple(found))

    def _paths(self) -> Iterator[str]:
        try:
            with os.scandir(self.writers) as entries:
                yield from sorted(entry.path for entry in entries if entry.name.endswith(SUFFIX))
        except OSError as error:
            yield f"{self.writers}: {error.errno}"
        yield from self.files

    def _of_file(self, path: str) -> object:
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
            return path, error.errno
        return path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def changed(self) -> bool:
        """True if anything changed since the footprint was taken."""
        return self.look() != self.seen

    def silent_s(self, wall: float) -> float:
        """Seconds since a file was last written or created, by the files' own times."""
        newest = 0.0
        for path in (self.writers, *self.folders, *self._paths()):
            try:
                newest = max(newest, os.lstat(path).st_mtime)
            except OSError:
                continue
        return max(0.0, wall - newest)


def footprint(experiment: Experiment, state_dir: Path) -> Footprint:
    """The footprint of an experiment's files now."""
    intake = experiment.intake
    folders = [folder for folder in intake.folders if folder != intake.folder]
    now = Footprint(
        intake.folder, tuple(folders), tuple(intake.foreign_paths), str(state_dir), not experiment.filesystem.local
    )
    return Footprint(now.writers, now.folders, now.files, now.state_dir, now.opens, now.look())


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

    def __init__(self) -> None:
        self.all: dict[Path, Resting] = {}
        self.lacking: set[Path] = set()
        self._left: deque[Path] = deque()  # the experiments that this turn has yet to look at
        self._turn_at = 0.0
        self._cost_s = 0.0

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
        if not self._left:
            if now < self._turn_at:
                return []
            self._left.extend(self.all)
            self._turn_at = now + max(LOOK_EVERY_S, self._cost_s / LOOK_SHARE)
            self._cost_s = 0.0
        began = time.monotonic()
        changed = []
        while self._left and time.monotonic() < began + _SLICE_S:
            path = self._left.popleft()
            resting = self.all.get(path)
            if resting is not None and resting.footprint.changed():
                changed.append(path)
        self._cost_s += time.monotonic() - began
        return changed

    @property
    def next_look(self) -> float:
        """The time of the next look, in monotonic seconds."""
        return 0.0 if self._left else self._turn_at
