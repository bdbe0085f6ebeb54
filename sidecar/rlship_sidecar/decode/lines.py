"""The lines of a file as plain data: what `decode` gives to `align` and `reduce`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from struct import Struct
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

import msgspec
import orjson

from rlship_formats.reading import Clock, Ledger
from rlship_formats.reading import Run as RunRecord
from rlship_formats.records import MAX_STEP, T_MAX, T_MIN, Definition, Gap, Open
from rlship_formats.values import Observations
from rlship_sidecar.decode.shapes import (
    NO_VALUE,
    PLAIN,
    Shape,
    flattener,
    observations_in,
    stretches_of,
    type_of,
    width,
)

_NO_VALUE = struct.pack("d", NO_VALUE)
NotDense = struct.error  # raised when something other than plain numbers is packed


Step = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
Time = Annotated[float, msgspec.Meta(ge=T_MIN, le=T_MAX)]

# The steps of stream lines: of one that a barrier may adopt, and of one that has no step on purpose.
UNPLACED, ON_PURPOSE = -1, -2

_EXCERPT_BYTES = 120
# What a writer reported to the job is counted by its text, under this prefix; only so many texts are kept.
REPORTED = "rlship_error: "
MAX_REPORTED = 20
MAX_REPORTED_CHARS = 600
MAX_KNOWN = 1000  # metrics of a line that a parser is made for: one takes about 0.4 KB and 4 µs for each of them


class Schema:
    """The metrics of a line that is packed, what governs each, and its shape (`decode/shapes.py`); compared by
    identity.

    The metrics stand in the order of their shapes. `stretches` are those of one shape, `width` is how many doubles a
    line has. `bundled`: the time of each metric and the byte of its line stand after the values (`decode/bundles.py`).

    `loose`: a line has at least one of the metrics, all of them plain numbers, and `NO_VALUE` in the places of the
    others. For a line without any of them `pack` raises ValueError.
    """

    __slots__ = (
        "_doubles",
        "_parse",
        "_parse_stream",
        "asks",
        "bundled",
        "is_plain",
        "loose",
        "names",
        "pack",
        "shapes",
        "streamed",
        "stretches",
        "width",
    )

    def __init__(
        self,
        names: tuple[str, ...],
        asks: tuple[Definition, ...],
        shapes: tuple[Shape, ...] | None = None,
        *,
        bundled: bool = False,
        loose: bool = False,
    ) -> None:
        self.is_plain = shapes is None and not (bundled or loose)
        self.bundled = bundled
        self.loose = loose
        shapes = (PLAIN,) * len(names) if shapes is None else shapes
        self.names = names
        self.asks = asks
        self.shapes = shapes
        self.stretches = stretches_of(shapes)
        self.width = (sum(map(width, shapes)) if any(shapes) else len(names)) + 2 * len(names) * bundled
        self.streamed = any(ask.stream for ask in asks)
        # A nameless metric is a dead value.
        self.pack = _not_dense if "" in names else Struct(f"{self.width}d").pack
        if loose:
            self.pack = _some(self.pack, self.width)
        self._parse: Callable[[bytes], Any] | None = None
        self._parse_stream: Callable[[bytes], Any] | None = None
        self._doubles: Callable[[Any], Sequence[Any]] | None = None

    def values(self, data: bytes) -> tuple[Value, ...]:
        """The packed values of a line, one by one."""
        doubles = struct.unpack(f"{self.width}d", data)
        found, at = [], 0
        for name, asks, shape in zip(self.names, self.asks, self.shapes):
            if not self.loose or doubles[at] != NO_VALUE:
                found.append(Value(name, asks, observations_in(shape, doubles[at : at + width(shape)])))
            at += width(shape)
        return tuple(found)

    def pack_numbers(self, metrics: Mapping[str, Any]) -> bytes:
        """Pack the plain numbers of a line's metrics. Raises NotDense or OverflowError where they are not."""
        if self.loose:
            return self.pack(*[metrics.get(name, NO_VALUE) for name in self.names])
        return self.pack(*metrics.values())

    def places(self, data: bytes) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Of a bundled line, the time of each metric and the byte where its line begins."""
        count = len(self.names)
        doubles = struct.unpack(f"{2 * count}d", data[8 * (self.width - 2 * count) :])
        return doubles[:count], tuple(map(int, doubles[count:]))

    def filled(self, lines: Sequence[bytes], but: Container[str]) -> list[str]:
        """The metrics that one of some packed lines of a loose schema has, less those of `but`."""
        left = [(name, slice(8 * at, 8 * at + 8)) for at, name in enumerate(self.names) if name not in but]
        return [name for name, place in left if any(data[place] != _NO_VALUE for data in lines)]

    @property
    def parse(self) -> Callable[[bytes], Any]:
        """A parser of lines that have only `t`, `step` and values of these shapes for these metrics.

        It returns an object with `t`, `step` and `m`, a struct of the values, of which `doubles` makes what is packed.
        For other lines it raises ValueError or msgspec.DecodeError.
        """
        if self._parse is None:
            before = [("t", Time), ("step", Step)]
            self._parse = _parser(self.names, self.shapes, before, [], loose=self.loose)
        return self._parse

    @property
    def parse_stream(self) -> Callable[[bytes], Any]:
        """The same for lines without a step, which may have `stream`."""
        if self._parse_stream is None:
            self._parse_stream = _parser(self.names, self.shapes, [("t", Time)], [("stream", bool, False)])
        return self._parse_stream

    @property
    def doubles(self) -> Callable[[Any], Sequence[Any]]:
        """The doubles in parsed values. Those that are not finite are still words, which `pack` does not take."""
        if self._doubles is None:
            self._doubles = flattener(self.stretches)
        return self._doubles

    def pack_words(self, doubles: Iterable[Any]) -> bytes:
        """Pack doubles of which some are the words of non-finite numbers."""
        return self.pack(*[math.nan if type(x) is str else x for x in doubles])


def _parser(
    names: tuple[str, ...], shapes: tuple[Shape, ...], before: list[Any], behind: list[Any], *, loose: bool = False
) -> Callable[[bytes], Any]:
    """A parser of lines with these metrics, with members around them. It compares names in place and makes no keys."""
    line = _line_type(names, shapes, before, behind, loose=loose)
    return _unreadable if line is None else msgspec.json.Decoder(line).decode


def _line_type(
    names: tuple[str, ...], shapes: tuple[Shape, ...], before: list[Any], behind: list[Any], *, loose: bool = False
) -> type[msgspec.Struct] | None:
    """The type of such lines; None if there are too many names, or one that JSON writes escaped. `loose`: they may
    lack metrics.
    """
    if len(names) > MAX_KNOWN:
        return None
    default = (NO_VALUE,) if loose else ()
    fields = [(f"f{index}", type_of(shape), *default) for index, shape in enumerate(shapes)]
    rename = {f"f{index}": name for index, name in enumerate(names)}
    try:
        values = msgspec.defstruct("values", fields, rename=rename, forbid_unknown_fields=True, gc=False)
    except ValueError:
        return None
    envelope = [*before, ("m", values), *behind]
    return msgspec.defstruct("line", envelope, forbid_unknown_fields=True, gc=False)


def chain_parser(schemas: Sequence[Schema]) -> Callable[[bytes], Any]:
    """A parser of an array of lines, one of each of these schemas, in their order."""
    types = [_line_type(one.names, one.shapes, [("t", Time), ("step", Step)], []) for one in schemas]
    if None in types:
        return _unreadable
    parse: Callable[[bytes], Any] = msgspec.json.Decoder(tuple[tuple(types)]).decode  # type: ignore[misc]
    return parse


def _unreadable(line: bytes) -> Any:
    raise ValueError


def _some(pack: Callable[..., bytes], width: int) -> Callable[..., bytes]:
    """Pack values of which at least one is there."""
    nothing = pack(*[NO_VALUE] * width)

    def pack_some(*values: Any) -> bytes:
        data = pack(*values)
        if data == nothing:
            raise ValueError
        return data

    return pack_some


def _not_dense(*values: Any) -> bytes:
    raise NotDense("not dense")


@dataclass(slots=True)
class Run:
    """Metrics lines of one schema and segment, in file order and in columns.

    Line i has step `steps[i]` and time `ts[i]`, and begins at byte `offsets[i]`. `data[i]` holds its values as native
    doubles, in the shapes of `schema`.
    """

    segment: int
    schema: Schema
    steps: list[int] = field(default_factory=list)
    ts: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)

    def add(self, step: int, t: float, offset: int, data: bytes) -> None:
        """Add the next line."""
        self.steps.append(step)
        self.ts.append(t)
        self.offsets.append(offset)
        self.data.append(data)

    def sort(self) -> None:
        """Put the lines back into file order."""
        columns = zip(self.offsets, self.steps, self.ts, self.data)
        self.offsets, self.steps, self.ts, self.data = map(list, zip(*sorted(columns)))

    def extend(self, other: Run) -> None:
        """Add the lines of another run."""
        self.steps += other.steps
        self.ts += other.ts
        self.offsets += other.offsets
        self.data += other.data

    @property
    def lines(self) -> list[Dense]:
        """The lines one by one, out of their bundles too."""
        if self.schema.bundled:
            return [line for step, data in zip(self.steps, self.data) for line in self._unbundled(step, data)]
        fields = zip(self.steps, self.ts, self.offsets, repeat(self.segment), repeat(self.schema), self.data)
        return [Dense(*line) for line in fields]

    def _unbundled(self, step: int, data: bytes) -> Iterator[Dense]:
        """The lines in a bundled one: neighbours that begin at one byte are of one line."""
        schema, (ts, offsets) = self.schema, self.schema.places(data)
        begin = 0
        for end in range(1, len(ts) + 1):
            if end == len(ts) or offsets[end] != offsets[begin]:
                one = Schema(schema.names[begin:end], schema.asks[begin:end])
                yield Dense(step, ts[begin], offsets[begin], self.segment, one, data[8 * begin : 8 * end])
                begin = end

    def keep(self, chosen: Sequence[bool]) -> None:
        """Drop the lines that are not chosen."""
        self.steps, self.ts = list(compress(self.steps, chosen)), list(compress(self.ts, chosen))
        self.offsets, self.data = list(compress(self.offsets, chosen)), list(compress(self.data, chosen))


class Dense(NamedTuple):
    """A single metrics line of a schema. The fields are those of `Run`."""

    step: int
    t: float
    offset: int
    segment: int
    schema: Schema
    data: bytes


class Value(NamedTuple):
    """One metric's observations on a line and what governs them there."""

    metric: str
    asks: Definition
    observations: Observations


