"""Lines of one file to plain data: no I/O, no clock.

The common line, one number per metric and the same metrics as the line before, is packed into doubles at once
(`Dense`); others keep their observations (`Sparse`). Both carry what the reducer needs and nothing of the JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from rlship_formats.records import (
    KNOWN_KINDS,
    MAX_STEP,
    T_MAX,
    T_MIN,
    BadRecord,
    Open,
    UnsupportedVersion,
    is_step,
    parse_clock,
    parse_define,
    parse_gap,
    parse_open,
    time_of,
)
from rlship_formats.standing import STANDING, WRONG_USE, stands_for
from rlship_formats.values import DeadValue, observe
from rlship_sidecar.decode.governing import Governing
from rlship_sidecar.decode.lines import (
    BarrierLines,
    Batch,
    ClockRecord,
    Dead,
    Dense,
    Mark,
    NotDense,
    SampleLine,
    Schema,
    Sparse,
    TagLine,
    Value,
    as_json,
    excerpt_of,
)
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.decode.usual import COMMON, Pace, read_barrier, take_usual

_METRICS = object()  # stands for "no kind": a metrics record
_STEPPED = ("barrier", "rollback")  # kinds that are of no use without a step


class Decoder:
    """What a file's lines leave behind: who opened it, the segment, the last `t` and what was defined so far."""

    __slots__ = ("_barriers", "_governing", "_last", "_usual", "barrier_t", "foreign", "opened", "segment", "t")

    def __init__(self, schemas: Schemas) -> None:
        self._governing = Governing(schemas)
        self._last: Schema | None = None  # of the last dense line
        self._usual: Schema | None = None  # two dense lines in a row had it: the next is expected to
        self.opened: Open | None = None
        self.foreign = False  # the file says that it is of another format version: none of its lines can be used
        self.segment = 0
        self.t = 0.0
        self.barrier_t: float | None = None  # of the segment's last barrier record, but for those under way:
        self._barriers = BarrierLines(0, None)

    def decode(
        self, lines: Sequence[bytes], offsets: Sequence[int], *, max_steps: int, last_step: int, together: int = 1
    ) -> Batch:
        """Decode lines that begin at `offsets`; stop before a metrics line beyond `last_step`, or once `max_steps`
        changes of step were seen. At least the first `together` lines are consumed.
        """
        batch = Batch()
        add_sparse = batch.sparse.append
        add_stream = batch.streams.append
        governing = self._governing
        by_names, by_stream = governing.by_names, governing.by_stream
        t = self.t
        newest_t = 0.0
        at, count = 0, len(lines)
        pace = Pace(last_step, max_steps, together)
        barriers = self._barriers = BarrierLines(self.segment, self.barrier_t)
        opened = self.opened is not None
        new = tuple.__new__  # a named tuple's own constructor costs as much as the rest of a short line
        usual, last = self._usual, self._last
        step: Any
        stamp: Any
        while at < count:
            if usual is not None and lines[at].startswith(COMMON):
                at, t = take_usual(usual, lines, offsets, at, batch, barriers, pace, t)
                if pace.full or at == count:
                    break
                if lines[at].startswith(COMMON):
                    usual = last = None
            line, offset = lines[at], offsets[at]
            ended = read_barrier(line) if opened else None
            if ended is not None:
                step, t = ended
                batch.begin(step, self.segment)
                barriers.add(step, t, offset)
                at += 1
                continue
            try:
                record = orjson.loads(line)
            except ValueError:
                if line.strip(b" \t\r"):
                    batch.dead.append(Dead(offset, "not JSON", excerpt_of(line)))
                at += 1
                continue
            if type(record) is dict and opened:
                step = record.get("step")
                kind = record.get("kind", _METRICS)
                if kind is _METRICS:
                    metrics = record.get("m")
                    if type(step) is int and type(metrics) is dict and 0 <= step <= MAX_STEP:
                        if step != pace.step:
                            if pace.refuses(step, first=at < together):
                                break
                            batch.saw(step, self.segment)
                        stamp = record.get("t")
                        if type(stamp) is float and T_MIN <= stamp <= T_MAX:
                            t = stamp
                        else:
                            before, t = t, time_of(record, t)
                            batch.inherited_t += t == before
                        if t > newest_t:
                            newest_t = t
                        names = tuple(metrics)
                        schema = by_names.get(names) or governing.schema(names)
                        try:
                            data = schema.pack(*metrics.values())
                        except (NotDense, OverflowError):
                            add_sparse(self._sparse(batch, metrics, step, t, offset))
                        else:
                            batch.run(self.segment, schema).add(step, t, offset, data)
                            if schema is last:
                                usual = schema
                            else:
                                batch.schemas.add(schema)
                            last = schema
                        at += 1
                        continue
                    if step is None and type(metrics) is dict and "step" not in record:
                        stamp = record.get("t")
                        if type(stamp) is float and T_MIN <= stamp <= T_MAX:
                            t = stamp
                        else:
                            t = time_of(record, t)
                        if t > newest_t:
                            newest_t = t
                        names = tuple(metrics)
                        schema = by_stream.get(names) or governing.stream_schema(names)
                        try:
                            data = schema.pack(*metrics.values())
                        except (NotDense, OverflowError):
                            add_stream(self._sparse(batch, metrics, -1, t, offset))
                        else:
                            add_stream(new(Dense, (-1, t, offset, self.segment, schema, data)))
                        at += 1
                        continue
                elif kind == "barrier" and type(step) is int and 0 <= step <= MAX_STEP:
                    stamp = record.get("t")
                    if type(stamp) is float and T_MIN <= stamp <= T_MAX:
                        t = stamp
                    else:
                        before, t = t, time_of(record, t)
                        batch.inherited_t += t == before
                    batch.begin(step, self.segment)
                    barriers.add(step, t, offset)
                    at += 1
                    continue
                elif type(kind) is str and kind in STANDING and type(step) is int and 0 <= step <= MAX_STEP:
                    if pace.refuses(step, first=at < together):
                        break
                    before, stamp = t, time_of(record, t)
                    try:
                        schema, ended_t, data = self._standing(batch, kind, record, offset, stamp)
                    except BadRecord as bad:
                        batch.dead.append(Dead(offset, str(bad), excerpt_of(line)))
                        pace.step = -1  # a line that cannot be used has no step: the next one's was not seen yet
                    else:
                        batch.saw(step, self.segment)
                        batch.inherited_t += stamp == before
                        t = stamp
                        if ended_t > newest_t:
                            newest_t = ended_t
                        batch.run(self.segment, schema).add(step, ended_t, offset, data)
                        batch.schemas.add(schema)
                    at += 1
                    continue
            self.t, self._usual, self._last = t, usual, last
            self._other(batch, record, line, offset)
            t, usual, last = self.t, self._usual, self._last
            opened, barriers = self.opened is not None, self._barriers
            if t > newest_t:
                newest_t = t
            at += 1
        self._end_barriers(batch)
        self.t, self._usual, self._last = t, usual, last
        batch.newest_t = max(batch.newest_t, newest_t)
        batch.consumed = at
        return batch

    def _end_barriers(self, batch: Batch) -> None:
        """The batch has all barrier records of the segment that it will have."""
        barriers = self._barriers
        if barriers.steps:
            batch.barriers.append(barriers)
            # The highest counts: a later one takes back no earlier promise.
            batch.marks.append(Mark("barrier", barriers.segment, max(barriers.steps)))
            batch.newest_t = max(batch.newest_t, max(barriers.ts))
            self.barrier_t = barriers.ts[-1]

    def restore(self, opened: Open, t: float, barrier_t: float | None, marks: Sequence[bytes]) -> None:
        """Take the state that the file had at some offset: its open record, the `t` there, that of the segment's last
        barrier record, and the define and rollback lines before it.
        """
        self.opened, self.t, self.barrier_t, self.segment = opened, t, barrier_t, 0
        self._usual = self._last = None
        self._governing.begin(opened.actor)
        self._keep(marks)
        self.t = t

    def follow(self, batch: Batch, t: float, barrier_t: float | None) -> None:
        """Take the state that another decoder of this file had after a batch, which this one was to decode next."""
        self.t, self.barrier_t = t, barrier_t
        self._keep([line for _, line in batch.kept])

    def _keep(self, marks: Sequence[bytes]) -> None:
        for line in marks:
            record = orjson.loads(line)
            if record["kind"] == "define":
                self._governing.define(parse_define(record)[0])
                self._usual = self._last = None
            else:
                self.segment += 1

    def _sparse(self, batch: Batch, metrics: dict[str, Any], step: int, t: float, offset: int) -> Sparse:
        values = []
        governing = self._governing
        for name, value in metrics.items():
            try:
                if not name:
                    raise DeadValue("bad value")
                observations = observe(value)
            except DeadValue as dead:
                batch.dead.append(Dead(offset, str(dead), excerpt_of(as_json(name) + b": " + as_json(value)), name))
                continue
            if observations is not None:
                values.append(Value(name, governing.of(name), observations))
                if step >= 0:
                    batch.names.add(name)
        return Sparse(step, t, offset, self.segment, tuple(values))

    def _other(self, batch: Batch, record: Any, line: bytes, offset: int) -> None:
        """Every line but the common one: known kinds, and whatever is wrong with a metrics line."""
        try:
            if not isinstance(record, dict):
                raise BadRecord("not an object")
            kind = record.get("kind", _METRICS)
            if kind == "open":
                self._open(batch, record, offset)
            elif self.opened is None:
                raise BadRecord("no open record")
            elif kind is not _METRICS and (not isinstance(kind, str) or kind not in KNOWN_KINDS):
                batch.counts["unknown kinds"] = batch.counts.get("unknown kinds", 0) + 1
            else:
                self._known(batch, kind, record, line, offset)
                self.t = time_of(record, self.t)
        except BadRecord as bad:
            batch.dead.append(Dead(offset, str(bad), excerpt_of(line)))

    def _open(self, batch: Batch, record: dict[str, Any], offset: int) -> None:
        if self.opened is not None:
            raise BadRecord("second open record")
        if self.foreign:
            raise BadRecord("no open record")
        try:
            self.opened = batch.opened = parse_open(record)
        except UnsupportedVersion:
            self.foreign = True
            raise
        batch.opened_at = offset
        self.t = self.opened.t
        self._governing.begin(self.opened.actor)

    def _known(self, batch: Batch, kind: Any, record: dict[str, Any], line: bytes, offset: int) -> None:
        if kind in _STEPPED or "step" in record:
            step = record.get("step")
            if not is_step(step):
                raise BadRecord("bad step")
        if kind is _METRICS:
            raise BadRecord("bad metrics")
        if kind == "rollback":
            self._end_barriers(batch)
            self.segment += 1
            self.barrier_t = None
            self._barriers = BarrierLines(self.segment, None)
            batch.marks.append(Mark("rollback", self.segment, record["step"], t=time_of(record, self.t)))
            batch.kept.append((offset, line))
        elif kind == "define":
            self._define(batch, record, line, offset)
        elif kind == "gap":
            batch.marks.append(Mark("gap", self.segment, -1, parse_gap(record), self.t))
        elif kind == "close":
            if record.get("reason") != "roll":
                batch.marks.append(Mark("close", self.segment, -1, t=time_of(record, self.t)))
        elif kind == "clock":
            batch.clocks.append(ClockRecord(time_of(record, self.t), *parse_clock(record)))
        elif kind in STANDING:
            schema, ended_t, data = self._standing(batch, kind, record, offset, time_of(record, self.t))
            if kind == "event" and record["name"] == WRONG_USE:
                batch.counts[WRONG_USE] = batch.counts.get(WRONG_USE, 0) + 1
            batch.newest_t = max(batch.newest_t, ended_t)
            batch.streams.append(Dense(-1, ended_t, offset, self.segment, schema, data))

    def _standing(
        self, batch: Batch, kind: str, record: dict[str, Any], offset: int, t: float
    ) -> tuple[Schema, float, bytes]:
        """The metrics line that a span, event or sample stands for: schema, time, packed values. Raises BadRecord."""
        stands = stands_for(kind, record, t)
        step = record.get("step", -1)
        if stands.tag:
            tag = TagLine(step, t, offset, self.segment, stands.tag)
            (batch.tags if step >= 0 else batch.streams).append(tag)
        if stands.sample is not None:
            sample = SampleLine(step, t, offset, self.segment, *stands.sample)
            (batch.samples if step >= 0 else batch.streams).append(sample)
        schema = self._governing.standing_schema(kind, stands.metric, stands.reduce)
        return schema, stands.t, schema.pack(stands.value) if stands.metric else b""

    def _define(self, batch: Batch, record: dict[str, Any], line: bytes, offset: int) -> None:
        asked, bad = parse_define(record)
        for name in bad:
            batch.dead.append(Dead(offset, "bad define", excerpt_of(line), name))
        if self._governing.define(asked):
            self._usual = self._last = None
            batch.kept.append((offset, line))
