"""The lines of one file in the form of the vectors, by the pipeline and by the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlship_formats.reading import read_define, read_run
from rlship_formats.records import Definition, Open
from rlship_formats.values import Moments, Observations
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Batch, Dense, SampleLine, Sparse, TagLine, values_of
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.tail.tail import START, Descriptors, Tail
from tests.reference import lines as reference
from tests.reference import strict_json
from tests.reference.records import Entry, File, Measured, Writer
from tests.reference.values import DeadLetterError, is_step
from tests.reference.values import Moments as ReferenceMoments
from tests.spec.vectors import decimal

ALL = 1 << 62
FIGURES = ("w", "sum", "min", "max", "first", "last", "m2")

Said = dict[str, Any]


def by_pipeline(path: Path) -> Said:
    """What tail and decoder make of a file."""
    files = Descriptors(1, keep=False)
    tail, mark, decoder = Tail(str(path), files), START, Decoder(Schemas())
    found: list[Said] = []
    while True:
        piece = tail.read(mark, 1 << 16)
        for offset, line in zip(piece.offsets, piece.lines):
            found.append({"at": offset} | _decoded(decoder, line, offset))
        found += [{"at": offset, "dead": "line too long"} for offset, _ in piece.too_long]
        if piece.end == mark.offset and not piece.more:
            break
        mark = piece.position(piece.end)
    return {"lines": sorted(found, key=lambda said: said["at"]), "rest": piece.size - piece.end}


def _decoded(decoder: Decoder, line: bytes, offset: int) -> Said:
    batch = decoder.decode([line], [offset], max_steps=ALL, last_step=ALL)
    whole = [dead.reason for dead in batch.dead if dead.metric is None]
    if whole:
        return {"dead": whole[0]}
    if not line.strip(b" \t\r"):
        return {"ignored": "blank"}
    if "unknown kinds" in batch.counts:
        return {"ignored": "unknown kind"}
    record = strict_json.parse(line)
    said = _record(record, batch, decoder.t, decoder.segment)
    dead = [[dead.metric, dead.reason] for dead in batch.dead]
    return {"record": said} | ({"dead_values": dead} if dead else {})


def _record(record: Said, batch: Batch, t: float, segment: int) -> Said:
    kind = record.get("kind", "metrics")
    if batch.opened is not None:
        return _opened(dataclasses.asdict(batch.opened))
    said: Said = {"kind": kind, "t": decimal(t), "segment": segment}
    lines = [*batch.lines, *batch.samples, *batch.tags, *batch.streams]
    steps = {line.step for line in lines} | {mark.step for mark in batch.notes if mark.step >= 0}
    steps |= {step for run in batch.barriers for step in run.steps}
    if lines or steps:
        (step,) = steps
        said["step"] = None if step < 0 else step
    for line in lines:
        if isinstance(line, SampleLine):
            said |= {"table": line.table, "pri": decimal(line.pri)}
            said["score"] = None if line.score is None else decimal(line.score)
        elif isinstance(line, TagLine):
            said["tag"] = line.tag
        elif isinstance(line, (Dense, Sparse)) and kind != "sample":
            m = {value.metric: _observed(value.observations) for value in values_of(line)}
            m |= said.get("m", {})  # what no schema can hold stands in a line of its own
            said |= {"m": m} if kind == "metrics" else {"stands_for": {"t": decimal(line.t), "m": m}}
    for clock in batch.clocks:
        said |= {"offset": decimal(clock.offset), "err": decimal(clock.err)}
    if kind == "gap":
        (gap,) = (mark.gap for mark in batch.notes if mark.gap is not None)
        said |= {"n": gap.n, "from": gap.first, "to": gap.last}
        said.pop("step", None)
    if kind == "close":
        said["rolls"] = not [mark for mark in batch.notes if mark.kind == "close"]
    if kind == "define":
        said["m"] = {name: _entry(asks, asks.reduce or None) for name, asks in read_define(record, 0.0, None).m.items()}
    if kind == "run":
        said |= _run(read_run(record, 0.0, None)._asdict())
    for entry in batch.ledger:
        said |= _ledger(entry.record._asdict() | {"try": entry.record.retry, "d": entry.record.digests})
        said |= {"part": [entry.record.part, entry.record.parts]} if entry.record.parts > 1 else {}
        assert entry.segment == segment
    return said


def _observed(found: Observations) -> Said:
    if found.summary is not None:
        return _summary(found.summary, found.bins)
    return _values(list(found.xs), [1.0] * len(found.xs) if found.ws is None else list(found.ws), found.nonfinite)


def by_reference(data: bytes) -> Said:
    """What the reference makes of the bytes of a file."""
    file = File(None, [])
    reading = _Reading(file)
    found: list[Said] = []
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        found.append({"at": at} | reading.line(data[at:end], at))
        at = end + 1
    return {"lines": found, "rest": len(data) - at}


class _Reading:
    def __init__(self, file: File) -> None:
        self.file = file
        self.t = 0.0
        self.defines: dict[str, Entry] = {}
        self.unsupported = False

    def line(self, line: bytes, at: int) -> Said:
        if len(line) <= reference.LONGEST and not line.strip(b" \t\r"):
            return {"ignored": "blank"}
        dead_before = len(self.file.dead)
        try:
            body = reference.whole_object(line)
            said = self._open(body) if self._may_open(body) else self._later(body, at)
        except DeadLetterError as reason:
            return {"dead": str(reason)}
        dead = [[metric, reason] for _, reason, metric in self.file.dead[dead_before:]]
        return said | ({"dead_values": dead} if dead else {})

    def _may_open(self, body: Said) -> bool:
        return body.get("kind") == "open" and self.file.writer is None and not self.unsupported

    def _open(self, body: Said) -> Said:
        self.unsupported = reference.has_other_version(body)
        writer = self.file.writer = reference.opened("f", body)
        self.t = writer.t
        beat = body.get("beat")
        return {"record": _opened(vars(writer) | {"beat": beat})}

    def _later(self, body: Said, at: int) -> Said:
        writer, kind = self.file.writer, body.get("kind", reference.METRICS)
        if writer is None:
            raise DeadLetterError("no open record")
        if kind == "open":
            raise DeadLetterError("second open record")
        if kind not in reference.KNOWN:
            return {"ignored": "unknown kind"}
        measured, dead = _measured_count(writer), len(self.file.dead)
        self.t = reference.read_record(self.file, at, kind, body, self.t, self.defines)
        said = {"kind": body.get("kind", "metrics"), "t": decimal(self.t), "segment": writer.segments[-1].number}
        if _measured_count(writer) > measured:
            said |= _measured(said["kind"], writer.segments[-1].measured[-1])
        if kind in ("barrier", "rollback"):
            said["step"] = body["step"]
        if kind == "clock":
            told = writer.unproven if body.get("client_time") is True else writer.clocks
            said |= dict(zip(("offset", "err"), map(decimal, told[-1][1:])))
        if kind == "gap":
            n, first, last = writer.gaps[-1] if "from" in body else (writer.lost[-1][0], None, None)
            said |= {"n": n, "from": first, "to": last}
        if kind == "close":
            said["rolls"] = writer.closed is None
        if kind == "define":
            bad = {metric for _, _, metric in self.file.dead[dead:]}
            entries = {name: self.defines[name] for name in body["m"] if name not in bad}
            said["m"] = {name: _entry(entry, entry.reduce) for name, entry in entries.items()}
        if kind == "run":
            said |= _run(writer.runs[-1][1])
        if kind == "ledger":
            entered = writer.ledger[-1]
            said |= _ledger({"step": entered.step, "passes": 1} | entered.members)
            if entered.members.get("part", [0, 1])[1] > 1:
                said["part"] = entered.members["part"]
        return {"record": said}


def _measured_count(writer: Writer) -> int:
    return sum(len(segment.measured) for segment in writer.segments)


def _measured(kind: str, line: Measured) -> Said:
    assert line.step is None or is_step(line.step)
    said: Said = {"step": line.step}
    if line.sample is not None:
        score = line.sample.score if isinstance(line.sample.score, (int, float)) else None
        return said | {
            "table": line.sample.table,
            "pri": decimal(line.sample.pri),
            "score": None if score is None else decimal(score),
        }
    m = {
        name: _summary(found[0], line.bins[name]) if name in line.summaries else _partials(found)
        for name, found in line.values.items()
    }
    if line.tag is not None:
        said["tag"] = line.tag
    return said | ({"m": m} if kind == "metrics" else {"stands_for": {"t": decimal(line.t), "m": m}})


def _partials(found: list[ReferenceMoments]) -> Said:
    finite = [(one.first, one.w) for one in found if one.first is not None]
    return _values([x for x, _ in finite], [w for _, w in finite], sum(one.nonfinite for one in found))


# --- the form ---


def _values(xs: list[float], ws: list[float], nonfinite: int) -> Said:
    said: Said = {"x": [decimal(x) for x in xs]}
    if any(w != 1 for w in ws):
        said["w"] = [decimal(w) for w in ws]
    return said | ({"nonfinite": nonfinite} if nonfinite else {})


def _run(members: Said) -> Said:
    """The members of a run that say something."""
    lists = {name: list(members[name]) for name in ("tags", "dropped") if members.get(name) is not None}
    found = {name: value for name, value in members.items() if name != "t" and value not in (None, {})} | lists
    return {name: value for name, value in found.items() if name != "dropped" or value}


LEDGER = ("step", "hop", "key", "n", "by", "precision", "version", "mask", "response", "try", "passes", "why")


def _ledger(members: Said) -> Said:
    """The members of a `ledger` record that say something."""
    found = {name: members[name] for name in (*LEDGER, "fingerprint") if members.get(name) not in (None, "", (), [])}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    if members.get("d"):
        found["d"] = {name: list(pair) for name, pair in members["d"].items()}
    numbers = {name: [decimal(x) for x in members[name]] for name in ("reward", "advantage") if members.get(name)}
    return {name: value for name, value in found.items() if (name, value) not in (("try", 0), ("passes", 1))} | numbers


def _summary(partial: Moments | ReferenceMoments, bins: tuple[tuple[float, ...], tuple[int, ...]] | None) -> Said:
    told = {name: getattr(partial, name) for name in FIGURES}
    said: Said = {"n": partial.n}
    said |= {name: None if figure is None else decimal(figure) for name, figure in told.items()}
    return said if bins is None else said | {"edges": [decimal(edge) for edge in bins[0]], "counts": list(bins[1])}


def _entry(entry: Definition | Entry, reduce: tuple[str, ...] | None) -> Said:
    return {
        "reduce": None if reduce is None else list(reduce),
        "unit": entry.unit,
        "per_rank": entry.per_rank,
        "stream": entry.stream,
    }


OPEN_FIELDS: dict[str, Callable[[Any], Any]] = {
    "id": str,
    "actor": str,
    "replica": str,
    "rank": int,
    "world": lambda world: world,
    "attempt": int,
    "axis": str,
    "t": decimal,
    "beat": lambda beat: None if beat is None else decimal(beat),
    "parent": lambda parent: parent,
    "host": str,
}


def _opened(facts: Said) -> Said:
    named = {"job": facts["job"]} if facts["job"] is not None else {}
    return {"kind": "open"} | {name: form(facts[name]) for name, form in OPEN_FIELDS.items()} | named


UNSEEN = {"pid", "pid_space", "writer", "agent", "source", "job"}
assert {field.name for field in dataclasses.fields(Open)} - OPEN_FIELDS.keys() == UNSEEN