class Sparse(NamedTuple):
    """A metrics line, or the part of one, that no schema can hold; `values` may be empty."""

    step: int
    t: float
    offset: int
    segment: int
    values: tuple[Value, ...]


def values_of(line: Dense | Sparse) -> tuple[Value, ...]:
    """The values of a metrics line, one by one."""
    return line.schema.values(line.data) if type(line) is Dense else cast(Sparse, line).values


@dataclass(slots=True)
class BarrierLines:
    """Consecutive barrier records of one segment, in columns.

    Record i has step `steps[i]` and time `ts[i]`, and begins at byte `offsets[i]`. `before_t` is the time of the record
    before them in their segment, None if they are its first. `adopts`: the first one is the first of its file and
    adopts the lines without a step before it.
    """

    segment: int
    before_t: float | None
    adopts: bool = field(default=False, kw_only=True)
    steps: list[int] = field(default_factory=list)
    ts: list[float] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(self, step: int, t: float, offset: int) -> None:
        """Add the next record."""
        self.steps.append(step)
        self.ts.append(t)
        self.offsets.append(offset)

    def each(self) -> Iterator[tuple[int, float, int, float | None]]:
        """The step, time, offset and preceding record's time of each record."""
        return zip(self.steps, self.ts, self.offsets, (self.before_t, *self.ts))


