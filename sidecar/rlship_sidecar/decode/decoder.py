"""Turns the lines of one file into plain data: no I/O, no clock.

`rlship_formats.reading` defines what a line is, one record at a time. This module makes batches of records. It takes
three shortcuts, because nearly all lines of a job are alike:

1. `read_spans`: span records in the form that writers give them, many at once.
2. `take_usual`: metrics lines with the metrics that followed those of the line before once already, and barrier
   records.
3. `Decoder._take_metrics`: other metrics lines. Their values are packed (`shapes`); the few that no shape can hold are
   kept as they came. Lines whose metrics vary get a loose schema (`governing`), by which `take_usual` reads the next.

`FileReader` reads everything else, and whatever a shortcut declines. `TAKERS` maps each kind of record to its handler.
Keep these rules when you change a shortcut:

- It may decline any line. What it takes must give the same bits as `FileReader`: the same step, time, numbers,
  reductions, inherited `t` and dead letters. So it takes a line only if it understands all of it.
- It declines without a trace: nothing of a declined line may be in the batch, in `pace`, or in `reader.t`.
- A schema holds what governs its metrics. Any record that changes this (a `define`, an `open`) resets `_habits`.

tests/pipeline/test_decoder_equals_reader.py proves the first two rules on random files, sound and damaged.
tests/pipeline/test_known_lines.py proves them for single lines, and checks that the shortcuts take the lines they
should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Annotated, Any

import msgspec
import orjson

from rlship_formats.reading import (
    MAX_DURATION_S,
    SPAN_REDUCTIONS,
    WRONG_USE,
    Clock,
    Close,
    DeadLetter,
    Define,
    Event,
    FileReader,
    GapRecord,
    Ledger,
    Metrics,
    Rollback,
    Sample,
    Span,
    Unknown,
    derive_metric,
    observations_of,
)
from rlship_formats.reading import Barrier as BarrierRecord
from rlship_formats.reading import Run as RunRecord
from rlship_formats.records import CONFIG, MAX_STEP, T_MAX, T_MIN, Open, has_time, time_of
from rlship_formats.values import DeadValue, Observations
from rlship_sidecar.decode import bundles
from rlship_sidecar.decode.bundles import bundle
from rlship_sidecar.decode.governing import Governing
from rlship_sidecar.decode.lines import (
    MAX_REPORTED_CHARS,
    ON_PURPOSE,
    REPORTED,
    UNPLACED,
    BarrierLines,
    Batch,
    Dead,
    Dense,
    LedgerLine,
    NotDense,
    Note,
    OpenLine,
    Run,
    SampleLine,
    Schema,
    Sparse,
    Step,
    TagLine,
    Time,
    Value,
    as_json,
    excerpt_of,
)
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.decode.shapes import PLAIN, flat, shape_of

_STEPPED = frozenset((Metrics, Span, Event, Sample, BarrierRecord))  # the classes of records that may have a step


COMMON = b'{"t":'  # how the common metrics line begins; trying other lines would cost more than it saves
BARRIER = b'{"kind":"barrier",'
SPAN = b'{"kind":"span",'
_NEXT_SPAN = b",\n" + SPAN
_MAX_SPANS = 256  # that are parsed at once, perhaps for nothing


class _Barrier(msgspec.Struct, tag_field="kind", tag="barrier", forbid_unknown_fields=True, gc=False):
    step: Step
    t: Time


class _Span(msgspec.Struct, tag_field="kind", tag="span", forbid_unknown_fields=True, gc=False):
    t: Time
    dur: Annotated[float, msgspec.Meta(ge=0, le=MAX_DURATION_S)]
    name: Annotated[str, msgspec.Meta(min_length=1)]
    step: Step | msgspec.UnsetType = msgspec.UNSET
    lane: str = ""
    err: str = ""


_parse_span = msgspec.json.Decoder(_Span).decode
_parse_spans = msgspec.json.Decoder(list[_Span]).decode
_pack_one = Struct("d").pack

_parse_barrier = msgspec.json.Decoder(_Barrier).decode


@dataclass(slots=True)
class BatchLimit:
    """Which lines may join the batch: those of steps up to `last_step`, until the step has changed `left` times.

    The first `together` lines join anyway. `step` is the step of the last line, -1 before the first usable one. `full`
    means that a line has to wait.
    """

    last_step: int
    left: int
    together: int = 1
    step: int = -1
    full: bool = False

    def refuses(self, step: int, *, first: bool) -> bool:
        """Whether a line of this step has to wait. The `first` never does, so that a reader always makes progress."""
        if step == self.step:
            return False
        if not first and (step > self.last_step or self.left <= 0):
            self.full = True
            return True
        self.left -= 1
        self.step = step
        return False


def _has_step(line: bytes) -> bool:
    """Whether a common line has a step, if it is as writers give it: a guess at which way to try first."""
    return line.startswith(COMMON) and line.startswith(b'"step"', line.find(b",") + 1)


def read_barrier(line: bytes) -> tuple[int, float] | None:
    """Step and `t` of a barrier record in the form that writers give it; None for other lines."""
    if not line.startswith(BARRIER):  # a line without any kind would be parsed as well
        return None
    try:
        found = _parse_barrier(line)
    except (msgspec.DecodeError, ValueError):
        return None  # the line may still be right: the general path decides
    return found.step, found.t


class Habits:
    """Which schema followed which in a file's lines, so that the next line's can be expected.

    `last` is the schema of the last packed line.
    """

    __slots__ = ("_cycles", "followers", "last")

    def __init__(self) -> None:
        self.followers: dict[Schema, Schema] = {}
        self.last: Schema | None = None
        self._cycles: dict[Schema, tuple[Schema, ...]] = {}

    def forget(self) -> None:
        """Expect nothing: other entries govern the lines from here on."""
        self.followers.clear()
        self._cycles.clear()
        self.last = None

    def expected(self) -> Schema | None:
        """The schema that the next line probably has."""
        return None if self.last is None else self.followers.get(self.last)

    def disappoint(self) -> None:
        """The next line does not have the expected schema."""
        if self.last is not None:
            self.followers.pop(self.last, None)
            self._cycles.clear()

    def note(self, schema: Schema) -> None:
        """The next line has this schema."""
        if self.last is not None:
            if len(self.followers) >= _MAX_FOLLOWERS:
                self.followers.clear()
            if self.followers.get(self.last) is not schema:
                self.followers[self.last] = schema
                self._cycles.clear()
        self.last = schema

    def cycle(self) -> tuple[Schema, ...]:
        """The schemas of single metrics that follow one another from the expected one on, until it comes again; () if
        there is no such cycle, or a short one.
        """
        first = self.expected()
        if first is None:
            return ()
        found = self._cycles.get(first)
        if found is None:
            chain: list[Schema] = []
            schema: Schema | None = first
            while schema is not None and schema.is_plain and len(schema.names) == 1 and len(chain) < _MAX_FOLLOWERS:
                chain.append(schema)
                schema = self.followers.get(schema)
                if schema is first:
                    break
            long = schema is first and len(chain) >= bundles.FEWEST
            found = self._cycles[first] = tuple(chain) if long else ()
        return found


_MAX_FOLLOWERS = 256


def take_usual(
    habits: Habits,
    lines: Sequence[bytes],
    offsets: Sequence[int],
    at: int,
    batch: Batch,
    barriers: BarrierLines,
    pace: BatchLimit,
    t: float,
) -> tuple[int, float]:
    """Take metrics lines of expected schemas and barrier records of one segment from `at` on, until another line comes
    or one has to wait.

    A schema is expected, and the first line begins like a metrics line. Returns where it stopped and the last line's
    time, or `t` if it took no line. It also stops after a barrier where a cycle of lines may begin.

    Nearly all lines are of these two kinds, so they have a way of their own: msgspec compares the names where they
    stand and makes no dict. What keeps the conditions of the module's docstring here:

    - The parsers forbid unknown members (`kind` is one), so that a line that says more is declined, not cut. Both need
      `t` and `step` within the bounds of the format: a record without them inherits its `t` or is a dead letter.
    - Of a name that stands twice msgspec takes the last one, as orjson does; an earlier one out of bounds declines.
    - `pack` stands before the first `append` and before `pace`: if it raises, nothing has changed.
    - The columns grow one by one and are never read in between, so that their lengths agree whenever the loop ends.
    """
    segment, expected, last = barriers.segment, habits.expected(), habits.last
    schema: Schema | None = None  # whose way is at hand
    end_step, end_t, end_offset = barriers.steps.append, barriers.ts.append, barriers.offsets.append
    ended, place, cyclic = len(barriers.steps), at, bool(habits.cycle())
    before, last_step, left = pace.step, pace.last_step, pace.left
    ways: dict[Schema, tuple[Any, ...]] = {}
    grown: list[tuple[Run, int]] = []  # runs that may grow, and their lengths before
    found: Any
    for place in range(at, len(lines)):
        line = lines[place]
        try:
            if line.startswith(COMMON):
                if schema is not expected:
                    if expected is None:
                        break
                    schema, way = expected, ways.get(expected)
                    if way is None:
                        way = ways[schema] = _way(schema, batch.run(segment, schema), grown)
                    parse, doubles_of, pack, add_step, add_t, add_offset, add_data = way
                    follower = habits.followers.get(schema)
                elif schema is None:
                    break
                found = parse(line)
                try:
                    data = pack(*doubles_of(found.m))
                except NotDense:
                    data = schema.pack_words(doubles_of(found.m))
                step = found.step
                if step != before:
                    if (step > last_step or left <= 0) and place >= pace.together:
                        pace.full = True
                        break
                    left -= 1
                    before = step
                add_data(data)
                add_step(step)
                t = found.t
                add_t(t)
                add_offset(offsets[place])
                last, expected = schema, follower
            elif line.startswith(BARRIER):
                found = _parse_barrier(line)
                end_step(found.step)
                t = found.t
                end_t(t)
                end_offset(offsets[place])
                if cyclic:
                    place += 1
                    break
            else:
                break
        except (msgspec.DecodeError, ValueError):
            habits.last = last
            if _has_step(line):
                habits.disappoint()
            break
    else:
        place += 1
    pace.step, pace.left, habits.last = before, left, last
    batch.newest_t = max([batch.newest_t, *barriers.ts[ended:]])
    for run, begun in grown:
        _close(batch, run, begun)
    return place, t


def _way(schema: Schema, run: Run, grown: list[tuple[Run, int]]) -> tuple[Any, ...]:
    """What it takes to read a line of a schema into a run, which is noted with its length so far."""
    grown.append((run, len(run.steps)))
    adding = run.steps.append, run.ts.append, run.offsets.append, run.data.append
    return schema.parse, schema.doubles, schema.pack, *adding


def _close(batch: Batch, run: Run, begun: int) -> None:
    """Note what a run grew by since it had `begun` lines."""
    steps = run.steps[begun:]
    if steps:
        batch.begin(steps[0], run.segment)  # of several runs the one with the first line comes first
        batch.saw(min(steps), run.segment)
        batch.saw(max(steps), run.segment)
        batch.newest_t = max(batch.newest_t, *run.ts[begun:])
    elif not begun:
        del batch.runs[run.segment, run.schema]


_step_of = attrgetter("step")


def _by_step(spans: list[_Span]) -> Iterable[tuple[Any, list[_Span]]]:
    """Consecutive spans of one step: mostly all of them."""
    if len({span.step for span in spans}) == 1:
        return ((spans[0].step, spans),)
    return [(step, [*some]) for step, some in groupby(spans, _step_of)]


def _ends(spans: Sequence[_Span]) -> list[float]:
    """When spans end, or begin where their end is absurd."""
    ends = [span.t + span.dur for span in spans]
    if max(ends) > T_MAX:
        ends = [end if end <= T_MAX else span.t for end, span in zip(ends, spans)]
    return ends


def read_spans(lines: Sequence[bytes], at: int, likely: int) -> list[_Span]:
    """The span records from `at` on, up to another line, or one in another form than writers give it. It is quick if
    they are as many as is `likely`.
    """
    end = at + likely
    data = b",\n".join(lines[at:end])
    if data.count(_NEXT_SPAN) != likely - 1 or (end < len(lines) and lines[end].startswith(SPAN)):
        end = at
        for line in lines[at : at + _MAX_SPANS]:
            if not line.startswith(SPAN):
                break
            end += 1
        data = b",\n".join(lines[at:end])
    try:
        found: list[_Span] = _parse_spans(b"[%b]" % data)
        if len(found) == end - at:  # else one line holds two, as each begins like one
            return found
    except (msgspec.DecodeError, ValueError):
        pass  # one of them has another form: those before it are found one by one
    found = []
    try:
        for line in lines[at:end]:
            found.append(_parse_span(line))
    except (msgspec.DecodeError, ValueError):
        return found
    return found


class Decoder:
    """Makes batches of a file's lines, in their order.

    `reader` holds the state after the lines so far. `barrier_t` is the time of the segment's last barrier record before
    the current batch.
    """

    __slots__ = (
        "_barriers",
        "_governing",
        "_habits",
        "_likely_spans",
        "_met",
        "_spans",
        "_stream_habits",
        "barrier_t",
        "reader",
    )

    def __init__(self, schemas: Schemas) -> None:
        self.reader = FileReader()
        self.barrier_t: float | None = None
        self._governing = Governing(schemas)
        self._habits = Habits()
        self._stream_habits = Habits()
        self._likely_spans = 1  # that stand together
        self._met: set[str] = set()  # metrics of lines of loose schemas
        self._spans: dict[str, Run] = {}  # where spans go in this batch, by their names
        self._barriers = BarrierLines(0, None)

    @property
    def opened(self) -> Open | None:
        """The file's `open` record; None before it was read."""
        return self.reader.opened

    @property
    def segment(self) -> int:
        """The number of rollbacks among the lines so far."""
        return self.reader.segment

    @property
    def t(self) -> float:
        """The time that the next line without `t` inherits."""
        return self.reader.t

    def decode(
        self, lines: Sequence[bytes], offsets: Sequence[int], *, max_steps: int, last_step: int, together: int = 1
    ) -> Batch:
        """Decode lines that begin at `offsets`.

        Stops before a record of a step beyond `last_step`, or after `max_steps` changes of step. Consumes at least the
        first `together` lines.
        """
        batch = Batch()
        pace = BatchLimit(last_step, max_steps, together)
        reader = self.reader
        self._barriers = BarrierLines(reader.segment, self.barrier_t)
        at, count, habits = 0, len(lines), self._habits
        self._spans.clear()
        while at < count:
            line, before = lines[at], at
            if line.startswith(COMMON):
                if not _has_step(line):
                    at = self._take_streams(batch, lines, offsets, at)
                elif cycle := habits.cycle():
                    at = self._take_cycle(batch, cycle, lines, offsets, at, pace)
                if at == before and not pace.full and _has_step(line) and habits.expected() is not None:
                    at, reader.t = take_usual(habits, lines, offsets, at, batch, self._barriers, pace, reader.t)
            elif line.startswith(SPAN) and reader.opened is not None:
                at = self._take_spans(batch, lines, offsets, at, pace)
            if pace.full:
                break
            if at > before:
                continue
            if not self._take(batch, lines[at], offsets[at], pace, at < together):
                break
            at += 1
        self._end_barriers(batch)
        self._note_loose(batch)
        bundle(batch, self._governing.schemas)
        batch.consumed = at
        return batch

    def _note_loose(self, batch: Batch) -> None:
        """Note the metrics of lines of loose schemas that no such line of the file had before."""
        for run in batch.runs.values():
            if run.schema.loose:
                new = run.schema.filled(run.data, self._met)
                self._met.update(new)
                batch.names.update(new)

    def restore(self, opened: Open, t: float, barrier_t: float | None, marks: Sequence[bytes]) -> None:
        """Restore the state at some offset of the file.

        `opened` is its open record, `t` the inherited time there, and `barrier_t` the time of the segment's last
        barrier record. `marks` are the define and rollback lines before the offset.
        """
        self.reader = FileReader(opened)
        self._begin(opened)
        self._go_on(marks, t, barrier_t)

    def follow(self, batch: Batch, t: float, barrier_t: float | None) -> None:
        """Adopt the state of another decoder of this file that has decoded `batch` in place of this one."""
        self._go_on([line for _, line in batch.governing], t, barrier_t)

    def _go_on(self, marks: Sequence[bytes], t: float, barrier_t: float | None) -> None:
        for line in marks:
            record = self.reader.read(line)
            if isinstance(record, Define):
                self._governing.define(record.m)
                self._forget()
        self.reader.t, self.barrier_t = t, barrier_t

    # One line ------------------------------------------------------------------------------------------------------

    def _take(self, batch: Batch, line: bytes, offset: int, pace: BatchLimit, first: bool) -> bool:
        """Decode one line. False if it has to wait; the `first` lines never wait."""
        reader = self.reader
        if reader.opened is not None and line.startswith(BARRIER):
            found = read_barrier(line)
            if found is not None:
                step, reader.t = found
                self._add_barrier(batch, step, reader.t, offset)
                return True
        try:
            body = orjson.loads(line)
        except orjson.JSONDecodeError:
            dead = reader.read(line)
            if isinstance(dead, DeadLetter):  # else the line is blank
                batch.dead.append(Dead(offset, dead.reason, excerpt_of(line)))
            return True
        if type(body) is dict and "kind" not in body and reader.opened is not None:
            if self._take_metrics(batch, body, offset, pace, first):
                return True
            if pace.full:
                return False
        return self._take_record(batch, body, line, offset, pace, first)

    def _take_streams(self, batch: Batch, lines: Sequence[bytes], offsets: Sequence[int], at: int) -> int:
        """Take consecutive stream lines of expected schemas. Returns where it stopped."""
        reader, habits, add = self.reader, self._stream_habits, batch.streams.append
        segment, newest_t, t = reader.segment, batch.newest_t, reader.t
        for place in range(at, len(lines)):
            line, schema = lines[place], habits.expected()
            if schema is None or not line.startswith(COMMON):
                break
            try:
                found = schema.parse_stream(line)
            except (msgspec.DecodeError, ValueError):
                if not _has_step(line):
                    habits.disappoint()
                break
            try:
                data = schema.pack(*schema.doubles(found.m))
            except NotDense:
                data = schema.pack_words(schema.doubles(found.m))
            t, step = found.t, ON_PURPOSE if found.stream else UNPLACED
            if t > newest_t:
                newest_t = t
            add(tuple.__new__(Dense, (step, t, offsets[place], segment, schema, data)))
            habits.last = schema
            at = place + 1
        batch.newest_t, reader.t = newest_t, t
        return at

    def _take_cycle(
        self,
        batch: Batch,
        cycle: tuple[Schema, ...],
        lines: Sequence[bytes],
        offsets: Sequence[int],
        at: int,
        pace: BatchLimit,
    ) -> int:
        """Take the lines of a step, one of each schema of a cycle. Returns where it stopped."""
        end = at + len(cycle)
        together, begins = lines[at:end], offsets[at:end]
        # As each line begins like one, no line is a part of the one before.
        if len(together) < len(cycle) or [line for line in together if not line.startswith(COMMON)]:
            return at
        chain = self._governing.schemas.chain(cycle)
        if chain is None:
            return at
        reader, sort = self.reader, chain.sort
        try:
            found = chain.parse(b"[%b]" % b",".join(together))
            ts, xs = [line.t for line in found], [line.m.f0 for line in found]
            data = chain.schema.pack(*sort(xs), *sort(ts), *sort(begins))
        except (msgspec.DecodeError, ValueError, NotDense):
            return at
        step = found[0].step
        if [line for line in found if line.step != step]:
            return at
        if step != pace.step:
            if pace.refuses(step, first=at < pace.together):
                return at
            batch.saw(step, reader.segment)
        batch.run(reader.segment, chain.schema).add(step, max(ts), offsets[at], data)
        batch.newest_t = max(batch.newest_t, *ts)
        reader.t, self._habits.last = ts[-1], cycle[-1]
        return end

    def _take_spans(
        self, batch: Batch, lines: Sequence[bytes], offsets: Sequence[int], at: int, pace: BatchLimit
    ) -> int:
        """Take consecutive span records. Returns where it stopped."""
        reader, begin = self.reader, at
        found = read_spans(lines, at, self._likely_spans)
        self._likely_spans = max(1, len(found))
        for step, together in _by_step(found):
            if isinstance(step, msgspec.UnsetType):
                self._add_stream_spans(batch, together, offsets[at : at + len(together)])
            else:
                if step != pace.step:
                    if pace.refuses(step, first=at < pace.together):
                        break
                    batch.saw(step, reader.segment)
                self._add_spans(batch, step, together, offsets[at : at + len(together)])
            at += len(together)
        if at > begin:
            reader.t = found[at - begin - 1].t
        return at

    def _add_spans(self, batch: Batch, step: int, spans: Sequence[_Span], offsets: Sequence[int]) -> None:
        """Add consecutive span records of a step, in one line if they are of different names, as usual."""
        ends = _ends(spans)
        last = max(ends)
        if last > batch.newest_t:
            batch.newest_t = last
        laid = self._governing.spans_together(tuple([span.name for span in spans]))
        if laid is not None:
            run, sort = batch.run(self.reader.segment, laid.schema), laid.sort
            batch.schemas.add(laid.schema)
            data = laid.schema.pack(*sort([span.dur for span in spans]), *sort(ends), *sort(offsets))
            run.add(step, last, offsets[0], data)
            return
        runs = self._spans
        for span, end, offset in zip(spans, ends, offsets):
            run = runs.get(span.name) or self._run_of_spans(batch, span.name)
            run.steps.append(step)
            run.ts.append(end)
            run.offsets.append(offset)
            run.data.append(_pack_one(span.dur))

    def _add_stream_spans(self, batch: Batch, spans: Sequence[_Span], offsets: Sequence[int]) -> None:
        ends, segment = _ends(spans), self.reader.segment
        batch.newest_t = max(batch.newest_t, *ends)
        for span, end, offset in zip(spans, ends, offsets):
            schema = self._governing.derived_schema(f"{span.name}_s", SPAN_REDUCTIONS)
            batch.streams.append(Dense(UNPLACED, end, offset, segment, schema, _pack_one(span.dur)))

    def _run_of_spans(self, batch: Batch, name: str) -> Run:
        schema = self._governing.derived_schema(f"{name}_s", SPAN_REDUCTIONS)
        run = self._spans[name] = batch.run(self.reader.segment, schema)
        batch.schemas.add(schema)
        return run

    def _take_metrics(self, batch: Batch, body: dict[str, Any], offset: int, pace: BatchLimit, first: bool) -> bool:
        """The second shortcut. False if it declines, or if the line has to wait (then `pace` is full)."""
        metrics: Any = body.get("m")
        step: Any = body.get("step")
        stepped = step is not None
        if type(metrics) is not dict or (not stepped and "step" in body):
            return False
        if stepped and (type(step) is not int or not 0 <= step <= MAX_STEP):
            return False
        reader = self.reader
        if stepped and step != pace.step:
            if pace.refuses(step, first=first):
                return False
            batch.saw(step, reader.segment)
        t: Any = body.get("t")
        if type(t) is not float or not T_MIN <= t <= T_MAX:
            t = time_of(body, reader.t)
            batch.inherited_t += stepped and not has_time(body)
        reader.t = t
        if t > batch.newest_t:
            batch.newest_t = t
        names = tuple(metrics)
        governing = self._governing
        schema = governing.stepped(names) if stepped else governing.by_names.get(names) or governing.schema(names)
        try:
            data = schema.pack_numbers(metrics)
        except (NotDense, OverflowError):
            record = Metrics(t, step, metrics, body.get("stream") is True)
            packed = (self._pack_apart if schema.loose else self._pack)(batch, record, offset)
            if packed is None:
                return True
            schema, data = packed
        if not stepped:
            # A named tuple's own constructor costs as much as the rest of a short line.
            step = ON_PURPOSE if body.get("stream") is True else UNPLACED
            self._stream_habits.note(schema)
            batch.streams.append(tuple.__new__(Dense, (step, t, offset, reader.segment, schema, data)))
            return True
        batch.run(reader.segment, schema).add(step, t, offset, data)
        if schema is not self._habits.last and not schema.loose:
            batch.schemas.add(schema)
        self._habits.note(schema)
        return True

    def _pack(self, batch: Batch, record: Metrics, offset: int) -> tuple[Schema, bytes] | None:
        """Pack a line of values that are not all plain numbers. None if no metric of it can be packed.

        The dead values go to the batch, and so does what no shape can hold: as a sparse line beside the packed one, or
        as a sparse stream line.
        """
        names, shapes, seen, others = [], [], [], []
        for name, value in record.m.items():
            if type(value) is float and name:
                observations, shape = Observations((value,), None, 0), PLAIN
            else:
                try:
                    some = observations_of(name, value)
                except DeadValue as dead:
                    excerpt = excerpt_of(as_json(name) + b": " + as_json(value))
                    batch.dead.append(Dead(offset, str(dead), excerpt, name))
                    continue
                if some is None:
                    continue
                observations, fitting = some, shape_of(value, some)
                if fitting is None:
                    others.append(Value(name, self._governing.of(name), some))
                    continue
                shape = fitting
            names.append(name)
            shapes.append(shape)
            seen.append(observations)
        segment, asks_of = self.reader.segment, self._governing.of
        if record.step is None and (others or not names):
            # In one piece: a stream line may be a row of its own.
            values = [*others, *(Value(name, asks_of(name), one) for name, one in zip(names, seen))]
            batch.streams.append(Sparse(_unplaced(record), record.t, offset, segment, tuple(values)))
            return None
        if record.step is not None and (others or not names):
            batch.sparse.append(Sparse(record.step, record.t, offset, segment, tuple(others)))
            batch.names.update([value.metric for value in others])
        if not names:
            return None
        schema, order = self._governing.shaped(tuple(names), tuple(shapes))
        if order is not None:
            seen = [seen[place] for place in order]
        return schema, schema.pack(*[x for one, shape in zip(seen, schema.shapes) for x in flat(one, shape)])

    def _pack_apart(self, batch: Batch, record: Metrics, offset: int) -> tuple[Schema, bytes] | None:
        """The same for a line of a loose schema: its plain numbers are packed by that, the rest as a line beside it."""
        loose = self._governing.loose
        numbers = {name: x for name, x in record.m.items() if type(x) is float}
        if loose is None or not numbers:
            return self._pack(batch, record, offset)
        rest = {name: value for name, value in record.m.items() if name not in numbers}
        self._metrics(batch, record._replace(m=rest), b"", offset)
        return loose, loose.pack_numbers(numbers)

    def _take_record(self, batch: Batch, body: Any, line: bytes, offset: int, pace: BatchLimit, first: bool) -> bool:
        """The general path, for every line that is JSON. False if the line has to wait."""
        reader = self.reader
        before = reader.t
        record: Any = reader.read_body(body)
        kind = type(record)
        if kind is DeadLetter:
            batch.dead.append(Dead(offset, record.reason, excerpt_of(line)))
            return True
        step = record.step if kind in _STEPPED and not (kind is Event and record.is_about_writer) else None
        if step is not None:
            if step != pace.step and kind is not BarrierRecord:
                if pace.refuses(step, first=first):
                    reader.t = before  # undone, because the line will be read again
                    return False
                batch.saw(step, reader.segment)
            if reader.t == before and not has_time(body):
                batch.inherited_t += 1
        if reader.t > batch.newest_t and kind is not Unknown:
            batch.newest_t = reader.t
        take = TAKERS.get(kind)
        if take is not None:
            take(self, batch, record, line, offset)
        return True

    # What becomes of each kind of record -----------------------------------------------------------------------------

    def _forget(self) -> None:
        """Other entries govern from here on, or another segment begins."""
        self._habits.forget()
        self._stream_habits.forget()
        self._met.clear()
        self._spans.clear()

    def _begin(self, opened: Open) -> None:
        self._forget()
        self._governing.begin(opened.actor)

    def _open(self, batch: Batch, opened: Open, line: bytes, offset: int) -> None:
        batch.open_line = OpenLine(opened, offset, self.reader.labels)
        self._begin(opened)

    def _metrics(self, batch: Batch, record: Metrics, line: bytes, offset: int) -> None:
        packed = self._pack(batch, record, offset)
        if packed is None:
            return
        schema, data = packed
        if record.step is None:
            batch.streams.append(Dense(_unplaced(record), record.t, offset, self.reader.segment, schema, data))
        else:
            batch.run(self.reader.segment, schema).add(record.step, record.t, offset, data)
            batch.schemas.add(schema)

    def _event(self, batch: Batch, record: Event, line: bytes, offset: int) -> None:
        if record.is_report:
            _count_report(batch, record)
        if record.name == CONFIG:
            self._run(batch, RunRecord(record.t, record.attrs, {}, {}), line, offset)
        if record.is_about_writer:
            return
        if record.tag:
            step = _unplaced(record) if record.step is None else record.step
            tag = TagLine(step, record.t, offset, self.reader.segment, record.tag)
            (batch.tags if step >= 0 else batch.streams).append(tag)
        self._derived(batch, record, line, offset)

    def _derived(self, batch: Batch, record: Span | Event, line: bytes, offset: int) -> None:
        """Add the metrics line that a span or an event implies."""
        t, metric, value, reduce = derive_metric(record)
        schema = self._governing.derived_schema(metric, reduce)
        segment, step = self.reader.segment, record.step
        if step is None:
            batch.streams.append(Dense(_unplaced(record), t, offset, segment, schema, schema.pack(value)))
        else:
            batch.run(segment, schema).add(step, t, offset, schema.pack(value))
            batch.schemas.add(schema)
        if t > batch.newest_t:
            batch.newest_t = t

    def _sample(self, batch: Batch, record: Sample, line: bytes, offset: int) -> None:
        segment, step, t = self.reader.segment, record.step, record.t
        # It counts as a metrics record without metrics: the step was reached and the rank is present.
        schema = self._governing.derived_schema("", ())
        if step is None:
            step = _unplaced(record)
            batch.streams.append(SampleLine(step, t, offset, segment, record.table, record.score, record.pri))
            batch.streams.append(Dense(step, t, offset, segment, schema, b""))
        else:
            batch.samples.append(SampleLine(step, t, offset, segment, record.table, record.score, record.pri))
            batch.run(segment, schema).add(step, t, offset, b"")
            batch.schemas.add(schema)

    def _define(self, batch: Batch, record: Define, line: bytes, offset: int) -> None:
        for name, reason in record.dead:
            batch.dead.append(Dead(offset, reason, excerpt_of(line), name))
        if self._governing.define(record.m):
            self._forget()
            batch.governing.append((offset, line))

    def _barrier(self, batch: Batch, record: BarrierRecord, line: bytes, offset: int) -> None:
        first = not self.reader.segment and self.barrier_t is None and not self._barriers.steps
        self._barriers.adopts = self._barriers.adopts or (record.adopts and first)
        self._add_barrier(batch, record.step, record.t, offset)

    def _add_barrier(self, batch: Batch, step: int, t: float, offset: int) -> None:
        batch.begin(step, self.reader.segment)
        self._barriers.add(step, t, offset)

    def _rollback(self, batch: Batch, record: Rollback, line: bytes, offset: int) -> None:
        self._end_barriers(batch)
        self._spans.clear()
        self.barrier_t = None
        self._barriers = BarrierLines(self.reader.segment, None)
        batch.notes.append(Note("rollback", self.reader.segment, record.step, t=record.t))
        batch.governing.append((offset, line))

    def _end_barriers(self, batch: Batch) -> None:
        """Hand the segment's barrier records over to the batch."""
        barriers = self._barriers
        if barriers.steps:
            batch.barriers.append(barriers)
            # The highest barrier counts: a later one does not revoke an earlier promise.
            batch.notes.append(Note("barrier", barriers.segment, max(barriers.steps)))
            batch.newest_t = max(batch.newest_t, max(barriers.ts))
            self.barrier_t = barriers.ts[-1]

    def _gap(self, batch: Batch, record: GapRecord, line: bytes, offset: int) -> None:
        batch.notes.append(Note("gap", self.reader.segment, -1, record.gap, record.since))

    def _clock(self, batch: Batch, record: Clock, line: bytes, offset: int) -> None:
        batch.clocks.append(record)

    def _close(self, batch: Batch, record: Close, line: bytes, offset: int) -> None:
        if record.failed:
            batch.notes.append(Note("failure", self.reader.segment, -1, text=record.error or "an error"))
        elif not record.rolls:
            batch.notes.append(Note("close", self.reader.segment, -1, t=record.t))

    def _run(self, batch: Batch, record: RunRecord, line: bytes, offset: int) -> None:
        batch.notes.append(Note("run", self.reader.segment, -1, said=record))

    def _ledger(self, batch: Batch, record: Ledger, line: bytes, offset: int) -> None:
        segment = self.reader.segment
        batch.notes.append(Note("ledger", segment, -1, entered=LedgerLine(offset, segment, record)))

    def _unknown(self, batch: Batch, record: Unknown, line: bytes, offset: int) -> None:
        _count(batch, "unknown kinds")


