"""The values of units once more out of the files, and what is done where a file is gone or cannot be read just now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Batch, Dead, StreamLine
from rlship_sidecar.pipeline.intake import Intake, words
from rlship_sidecar.pipeline.rereading import read_again, read_barriers, read_samples, read_stream_line, read_streams
from rlship_sidecar.pipeline.source import Source
from rlship_sidecar.pipeline.tables_shown import TablesShown
from rlship_sidecar.reduce.former import with_former
from rlship_sidecar.reduce.samples import ROOM_BYTES, Chosen, SampleChoice, choose
from rlship_sidecar.rows import STEP, Row, Sample, Unit
from rlship_sidecar.store.changes import SavedBlock
from rlship_sidecar.store.store import Store
from rlship_sidecar.streams.actor import ActorStreams
from rlship_sidecar.streams.files import Fetching, Files, Ranges
from rlship_sidecar.streams.recent import Kept
from rlship_sidecar.tail.listing import is_aside, is_foreign

GONE_AFTER_S = 60.0  # how long a file that rows need must be missing before they are made without it


class Recall:
    """Fetches values from the files. Its owner empties `missed` and `dead` after use.

    `missed`: files that rows had to be made without, and that may come back. `dead`: the dead letters about them.
    `lacking`: the foreign files that the last `steps` did without. `tables` are those that rows of steps show.
    """

    def __init__(self, store: Store, intake: Intake, choice: SampleChoice) -> None:
        self.missed: list[Source] = []
        self.lacking: list[Source] = []
        self.tables = TablesShown(store.with_samples, choice.every)
        self.dead: list[tuple[str, Dead]] = []
        self._store = store
        self._intake = intake
        self._choice = choice

    def files(self) -> Files:
        """How streams read them again."""
        sources, store, schemas = self._intake.sources, self._store, self._intake.schemas
        return Files(
            lines=lambda writer, ranges: read_streams(sources[writer.file], store, schemas, ranges),
            barriers=lambda writer: read_barriers(sources[writer.file], store, schemas),
            miss=lambda writer: self._miss(sources[writer.file], 0),
        )

    def fetching(self, now: float, *, end: bool) -> Fetching:
        """What rows of streams can fetch at one look."""
        return Fetching(
            lines=partial(self.streams, now=now, end=end),
            line_at=partial(self._line_at, now=now, end=end),
            samples=partial(self.show, now=now, end=end),
        )

    def steps(
        self, actor: Actor, steps: Sequence[int], now: float, *, closing: bool, end: bool
    ) -> dict[int, UnitLines] | None:
        """Windows of steps, out of the files; None where a file cannot be read just now.

        Where a file is missing for long, a row to be closed is made of the others, and a row that exists stays as it
        is, and a dead letter says so once. Should the file come back, they are made anew. Foreign files, which their
        frameworks cut, rewrite and remove, are `lacking` instead: the caller sees what their rows keep.
        """
        self.lacking = []
        windows = {step: UnitLines() for step in steps}
        gone = False
        sources = [self._intake.sources[name] for name in actor.roster.writers]
        lowest, highest = min(steps), max(steps)
        for source in self._intake.fetched(sources, lambda source: source.blocks(self._store, lowest, highest)):
            name, writer = source.name, actor.roster.writers[source.name]
            try:
                for batch in read_again(source, self._store, self._intake.schemas, steps):
                    _sort_in(windows, writer, batch)
            except OSError as error:
                if not _does_without(source, error, now, end=end):
                    return None
                if is_foreign(name) and not closing:
                    self.lacking.append(source)
                    continue
                gone = True
                known = (source.gone and closing) or source.unrestored is not None  # said when that was found
                if not known:
                    what = "its row" if closing else "a revision"
                    self.dead.append((source.name, Dead(source.read, f"file gone before {what}", "")))
                if not source.gone:
                    self._miss(source, min(block.start for block in source.blocks(self._store, min(steps), max(steps))))
        if gone and not closing:
            return {}
        return (
            windows
            if closing
            or self.show({Unit(actor.name, STEP, s): w for s, w in windows.items()}, now, end=end, again=True)
            else None
        )

    def kept(self, row: Row, before: Row) -> Row:
        """A row of the last `steps`, with the former row's values of files that are lacking now.

        If the former row does not show which values came from them, it stays as it was, and a dead letter says so.
        """
        step = row.unit.index
        lacking = [source for source in self.lacking if source.blocks(self._store, step, step)]
        lives = sum(is_aside(source.name) for source in lacking)
        made = with_former(row, before, lives) if lacking else row
        if made is None:
            reason = "file gone before a revision"
            self.dead += [(source.name, Dead(source.read, reason, "")) for source in lacking]
        return made or before

    def streams(self, streams: ActorStreams, ranges: Ranges, *, now: float, end: bool) -> list[Kept] | None:
        """Stream lines of an actor out of the files; None where a file cannot be read just now, or is gone and a row
        would have to do without it.
        """
        found: list[Kept] = []
        sources = [self._intake.sources[name] for name in streams.writers]

        def blocks_of(source: Source) -> list[SavedBlock]:
            found = (block for low, high in ranges for block in source.blocks_at(self._store, low, high))
            return list({block.start: block for block in found}.values())

        for source in self._intake.fetched(sources, blocks_of):
            writer = streams.writers[source.name]
            try:
                lines = read_streams(source, self._store, self._intake.schemas, ranges)
            except OSError as error:
                if not _does_without(source, error, now, end=end):
                    return None
                self._say_gone(source)
                self.miss_streams(source, ranges)
            else:
                found += [(writer.segment(line.segment), line) for line in lines]
        return found

    def show(self, windows: Mapping[Unit, UnitLines], now: float, *, end: bool, again: bool = False) -> bool:
        """Choose the samples that the rows of some units show, and read them. False where a file cannot be read just
        now. Where one is missing for long, its samples are left out; should it come back, the rows are made anew.
        `again`: the units may have rows.
        """
        for unit in sorted(windows):
            window = windows[unit]
            if window.samples and self._choice.shows(unit):
                if not self._read(unit, window, now, end=end):
                    return False
            elif not again:
                continue
            if unit.kind == STEP:
                self.tables.note(unit.actor, unit.index, frozenset(window.shown))
        return True

    def _read(self, unit: Unit, window: UnitLines, now: float, *, end: bool) -> bool:
        """Read the samples that the row of a unit shows. False where a file cannot be read just now."""
        window.shown, room = {}, ROOM_BYTES
        lines = window.samples
        if unit.kind == STEP:
            tables = self._tables_of(unit, window)
            lines = [one for one in lines if one[1].table in tables]
        for table, chosen in choose(lines, self._choice.each, unit.kind).items():
            read = self._contents(chosen, room, now, end=end)
            if read is None:
                return False
            found, room = read
            if found:
                window.shown[table] = found
        return True

    def pass_over(self, unit: Unit, window: UnitLines) -> None:
        """A step becomes no row, but others do not show again what it would."""
        if window.samples and self._choice.shows(unit):
            self.tables.note(unit.actor, unit.index, self._tables_of(unit, window))

    def _tables_of(self, unit: Unit, window: UnitLines) -> frozenset[str]:
        """The tables that the row of a step shows."""
        return self.tables.choose(unit.actor, unit.index, {line.table for _, line in window.samples})

    def _contents(
        self, chosen: Sequence[Chosen], room: int, now: float, *, end: bool
    ) -> tuple[list[Sample], int] | None:
        """What the chosen samples of a table hold, in their order, out of `room` bytes of lines; the room left."""
        found: list[Sample] = []
        for writer, of_file in groupby(chosen, key=lambda one: one.segment.writer):
            source, ones = self._intake.sources[writer.file], list(of_file)
            try:
                some, room = read_samples(source, ones, room)
                found += some
            except OSError as error:
                if not _does_without(source, error, now, end=end):
                    return None
                self._say_gone(source)
                self._miss(source, min(one.line.offset for one in ones))
        return found, room

    def _line_at(self, writer: Writer, offset: int, *, now: float, end: bool) -> list[StreamLine] | None:
        """The stream line that begins at a byte of a file, if it is there; None where that cannot be read just now."""
        source = self._intake.sources[writer.file]
        try:
            return read_stream_line(source, self._store, self._intake.schemas, offset)
        except OSError as error:
            if not _does_without(source, error, now, end=end):
                return None
            self._miss(source, offset)
            return []

    def _say_gone(self, source: Source) -> None:
        if not source.gone and source.unrestored is None:
            self.dead.append((source.name, Dead(source.read, "file gone before its row", "")))

    def _miss(self, source: Source, begin: int) -> None:
        """A file that rows are made without may come back: remember where what they lack begins."""
        if not source.gone:
            source.miss(begin)
            self.missed.append(source)

    def miss_streams(self, source: Source, ranges: Ranges) -> None:
        """The same for a file's stream lines of some time."""
        found = (block.start for low, high in ranges for block in source.blocks_at(self._store, low, high))
        self._miss(source, min(found))


