"""One actor's open units: lines in, decisions out (close this step, revise that one). Pure: the caller passes the time.

`now` is always seconds of a monotonic clock. What is decided here is only *when* a row appears; what is in it is
`reduce`'s.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.align.revisions import Revisions
from rlship_sidecar.align.roster import Roster, Waiting
from rlship_sidecar.align.units import MAX_KEPT, Closing, EarlyBarriers, OpenUnit, Patience, RowIndex
from rlship_sidecar.align.window import Block, UnitLines
from rlship_sidecar.decode.lines import Batch, Note
from rlship_sidecar.rows import STEP, Unit


@dataclass(slots=True)
class Actor:
    """The open and the dirty steps of one actor, and its roster. `highest_closed` is -1 while it has no row.

    `beside`: the root writers that count otherwise since the last batch, because it shows that they ran side by side.
    `given_up`: writers for which a step waited `max_wait_s` and that have not written since.
    """

    name: str
    rows: RowIndex
    patience: Patience = field(default_factory=Patience)
    roster: Roster = field(default_factory=Roster)
    open: dict[int, OpenUnit] = field(default_factory=dict)
    highest_closed: int = -1
    kept: int = 0
    metrics_at: float = 0.0
    early: EarlyBarriers = field(default_factory=EarlyBarriers)
    beside: set[Writer] = field(default_factory=set)
    given_up: set[Writer] = field(default_factory=set)
    revisions: Revisions = field(init=False)
    _blocker: tuple[int, Writer] | None = None

    def __post_init__(self) -> None:
        self.revisions = Revisions(self.patience.revise_s)

    # Lines in ------------------------------------------------------------------------------------------------------

    def add_writer(self, writer: Writer, now: float) -> list[Writer]:
        """A file, new or known. Returns the writers that count otherwise because of it: children that waited for their
        parent, and writers that are newer or older than others now.
        """
        self._blocker = None
        self.early.forgotten = max(self.early.forgotten, *(segment.barrier for segment in writer.segments))
        moved = self.roster.add(writer)
        for child in moved:
            self._mark_all_of(child, now)
            self._mark_returns(child, now)
        return moved

    def mark_all_dirty(self, now: float) -> None:
        """Every row may have changed."""
        self._mark_between(0, self.highest_closed, now)

    def apply(self, writer: Writer, batch: Batch, now: float) -> None:
        """What new lines of a file say. Values for a step that has a row are not taken in: they make it dirty."""
        writer.line_at = now
        self.given_up.discard(writer)
        self._note_times(writer, batch.newest_t, now)
        covered = [segment.covers_to for segment in writer.segments]
        if batch.begins is not None and writer.segments[0].begins is None:
            self._begin(writer.segments[0], batch.begins, now)
        for note in batch.notes:
            self._take_note(writer, note, now)
        if batch.runs or batch.sparse:
            self.metrics_at = now
            self._take_in(writer, batch, now)
        self._take_barriers(writer, batch, now)
        for segment in writer.segments:
            before = covered[segment.number] if segment.number < len(covered) else (segment.begins or 0) - 1
            self._covers(segment, before, segment.covers_to, now)
        reached = self.roster.reaches(writer)
        if reached is not None:
            self._mark_between(reached[0] + 1, reached[1], now)

    def _take_in(self, writer: Writer, batch: Batch, now: float) -> None:
        segments, units, starts = writer.segments, self.open, writer.starts
        windows: dict[int, UnitLines | None] = {}
        for run in batch.runs.values():
            segment, schema, before = segments[run.segment], run.schema, -1
            segment.met(min(run.steps), max(run.steps))
            block: Block | None = None
            for step, line in zip(run.steps, zip(run.ts, run.offsets, run.data)):
                if step != before:
                    before = step
                    if step not in windows:
                        windows[step] = self._take_in_or_mark(writer, step, line[1], now)
                    elif starts.get(step, -1) > line[1]:
                        starts[step] = line[1]
                    window = windows[step]
                    block = None if window is None else window.block(schema)
                if block is not None:
                    block.owners.append(segment)
                    block.lines.append(line)
        for sparse in batch.sparse:
            segment = segments[sparse.segment]
            segment.met(sparse.step, sparse.step)
            if (window := self._take_in_or_mark(writer, sparse.step, sparse.offset, now)) is not None:
                window.sparse.append((segment, sparse))
        for sample in batch.samples:
            unit = units.get(sample.step)
            if unit is not None and unit.window is not None:
                unit.window.samples.append((segments[sample.segment], sample))
        for tag in batch.tags:
            unit = units.get(tag.step)
            if unit is not None and unit.window is not None:
                unit.window.tags.append((segments[tag.segment], tag))

    def adopt(self, writer: Writer, step: int, offset: int, now: float) -> None:
        """Applied lines, from byte `offset` on, turned out to be of a step. Its values come from the files now: in file
        order, these stand before others.
        """
        writer.segments[0].met(step, step)
        unit = self.open.get(step)
        if unit is None:
            partial = self.rows.lacks_ranks(step) if step <= self.highest_closed else None
            if partial is not None:
                self.mark_dirty(step, now, partial=partial)
                return
            self._open(step, now, keep=False)
        else:
            self._drop_values(unit)
        writer.starts[step] = min(offset, writer.starts.get(step, offset))

    def _drop_values(self, unit: OpenUnit) -> None:
        """Keep no values of an open step: they come from the files when it closes."""
        if unit.window is not None:
            unit.window = None
            self.kept -= 1

    def _take_in_or_mark(self, writer: Writer, step: int, offset: int, now: float) -> UnitLines | None:
        """The kept values of an open step, for a line that begins at `offset`. None where they are not kept, and for a
        late line, of which the row is marked dirty.
        """
        unit = self.open.get(step)
        if unit is None:
            partial = self.rows.lacks_ranks(step) if step <= self.highest_closed else None
            if partial is not None:
                self.mark_dirty(step, now, partial=partial)
                return None
            unit = self._open(step, now)
        if writer.starts.setdefault(step, offset) > offset:
            writer.starts[step] = offset
        return unit.window

    def _take_barriers(self, writer: Writer, batch: Batch, now: float) -> None:
        """Barrier records are measured: when they were written belongs to their step's row."""
        units, segments = self.open, writer.segments
        for barriers in batch.barriers:
            segment = segments[barriers.segment]
            # A child's barrier of a step after its first one, too: it no longer counts once its parent is known.
            writer.has_part_from(min(barriers.steps))
            for step, t, offset, before_t in barriers.each():
                unit = units.get(step)
                if unit is not None:
                    if unit.window is not None:
                        unit.window.barriers.append((segment, t, offset, before_t))
                elif step <= self.highest_closed and (partial := self.rows.lacks_ranks(step)) is not None:
                    self.mark_dirty(step, now, partial=partial)
                else:
                    self.early.add(step, (segment, t, offset, before_t))

    def refill(self, windows: Mapping[int, UnitLines]) -> None:
        """Values of open steps, read again out of the files."""
        for step, window in windows.items():
            self.open[step].window = window
            self.kept += 1

    def restore(self, writer: Writer, batch: Batch, now: float, *, late: bool, but: Container[int]) -> None:
        """Lines applied before a restart: open their steps again, whose values come from the files when they close.
        What has a row has them, unless they come `late`. Steps of `but` are left as they are.
        """
        self.metrics_at = now  # when they came is unknown, so they count as new, like their writer
        for step, offset in batch.steps_begun().items():
            if step in but:
                continue
            unit = self.open.get(step)
            if unit is None:
                if (partial := self.rows.lacks_ranks(step)) is not None:
                    if late:
                        self.mark_dirty(step, now, partial=partial)
                    continue
                self._open(step, now, keep=False)
            else:
                self._drop_values(unit)
            writer.starts.setdefault(step, offset)

    def _open(self, step: int, now: float, *, keep: bool = True) -> OpenUnit:
        early = self.early.take(step)
        keep = keep and self.kept < MAX_KEPT and step > self.early.forgotten
        self.kept += keep
        unit = self.open[step] = OpenUnit(UnitLines(barriers=early) if keep else None, line_at=now)
        self._blocker = None
        return unit

    def _note_times(self, writer: Writer, newest_t: float, now: float) -> None:
        self.beside = set()
        if newest_t <= writer.newest_t:
            return
        self.beside = self.roster.goes_on(writer, newest_t)
        if self.beside:
            self._blocker = None
            for member in self.roster.writers.values():
                if member.root in self.beside:
                    self._mark_all_of(member, now)
        for root in (writer, *self.beside):
            self._mark_returns(root, now)

    def _mark_returns(self, writer: Writer, now: float) -> None:
        """Rows of the steps at which later attempts of its rank began: they say since when it was gone."""
        for later in self.roster.later_attempts(writer):
            begins = later.segments[0].begins
            if begins is not None and begins <= self.highest_closed:
                self._mark_between(begins, begins, now)

    def _take_note(self, writer: Writer, note: Note, now: float) -> None:
        if note.kind == "barrier":
            segment = writer.segments[note.segment]
            writer.implicit = False
            segment.barrier = max(segment.barrier, note.step)
        elif note.kind == "rollback":
            segment = Segment(writer, note.segment, barrier=note.step - 1, since=note.t)
            writer.segments.append(segment)
            self._begin(segment, note.step, now)
        elif note.kind == "close":
            writer.closed = True
            if writer.end.close_t is None:
                writer.end.close_t = note.t
            uncovered = min(segment.covers_to for segment in writer.segments) + 1
            self._mark_between(uncovered, self.highest_closed, now, partial=True)
        elif note.kind == "failure":
            writer.end.failure = note.text  # its rank stays expected, so rows stay as they are
        elif note.gap is not None:
            writer.gaps.append(note.gap)
            self.roster.gaps = True
            if note.gap.first is not None and note.gap.last is not None:
                self._mark_between(note.gap.first, note.gap.last, now)

    def _begin(self, segment: Segment, step: int, now: float) -> None:
        """A segment begins: its writer is expected from there on, and its world may govern. Rows that exist may lack
        it.
        """
        self._blocker = None
        is_root = segment.writer.root is segment.writer
        unaffected = self.roster.unaffected_to(segment, step) if is_root and self.highest_closed >= step else step - 1
        segment.begins = step
        self.roster.changed(segment.writer)
        if is_root:
            self._mark_between(unaffected + 1, self.highest_closed, now)

    def _covers(self, segment: Segment, before: int, after: int, now: float) -> None:
        """A segment covers up to `after` instead of `before`: more, or less once its first barrier ended the implicit
        ones.
        """
        if after > before:
            if before >= self.highest_closed:
                return  # no row there
            self._mark_between(before + 1, after, now, partial=True)
            if segment.begins is not None and self.roster.has_closed(segment.writer):
                # A closed rank is not missing, but its late barrier can show that it is short of a metric.
                self._mark_between(max(before + 1, segment.begins), after, now)
        elif after < before:
            self._mark_between(after + 1, before, now)

    def _mark_all_of(self, writer: Writer, now: float) -> None:
        """Rows that a writer's lines, or its being expected, can have a part in."""
        steps = [step for step in (writer.begins, writer.lowest) if step is not None and step >= 0]
        if steps:
            self._mark_between(min(steps), self.highest_closed, now)

    def _mark_between(self, first: int, last: int, now: float, *, partial: bool = False) -> None:
        """Rows from first to last may have changed (`partial`: only those that lack ranks can have)."""
        last = min(last, self.highest_closed)
        if first <= last:
            for step, lacks in self.rows.rows_between(first, last, partial=partial):
                self.mark_dirty(step, now, partial=lacks)

    def mark_dirty(self, step: int, now: float, *, partial: bool) -> None:
        """A step's row may have changed; `partial`: it lacks ranks now."""
        self.revisions.mark_dirty(Unit(self.name, STEP, step), now, partial=partial)

    # Decisions out -------------------------------------------------------------------------------------------------

    def closings(self, now: float, *, timers: bool = True, end: bool = False) -> list[Closing]:
        """Of the lowest open steps, as many as may be kept, those that can become rows, in ascending order. `end`: the
        files are all read, so every step can.

        Without `timers` nothing is decided while the writer that held up the lowest step last time has not gone on:
        new lines of others can change nothing.
        """
        if not self.open:
            return []
        if not (timers or end) and self._still_blocked():
            return []
        steps = sorted(self.open)
        if timers:
            self._note_barriers(steps, now)
        decided = []
        for step in steps[:MAX_KEPT]:
            waiting = self._waiting(step, now)
            if waiting.over:
                decided.append(Closing(step, waiting.how))
                continue
            if end:
                decided.append(Closing(step, "end"))
                continue
            if self._out_of_patience(step, waiting, now):
                decided.append(Closing(step, "partial"))
                continue
            if not self.roster.layered:
                # Barriers are watermarks: with one segment per rank a later step waits for at least the same writers.
                # Remembered is who was heard of last: when the slowest of the living is done, the dead are given up.
                last = max(waiting.writers, key=lambda writer: writer.line_at, default=None)
                self._blocker = None if last is None else (step, last)
                break
        return decided

    def _note_barriers(self, steps: list[int], now: float) -> None:
        """Start the clock of `max_wait_s` for every step that has a barrier, also after one that is waited for."""
        for step in steps:
            unit = self.open[step]
            if unit.barrier_at is None:
                if self.roster.expected_covering(step):
                    unit.barrier_at = now
                elif not self.roster.layered:
                    break

    def _still_blocked(self) -> bool:
        if self._blocker is None or self.roster.layered:
            return False
        step, writer = self._blocker
        return step in self.open and writer.segments[-1].waits_to < step and not writer.done

    def _waiting(self, step: int, now: float) -> Waiting:
        closed_any = self.highest_closed >= 0
        return self.roster.waiting(step, now, closed_any=closed_any, join_s=self.patience.join_s)

    def _out_of_patience(self, step: int, waiting: Waiting, now: float) -> bool:
        """Wait for the living: give up on a step only when all waited for are given up, or it took far too long."""
        unit, patience = self.open[step], self.patience
        if waiting.unopened:
            return False
        if all(self._is_given_up(writer, now) for writer in waiting.writers):
            return True
        long_silent = [writer for writer in waiting.writers if now - writer.line_at >= patience.max_wait_s]
        if unit.barrier_at is not None:
            if now - unit.barrier_at >= patience.max_wait_s:
                # Those that wrote since may live, so each of their steps gets as long.
                self.given_up.update(long_silent)
                return True
        elif len(long_silent) == len(waiting.writers):
            return True
        implicit = all(writer.implicit for writer in self.roster.writers.values())
        return implicit and step == max(self.open) and now - self.metrics_at >= patience.implicit_s

    def _is_given_up(self, writer: Writer, now: float) -> bool:
        """Whether steps go on without a writer: promised beats do not come, or a step waited long enough for it."""
        return writer in self.given_up or (bool(writer.open.beat) and now - writer.line_at >= self.patience.grace_s)

    def windows(self, closings: list[Closing]) -> dict[Unit, UnitLines]:
        """The kept values of steps."""
        found = {Unit(self.name, STEP, closing.step): self.open[closing.step].window for closing in closings}
        return {unit: window for unit, window in found.items() if window is not None}

    def close(self, step: int) -> UnitLines | None:
        """Take a step out of the open ones: its values, where they were kept or refilled."""
        window = self.open.pop(step).window
        self.kept -= window is not None
        self.highest_closed = max(self.highest_closed, step)
        return window

    def unfilled(self, closings: list[Closing]) -> list[int]:
        """Open steps whose values have to come from the files now: those to be closed, and as many next ones as may be
        kept.
        """
        needed = [closing.step for closing in closings if self.open[closing.step].window is None]
        if not needed:
            return []
        rest = sorted(step for step, unit in self.open.items() if unit.window is None and step > needed[-1])
        return needed + rest[: max(0, MAX_KEPT - self.kept - len(needed))]

    def due(self, now: float, *, end: bool = False) -> list[int]:
        """The dirty steps to revise now, by `Revisions.due`. A step is complete once no writer is waited for."""
        due = self.revisions.due(now, end=end, complete=lambda unit: self._waiting(unit.index, now).over)
        return [unit.index for unit in due]
