"""What was decoded in one process, as bytes for another: lines in columns, metrics once for each message. Pure.

Only processes of one replay exchange these, of one version of everything.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby, repeat
from struct import unpack
from typing import Any, NamedTuple, TypeVar

from rlship_formats.records import Open
from rlship_sidecar.decode.lines import BarrierLines, Batch, Dense, Schema, Schemas
from rlship_sidecar.intake.tail import Bookmark

_SAME = ("begins", "lowest", "highest", "newest_t", "inherited_t", "consumed")  # in every batch
_RARE = tuple(
    field.name for field in fields(Batch) if field.name not in (*_SAME, "lines", "streams", "barriers", "schemas")
)
_MOST_SCHEMAS = 1024

Line = TypeVar("Line")


@dataclass(frozen=True, slots=True)
class Task:
    """A stretch of a native file to decode: from `mark` on, about `size` bytes. The rest is the decoder's state there:
    the `open` record, the times that lines inherit, and the define and rollback lines before.
    """

    name: str
    path: str
    mark: Bookmark
    size: int
    opened: Open
    t: float
    barrier_t: float | None
    marks: tuple[bytes, ...]


class Arrived(NamedTuple):
    """A stretch as it came: `batch` unpacks it, which is left until it is needed, as its lines are many objects.
    `lowest` and `kept` are the batch's; the rest is as in `Stretch`.
    """

    batch: Callable[[], Batch]
    lowest: int
    kept: Sequence[tuple[int, bytes]]
    mark: Bookmark
    t: float
    barrier_t: float | None
    more: bool


class Stretch(NamedTuple):
    """Consecutive lines of a file, decoded: the batch ends at `mark`, where the decoder has these times. `more`: there
    was more to read.
    """

    batch: Batch
    mark: Bookmark
    t: float
    barrier_t: float | None
    more: bool


class Packing:
    """Packs stretches. What a schema comes to is worked out once."""

    def __init__(self) -> None:
        self._known: dict[Schema, bytes] = {}

    def pack(self, name: str, stretches: Sequence[Stretch]) -> bytes:
        """A message."""
        self._places: dict[Schema, int] = {}
        packed = [
            (self._batch(stretch.batch), tuple(stretch.mark), stretch.t, stretch.barrier_t, stretch.more)
            for stretch in stretches
        ]
        return pickle.dumps((name, [self._schema(schema) for schema in self._places], packed), 5)

    def _schema(self, schema: Schema) -> bytes:
        found = self._known.get(schema)
        if found is None:
            if len(self._known) >= _MOST_SCHEMAS:
                self._known.clear()
            found = self._known[schema] = pickle.dumps((schema.names, schema.asks), 5)
        return found

    def _place(self, schema: Schema) -> int:
        return self._places.setdefault(schema, len(self._places))

    def _batch(self, batch: Batch) -> tuple[Any, ...]:
        rare = {name: value for name in _RARE if (value := getattr(batch, name))}
        barriers = [(b.segment, b.before_t, *_columns(b.steps, b.ts, b.offsets)) for b in batch.barriers]
        schemas = [self._place(schema) for schema in batch.schemas]
        return (
            self._columns(batch.lines),
            self._columns(batch.streams),
            barriers,
            schemas,
            tuple(getattr(batch, name) for name in _SAME),
            rare,
        )

    def _columns(self, lines: Sequence[Any]) -> list[Any]:
        """Runs of dense lines of one schema and segment as columns, others as they are."""
        if not lines:
            return []
        if (usual := self._run(lines)) is not None:
            return [usual]
        packed: list[Any] = []
        for (schema, _), run in groupby(lines, _alike):
            found = list(run)
            packed.append(found if schema is None else self._run(found))
        return packed

    def _run(self, lines: Sequence[Any]) -> tuple[Any, ...] | None:
        """Lines as columns, None if they are not all alike: nothing but whole columns is looked at, for most are."""
        if set(map(type, lines)) != {Dense}:
            return None
        steps, ts, offsets, segments, schemas, data = zip(*lines)
        if schemas.count(schemas[0]) < len(schemas) or segments.count(segments[0]) < len(segments):
            return None
        return (self._place(schemas[0]), segments[0], *_columns(steps, ts, offsets), b"".join(data))


def _alike(line: Any) -> tuple[Schema | None, int]:
    return (line.schema, line.segment) if type(line) is Dense else (None, 0)


class Unpacking:
    """The other side: schemas become those of the reader that goes on with the lines."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._known: dict[bytes, Schema] = {}

    def unpack(self, message: bytes) -> tuple[str, list[Arrived]]:
        """The file's name and its stretches, in order."""
        name, schemas, packed = pickle.loads(message)
        known = [self._schema(schema) for schema in schemas]
        return name, [
            Arrived(partial(_batch, batch, known), *_looked_up(batch), Bookmark(*mark), t, barrier_t, more)
            for batch, mark, t, barrier_t, more in packed
        ]

    def _schema(self, packed: bytes) -> Schema:
        found = self._known.get(packed)
        if found is None:
            if len(self._known) >= _MOST_SCHEMAS:
                self._known.clear()
            found = self._known[packed] = self._schemas.of(*pickle.loads(packed))
        return found


def _columns(steps: Iterable[int], ts: Iterable[float], offsets: Iterable[int]) -> tuple[bytes, bytes, bytes]:
    """As bytes: a tenth of what pickling the numbers costs."""
    return array("q", steps).tobytes(), array("d", ts).tobytes(), array("q", offsets).tobytes()


def _items(columns: Sequence[bytes]) -> tuple[list[int], list[float], list[int]]:
    steps, ts, offsets = columns
    return array("q", steps).tolist(), array("d", ts).tolist(), array("q", offsets).tolist()


def _looked_up(packed: tuple[Any, ...]) -> tuple[int, Sequence[tuple[int, bytes]]]:
    """A batch's `lowest` and `kept`."""
    return packed[4][_SAME.index("lowest")], packed[5].get("kept", ())


def _batch(packed: tuple[Any, ...], schemas: Sequence[Schema]) -> Batch:
    lines, streams, barriers, seen, same, rare = packed
    batch = Batch(_lines(lines, schemas))
    for segment, before_t, *columns in barriers:
        steps, ts, offsets = _items(columns)
        batch.barriers.append(BarrierLines(segment, before_t, steps, ts, offsets))
    batch.streams = _lines(streams, schemas)
    batch.schemas = {schemas[place] for place in seen}
    batch.begins, batch.lowest, batch.highest, batch.newest_t, batch.inherited_t, batch.consumed = same
    for name, value in rare.items():
        setattr(batch, name, value)
    return batch


def _lines(packed: Iterable[Any], schemas: Sequence[Schema]) -> list[Any]:
    lines: list[Any] = []
    new = tuple.__new__  # a named tuple's own constructor costs as much as the rest of a short line
    for run in packed:
        if type(run) is list:
            lines += run
            continue
        place, segment, *columns, data = run
        steps, ts, offsets = _items(columns)
        count = len(steps)
        each = unpack(f"{len(data) // count}s" * count, data)  # bytes of each line
        fields = zip(steps, ts, offsets, repeat(segment), repeat(schemas[place]), each)
        lines += map(new, repeat(Dense), fields)
    return lines