def _does_without(source: Source, error: OSError, now: float, *, end: bool) -> bool:
    """Whether rows are to be made without what could not be read, for it is gone. Else it is tried again."""
    if isinstance(error, FileNotFoundError) and (end or source.missing_for(now) >= GONE_AFTER_S):
        return True
    source.problem = source.problem if isinstance(error, FileNotFoundError) and source.problem else words(error)
    return False


def _sort_in(windows: Mapping[int, UnitLines], writer: Writer, batch: Batch) -> None:
    """Put each line of a batch into the window of its step."""
    for run in batch.runs.values():
        segment = writer.segment(run.segment)
        for step, line in zip(run.steps, zip(run.ts, run.offsets, run.data)):
            windows[step].block(run.schema).add(segment, line)
    for sparse in batch.sparse:
        windows[sparse.step].add(writer.segment(sparse.segment), sparse)
    for barriers in batch.barriers:
        segment = writer.segment(barriers.segment)
        for step, t, offset, before_t in barriers.each():
            if step in windows:
                windows[step].barriers.append((segment, t, offset, before_t))
    for sample in batch.samples:
        windows[sample.step].samples.append((writer.segment(sample.segment), sample))
    for tag in batch.tags:
        windows[tag.step].tags.append((writer.segment(tag.segment), tag))
