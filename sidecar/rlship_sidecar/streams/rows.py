"""Rows of aligned, clock and point units: which lines are theirs, who is expected, what axes and keys they have. Pure.

The figures come from the one reduce function. The rules: docs/semantics.md, "Stream lines".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from rlship_formats.records import MAX_STEP
from rlship_sidecar.align.lineage import Segment, Writer, rank_names
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines, put
from rlship_sidecar.decode.lines import StreamLine
from rlship_sidecar.reduce.general import Manner
from rlship_sidecar.reduce.naming import Naming
from rlship_sidecar.reduce.nonfinite import who_was_nonfinite
from rlship_sidecar.reduce.returns import in_stream
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.unit import reduce_window
from rlship_sidecar.reduce.values import add_lag
from rlship_sidecar.rows import ALIGNED, CLOCK, Coverage, RankName, Row, Unit
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.stream_state import StreamState
from rlship_sidecar.store.tables import StoreTables
from rlship_sidecar.streams.clocks import StoredClocks
from rlship_sidecar.streams.recent import Kept
from rlship_sidecar.streams.timeline import StepInterval, Timeline

ELAPSED = "clock/elapsed_s"
_SLACK_S = 1.0  # ranges of the files' own times may be too wide, but never too narrow


class RowContext(NamedTuple):
    """What all rows of an experiment's streams depend on. `axis`: the lead's, None without a lead; `origin`: the least
    `open.t`, 0 without any.
    """

    ledger: StoreTables
    clocks: StoredClocks
    timeline: Timeline
    rules: Rules
    window_s: float
    axis: str | None
    origin: float


class Crew(NamedTuple):
    """The writers of an actor. `until`: the time after which stream lines of some root writers do not count.
    `giving`: the root writers of which lines of a unit count; empty where `until` is.
    """

    roster: Roster
    until: Mapping[Writer, float]
    giving: Collection[Writer] = ()

    def left(self, root: Writer, end: float) -> bool:
        """Whether another writer succeeded a root writer by the end of the unit, to which it gave nothing."""
        return bool(self.until) and self.until.get(root, math.inf) <= end and root not in self.giving


class Wanted(NamedTuple):
    """Units whose lines are looked for: clock windows, and steps in their order."""

    windows: Collection[int]
    steps: Sequence[StepInterval]

    def within(self, only: Steps | None) -> Wanted:
        """Without what is not of these steps: windows of time are of none."""
        return self if only is None else Wanted((), [interval for interval in self.steps if interval.step in only])

    def ranges(self, window_s: float, least: float, greatest: float) -> list[tuple[float, float]]:
        """The times of the lines' own clocks, off by `least` to `greatest` seconds, that may be theirs: disjoint."""
        spans = [(index * window_s, (index + 1) * window_s) for index in self.windows]
        spans += [(interval.start, interval.end) for interval in self.steps if interval.start < interval.end]
        merged: list[tuple[float, float]] = []
        for low, high in sorted((low + least - _SLACK_S, high + greatest + _SLACK_S) for low, high in spans):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return merged


def sorted_in(
    actor: str,
    wanted: Wanted,
    lines: Iterable[Kept],
    clocks: StoredClocks,
    window_s: float,
    until: Mapping[Writer, float],
) -> dict[Unit, UnitLines]:
    """The window of each wanted unit that has lines. `until`: up to when those of some root writers count."""
    of_windows: dict[int, UnitLines] = {}
    of_steps: dict[int, UnitLines] = {}
    steps = sorted(wanted.steps, key=lambda interval: interval.place)
    ends, starts = [interval.end for interval in steps], [interval.start for interval in steps]
    windows, count = set(wanted.windows), len(steps)
    known, corrected, floor = clocks.known, clocks.corrected, math.floor
    for segment, line in lines:
        t = corrected(segment.writer.open.host, line.t) if known else line.t
        put_in = _put_over if until and t > until.get(segment.writer.root, math.inf) else put
        index = floor(t / window_s)
        if index in windows:
            window = of_windows.get(index)
            if window is None:
                window = of_windows[index] = UnitLines()
            put_in(window, segment, line)
        place = bisect_left(ends, t)
        if place < count and t > starts[place]:
            window = of_steps.get(place)
            if window is None:
                window = of_steps[place] = UnitLines()
            put_in(window, segment, line)
    found = {Unit(actor, CLOCK, index): window for index, window in of_windows.items()}
    found.update((Unit(actor, ALIGNED, steps[place].step), window) for place, window in of_steps.items())
    return found


