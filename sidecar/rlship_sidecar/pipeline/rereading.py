"""Applied lines once more out of a writer's file: those of some steps, of some time, or from some byte on."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence

from rlship_formats.records import MAX_LINE_BYTES, Open
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Batch, StreamLine
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.pipeline.source import Fetched, Source
from rlship_sidecar.reduce.samples import NO_ROOM, Chosen, filled
from rlship_sidecar.rows import Sample
from rlship_sidecar.store.changes import SavedBlock
from rlship_sidecar.store.store import Store
from rlship_sidecar.tail.tail import Position, Replaced, Tail

_ALL = 1 << 62
_FEW_STEPS = 8
_STEP = re.compile(rb'"step"\s*:\s*(\d+)')


def read_again(source: Source, store: Store, schemas: Schemas, steps: Collection[int]) -> Iterator[Batch]:
    """The applied lines of some steps, read from the file once more; raises OSError, FileNotFoundError if what was read
    is not there any more.
    """
    governing: list[tuple[int, bytes]] | None = None
    for block in source.blocks(store, min(steps), max(steps)):
        if governing is None:
            _still_there(source)
            governing = store.governing_lines(source.name) + source.fresh_governing
        yield _read_block(source, schemas, block, governing, steps)


def read_from_floor(source: Source, store: Store, schemas: Schemas, floor: int) -> Iterator[Batch]:
    """The applied lines from `floor` on; raises as `read_again` does."""
    _still_there(source)
    governing = store.governing_lines(source.name)
    start = floor
    for block in from_floor(source, store, floor):
        yield _read_block(source, schemas, block, governing, None, start)
        start = block.stop


def read_streams(
    source: Source, store: Store, schemas: Schemas, ranges: Sequence[tuple[float, float]]
) -> list[StreamLine]:
    """The applied stream lines with `t` in one of some ranges, both ends included, in file order; raises as
    `read_again` does.
    """
    blocks = {block.start: block for low, high in ranges for block in source.blocks_at(store, low, high)}
    if not blocks:
        return []
    _still_there(source)
    governing = store.governing_lines(source.name) + source.fresh_governing
    return [
        line
        for _, block in sorted(blocks.items())
        for line in _read_block(source, schemas, block, governing, None).streams
        if any(low <= line.t <= high for low, high in ranges)
    ]


def read_stream_line(source: Source, store: Store, schemas: Schemas, offset: int) -> list[StreamLine]:
    """The applied stream line that begins at a byte of the file; raises as `read_again` does."""
    _still_there(source)
    governing = store.governing_lines(source.name) + source.fresh_governing
    block = next((block for block in source.index.fresh if block.start <= offset < block.stop), None)
    found = block or store.block_at(source.name, offset) or source.unfinished()
    batch = _read_block(source, schemas, found, governing, None, adopting=False)
    return [line for line in batch.streams if line.offset == offset]  # a point stays one if its line was adopted


def read_samples(source: Source, chosen: Sequence[Chosen], room: int) -> tuple[list[Sample], int]:
    """What chosen samples of a file hold, a line at a time, out of `room` bytes of lines, and the room that is left;
    raises as `read_again` does.
    """
    _still_there(source)
    tail = source.tail.twin()
    found = []
    for one in chosen:
        line = tail.line_at(one.line.offset)
        sample = filled(one, line) if line is not None else None
        if sample is None or line is None:
            raise FileNotFoundError(0, "what was read of it is not there any more", tail.path)
        found.append(sample if len(line) <= room else sample._replace(row={"": NO_ROOM}, cut=None))
        room -= min(room, len(line))
    return found, room


def read_barriers(source: Source, store: Store, schemas: Schemas) -> Iterator[Batch]:
    """All of the file that holds steps, for its barriers and rollbacks; raises as `read_again` does."""
    governing: list[tuple[int, bytes]] | None = None
    for block in source.blocks(store, 0, _ALL):
        if governing is None:
            _still_there(source)
            governing = store.governing_lines(source.name) + source.fresh_governing
        yield _read_block(source, schemas, block, governing, None)


def fetch(tail: Tail, position: Position, blocks: Sequence[SavedBlock]) -> Fetched:
    """Read blocks of a file, which holds what was read of it up to `position`. Any thread may do so."""

    def read(tail: Tail) -> Fetched:
        _check(tail, position)
        return Fetched({(block.start, block.stop): _lines_of(tail, block) for block in blocks})

    try:
        return tail.opened_once(read)
    except OSError as error:
        return Fetched({}, error)


def from_floor(source: Source, store: Store, floor: int) -> list[SavedBlock]:
    """The blocks of a file from the one that holds byte `floor` on."""
    found: list[SavedBlock] = []
    start = floor
    while start < source.read:
        found.append(store.block_at(source.name, start) or source.unfinished())
        start = found[-1].stop
    return found


def _lines_of(tail: Tail, block: SavedBlock) -> tuple[list[bytes], list[int]]:
    """The lines of a block, and the offset of each. Raises OSError."""
    lines: list[bytes] = []
    offsets: list[int] = []
    position = block.start
    while position < block.stop:
        # No more at a time than a line may have, for the block may hold a line of any length that is passed over.
        piece = tail.read(Position(position), min(block.stop - position, MAX_LINE_BYTES + 1))
        if piece.end == position and not tail.searching:
            # What was read of it is not there any more, and will not come back.
            raise FileNotFoundError(0, "the file is shorter than it was", tail.path)
        lines += piece.lines
        offsets += piece.offsets
        position = piece.end
    return lines, offsets


def _still_there(source: Source) -> None:
    if source.fetched is None:
        _check(source.tail.twin(), source.position)
    elif source.fetched.error is not None:
        raise source.fetched.error


def _check(tail: Tail, position: Position) -> None:
    try:
        tail.check(position)
    except Replaced as error:
        raise FileNotFoundError(0, error.strerror, tail.path) from error


def _read_block(
    source: Source,
    schemas: Schemas,
    block: SavedBlock,
    governing: list[tuple[int, bytes]],
    steps: Collection[int] | None,
    start: int = 0,
    *,
    adopting: bool = True,
) -> Batch:
    """Decode a block; with `steps` only their lines, and all barriers: other lines are parsed only if they may match.

    Lines that a barrier of the file adopts count as lines of its step, unless `adopting` is false.
    """
    assert source.writer is not None
    adoption = source.index.adoption if adopting else None
    if adoption is not None and block.start >= adoption.before:
        adoption = None
    fetched = source.fetched.blocks.get((block.start, block.stop)) if source.fetched is not None else None
    piece_lines, piece_offsets = fetched or _lines_of(source.tail.twin(), block)
    before_open = bisect_left(piece_offsets, source.opening.at)
    piece_lines, piece_offsets = piece_lines[before_open:], piece_offsets[before_open:]
    lines, offsets = piece_lines, piece_offsets
    others: list[bytes] = []
    if steps is not None and (adoption is None or adoption.step not in steps):
        kept = {offset for offset, _ in governing}
        may_be = _chooser(steps)
        lines, offsets = [], []
        for line, offset in zip(piece_lines, piece_offsets):
            if offset in kept or may_be(line) or _may_be_barrier(line):
                lines.append(line)
                offsets.append(offset)
            else:
                others.append(line)
    batch = _decode(source.writer.open, schemas, block, governing, lines, offsets)
    if batch.inherited_t and any(b'"t"' in line for line in others):
        batch = _decode(source.writer.open, schemas, block, governing, piece_lines, piece_offsets)
    if adoption is not None:
        batch.adopt(adoption)
    if steps is not None:
        wanted = frozenset(steps)
        batch.keep(lambda step, offset: step in wanted)
        batch.samples = [sample for sample in batch.samples if sample.step in wanted]
        batch.tags = [tag for tag in batch.tags if tag.step in wanted]
    if start > block.start:
        batch.keep(lambda step, offset: offset >= start)
    return batch


def _chooser(steps: Collection[int]) -> Callable[[bytes], bool]:
    """Whether a line can be of one of these steps. A step's digits stand in its line, as JSON has one way to write
    them, and after its name, unless there are backslashes.
    """
    digits = [str(step).encode() for step in steps]
    if len(digits) <= _FEW_STEPS:
        return lambda line: any(needle in line for needle in digits)
    wanted = frozenset(digits)
    return lambda line: not wanted.isdisjoint(_STEP.findall(line))


def _may_be_barrier(line: bytes) -> bool:
    """Whether the line can be a barrier record, of which the one before a step's own matters too. A backslash may spell
    anything.
    """
    return b"barrier" in line or b"\\" in line


def _decode(
    opened: Open,
    schemas: Schemas,
    block: SavedBlock,
    governing: list[tuple[int, bytes]],
    lines: list[bytes],
    offsets: list[int],
) -> Batch:
    decoder = Decoder(schemas)
    # Before the open record the decoder's t is 0.
    decoder.restore(
        opened, block.t or opened.t, block.barrier_t, [line for offset, line in governing if offset < block.start]
    )
    return decoder.decode(lines, offsets, max_steps=_ALL, last_step=_ALL)
