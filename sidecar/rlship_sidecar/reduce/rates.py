"""Sums per second: over the time between two barriers of each rank, or over the time that a unit covers. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from rlship_formats.values import Moments
from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.align.window import Ended
from rlship_sidecar.reduce.values import UNDEFINED, ReducedValue

SecondsOf: TypeAlias = "Callable[[Segment], float | None]"
Seconds: TypeAlias = "SecondsOf | float | None"
"""How long a unit took: for each segment between its barriers, or one time for the whole unit. None: unknown."""


def between_barriers(barriers: Iterable[Ended]) -> SecondsOf:
    """For each segment the seconds between the barrier records of a step and the records before them.

    Of a root writer, the newest segment with a barrier record counts. None where the records give no time. The records
    are read at the first call.
    """
    newest: dict[Writer, Ended] | None = None

    def seconds(segment: Segment) -> float | None:
        nonlocal newest
        if newest is None:
            newest = _newest(barriers)
        found = newest.get(segment.writer.root)
        if found is None:
            return None
        _, t, _, before_t = found
        return t - before_t if before_t is not None and t > before_t else None

    return seconds


def _newest(barriers: Iterable[Ended]) -> dict[Writer, Ended]:
    """The first barrier record of each writer's newest segment that has one."""
    newest: dict[Writer, Ended] = {}
    for record in barriers:
        segment, _, offset, _ = record
        held = newest.get(segment.writer)
        if held is None or (-segment.number, offset) < (-held[0].number, held[2]):
            newest[segment.writer] = record
    return newest


def rate(parts: Sequence[tuple[Segment, Moments]], total: Moments, seconds: Seconds) -> ReducedValue:
    """The rate of one metric: `parts` are its counting segments in merge order, `total` is their merged moments."""
    if total.n == 0:
        return UNDEFINED
    if callable(seconds):
        found = _added(parts, seconds)
    elif seconds is None or seconds <= 0 or total.sum is None:
        found = None
    else:
        found = total.sum / seconds
    return found if found is not None and math.isfinite(found) else None


def _added(parts: Sequence[tuple[Segment, Moments]], seconds: SecondsOf) -> float | None:
    added: float | None = None
    for segment, moments in parts:
        if moments.n == 0:
            continue
        lasted = seconds(segment)
        if lasted is None or moments.sum is None:
            return None
        one = moments.sum / lasted
        added = one if added is None else added + one
    return added
