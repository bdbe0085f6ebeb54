"""Decoded lines as bytes for another process: in columns, with each message's metrics listed once. Pure.

Only processes of one replay exchange them, so both sides have the same versions.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby
from struct import unpack
from typing import Any, NamedTuple

from rlship_formats.records import Open
from rlship_sidecar.decode.lines import BarrierLines, Batch, Dense, Run, Schema, StreamLine
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.tail.tail import Position

_SAME = ("lowest", "highest", "begins", "newest_t", "inherited_t", "consumed")  # in every batch
_RARE = tuple(
    field.name for field in fields(Batch) if field.name not in (*_SAME, "runs", "streams", "barriers", "schemas")
)
_MAX_SCHEMAS = 1024


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a native file to decode: about `size` bytes from `position` on.

    A chunk has `most_steps` steps and about `piece_bytes` bytes. The rest is the decoder's state at `position`: the
    `open` record, the times that lines inherit, and the define and rollback lines before it.
    """

    name: str
    path: str
    position: Position
    size: int
    most_steps: int
    piece_bytes: int
    opened: Open
    t: float
    barrier_t: float | None
    governing: tuple[bytes, ...]


class Arrived(NamedTuple):
    """A chunk as it came. `batch` unpacks it, which waits until it is needed, because its lines are many objects.

    `lowest`, `highest` and `governing` are the batch's; the rest is as in `DecodedChunk`.
    """

    batch: Callable[[], Batch]
    lowest: int
    highest: int
    governing: Sequence[tuple[int, bytes]]
    position: Position
    t: float
    barrier_t: float | None
    more: bool


class DecodedChunk(NamedTuple):
    """Consecutive decoded lines of a file. The batch ends at `position`, where the decoder has these times.

    `more`: the file had more to read.
    """

    batch: Batch
    position: Position
    t: float
    barrier_t: float | None
    more: bool


class Packing:
    """Packs chunks. The packed form of a schema is computed once."""

    def __init__(self) -> None:
        self._known: dict[Schema, bytes] = {}

    def pack(self, name: str, chunks: Sequence[DecodedChunk]) -> bytes:
        """One message."""
        self._places: dict[Schema, int] = {}
        packed = [
            (self._batch(chunk.batch), tuple(chunk.position), chunk.t, chunk.barrier_t, chunk.more) for chunk in chunks
        ]
        return pickle.dumps((name, [self._schema(schema) for schema in self._places], packed), 5)

    def _schema(self, schema: Schema) -> bytes:
        found = self._known.get(schema)
        if found is None:
            if len(self._known) >= _MAX_SCHEMAS:
                self._known.clear()
            facts = schema.names, schema.asks, schema.shapes, schema.bundled, schema.loose
            found = self._known[schema] = pickle.dumps(facts, 5)
        return found

    def _place(self, schema: Schema) -> int:
        return self._places.setdefault(schema, len(self._places))

    def _batch(self, batch: Batch) -> tuple[Any, ...]:
        rare = {name: value for name in _RARE if (value := getattr(batch, name))}
        barriers = [(b.segment, b.before_t, b.adopts, *_columns(b.steps, b.ts, b.offsets)) for b in batch.barriers]
        schemas = [self._place(schema) for schema in batch.schemas]
        return (
            [self._run(run) for run in batch.runs.values()],
            self._streams(batch.streams),
            barriers,
            schemas,
            tuple(getattr(batch, name) for name in _SAME),
            rare,
        )

    def _streams(self, lines: Iterable[StreamLine]) -> list[Any]:
        """Consecutive dense lines of one schema and segment as a run, other lines as they are."""
        packed: list[Any] = []
        for (segment, schema), found in groupby(lines, _alike):
            if schema is None:
                packed.append(list(found))
            else:
                steps, ts, offsets, _, _, data = map(list, zip(*found))
                packed.append(self._run(Run(segment, schema, steps, ts, offsets, data)))
        return packed

    def _run(self, run: Run) -> tuple[Any, ...]:
        place = self._place(run.schema)
        return run.segment, place, *_columns(run.steps, run.ts, run.offsets), b"".join(run.data)


def _alike(line: StreamLine) -> tuple[int, Schema | None]:
    return (line.segment, line.schema) if type(line) is Dense else (0, None)


class Unpacking:
    """The receiving side: schemas become those of the reader that continues with the lines."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._known: dict[bytes, Schema] = {}

    def unpack(self, message: bytes) -> tuple[str, list[Arrived]]:
        """The file's name and its chunks, in order."""
        name, schemas, packed = pickle.loads(message)
        known = [self._schema(schema) for schema in schemas]
        return name, [
            Arrived(partial(_batch, batch, known), *_looked_up(batch), Position(*mark), t, barrier_t, more)
            for batch, mark, t, barrier_t, more in packed
        ]

    def _schema(self, packed: bytes) -> Schema:
        found = self._known.get(packed)
        if found is None:
            if len(self._known) >= _MAX_SCHEMAS:
                self._known.clear()
            found = self._known[packed] = self._schemas.of(*pickle.loads(packed))
        return found


def _columns(steps: Iterable[int], ts: Iterable[float], offsets: Iterable[int]) -> tuple[bytes, bytes, bytes]:
    """The columns as bytes: that costs a tenth of pickling the numbers."""
    return array("q", steps).tobytes(), array("d", ts).tobytes(), array("q", offsets).tobytes()


def _items(columns: Sequence[bytes]) -> tuple[list[int], list[float], list[int]]:
    steps, ts, offsets = columns
    return array("q", steps).tolist(), array("d", ts).tolist(), array("q", offsets).tolist()


def _looked_up(packed: tuple[Any, ...]) -> tuple[int, int, Sequence[tuple[int, bytes]]]:
    """A batch's `lowest`, `highest` and `governing`."""
    lowest, highest, *_ = packed[4]
    return lowest, highest, packed[5].get("governing", ())


def _batch(packed: tuple[Any, ...], schemas: Sequence[Schema]) -> Batch:
    runs, streams, barriers, seen, same, rare = packed
    batch = Batch()
    for some in runs:
        run = _run(some, schemas)
        held = batch.runs.setdefault((run.segment, run.schema), run)
        if held is not run:  # the other side had emptied its cache and sent the schema again
            held.extend(run)
    for segment, before_t, adopts, *columns in barriers:
        batch.barriers.append(BarrierLines(segment, before_t, *_items(columns), adopts=adopts))
    for some in streams:
        batch.streams += some if type(some) is list else _run(some, schemas).lines
    batch.schemas = {schemas[place] for place in seen}
    batch.lowest, batch.highest, batch.begins, batch.newest_t, batch.inherited_t, batch.consumed = same
    for name, value in rare.items():
        setattr(batch, name, value)
    return batch


def _run(packed: Sequence[Any], schemas: Sequence[Schema]) -> Run:
    segment, place, *columns, data = packed
    steps, ts, offsets = _items(columns)
    each = unpack(f"{len(data) // len(steps)}s" * len(steps), data)  # bytes of each line
    return Run(segment, schemas[place], steps, ts, offsets, list(each))
