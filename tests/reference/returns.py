"""Who came back as a new attempt: section "Ranks that came back" of docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.order import Contribution, rank_order
from tests.reference.records import Measured, Segment, Writer


def return_figures(
    crew: Sequence[Writer], counting: Sequence[Contribution], begun: Sequence[tuple[Writer, Segment, Measured]]
) -> dict[str, float]:
    """The figures, by what comes after the actor. `begun`: lines of the unit with which files begin."""
    given = {(id(one.writer), one.segment.number) for one in counting}
    away: dict[str, list[float]] = {}
    for writer, segment, _ in begun:
        before = [t for other in earlier_attempts(crew, writer) for t in other.times]
        if before and (id(writer), segment.number) in given:
            t = max(line.t for one, _, line in begun if one is writer)
            away.setdefault(writer.replica, []).append(max(0.0, t - max(before)))
    if not away:
        return {}
    return {"svc/replica_restarts": float(len(away)), "svc/recovery_s": max(map(max, away.values()))}


def earlier_attempts(crew: Sequence[Writer], writer: Writer) -> list[Writer]:
    """The root writers of the same rank and submission with a lower attempt; of rlship's own files alone."""
    if writer.root is not writer or "/" in writer.file:
        return []
    return [
        other
        for other in crew
        if other.root is other
        and "/" not in other.file
        and rank_order(other) == rank_order(writer)
        and other.submission == writer.submission
        and other.attempt < writer.attempt
    ]
