"""Ranks that came back as a new attempt: how many replicas have such ranks, and how long they were away. Pure.

The terms are those of docs/semantics.md, "Ranks that came back".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines

RESTARTS, RECOVERY = "svc/replica_restarts", "svc/recovery_s"


class _Return(NamedTuple):
    """A root writer that came back in a unit, and when it was back."""

    writer: Writer
    t: float


def at_step(step: int, segments: Iterable[Segment], window: UnitLines, roster: Roster) -> dict[str, float]:
    """What came back at a step, of the counting segments: those with which a root writer begins there. It is back with
    the last of its lines of the step.
    """
    begun = {one for one in segments if one.writer.open.attempt and not one.number and one.begins == step}
    if not begun:
        return {}
    times: dict[Segment, float] = {}
    for segment, t in _times(window, begun):
        times[segment] = max(t, times.get(segment, t))
    return _figures([_Return(segment.writer, t) for segment, t in times.items()], roster)


def in_stream(segments: Iterable[Segment], window: UnitLines, roster: Roster) -> dict[str, float]:
    """What came back in a unit of a stream: root writers whose first line, by its time, is there."""
    again = {one for one in segments if one.writer.open.attempt}
    if not again:
        return {}
    first: dict[Writer, float] = {}
    for segment, t in _times(window, again):
        first[segment.writer] = min(t, first.get(segment.writer, t))
    return _figures([_Return(writer, t) for writer, t in first.items() if t == writer.stream_t], roster)


def _figures(found: Iterable[_Return], roster: Roster) -> dict[str, float]:
    away: list[float] = []
    replicas: set[str] = set()
    for writer, t in found:
        gone = roster.gone_before(writer)
        if gone is not None:
            away.append(max(0.0, t - gone))
            replicas.add(writer.open.replica)
    return {RESTARTS: float(len(replicas)), RECOVERY: max(away)} if away else {}


def _times(window: UnitLines, segments: set[Segment]) -> Iterator[tuple[Segment, float]]:
    for block in window.blocks.values():
        yield from ((owner, line[0]) for owner, line in zip(block.owners, block.lines) if owner in segments)
    for lines in (window.sparse, window.samples, window.tags):
        yield from ((segment, line.t) for segment, line in lines if segment in segments)