class SampleLine(NamedTuple):
    """A sample record without its content; `score` is None unless it has one that can be compared."""

    step: int
    t: float
    offset: int
    segment: int
    table: str
    score: float | None
    pri: float


class TagLine(NamedTuple):
    """A `step_tag` event."""

    step: int
    t: float
    offset: int
    segment: int
    tag: str


StreamLine: TypeAlias = "Dense | Sparse | SampleLine | TagLine"  # its step is UNPLACED or ON_PURPOSE


class Adoption(NamedTuple):
    """A file's first barrier record says that the stream lines before byte `before` are of its `step`."""

    step: int
    before: int


class LedgerLine(NamedTuple):
    """A `ledger` record, the byte where its line begins, and its segment."""

    offset: int
    segment: int
    record: Ledger


class Note(NamedTuple):
    """A line about its writer, not about a metric: `kind` is barrier, rollback, close, failure, gap, run or
    ledger.

    `t` is the time of a rollback or close. For a gap it is the time of the line before. `text` is the error
    of a failure. `said` is what a line says of the run, `entered` an entry of the ledger.
    """

    kind: str
    segment: int
    step: int
    gap: Gap | None = None
    t: float = 0.0
    text: str = ""
    said: RunRecord | None = None
    entered: LedgerLine | None = None


