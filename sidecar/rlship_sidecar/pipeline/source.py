"""One writer's file inside the sidecar: its tail, its decoder, how far it is applied, what the store keeps of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from rlship_formats.reading import FileReader
from rlship_formats.records import Gap, Open
from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Adoption, Batch
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.store.changes import SavedBlock, SavedWriter
from rlship_sidecar.store.store import Store
from rlship_sidecar.tail.foreign.tail import ForeignTail
from rlship_sidecar.tail.listing import is_aside
from rlship_sidecar.tail.looks import Look
from rlship_sidecar.tail.tail import START, Glance, Piece, Position, Tail

PIECE_BYTES, MIN_PIECE_BYTES, MAX_PIECE_BYTES = 1 << 16, 1 << 14, 1 << 20  # at first, then as many as are used
# A unit is read again from the blocks of its steps and times alone, not from the whole file.
BLOCK_BYTES = 256 * 1024
NOT_THERE = "not there any more; what was read of it still counts"
MAX_SLOWER = 4.0  # a file counts as slower than before by at most this factor at a time


_encode = msgspec.json.Encoder().encode


class _Block(msgspec.Struct, array_like=True):
    """The fields of a `BlockIndex`, in an array within that of `_State`."""

    start: int
    t: float
    lowest: int
    highest: int
    barrier_t: float | None
    t_low: float | None
    t_high: float | None


class _State(msgspec.Struct, array_like=True):
    """What the store keeps of a file besides its position: enough to go on as if there had been no restart.

    It is stored as a JSON array, so the order of the fields is the format, which stores of former releases have. A new
    field goes to the end, with a default; no field is moved or removed. `tests/pipeline/test_source.py` has such
    arrays.
    """

    open: Open | None
    segments: list[tuple[int | None, int, int, float]]
    gaps: list[Gap]
    lowest: int
    implicit: bool
    closed: bool
    newest_t: float
    t: float
    barrier_t: float | None
    block: _Block
    opened_at: int
    unsupported: bool
    head: bytes
    before: bytes
    missed: bool = False
    stream_t: float | None = None
    close_t: float | None = None
    point_t: float | None = None
    adoption: Adoption | None = None
    failure: str = ""


_decode = msgspec.json.Decoder(_State).decode


@dataclass(slots=True)
class BlockIndex:
    """The block that a file's applied end is in: what it holds from `start` on. `fresh` are finished blocks that the
    store lacks. `adoption` says which of the file's lines without a step are of a step.

    `t` and `barrier_t` are what a decoder that begins at `start` has to know: the time that a first line without one
    inherits, and that of the barrier before. Without them a line that is read again would say something else.
    """

    start: int = 0
    t: float = 0.0
    lowest: int = -1
    highest: int = -1
    barrier_t: float | None = None
    t_low: float | None = None
    t_high: float | None = None
    fresh: list[SavedBlock] = field(default_factory=list)
    adoption: Adoption | None = None

    def advance(self, file: str, batch: Batch, end: int, decoder: Decoder) -> None:
        """A batch of a file that ends at byte `end` is applied; its decoder has just come that far."""
        if batch.highest >= 0:
            self._add_steps(batch.lowest, batch.highest)
        for barriers in batch.barriers:
            self._add_steps(min(barriers.steps), max(barriers.steps))
        if batch.streams:
            ts = [line.t for line in batch.streams]
            low, high = min(ts), max(ts)
            self.t_low = low if self.t_low is None else min(self.t_low, low)
            self.t_high = high if self.t_high is None else max(self.t_high, high)
        if end - self.start >= BLOCK_BYTES:
            self.fresh.append(self.unfinished(file, end))
            self.start, self.t, self.barrier_t = end, decoder.t, decoder.barrier_t
            self.lowest = self.highest = -1
            self.t_low = self.t_high = None

    def _add_steps(self, lowest: int, highest: int) -> None:
        self.highest = max(self.highest, highest)
        self.lowest = lowest if self.lowest < 0 else min(self.lowest, lowest)

    def unfinished(self, file: str, end: int) -> SavedBlock:
        """The block that the applied end is in."""
        return SavedBlock(
            file, self.start, end, self.t, self.lowest, self.highest, self.barrier_t, self.t_low, self.t_high
        )


@dataclass(slots=True)
class Sightings:
    """When this sidecar found what in a file, in seconds of its monotonic clock.

    `taken`: it took the newest lines. `found_all`: the newest look that left no complete
    line; `found_all_before` is that look as of `taken`. So the newest line was written between these two.
    `missed_at`: what was read of the file was found missing, and still is. `unlisted`: its name was not in the folder
    at the newest listing, though it may still be open here. `waits`: lines were found that are not taken yet.
    """

    taken: float = -math.inf
    found_all: float = -math.inf
    found_all_before: float = -math.inf
    missed_at: float | None = None
    unlisted: bool = False
    waits: bool = False

    def take(self, now: float) -> None:
        """Lines were taken."""
        self.taken, self.found_all_before = now, self.found_all

    def silent_s(self, now: float, by_its_time: float) -> float:
        """Seconds since the newest line was written.

        `by_its_time` is their number by the line's own `t`. What this sidecar saw itself bounds it, because the
        writer's clock may be wrong. While more lines wait to be taken, the newest one is unknown: none of them counts
        as old, however long they wait.
        """
        if self.waits:
            return 0.0
        least = max(0.0, now - self.taken)
        if self.found_all < self.taken:
            return least
        return min(max(by_its_time, least), max(0.0, now - self.found_all_before))


@dataclass(slots=True)
class FilePace:
    """How a file grows, and when to look at it: `every_s` is about the time between two of its growths.

    `look` is under way. `piece` holds lines that a look found and that are not applied yet. Of the times at which it
    was planned, only `due` counts. `hinted`: it is said to have grown, and was not looked at since.
    """

    looked_at: float = 0.0
    grown_at: float = 0.0
    every_s: float = 1.0
    due: float = 0.0
    look: Look[Glance] | None = None
    piece: Piece | None = None
    hinted: bool = False

    def grew(self, now: float) -> None:
        """The file has grown since the look before."""
        if now > self.grown_at:
            taken_s = min(now - self.grown_at, MAX_SLOWER * self.every_s)  # one pause says little
            self.every_s += (taken_s - self.every_s) / 4
        self.grown_at = now


class Fetched(NamedTuple):
    """Blocks of a file by their ends, each as its lines and their offsets: read again before they are asked for. With
    an `error`, the file cannot be read or is another one.
    """

    blocks: dict[tuple[int, int], tuple[list[bytes], list[int]]]
    error: OSError | None = None


@dataclass(slots=True)
class Opening:
    """Where a file's `open` record begins, and the record as JSON once it was saved."""

    at: int = 0
    json: msgspec.Raw | None = None


