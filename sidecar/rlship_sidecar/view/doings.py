"""Which doing of a step counts: a job that went back, or was started again, does steps again. Pure.

The rules are those of docs/semantics.md, "Which contributions count", for a step as a whole: one that is done again
has nothing of its former doing, also where that had a stage which the last one has not. So files of another framework,
which may say other things of a step than the rank's own file, stand apart by format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rlship_formats.records import Open
from rlship_sidecar.align.lineage import Segment, Writer, newest
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.tail.listing import is_foreign
from rlship_sidecar.view.records import FoundRecord


class Doing(NamedTuple):
    """The records of one step in one segment of a file."""

    file: str
    segment: int
    step: int


@dataclass(slots=True)
class _DoingProcess:
    open: Open
    newest_t: float
    segments: set[int] = field(default_factory=set)


@dataclass(slots=True)
class StepDoings:
    """Collects who did which steps."""

    _processes: dict[str, _DoingProcess] = field(default_factory=dict)
    _done: set[Doing] = field(default_factory=set)

    def take(self, one: FoundRecord) -> None:
        """Take a record, in any order."""
        entry = one.entry
        process = self._processes.get(one.file)
        if process is None:
            process = self._processes[one.file] = _DoingProcess(one.opened, one.opened.t)
        process.newest_t = max(process.newest_t, entry.t)
        if entry.step is not None:
            process.segments.add(entry.segment)
            self._done.add(Doing(one.file, entry.segment, entry.step))

    def superseded(self) -> set[Doing]:
        """The doings that do not count, as a newer one of the same step does."""
        if not self._done_again():
            return set()
        rosters: dict[tuple[str, str], Roster] = {}
        segments: dict[tuple[str, int], Segment] = {}
        for file, process in self._processes.items():
            writer = Writer(file, process.open, newest_t=process.newest_t)
            writer.segments = [Segment(writer, number) for number in sorted(process.segments) or [0]]
            segments |= {(file, segment.number): segment for segment in writer.segments}
            rosters.setdefault(_source(writer), Roster()).add(writer)
        by_step: dict[tuple[tuple[str, str], int], dict[Segment, Doing]] = {}
        for doing in self._done:
            segment = segments[doing.file, doing.segment]
            by_step.setdefault((_source(segment.writer), doing.step), {})[segment] = doing
        found: set[Doing] = set()
        for of_step in by_step.values():
            counting = newest(of_step)
            found.update(doing for segment, doing in of_step.items() if segment not in counting)
        return found

    def _done_again(self) -> bool:
        """Whether any step may have been done again: a process went back, or an actor was started more than once."""
        starts: dict[str, tuple[object, ...]] = {}
        ranks: set[tuple[str, str, int]] = set()
        for process in self._processes.values():
            opened = process.open
            start = opened.attempt, opened.job, opened.world
            rank = opened.actor, opened.replica, opened.rank
            if process.segments - {0} or rank in ranks or starts.setdefault(opened.actor, start) != start:
                return True
            ranks.add(rank)
        return False


def _source(writer: Writer) -> tuple[str, str]:
    """The actor, and the format of another framework's file."""
    return writer.open.actor, writer.open.writer if is_foreign(writer.file) else ""