class Dead(NamedTuple):
    """A line that cannot be used. If `metric` is set, only that metric's value on the line cannot be used."""

    offset: int
    reason: str
    excerpt: str
    metric: str | None = None


class OpenLine(NamedTuple):
    """The line of an `open` record: the record, the byte where the line begins, and the labels."""

    open: Open
    offset: int
    labels: dict[str, str]


@dataclass(slots=True)
class Batch:
    """The content of consecutive lines of one file.

    `consumed` lines were used; `begins` is the step of the first stepped line in segment 0. `lowest` and `highest` are
    the steps of the metrics records (-1: no such record). `inherited_t` counts lines that took their `t` from a line
    before.

    `runs` are the metrics records with a step, by segment and schema. `sparse` is what no schema can hold of them.
    `streams` are the metrics records without a step, with their samples and tags.

    `schemas` and `names` belong to metrics with a step, where they differ from the last line's. `governing` are the
    define and rollback lines that later lines depend on, with their offsets. `open_line` is that of the `open` record,
    with its labels.
    """

    runs: dict[tuple[int, Schema], Run] = field(default_factory=dict)
    sparse: list[Sparse] = field(default_factory=list)
    barriers: list[BarrierLines] = field(default_factory=list)
    samples: list[SampleLine] = field(default_factory=list)
    tags: list[TagLine] = field(default_factory=list)
    streams: list[StreamLine] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    schemas: set[Schema] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    governing: list[tuple[int, bytes]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    open_line: OpenLine | None = None
    begins: int | None = None
    lowest: int = -1
    highest: int = -1
    newest_t: float = 0.0
    inherited_t: int = 0
    consumed: int = 0

    @property
    def opened(self) -> Open | None:
        """The `open` record, if it is among the lines."""
        return None if self.open_line is None else self.open_line.open

    @property
    def opened_at(self) -> int:
        """The byte where the line of the `open` record begins; 0 without one."""
        return 0 if self.open_line is None else self.open_line.offset

    @property
    def said(self) -> list[RunRecord]:
        """What the lines say of the run, in file order."""
        return [note.said for note in self.notes if note.said is not None]

    @property
    def ledger(self) -> list[LedgerLine]:
        """The entries of the ledger, in file order."""
        return [note.entered for note in self.notes if note.entered is not None]

    def run(self, segment: int, schema: Schema) -> Run:
        """The run of this schema and segment, ready for another line."""
        run = self.runs.get((segment, schema))
        if run is None:
            run = self.runs[segment, schema] = Run(segment, schema)
        return run

    @property
    def lines(self) -> list[Dense | Sparse]:
        """The metrics records with a step one by one, in file order."""
        dense = [line for run in self.runs.values() for line in run.lines]
        return sorted([*dense, *self.sparse], key=lambda line: line.offset)

    def steps_begun(self) -> dict[int, int]:
        """The steps of the metrics records, each with the byte where its first record begins."""
        found: dict[int, int] = {}
        for step, offset in chain(
            *(zip(run.steps, run.offsets) for run in self.runs.values()),
            ((line.step, line.offset) for line in self.sparse),
        ):
            found[step] = min(found.get(step, offset), offset)
        return found

    def keep(self, chosen: Callable[[int, int], bool]) -> None:
        """Drop the metrics records with a step whose step and offset are not chosen."""
        for run in self.runs.values():
            run.keep([*map(chosen, run.steps, run.offsets)])
        self.runs = {key: run for key, run in self.runs.items() if run.steps}
        self.sparse = [line for line in self.sparse if chosen(line.step, line.offset)]

    @property
    def adoption(self) -> Adoption | None:
        """What the file's first barrier record adopts, if it is among the lines."""
        for barriers in self.barriers:
            if barriers.adopts:
                return Adoption(barriers.steps[0], barriers.offsets[0])
        return None

    def adopt(self, adoption: Adoption) -> list[StreamLine]:
        """Make the stream lines that a barrier adopts lines of its step. Returns them as they stand in the file."""
        taken = [line for line in self.streams if line.step == UNPLACED and line.offset < adoption.before]
        if not taken:
            return []
        left = {line.offset for line in taken}
        self.streams = [line for line in self.streams if line.offset not in left]
        step, runs = adoption.step, dict[int, Run]()
        for line in taken:
            if type(line) is Dense:
                run = self.run(line.segment, line.schema)
                run.add(step, line.t, line.offset, line.data)
                runs[id(run)] = run
                self.schemas.add(line.schema)
            elif type(line) is Sparse:
                self.sparse.append(line._replace(step=step))
                self.names.update(value.metric for value in line.values)
            elif type(line) is SampleLine:
                self.samples.append(line._replace(step=step))
            else:
                assert type(line) is TagLine
                self.tags.append(line._replace(step=step))
        for run in runs.values():
            run.sort()
        for lines in (self.sparse, self.samples, self.tags):
            lines.sort(key=lambda line: line.offset)
        # Not `saw`: where a segment begins goes by the lines that name their step.
        self.highest = max(self.highest, step)
        self.lowest = step if self.lowest < 0 else min(self.lowest, step)
        return taken

    def begin(self, step: int, segment: int) -> None:
        """Record the step of a stepped line of a segment."""
        if not segment and self.begins is None:
            self.begins = step

    def saw(self, step: int, segment: int) -> None:
        """Record the step of a metrics record of a segment."""
        self.begin(step, segment)
        if step > self.highest:
            self.highest = step
        if step < self.lowest or self.lowest < 0:
            self.lowest = step


def too_long(offset: int, excerpt: bytes) -> Dead:
    """The dead letter for a line that is too long for the tail to return."""
    return Dead(offset, "line too long", excerpt_of(excerpt))


def excerpt_of(data: bytes) -> str:
    """Text that is safe on any terminal: control characters as escapes."""
    text = data[:_EXCERPT_BYTES].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def as_json(value: Any) -> bytes:
    """A value as JSON; only its kind if it is nested too deeply to be written."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return b"a deeply nested " + type(value).__name__.encode()