def _put_over(window: UnitLines, segment: Segment, line: StreamLine) -> None:
    """A line that does not count has a row, though."""
    window.over_t = max(window.over_t, line.t)


def aligned_row(
    actor: str,
    interval: StepInterval,
    window: UnitLines,
    crew: Crew,
    stepped: Collection[str],
    at: RowContext,
) -> Row:
    """The row of the lines that a step covers; `stepped` are the metrics that the actor logs with steps too."""
    naming = Naming(actor, aligned=stepped)
    seconds = interval.end - interval.start if interval.start > -math.inf else None
    assert at.axis is not None
    return _row(
        Unit(actor, ALIGNED, interval.step),
        naming,
        window,
        crew,
        at,
        span=(interval.start, interval.end),
        seconds=seconds,
        x={at.axis: interval.step},
        lead_step=interval.step,
    )


def clock_row(actor: str, index: int, window: UnitLines, crew: Crew, at: RowContext) -> Row:
    """The row of one window of time."""
    span = (index * at.window_s, (index + 1) * at.window_s)
    return _row(
        Unit(actor, CLOCK, index),
        Naming(actor, prefix="clock/"),
        window,
        crew,
        at,
        span=span,
        seconds=_covered_s(crew, at.clocks, *span, at.window_s),
        x=_elapsed(index, at),
        lead_step=at.timeline.current(span[1]),
    )


def empty_row(unit: Unit, at: RowContext) -> Row:
    """The row of an aligned or clock unit that had lines and lost them all, whatever its rows were before."""
    if unit.kind == CLOCK:
        return Row(unit, max(0.0, (unit.index + 1) * at.window_s), _elapsed(unit.index, at), {}, Coverage((), 0))
    interval = at.timeline.interval(unit.index)
    end = at.origin if interval is None else interval.end
    return Row(unit, max(0.0, end), {at.axis or "global_step": unit.index}, {}, Coverage((), 0))


def _elapsed(index: int, at: RowContext) -> dict[str, int | float]:
    return {ELAPSED: max(0.0, index * at.window_s - at.origin)}


def _row(
    unit: Unit,
    naming: Naming,
    window: UnitLines,
    crew: Crew,
    at: RowContext,
    *,
    span: tuple[float, float],
    seconds: float | None,
    x: dict[str, int | float],
    lead_step: int | None,
) -> Row:
    if crew.until:
        crew = crew._replace(giving=_giving(window))
    alone = _alone(crew, at.clocks, span[1])
    found = reduce_window(window, crew.roster, Manner(naming, at.rules, seconds, superseding=False, alone=alone))
    add_lag(naming, found, lead_step)
    if not naming.aligned:  # an actor with steps has them in the rows of steps
        for name, value in in_stream(found.order.segments, window, crew.roster).items():
            if (key := naming.plain(name)) not in found.taken:
                found.values[key] = value
    expected, behind = _expected(crew, at.clocks, *span)
    present = {segment.writer.rank for segment in found.order.segments}
    return Row(
        unit,
        found.t if found.order.segments else max(found.t, window.over_t),
        x,
        found.values,
        Coverage(
            ranks=found.order.ranks,
            expected=expected,
            missing=rank_names(rank for rank in behind if rank not in present),
            attempts=found.order.attempts,
            gap=_gap(unit, crew.roster, at, span),
            underivable=found.underivable,
            lives=found.order.lives,
        ),
        hists=found.hists,
        per_rank=found.per_rank,
        tags=tuple(sorted({line.tag for _, line in window.tags})),
        samples=window.shown,
        asked=found.asked,
        nonfinite=who_was_nonfinite(naming, window, found.values, superseding=False),
    )


