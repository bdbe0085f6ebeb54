"""The streams of one experiment, wired: clocks, the lead's timeline, and each actor's aligned, clock and point units.

`now` is always seconds of the sidecar's monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import MergeKey, Segment, Writer
from rlship_sidecar.align.units import MAX_KEPT, Patience, StreamConfig
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Adoption, Batch, Dense, Sparse, StreamLine
from rlship_sidecar.reduce.naming import POLICY_VERSION
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.rows import ALIGNED, CLOCK, POINT, Row, Unit
from rlship_sidecar.store.made_with import MadeWith
from rlship_sidecar.store.store import Store
from rlship_sidecar.store.stream_state import StreamState
from rlship_sidecar.streams.actor import ActorStreams, Closings
from rlship_sidecar.streams.barrier_times import BarrierTimes
from rlship_sidecar.streams.clocks import Shift, StoredClocks
from rlship_sidecar.streams.files import Fetching, Files
from rlship_sidecar.streams.points import chosen, point_again, point_row, writer_of
from rlship_sidecar.streams.recent import Kept, Recent
from rlship_sidecar.streams.result import StreamResult
from rlship_sidecar.streams.rows import (
    Crew,
    RowContext,
    Wanted,
    aligned_row,
    clock_row,
    empty_row,
    sorted_in,
)
from rlship_sidecar.streams.timeline import Moved, Timeline

_BY_ORIGIN = frozenset((ALIGNED, CLOCK, POINT))  # rows whose place, or time if empty, goes by when it all began


class ExperimentStreams:
    """`actors` are the experiment's own, by name. Nothing else is called before `load`."""

    def __init__(
        self,
        store: Store,
        actors: Mapping[str, Actor],
        files: Files,
        config: StreamConfig,
        patience: Patience,
        rules: Rules,
    ) -> None:
        self.config = config
        self.streams: dict[str, ActorStreams] = {}
        self.clocks = StoredClocks(store)
        self.timeline = Timeline(store, self.clocks, self._writer_of_lead)
        self.origin = 0.0
        self.axis: str | None = None
        self._first_of_lead: MergeKey | None = None
        self._store = store
        self._actors = actors
        self._files = files
        self._patience = patience
        self._rules = rules
        self._points: list[tuple[Segment, Dense | Sparse]] = []
        self._by_host: dict[str, list[Writer]] = {}
        self._times = BarrierTimes()
        self._loading = False
        self._is_stale = False  # the timeline has to be made anew

    def _writer_of_lead(self, file: str) -> Writer | None:
        lead = self._actors.get(self.config.lead)
        return None if lead is None else lead.roster.writers.get(file)

    def of(self, actor: str) -> ActorStreams:
        """An actor's streams."""
        streams = self.streams.get(actor)
        if streams is None:
            streams = self.streams[actor] = ActorStreams(
                actor, self._store, self.clocks, self.timeline, self._patience, self.config.clock_window_s
            )
            streams.leads = actor == self.config.lead
        return streams

    # Restart -------------------------------------------------------------------------------------------------------

    def load(self, writers: Sequence[Writer], dirty: Sequence[Unit], now: float) -> None:
        """Go on where the store left off, once every file is known to its actor."""
        self._loading = True
        for writer in writers:
            self.add_writer(writer, [], now)
        self._loading = False
        for streams in self.streams.values():
            self._forget_recent(streams)
        for unit in dirty:
            self.of(unit.actor).revisions.restore(unit, now)
        for streams in self.streams.values():
            streams.settle_until()  # what changed it before has left its rows dirty in the store
        self._times.begin({host: max(w.newest_t for w in found) for host, found in self._by_host.items()})
        self.made_with = MadeWith(self._store).adopt_streams(self.config.lead, self.config.clock_window_s)
        if self.made_with is not None:
            self._begin_anew(now)

    def _begin_anew(self, now: float) -> None:
        """Another lead, or windows of another length: no row stays as it is."""
        self._rebuild(now)
        for streams in self.streams.values():
            streams.begin_anew()
            streams.affected.kinds((ALIGNED, CLOCK), now)
        for actor in self._actors.values():
            actor.mark_all_dirty(now)

    def recover(self, writer: Writer, now: float) -> None:
        """After a restart: which windows have lines of a file beyond the frontier. Raises as reading does."""
        streams = self.of(writer.open.actor)
        clock = streams.frontier.clock
        beyond = -math.inf if clock is None else (clock + 1) * self.config.clock_window_s
        least, _ = self.clocks.bounds([writer.open.host])
        streams.recover(writer, self._files.lines(writer, [(beyond + least - 1.0, math.inf)]), now)

    def came_back(self, writer: Writer, batch: Batch, now: float) -> None:
        """Lines, applied long ago, of a file that units may have been made without."""
        streams = self.of(writer.open.actor)
        streams.came_back(writer, batch.streams, now)
        self._forget_recent(streams)

    def whole_again(self, writer: Writer, now: float) -> None:
        """All of a file that some rows were made without is taken in again."""
        if writer.open.actor == self.config.lead and writer.root is writer:
            self._rebuild(now)

    def _forget_recent(self, streams: ActorStreams) -> None:
        """Not all applied lines are at hand any more, but those to come will be."""
        writers = self._actors[streams.actor].roster.writers.values()
        newest = max((writer.newest_t for writer in writers), default=-math.inf)
        streams.recent = Recent(math.nextafter(newest, math.inf))

    # Lines in ------------------------------------------------------------------------------------------------------

    def add_writer(self, writer: Writer, moved: Sequence[Writer], now: float) -> None:
        """A file, new or known; `moved` are writers that count otherwise now because of it."""
        name, opened = writer.open.actor, writer.open
        self.of(name).add_writer(writer)
        self._by_host.setdefault(opened.host, []).append(writer)
        if opened.t and (not self.origin or opened.t < self.origin):
            self.origin = opened.t
            self._all_affected(_BY_ORIGIN, now)
        if name == self.config.lead:
            self._take_axis(writer, now)
        if moved:
            self.of(name).moved_home(now)
        for child in moved:
            if child.point_t is not None:
                self.of(name).affected.points(child, now)
            self.of(name).counts_otherwise(child, now)
        self._returns_moved(moved, now)
        if name == self.config.lead and moved:
            known = self.timeline.sources()
            self._is_stale = self._is_stale or any(one.root is one or one.file in known for one in moved)

    def _returns_moved(self, writers: Iterable[Writer], now: float) -> None:
        """Rows in which later attempts of these writers' ranks came back say since when they were gone."""
        for writer in writers:
            for later in self._actors[writer.open.actor].roster.later_attempts(writer):
                if later.stream_t is not None:
                    t = self.clocks.corrected(later.open.host, later.stream_t)
                    self.of(writer.open.actor).affected.at(t, now)

    def catch_up(self, now: float) -> None:
        """Make the timeline anew if writers of the lead count otherwise. Call it once a look has read the files: each
        of many new files may show that, and every time all files of the lead are read again. So it is with lines that
        others' lines keep from counting.
        """
        if self._is_stale:
            self._rebuild(now)
        for streams in self.streams.values():
            streams.until_moved(now)

    def _take_axis(self, writer: Writer, now: float) -> None:
        """The lead's axis is that of its first writer, which a new one may turn out to be."""
        key = writer.segments[0].merge_key
        if self._first_of_lead is not None and self._first_of_lead <= key:
            return
        self._first_of_lead = key
        if writer.open.axis != self.axis:
            self.axis = writer.open.axis
            self._all_affected(frozenset((ALIGNED,)), now)
            if not self._loading:
                for actor in self._actors.values():
                    if POLICY_VERSION in self.of(actor.name).names.stepped:
                        actor.mark_all_dirty(now)

    def _all_affected(self, kinds: frozenset[str], now: float) -> None:
        if not self._loading:
            for streams in self.streams.values():
                streams.affected.kinds(kinds, now)

    def apply(
        self, writer: Writer, batch: Batch, before_t: float, now: float, adopted: Sequence[StreamLine] = ()
    ) -> None:
        """New lines of a file, whose greatest `t` was `before_t` up to now; its actor has taken them in.

        `adopted` are those that would be in a stream if no barrier had adopted them.
        """
        host, name = writer.open.host, writer.open.actor
        heard = self.clocks.corrected(host, before_t)  # as rows have it, which were made without these clock records
        for record in batch.clocks:
            shift = self.clocks.note(host, record)
            if shift is not None:
                self._shift(shift, now)
        self.of(name).apply(writer, batch, before_t, heard, now)
        beside = self._actors[name].beside
        for root in beside:
            self.of(name).counts_otherwise(root, now)
        if writer.newest_t > before_t:
            self._returns_moved((writer, *beside), now)
        if batch.barriers and writer.root is writer:
            for barriers in batch.barriers:
                self._times.note(host, name, barriers, batch.newest_t)
            if name == self.config.lead:
                moved = Moved()
                self._note_barriers(writer, batch, moved)
                self._timeline_moved(moved, now)
        if batch.streams or adopted:
            # Whether a line becomes a point must not depend on whether its barrier came with it.
            lines = [*batch.streams, *adopted]
            self._points += chosen(writer, sorted(lines, key=lambda line: line.offset) if adopted else lines)

    def release(self, writer: Writer, adoption: Adoption, now: float) -> int | None:
        """Applied stream lines of a file turned out to be of a step: their units lose them.

        Returns the byte where the first one begins, or None. Call it before the writer has `adoption`.
        """
        if writer.stream_t is None:
            return None
        streams = self.of(writer.open.actor)
        if streams.recent.holds(-math.inf):
            lines = [
                line for segment, line in streams.recent.within([(-math.inf, math.inf)]) if segment.writer is writer
            ]
        else:
            try:
                lines = self._files.lines(writer, [(-math.inf, math.inf)])
            except OSError:
                # Which rows lose lines is not known: all are made again, once the file can be read.
                streams.affected.kinds((ALIGNED, CLOCK), now)
                self._files.miss(writer)
                return 0
        return streams.release(writer, lines, adoption, now)

    def _timeline_moved(self, moved: Moved, now: float) -> None:
        if moved.steps:
            for streams in self.streams.values():
                streams.timeline_moved(moved, now)

    # What changes times --------------------------------------------------------------------------------------------

    def _shift(self, shift: Shift, now: float) -> None:
        """The offset of a host's clock changed: its lines and barriers have other times on the common clock."""
        # The timeline first: lines and barriers are looked up in it, and must find the steps where they are now. What
        # the steps left behind is dirty too, by `moved`.
        moved = Moved()
        if shift.before != shift.after:
            self.timeline.shift(shift, moved)
            self._timeline_moved(moved, now)
        for writer in self._by_host[shift.host]:
            streams = self.of(writer.open.actor)
            if shift.before != shift.after:
                streams.shifted(writer, shift, now)
                self._shift_lines(streams, writer, shift, now)
            if writer.root is writer and writer.newest_t >= shift.low:
                self._shift_barriers(writer, shift, now)

    def _shift_lines(self, streams: ActorStreams, writer: Writer, shift: Shift, now: float) -> None:
        if writer.stream_t is not None and writer.stream_t < shift.high and writer.newest_t >= shift.low:
            for line in self._lines_of(streams, writer, shift, now):
                if shift.concerns(line.t):
                    streams.line_shifted(line.t, shift, now)
        if writer.newest_t >= shift.low:
            for file, t, _ in StreamState(self._store, streams.actor).gaps(shift.low, shift.high):
                if file == writer.file and shift.concerns(t):
                    streams.line_shifted(t, shift, now)

    def _lines_of(self, streams: ActorStreams, writer: Writer, shift: Shift, now: float) -> Sequence[StreamLine]:
        if streams.recent.holds(shift.low):
            return [line for segment, line in streams.recent.within([shift[1:3]]) if segment.writer is writer]
        try:
            return self._files.lines(writer, [(shift.low, shift.high)])
        except OSError:
            # Which rows they leave is not known; where they stand now is found out when the file can be read again.
            streams.unread_shifted(shift, now)
            self._files.miss(writer)
            return []

    def _shift_barriers(self, writer: Writer, shift: Shift, now: float) -> None:
        """Mark the steps whose barrier times changed."""
        actor = self._actors[writer.open.actor]
        steps = self._times.between(shift.host, actor.name, shift.low, shift.high)
        if steps is None:
            try:
                batches = self._files.barriers(writer)
                told = (barriers for batch in batches for barriers in batch.barriers)
                steps = {step for barriers in told for step, t, *_ in barriers.each() if shift.concerns(t)}
            except OSError:
                actor.mark_all_dirty(now)
                return
        for step in steps:
            partial = actor.rows.lacks_ranks(step)
            if partial is not None:
                actor.mark_dirty(step, now, partial=partial)

    def _rebuild(self, now: float) -> None:
        """Make the timeline anew, and mark the rows that it changes."""
        self._timeline_moved(self.remake_timeline(), now)

    def remake_timeline(self) -> Moved:
        """Make the timeline anew from the files of the lead; without those that cannot be read just now."""
        # A barrier that counts hides those that it beat, and only the files still have them. So whenever a writer stops
        # counting for its rank, taking its barriers out is not enough.
        self._is_stale = False
        moved = Moved()
        self.timeline.clear(moved)
        lead = self._actors.get(self.config.lead)
        for writer in list(lead.roster.writers.values()) if lead is not None else []:
            if writer.root is writer:
                try:
                    for batch in self._files.barriers(writer):
                        self._note_barriers(writer, batch, moved)
                except OSError:
                    self._files.miss(writer)
        return moved

    def _note_barriers(self, writer: Writer, batch: Batch, moved: Moved) -> None:
        for barriers in batch.barriers:
            # A batch may hold a rollback that its actor has not taken in yet: its barriers are noted then.
            if barriers.segment < len(writer.segments):
                self.timeline.note(writer.segments[barriers.segment], barriers, moved)

    # Rows ----------------------------------------------------------------------------------------------------------

    def rows(
        self, now: float, wall: float, hindered: Collection[str], fetching: Fetching, *, end: bool
    ) -> StreamResult:
        """Everything that becomes a row or a revision now; `hindered`: actors whose files cannot be read just now."""
        result = StreamResult(self._store, self.config.steps)
        at = self._context()
        for segment, line in self._points:
            result.add(point_row(segment, line, at), "complete")
        self._points = []
        lead = self._actors.get(self.config.lead)
        lead_open = lead.open.keys() if lead is not None else frozenset[int]()
        for name in sorted(self.streams):
            streams = self.streams[name]
            if name in hindered or not streams.may_have_rows:
                continue
            closings = streams.closings(now, lead_open, wall=wall, end=end)
            if closings:
                self._close(streams, closings, fetching, result, end=end)
            due = streams.revisions.due(now, end=end)
            if due:
                self._revise(streams, due, now, fetching, result)
        return result

    def _context(self) -> RowContext:
        return RowContext(
            self._store, self.clocks, self.timeline, self._rules, self.config.clock_window_s, self.axis, self.origin
        )

    def _close(
        self, streams: ActorStreams, closings: Closings, fetching: Fetching, result: StreamResult, *, end: bool
    ) -> None:
        windows = self._windows(streams, Wanted(closings.windows, closings.steps).within(self.config.steps), fetching)
        if windows is None:
            return
        units = [Unit(streams.actor, CLOCK, index) for index in closings.windows]
        units += [Unit(streams.actor, ALIGNED, interval.step) for interval in closings.steps]
        for unit in units:
            row = self._row(streams, unit, windows.get(unit))
            if row is not None:
                result.add(row, "end" if end else "partial" if row.coverage.missing else "complete")
            if streams.revisions.forget(unit):
                result.revised.append(unit)
        streams.closed(closings)
        result.more = result.more or end or len(units) >= MAX_KEPT

    def _revise(
        self, streams: ActorStreams, due: Sequence[Unit], now: float, fetching: Fetching, result: StreamResult
    ) -> None:
        intervals = [self.timeline.interval(unit.index) for unit in due if unit.kind == ALIGNED]
        wanted = Wanted([unit.index for unit in due if unit.kind == CLOCK], [s for s in intervals if s is not None])
        windows = self._windows(streams, wanted, fetching)
        if windows is None:
            return
        for unit in due:
            if unit.kind == POINT:
                writer = writer_of(unit, self._actors[streams.actor].roster.writers.values())
                lines = fetching.line_at(writer, unit.index)
                if lines is None:
                    continue
                row = point_again(writer, lines, self._context())
            else:
                row = self._row(streams, unit, windows.get(unit))
            if row is not None:
                result.add(row, "revision")
            streams.revisions.done(unit, now)
            result.revised.append(unit)
        result.more = result.more or len(due) >= MAX_KEPT

    def _windows(self, streams: ActorStreams, wanted: Wanted, fetching: Fetching) -> dict[Unit, UnitLines] | None:
        least, greatest = streams.bounds()
        ranges = wanted.ranges(self.config.clock_window_s, least, greatest)
        lines: Iterable[Kept] | None = []
        if ranges and streams.recent.holds(ranges[0][0]):
            lines = streams.recent.within(ranges)
        elif ranges:
            lines = fetching.lines(streams, ranges)
        if lines is None:
            return None
        windows = sorted_in(streams.actor, wanted, lines, self.clocks, self.config.clock_window_s, streams.until)
        return windows if fetching.samples(windows) else None

    def _row(self, streams: ActorStreams, unit: Unit, window: UnitLines | None) -> Row | None:
        """The row of a unit as it is now; None if it has no lines and never had any."""
        crew = Crew(self._actors[streams.actor].roster, streams.until)
        if window is not None and unit.kind == CLOCK:
            return clock_row(streams.actor, unit.index, window, crew, self._context())
        interval = self.timeline.interval(unit.index) if window is not None else None
        if window is not None and interval is not None:
            return aligned_row(streams.actor, interval, window, crew, streams.names.stepped, self._context())
        return None if self._store.newest(unit) is None else empty_row(unit, self._context())