# By the class of the record. A record of a class that is not here, such as `Beat`, counts by its time alone.
TAKERS: dict[type, Callable[[Decoder, Batch, Any, bytes, int], None]] = {
    Open: Decoder._open,
    Metrics: Decoder._metrics,
    Define: Decoder._define,
    Span: Decoder._derived,
    Event: Decoder._event,
    Sample: Decoder._sample,
    BarrierRecord: Decoder._barrier,
    Rollback: Decoder._rollback,
    GapRecord: Decoder._gap,
    Clock: Decoder._clock,
    Close: Decoder._close,
    RunRecord: Decoder._run,
    Ledger: Decoder._ledger,
    Unknown: Decoder._unknown,
}


def _unplaced(record: Metrics | Span | Event | Sample) -> int:
    """The step of a stream line."""
    return ON_PURPOSE if record.stream else UNPLACED


def _count_report(batch: Batch, record: Event) -> None:
    _count(batch, WRONG_USE)
    where, error = (record.attrs.get(name) for name in ("where", "error"))
    if isinstance(where, str) and isinstance(error, str) and error:
        said = error.startswith((f"{where}:", f"{where}("))  # many messages begin with the call
        text = f"{REPORTED}{error if said else f'{where}: {error}'}"[:MAX_REPORTED_CHARS]
        _count(batch, text.encode("utf-8", "replace").decode())


def _count(batch: Batch, what: str) -> None:
    batch.counts[what] = batch.counts.get(what, 0) + 1
