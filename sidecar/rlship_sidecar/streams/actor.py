"""One actor's aligned and clock units: which become rows now, which are revised. Pure but for its tables in the store.

No unit is kept open: all up to a *frontier* are closed, lines beyond it wait. A line at or before it makes its unit
dirty (see `affected`). `now` is always seconds of a monotonic clock; other times are Unix seconds, on the common clock
if *corrected*.
The rules: docs/semantics.md, "Stream lines".
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field

from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.align.revisions import Revisions
from rlship_sidecar.align.units import MAX_KEPT, Patience
from rlship_sidecar.decode.lines import UNPLACED, Adoption, Batch, Dense, Schema, Sparse, StreamLine
from rlship_sidecar.reduce.naming import POLICY_VERSION
from rlship_sidecar.rows import ALIGNED
from rlship_sidecar.store.stream_state import StreamState
from rlship_sidecar.store.tables import StoreTables
from rlship_sidecar.store.units import ActorUnits
from rlship_sidecar.streams.affected import AffectedRows
from rlship_sidecar.streams.clocks import Shift, StoredClocks
from rlship_sidecar.streams.frontiers import Names, load_frontier, save_frontier
from rlship_sidecar.streams.recent import Recent
from rlship_sidecar.streams.succession import counting_until
from rlship_sidecar.streams.timeline import Moved, StepInterval, Timeline

MAX_STEPS = 256  # that one look closes; most of them have no line of a quiet stream
FAR_S = 86_400.0  # a time so far ahead of others says that a clock was wrong
KEPT_S = 60.0  # lines so much older than what is closed are still at hand


@dataclass(slots=True)
class Closings:
    """A decision: these clock windows and these steps, in their orders, become rows. Windows beyond `latest` are of the
    far future.
    """

    latest: float = math.inf
    windows: list[int] = field(default_factory=list)
    steps: list[StepInterval] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.windows or self.steps)


class ActorStreams:
    """What is known of one actor's stream lines. `pending` are the windows beyond the frontier that have lines, with
    the time when the first one was seen. `leads`: the actor is the lead.
    """

    def __init__(
        self,
        actor: str,
        ledger: StoreTables,
        clocks: StoredClocks,
        timeline: Timeline,
        patience: Patience,
        window_s: float,
    ) -> None:
        self.actor = actor
        self.window_s = window_s
        self._state = StreamState(ledger, actor)
        self.frontier = load_frontier(self._state)
        self.names = Names(self._state)
        self.recent = Recent()
        self.writers: dict[str, Writer] = {}
        self.until: dict[Writer, float] = {}  # see `counting_until`
        self._until_is_stale = False
        self.pending: dict[int, float] = {}
        self.revisions = Revisions(patience.revise_s)
        self.affected = AffectedRows(ActorUnits(ledger, actor), timeline, self.frontier, self.revisions, window_s)
        self._clocks = clocks
        self._timeline = timeline
        self._patience = patience
        self._schemas: set[Schema] = set()
        # The newest times of files. A time far ahead of the lines that follow was a wrong clock's, and must not count
        # as progress: it would close every window up to it.
        self._lately: dict[str, float] = {}
        # By file, the least time of the lines without a step that its first barrier may adopt.
        self._strays: dict[str, float] = {}
        self.leads = False
        self._held_up: tuple[int, float] | None = None  # the next step, and since when it is waited for

    # Lines in ------------------------------------------------------------------------------------------------------

    def add_writer(self, writer: Writer) -> None:
        """A file of the actor, as it is known so far."""
        if writer.stream_t is not None:
            self.writers[writer.file] = writer
            self._until_is_stale = True

    def settle_until(self) -> tuple[float, float] | None:
        """Find out anew up to when writers' lines count, if that may have changed. Returns between which times rows
        are others because of it.
        """
        if not self._until_is_stale:
            return None
        self._until_is_stale = False
        before, self.until = self.until, counting_until(self.writers.values(), self._clocks.corrected)
        if before == self.until:
            return None
        moved = [
            (before.get(root, math.inf), self.until.get(root, math.inf)) for root in before.keys() | self.until.keys()
        ]
        moved = [ends for ends in moved if ends[0] != ends[1]]
        return min(map(min, moved)), max(map(max, moved))

    def until_moved(self, now: float) -> None:
        """Call it once a look has read the files: rows in which other lines count are dirty."""
        moved = self.settle_until()
        if moved is not None:
            self.affected.between(*moved, now)

    def apply(self, writer: Writer, batch: Batch, before_t: float, heard: float, now: float) -> None:
        """New lines of a file, whose greatest `t` was `before_t` up to now, at the corrected time `heard`. Its writer
        has taken them in, and the clocks the batch's clock records.
        """
        if batch.schemas or batch.names:
            self._note_stepped(batch.names.union(*(schema.names for schema in batch.schemas)), now)
        if batch.newest_t:
            lately, t = self._lately.get(writer.file, before_t), batch.newest_t
            self._lately[writer.file] = t if t < lately - FAR_S else max(lately, t)
        if writer.newest_t > before_t:
            self._heard(writer, heard, now)
        if batch.streams:
            self.take_in(writer, [(writer.segments[line.segment], line) for line in batch.streams], now)
        for mark in batch.notes:
            if mark.kind == "close":
                self.gone(writer, now)
            elif mark.gap is not None and mark.gap.first is None:
                self._state.add_gap(writer.file, mark.t, mark.gap.n)
                self.affected.at(self._clocks.corrected(writer.open.host, mark.t), now)

    def take_in(self, writer: Writer, lines: Iterable[tuple[Segment, StreamLine]], now: float) -> None:
        """Stream lines of a file, which wait or make their units dirty."""
        host, corrected, known = writer.open.host, self._clocks.corrected, self._clocks.known
        before = least = writer.stream_t
        stray = math.inf
        opens, opened_at = math.nan, math.nan  # lines between these times are of one window, beyond the frontiers
        for segment, line in lines:
            t = corrected(host, line.t) if known else line.t
            if not opens <= t < opened_at:
                opens, opened_at = self._meet(t, now)
            self.recent.add(segment, line)
            if line.step == UNPLACED and line.t < stray:
                stray = line.t
            if least is None or line.t < least:
                least = line.t
            if type(line) is Dense:
                if line.schema not in self._schemas:
                    self._schemas.add(line.schema)
                    self._note_streamed(line.schema.names, now)
            elif type(line) is Sparse:
                self._note_streamed((value.metric for value in line.values), now)
        if writer.implicit and stray < math.inf:
            self._strays[writer.file] = min(stray, self._strays.get(writer.file, math.inf))
        if least is not None and least != before:
            writer.stream_t = least
            self.writers[writer.file] = writer
            self._until_is_stale = self._until_is_stale or before is None
            # A rank is expected from its first stream line on. Now that is earlier: rows since then lack it, and may
            # have taken another rank for the only one.
            ends = corrected(host, least), math.inf if before is None else corrected(host, before)
            self.affected.between(min(ends), max(ends), now)  # an earlier line's clock may have been off by less

    def release(self, writer: Writer, lines: Sequence[StreamLine], adoption: Adoption, now: float) -> int | None:
        """Of a file's applied stream lines, those that a barrier adopts are in no stream any more.

        Returns the byte where the first one begins, or None.
        """
        host, corrected, before = writer.open.host, self._clocks.corrected, writer.stream_t
        gone = [line for line in lines if line.step == UNPLACED and line.offset < adoption.before]
        if not gone or before is None:
            return None
        for line in gone:
            self.affected.at(corrected(host, line.t), now)
        self._note_stepped(frozenset().union(*map(_metrics_of, gone)), now)
        self._until_is_stale = True
        left = {line.offset for line in gone}
        self.recent.drop(writer, left)
        self._strays.pop(writer.file, None)
        writer.stream_t = min((line.t for line in lines if line.offset not in left), default=None)
        if writer.stream_t is None:
            del self.writers[writer.file]
        # A child's streams count too: for how much of a window they ran, and for whether one rank is alone.
        ends = corrected(host, before), math.inf if writer.stream_t is None else corrected(host, writer.stream_t)
        self.affected.between(min(ends), max(ends), now)  # what is left may stand before it on the common clock
        if not self.writers:
            self.pending.clear()
        return min(left)

    def recover(self, writer: Writer, lines: Iterable[StreamLine], now: float) -> None:
        """Lines that were applied before a restart, read again: which windows wait.

        Lines of closed windows make nothing dirty here: whatever they made dirty is in the store.
        """
        for line in lines:
            index = math.floor(self._clocks.corrected(writer.open.host, line.t) / self.window_s)
            if not self.frontier.covers(index):
                self.pending.setdefault(index, now)

    def came_back(self, writer: Writer, lines: Iterable[StreamLine], now: float) -> None:
        """Lines, applied long ago, that rows may have been made without."""
        for line in lines:
            self._meet(self._clocks.corrected(writer.open.host, line.t), now)

    def begin_anew(self) -> None:
        """Nothing counts as closed."""
        self.frontier.reopen()
        self.pending.clear()
        save_frontier(self._state, self.frontier)

    def _meet(self, t: float, now: float) -> tuple[float, float]:
        """There is a line at a corrected time.

        Returns from when (inclusive) to when (exclusive) a further line would change nothing.
        """
        index = math.floor(t / self.window_s)
        closed = self.affected.window(index, now)
        if not closed:
            self.pending.setdefault(index, now)
        self.affected.step_at(t, now)
        if closed or t <= self.frontier.end:
            return math.nan, math.nan
        # Well inside the window, as its bounds are rounded.
        return t, (index + 1) * self.window_s - 1e-3

    def _note_stepped(self, names: Iterable[str], now: float) -> None:
        if self.names.note(names, stepped=True):
            # A metric that is logged with steps too has other keys in aligned rows.
            self.affected.kinds((ALIGNED,), now)

    def _note_streamed(self, names: Iterable[str], now: float) -> None:
        # What is logged with steps as well has other keys; rows made so far do not hold the metric.
        self.names.note(names, stepped=False)

    # What coverage depends on --------------------------------------------------------------------------------------

    def _heard(self, writer: Writer, before: float, now: float) -> None:
        """It lived up to a later time than `before`, a corrected one."""
        host = writer.open.host
        after = self._clocks.corrected(host, writer.newest_t)
        if min(before, after) > self._closed_to() and not self.frontier.ahead:
            return
        if writer.stream_t is not None:
            # Rates go by how much of a window the streams ran.
            low = max(min(before, after), self._clocks.corrected(host, writer.open.t))
            self.affected.windows_between(low, max(before, after), now)
        if writer.root is writer:
            # A rank is missing from a unit after whose end nothing of it came. So rows that end between the two times
            # are concerned, and only those that lack ranks, unless a clock record turned the two around.
            self.affected.between(min(before, after), max(before, after), now, partial=before <= after)

    def gone(self, writer: Writer, now: float) -> None:
        """It closed: it is missing nowhere from now on, and not expected later."""
        corrected, host = self._clocks.corrected, writer.open.host
        ends = [corrected(host, t) for t in (writer.newest_t, writer.end.close_t) if t is not None]
        self.affected.between(min(ends), math.inf, now)

    def moved_home(self, now: float) -> None:
        """A child counts for another rank from now on: before its lines as well, for these said that its rank is there
        still.
        """
        self._until_is_stale = True
        self.affected.between(-math.inf, math.inf, now)

    def counts_otherwise(self, root: Writer, now: float) -> None:
        """A root writer is a newer or an older life of its rank than it seemed to be, or none: levels go by that."""
        self._until_is_stale = True
        family = [writer for writer in self.writers.values() if writer.root is root]
        starts = [writer.stream_t for writer in family if writer.stream_t is not None]
        if starts:
            _, most = self._clocks.bounds({writer.open.host for writer in family})
            self.affected.between(min(starts) - most, math.inf, now)

    def shifted(self, writer: Writer, shift: Shift, now: float) -> None:
        """The times that coverage and rates go by may be others on the common clock."""
        self._until_is_stale = self._until_is_stale or bool(self.until)  # who succeeds whom does not go by offsets
        for t in (writer.open.t, writer.stream_t, writer.newest_t, writer.end.close_t):
            if t is not None and shift.concerns(t):
                ends = t - shift.before, t - shift.after
                self.affected.between(min(ends), max(ends), now)

    def unread_shifted(self, shift: Shift, now: float) -> None:
        """Lines that cannot be read stand elsewhere on the common clock: any row of their time may lose some."""
        ends = [t - offset for t in (shift.low, shift.high) for offset in (shift.before, shift.after)]
        self.affected.between(min(ends), max(ends), now)

    def line_shifted(self, t: float, shift: Shift, now: float) -> None:
        """What a writer did at `t` of its clock stands at another time of the common one."""
        self.affected.at(t - shift.before, now)
        self._meet(t - shift.after, now)

    def timeline_moved(self, moved: Moved, now: float) -> None:
        """Steps cover other times than before."""
        self.affected.timeline_moved(moved, now, versions=POLICY_VERSION in self.names.streamed)

    def _closed_to(self) -> float:
        clock = self.frontier.clock
        return max(self.frontier.end, -math.inf if clock is None else (clock + 1) * self.window_s)

    # Decisions out -------------------------------------------------------------------------------------------------

    @property
    def may_have_rows(self) -> bool:
        """Whether anything can become a row: without lines only rows that lost theirs, as steps move away from them."""
        return bool(self.writers or self.revisions.dirty) or self.affected.units.lowest(ALIGNED) >= 0

    def reach(self, now: float) -> tuple[float, Writer | None]:
        """Up to which corrected time no living writer has anything left to write, and who is furthest behind."""
        least, last = math.inf, None
        for writer in self.writers.values():
            if not writer.done and now - writer.line_at < self._patience.grace_s:
                t = self._newest_of(writer)
                if self._may_be_adopted(writer, now):
                    t = min(t, self._clocks.corrected(writer.open.host, self._strays[writer.file]))
                if t < least:
                    least, last = t, writer
        return least, last

    def _may_be_adopted(self, writer: Writer, now: float) -> bool:
        """Whether rows of its lines would probably have to be taken back: the lead is about to call `barrier`, which
        adopts them. Rows do not wait for long, because perhaps it never does.
        """
        waits = self.leads and writer.implicit and writer.file in self._strays
        return waits and writer.age_s(now) < self._patience.join_s

    def newest(self) -> float:
        """The corrected time of the newest line."""
        return max(map(self._newest_of, self.writers.values()), default=-math.inf)

    def _newest_of(self, writer: Writer) -> float:
        return self._clocks.corrected(writer.open.host, self._lately.get(writer.file, writer.newest_t))

    def closings(self, now: float, lead_open: Container[int], *, wall: float = math.inf, end: bool = False) -> Closings:
        """What becomes rows now. `lead_open`: steps of the lead that are no rows yet; `wall`: what the sidecar's clock
        says, used to recognise times in the far future; `end`: the files are all read.
        """
        decided = Closings(wall + FAR_S)
        reach = math.inf if end else self.reach(now)[0]
        held_up = False  # all but windows of the far future, for which no other one waits
        for index in heapq.nsmallest(MAX_KEPT, self.pending):
            patient = now - self.pending[index] < self._patience.max_wait_s
            held_up = held_up or ((index + 1) * self.window_s >= reach and patient)
            if not held_up or (index * self.window_s > decided.latest and not patient):
                decided.windows.append(index)
        for interval in self._timeline.after(self.frontier.place, MAX_STEPS):
            if interval.step in lead_open or (interval.end >= reach and self._patient(interval.step, now)):
                break
            decided.steps.append(interval)
        return decided

    def _patient(self, step: int, now: float) -> bool:
        if self._held_up is None or self._held_up[0] != step:
            self._held_up = (step, now)
        return now - self._held_up[1] < self._patience.max_wait_s

    def closed(self, closings: Closings) -> None:
        """What was decided has become rows."""
        for index in closings.windows:
            self.pending.pop(index, None)
            self.frontier.close(index, far=index * self.window_s > closings.latest)
        if closings.steps:
            self.frontier.end, self.frontier.step = closings.steps[-1].place
        save_frontier(self._state, self.frontier)
        self._forget_old()

    def _forget_old(self) -> None:
        """Drop lines that nothing but a revision can need."""
        clock, end = self.frontier.clock, self.frontier.end
        closed_to = -math.inf if clock is None else (clock + 1) * self.window_s
        if not self._timeline.empty():
            closed_to = min(closed_to, end)
        least, _ = self.bounds()
        if closed_to > -math.inf:
            self.recent.forget_before(closed_to + least - KEPT_S)

    def bounds(self) -> tuple[float, float]:
        """The least and the greatest offset of the clocks of the writers' hosts."""
        return self._clocks.bounds({writer.open.host for writer in self.writers.values()})


def _metrics_of(line: StreamLine) -> Collection[str]:
    if type(line) is Dense:
        return line.schema.names
    return [value.metric for value in line.values] if type(line) is Sparse else ()