@dataclass(slots=True)
class Source:
    """A file. What lies before `position` is applied. `at_step` is the last step read (-1: none). `fresh_governing` are
    define and rollback lines that the store lacks. `moved`: its name has come to mean another inode. `held_since`: when
    NUL bytes were first waited for.
    `unrestored`: where the applied lines begin whose steps were open at a restart, or that rows were made without
    because the file was missing, until they are taken in again. `missed`: rows may have been made without them.
    `fetched` is there while it is read again.
    """

    name: str
    tail: Tail
    decoder: Decoder
    writer: Writer | None = None
    position: Position = START
    opening: Opening = field(default_factory=Opening)
    size: int = 0
    at_step: int = -1
    pace: FilePace = field(default_factory=FilePace)
    problem: str = ""
    inode: int = 0
    moved: bool = False
    held_since: float | None = None
    unrestored: int | None = None
    missed: bool = False
    piece_bytes: int = PIECE_BYTES
    index: BlockIndex = field(default_factory=BlockIndex)
    sightings: Sightings = field(default_factory=Sightings)
    fresh_governing: list[tuple[int, bytes]] = field(default_factory=list)
    fetched: Fetched | None = None

    def wants(self, size: int) -> None:
        """Lines of about so many bytes are to be read at a time."""
        self.piece_bytes = min(MAX_PIECE_BYTES, max(MIN_PIECE_BYTES, 17 * size // 16))

    @property
    def read(self) -> int:
        """Bytes below are applied."""
        return self.position.offset

    @property
    def gone(self) -> bool:
        """Whether this is a file that another one took the place of; see `Store.set_aside`."""
        return self.name.endswith(")") and is_aside(self.name)  # asked often, and the former is quick to see

    @property
    def is_unreadable(self) -> bool:
        """True if it has more than could be read, or may have: only a `close` that was read says that all was."""
        if not self.problem or self.problem == NOT_THERE or self.gone:
            return False
        return self.writer is None or not self.writer.closed or self.size > self.read

    def missing_for(self, now: float) -> float:
        """Seconds for which what was read of it has been missing, now that it is; endless if it is gone for good."""
        if self.gone:
            return math.inf
        if self.sightings.missed_at is None:
            self.sightings.missed_at = now
        return now - self.sightings.missed_at

    @property
    def floor(self) -> int:
        """Where the first line of any open unit begins; `read` if no unit is open."""
        begins = min(self.writer.starts.values(), default=self.read) if self.writer is not None else self.read
        return begins if self.unrestored is None else min(begins, self.unrestored)

    def miss(self, begin: int) -> None:
        """Rows are made without the applied lines from `begin` on. They are taken in once the file is back, by another
        sidecar too.
        """
        self.unrestored = begin if self.unrestored is None else min(begin, self.unrestored)
        self.missed = True

    def advance(self, batch: Batch, position: Position) -> None:
        """A batch that ends at `position` is applied."""
        self.position = position
        if batch.highest >= 0:
            self.at_step = batch.highest
        self.fresh_governing.extend(batch.governing)
        self.index.advance(self.name, batch, position.offset, self.decoder)

    def unfinished(self) -> SavedBlock:
        """The block that the applied end is in."""
        return self.index.unfinished(self.name, self.read)

    def blocks(self, store: Store, lowest: int, highest: int) -> list[SavedBlock]:
        """All blocks that may hold records of these steps, the unfinished one included."""
        found = store.blocks(self.name, lowest, highest)
        for block in (*self.index.fresh, self.unfinished()):
            if block.lowest >= 0 and block.lowest <= highest and block.highest >= lowest:
                found.append(block)
        adoption = self.index.adoption
        if adoption is None or not lowest <= adoption.step <= highest:
            return found
        adopted = self._blocks_before(store, adoption.before)
        return [*adopted, *(block for block in found if block.start >= adoption.before)]

    def _blocks_before(self, store: Store, end: int) -> list[SavedBlock]:
        """All blocks that begin before a byte."""
        found: list[SavedBlock] = []
        start = 0
        while start < end:
            fresh = (block for block in self.index.fresh if block.start <= start < block.stop)
            saved = store.block_at(self.name, start)
            block = next(fresh, None) or (saved if saved is not None and start < saved.stop else self.unfinished())
            found.append(block)
            start = block.stop
        return found

    def blocks_at(self, store: Store, low: float, high: float) -> list[SavedBlock]:
        """All blocks that may hold stream lines with `t` in low..high, the unfinished one included."""
        found = store.blocks_at(self.name, low, high)
        for block in (*self.index.fresh, self.unfinished()):
            if block.t_low is not None and block.t_high is not None and block.t_low <= high and block.t_high >= low:
                found.append(block)
        return found

    def saved(self) -> SavedWriter:
        """What the store has to keep of this file now."""
        writer, decoder, index, position = self.writer, self.decoder, self.index, self.position
        head, before = position.head, position.before
        block = _Block(index.start, index.t, index.lowest, index.highest, index.barrier_t, index.t_low, index.t_high)
        if writer is None:
            reader = decoder.reader
            state = _State(
                None, [], [], -1, True, False, 0.0, reader.t, None, block, 0, reader.unsupported, head, before
            )
            return SavedWriter(self.name, self.read, self.floor, _encode(state))
        end = writer.end
        state = _State(
            self._opened(writer),
            [(s.begins, s.barrier, s.last, s.since) for s in writer.segments],
            writer.gaps,
            writer.lowest,
            writer.implicit,
            writer.closed,
            writer.newest_t,
            decoder.t,
            decoder.barrier_t,
            block,
            self.opening.at,
            False,
            head,
            before,
            self.missed,
            writer.stream_t,
            end.close_t,
            writer.point_t,
            index.adoption,
            end.failure,
        )
        return SavedWriter(self.name, position.offset, self.floor, _encode(state))

    def _opened(self, writer: Writer) -> Any:
        """The writer's `open` as JSON, which stays the same and is half of the state."""
        if self.opening.json is None:
            self.opening.json = msgspec.Raw(_encode(writer.open))
        return self.opening.json


def is_document(source: Source) -> bool:
    """Whether it is a foreign document, of which later ones hold what earlier ones held."""
    return isinstance(source.tail, ForeignTail) and source.tail.of_document


def removed(source: Source, error: OSError) -> bool:
    """Whether nothing is amiss: trainers remove old checkpoints, and later ones hold what those held."""
    return isinstance(error, FileNotFoundError) and is_document(source)


def new_source(name: str, tail: Tail, schemas: Schemas) -> Source:
    """A file seen for the first time."""
    return Source(name, tail, Decoder(schemas))


def load_source(saved: SavedWriter, tail: Tail, schemas: Schemas, store: Store, now: float) -> Source:
    """A file as the store knows it. Its writer's activity counts from now on."""
    state = _decode(saved.state)
    source = new_source(saved.file, tail, schemas)
    if state.open is not None and isinstance(tail, ForeignTail):
        tail.expect(state.open.writer)
    source.position = Position(saved.read, state.head, state.before)
    block = state.block
    source.index = BlockIndex(
        block.start, block.t, block.lowest, block.highest, block.barrier_t, block.t_low, block.t_high
    )
    if state.open is None:
        source.decoder.reader = FileReader(t=state.t, unsupported=state.unsupported)
        return source
    source.opening.at = state.opened_at
    governing = [line for offset, line in store.governing_lines(saved.file) if offset < saved.read]
    source.decoder.restore(state.open, state.t, state.barrier_t, governing)
    writer = source.writer = Writer(saved.file, state.open, seen_at=now, line_at=now)
    writer.segments = [
        Segment(writer, number, begins, barrier, last, since)
        for number, (begins, barrier, last, since) in enumerate(state.segments)
    ]
    source.sightings.take(now)
    writer.gaps, writer.lowest, writer.newest_t = state.gaps, state.lowest, state.newest_t
    writer.implicit, writer.closed, writer.end.failure = state.implicit, state.closed, state.failure
    writer.stream_t, writer.end.close_t, writer.point_t = state.stream_t, state.close_t, state.point_t
    source.index.adoption = state.adoption
    source.at_step = max((segment.last for segment in writer.segments), default=-1)
    if saved.floor < saved.read:
        source.unrestored, source.missed = saved.floor, state.missed
    if source.gone:
        source.problem = "another file took its place, or it was cut and written on; rows keep what they have of it"
        writer.closed = writer.replaced = True  # so no step waits for it
    return source


def saved_position(saved: SavedWriter) -> Position:
    """The position of a file as the store knows it."""
    state = _decode(saved.state)
    return Position(saved.read, state.head, state.before)