def _expected(crew: Crew, clocks: StoredClocks, start: float, end: float) -> tuple[int, list[RankName]]:
    """How many ranks are expected, and which of them have not been heard of since, and are awaited."""
    reached: set[RankName] = set()
    waited: dict[RankName, bool] = {}
    for writer in crew.roster.writers.values():
        if writer.root is not writer:
            continue
        host = writer.open.host
        if clocks.corrected(host, writer.newest_t) > end:
            reached.add(writer.rank)
        if writer.stream_t is None or clocks.corrected(host, writer.stream_t) > end:
            continue
        if writer.end.close_t is not None and clocks.corrected(host, writer.end.close_t) < start:
            continue
        if not crew.left(writer, end):
            done = writer.closed or crew.until.get(writer, math.inf) <= end
            waited[writer.rank] = waited.get(writer.rank, False) or not done
    return len(waited), [rank for rank, waits in waited.items() if waits and rank not in reached]


def _covered_s(crew: Crew, clocks: StoredClocks, start: float, end: float, window_s: float) -> float | None:
    """The seconds of a window during which the actor's streams ran; None for less than half of it, of which a rate
    would say little.
    """
    begin, last = math.inf, -math.inf
    for writer in crew.roster.writers.values():
        host = writer.open.host
        if writer.stream_t is None or clocks.corrected(host, writer.stream_t) > end:
            continue
        opened = clocks.corrected(host, writer.open.t)
        ended = clocks.corrected(host, writer.newest_t if writer.end.close_t is None else writer.end.close_t)
        ended = min(ended, crew.until.get(writer.root, math.inf))
        if opened <= end and ended >= start:
            begin, last = min(begin, opened), max(last, ended)
    if begin > last or (begin <= start and last >= end):
        return window_s
    covered_s = min(end, last) - max(start, begin)
    return covered_s if covered_s >= window_s / 2 else None


def _giving(window: UnitLines) -> set[Writer]:
    segments = {segment for block in window.blocks.values() for segment in block.owners}
    segments.update(segment for segment, _ in (*window.sparse, *window.samples, *window.tags))
    return {segment.writer.root for segment in segments}


def _alone(crew: Crew, clocks: StoredClocks, end: float) -> bool:
    """Whether the actor's streams have been those of one rank up to a time, and no world says that there are more;
    without writers that left.
    """
    ranks: set[RankName] = set()
    for writer in crew.roster.writers.values():
        if writer.stream_t is not None and clocks.corrected(writer.open.host, writer.stream_t) <= end:
            if crew.left(writer.root, end):
                continue
            ranks.add(writer.rank)
            if len(ranks) > 1 or (writer.root.open.world or 1) > 1:
                return False
    return True


def _gap(unit: Unit, roster: Roster, at: RowContext, span: tuple[float, float]) -> int:
    """Lines without a step that the actor's writers dropped then."""
    hosts = {writer.open.host for writer in roster.writers.values()}
    least, greatest = at.clocks.bounds(hosts)
    found = StreamState(at.ledger, unit.actor).gaps(span[0] + least - _SLACK_S, span[1] + greatest + _SLACK_S)
    dropped = 0
    for file, t, n in found:
        corrected = at.clocks.corrected(roster.writers[file].open.host, t)
        if unit.kind == CLOCK:
            dropped += n if math.floor(corrected / at.window_s) == unit.index else 0
        else:
            dropped += n if span[0] < corrected <= span[1] else 0
    return min(dropped, MAX_STEP)  # an absurd count must still be a JSON integer
