"""What a step was in an earlier lineage: its lines and its writers, as they were before it was done again. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rlship_sidecar.align.lineage import Segment, Writer, newest
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import Block, UnitLines
from rlship_sidecar.rows import Lineage

MAX_PAST = 8  # lineages of a step beside the newest: the newest of them count


def lineage_of(segment: Segment) -> Lineage:
    """The submission, attempt and rollbacks that a segment is of."""
    root = segment.writer.root
    return root.submission, root.open.attempt, segment.number


def past_lineages(window: UnitLines) -> list[Lineage]:
    """The lineages of which lines of a step do not count any more, ascending."""
    owners = {segment for segment, _ in window.sparse}
    for block in window.blocks.values():
        owners.update(block.owners)
    if len(owners) == len({segment.writer.rank for segment in owners}):
        return []  # mostly it is so, and quick to see
    left = newest(owners)
    now = max((lineage_of(segment) for segment in left), default=None)
    past = {lineage_of(segment) for segment in owners - left}
    return sorted(one for one in past if now is not None and one < now)[-MAX_PAST:]


class Past:
    """The writers of an actor as they were in one lineage: without later starts and rollbacks."""

    def __init__(self, writers: Iterable[Writer], lineage: Lineage) -> None:
        self.roster = Roster()
        self._segments: dict[Segment, Segment] = {}
        for writer in writers:
            if (writer.root.submission, writer.root.open.attempt) <= lineage[:2]:
                self._add(writer, lineage)

    def _add(self, writer: Writer, lineage: Lineage) -> None:
        count = lineage[2] + 1 if (writer.root.submission, writer.root.open.attempt) == lineage[:2] else None
        kept = writer.segments[:count]
        cut = len(kept) < len(writer.segments)
        made = replace(writer, segments=[], closed=writer.closed and not cut, starts={}, job=None, submission=0)
        made.segments = [Segment(made, one.number, one.begins, one.barrier, one.last, one.since) for one in kept]
        self._segments.update(zip(kept, made.segments))
        self.roster.add(made)

    def window(self, window: UnitLines) -> UnitLines:
        """The lines of a step that there were in the lineage; without samples."""
        known = self._segments
        made = UnitLines()
        for schema, block in window.blocks.items():
            kept = [at for at, owner in enumerate(block.owners) if owner in known]
            if kept:
                made.blocks[schema] = Block([known[block.owners[at]] for at in kept], [block.lines[at] for at in kept])
        made.sparse = [(known[segment], line) for segment, line in window.sparse if segment in known]
        made.barriers = [(known[one[0]], *one[1:]) for one in window.barriers if one[0] in known]
        made.tags = [(known[segment], line) for segment, line in window.tags if segment in known]
        return made
