"""Records of the writers' files by step or time: spans, events and samples.

The store knows where in a native file the records of a step are, so only these stretches are read. Files of other
frameworks, and those of a store that knows nothing, are read whole.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from rlship_formats.clocks import HostClocks
from rlship_formats.records import Open
from rlship_sidecar.export.reading import (
    Entry,
    FileStretch,
    Unreadable,
    WriterFile,
    entries,
    entries_in,
    files_of,
    identify,
)
from rlship_sidecar.store.changes import SavedBlock
from rlship_sidecar.tail.listing import is_foreign

MAX_BYTES = 256 << 20  # of files that one answer reads
SLACK_S = 60.0  # a span begins before the line that records it
_OPEN_END = 1 << 62


@dataclass(frozen=True, slots=True)
class SoughtRecords:
    """Which records are wanted: those of the steps `first` to `last`, or with times in `since` to `until`."""

    first: int | None = None
    last: int | None = None
    since: float | None = None
    until: float | None = None

    @property
    def by_step(self) -> bool:
        """Whether steps are given."""
        return self.first is not None or self.last is not None

    def has_block(self, block: SavedBlock, behind: float) -> bool:
        """Whether a block can hold such a record. `behind` is the time at which the next one begins."""
        if self.by_step:
            low = -1 if self.first is None else self.first
            high = _OPEN_END if self.last is None else self.last
            return block.lowest <= high and block.highest >= low
        if self.until is not None and block.t > self.until + SLACK_S:
            return False
        return self.since is None or behind >= self.since - SLACK_S

    def has(self, entry: Entry) -> bool:
        """Whether a record is wanted."""
        if self.by_step:
            step = entry.step
            if step is None:
                return False
            return (self.first is None or step >= self.first) and (self.last is None or step <= self.last)
        end = entry.t + entry.body.dur if entry.kind == "span" else entry.t
        return (self.since is None or end >= self.since) and (self.until is None or entry.t <= self.until)


class FoundRecord(NamedTuple):
    """A record, the process that wrote it, and its time on the common clock. `place` tells it from others."""

    opened: Open
    entry: Entry
    t: float
    place: str

    @property
    def file(self) -> str:
        """The name of the file that has it."""
        return self.place.rpartition(":")[0]


class RecordPlaces(Protocol):
    """What knows where in the files records are."""

    def blocks(self, sought: SoughtRecords) -> Mapping[str, Sequence[SavedBlock]]:
        """The blocks of each file that may hold what is sought, in file order, and the last one of each."""

    def rollbacks(self) -> Mapping[str, Sequence[int]]:
        """At which bytes of each file a rollback stands, ascending."""


@dataclass(slots=True)
class RecordFiles:
    """The files of an experiment. `opens` keeps the first records of files, which never change."""

    experiment: Path
    opens: dict[str, Open] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def find(
        self,
        sought: SoughtRecords,
        kinds: Collection[str],
        index: RecordPlaces,
        clocks: HostClocks,
    ) -> Iterator[FoundRecord]:
        """The records of these kinds, file by file. What cannot be read is named in `problems`."""
        self.problems = []
        # Rollbacks last: each that stands before one of these blocks is known by then.
        blocks, rollbacks = index.blocks(sought), index.rollbacks()
        words = [f'"{kind}"'.encode() for kind in kinds]
        left = MAX_BYTES
        try:
            with files_of(self.experiment) as files:
                for file in files:
                    if left <= 0:
                        self.problems.append(f"more than {MAX_BYTES >> 20} MiB: ask for fewer steps")
                        return
                    before = left
                    read = [0]
                    file.on_read = lambda count, read=read: read.__setitem__(0, read[0] + count)  # type: ignore[misc]
                    places = blocks.get(file.name, ()), rollbacks.get(file.name, ())
                    yield from self._of_file(file, sought, kinds, words, places, clocks)
                    left = before - read[0]
        except OSError as problem:
            self.problems.append(problem.strerror or str(problem))

    def starts_again(self, index: RecordPlaces) -> bool:
        """Whether steps may have been done again: a process went back, or a rank has several files."""
        if index.rollbacks():
            return True
        ranks = [(one.actor, one.replica, one.rank) for one in self.opens.values()]
        return len(set(ranks)) < len(ranks)

    def _of_file(
        self,
        file: WriterFile,
        sought: SoughtRecords,
        kinds: Collection[str],
        words: list[bytes],
        places: tuple[Sequence[SavedBlock], Sequence[int]],
        clocks: HostClocks,
    ) -> Iterator[FoundRecord]:
        try:
            file.open = self.opens.get(file.name)
            if file.open is None:
                identify(file)
                if file.open is None:
                    return
                if len(self.opens) < 20_000:
                    self.opens[file.name] = file.open
            opened = file.open
            stretches = _stretches(file, sought, *places)
            found = entries(file, words) if stretches is None else entries_in(file, stretches, words)
            for number, entry in enumerate(found):
                if entry.kind in kinds and sought.has(entry):
                    t = entry.t - clocks.offset(opened.host, entry.t).offset
                    yield FoundRecord(opened, entry, t, f"{file.name}:{number}")
        except (Unreadable, OSError) as problem:
            self.problems.append(f"{file.name} cannot be read: {problem}")


def _stretches(
    file: WriterFile, sought: SoughtRecords, blocks: Sequence[SavedBlock], rollbacks: Sequence[int]
) -> list[FileStretch] | None:
    """The stretches of a file that can hold what is sought, among them what came after its last block; None: all."""
    if is_foreign(file.name) or not blocks:
        return None
    found: list[FileStretch] = []
    for block, after in zip(blocks, [*(one.t for one in blocks[1:]), math.inf]):
        if sought.has_block(block, after):
            if found and found[-1].stop == block.start:
                found[-1] = found[-1]._replace(stop=block.stop)
            else:
                found.append(FileStretch(block.start, block.stop, block.t, bisect_left(rollbacks, block.start)))
    last = blocks[-1]
    size = file.tail.size()
    if size > last.stop:
        found.append(FileStretch(last.stop, size, last.t, bisect_left(rollbacks, last.stop)))
    return found
