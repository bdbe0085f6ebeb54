"""The decoder, with its shortcuts, makes of any file what `FileReader` says line by line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.reading import (
    Barrier,
    Clock,
    Close,
    DeadLetter,
    Define,
    Event,
    FileReader,
    GapRecord,
    Metrics,
    Rollback,
    Run,
    Sample,
    Span,
    Unknown,
    derive_metric,
)
from rlship_formats.records import CONFIG, Definition, Open
from rlship_formats.values import Observations
from rlship_sidecar.decode import bundles, governing, schemas
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import (
    ON_PURPOSE,
    UNPLACED,
    Adoption,
    Batch,
    Dense,
    SampleLine,
    Sparse,
    TagLine,
    values_of,
)
from rlship_sidecar.decode.schemas import Schemas
from tests.kit.cases import statistical
from tests.reference.snippets import BAD_OPENS, DEAD_LINES, IDLE_LINES

ALL = 1 << 62
OPEN = b'{"kind":"open","rlship":1,"id":"w","actor":"trainer","rank":0,"t":1763600000.0}'

Seen = tuple[Any, ...]


@dataclass
class Said:
    """What a file says, as plain tuples in file order. `lines` are (offset, what, segment, step, time, content)."""

    opened: Open | None = None
    lines: list[Seen] = field(default_factory=list)
    dead: list[Seen] = field(default_factory=list)
    marks: list[Seen] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    unknown: int = 0
    adoption: Adoption | None = None
    after: Seen = ()


def by_reader(lines: list[bytes]) -> Said:
    """By the definition, one line after the other."""
    said, reader = Said(), FileReader()
    defined: dict[str, Definition] = {}
    for offset, line in enumerate(lines):
        record = reader.read(line)
        segment = reader.segment
        if isinstance(record, DeadLetter):
            said.dead.append((offset, record.reason, None))
        elif isinstance(record, Open):
            said.opened = record
        elif isinstance(record, Unknown):
            said.unknown += 1
        elif isinstance(record, Metrics):
            found, dead = record.observed()
            said.dead += [(offset, reason, metric) for metric, reason in dead]
            values = tuple(sorted((metric, governed(defined, metric), plain(seen)) for metric, seen in found))
            said.lines.append((offset, "metrics", segment, placed(record), record.t, values))
        elif isinstance(record, (Span, Event)) and not is_about_writer(record):
            if isinstance(record, Event) and record.tag:
                said.lines.append((offset, "tag", segment, placed(record), record.t, record.tag))
            t, metric, value, reduce = derive_metric(record)
            one = (metric, governed(defined, metric, reduce), plain(Observations((value,), None, 0)))
            said.lines.append((offset, "metrics", segment, placed(record), t, (one,)))
        elif isinstance(record, Sample):
            facts = (record.table, record.score, record.pri)
            said.lines.append((offset, "sample", segment, placed(record), record.t, facts))
            said.lines.append((offset, "metrics", segment, placed(record), record.t, ()))
        elif isinstance(record, Define):
            said.dead += [(offset, reason, metric) for metric, reason in record.dead]
            defined |= record.m
        elif isinstance(record, Barrier):
            said.adoption = said.adoption or adoption(said, record, segment, offset)
            said.lines.append((offset, "barrier", segment, record.step, record.t, None))
        else:
            note(said, segment, record)
    said.after = (reader.t, reader.segment, reader.unsupported)
    return said


def note(said: Said, segment: int, record: object) -> None:
    """Take in a record that is about its writer."""
    if isinstance(record, Rollback):
        said.marks.append(("rollback", segment, record.step, None, record.t))
    elif isinstance(record, GapRecord):
        said.marks.append(("gap", segment, -1, record.gap, record.since))
    elif isinstance(record, Close) and not record.rolls:
        said.marks.append(("close", segment, -1, None, record.t))
    elif isinstance(record, Clock):
        said.clocks.append(record)
    elif isinstance(record, Run):
        said.runs.append(record)
    elif isinstance(record, Event) and record.name == CONFIG:
        said.runs.append(Run(record.t, record.attrs, {}, {}))


def is_about_writer(record: Span | Event) -> bool:
    """Whether it is about the writer, and so no line."""
    return isinstance(record, Event) and record.is_about_writer


def adoption(said: Said, record: Barrier, segment: int, offset: int) -> Adoption | None:
    """What a barrier adopts, if it is the first of its file, and no rollback stands before it."""
    first = not segment and not any(line[1] == "barrier" for line in said.lines)
    return Adoption(record.step, offset) if record.adopts and first else None


def placed(record: Metrics | Span | Event | Sample) -> int:
    """The step of a line as the decoder has it."""
    if record.step is not None:
        return record.step
    return ON_PURPOSE if record.stream else UNPLACED


def governed(defined: dict[str, Definition], metric: str, reduce: tuple[str, ...] = ()) -> Definition:
    """What governs a metric where the catalogue knows nothing: its latest entry, else the kind's own reductions."""
    asks = defined.get(metric, Definition(()))
    return asks._replace(reduce=asks.reduce or reduce or Definition().reduce, asked=bool(asks.reduce))


def plain(seen: Observations) -> str:
    """Observations by their bits: `repr` tells -0.0 from 0.0."""
    return repr((tuple(seen.xs), None if seen.ws is None else tuple(seen.ws), seen.nonfinite, seen.summary))


def by_decoder(lines: list[bytes], pieces: list[int]) -> Said:
    """By the decoder, in batches of so many lines, the last number again and again."""
    said, decoder, at = Said(), Decoder(Schemas()), 0
    while at < len(lines):
        size = pieces.pop(0) if len(pieces) > 1 else pieces[0]
        part = lines[at : at + size]
        batch = decoder.decode(part, range(at, at + len(part)), max_steps=ALL, last_step=ALL)
        assert batch.consumed == len(part)
        add(said, batch)
        at += batch.consumed
    said.lines.sort(key=lambda line: (line[0], line[1] == "metrics"))
    reader = decoder.reader
    said.after = (reader.t, reader.segment, reader.unsupported)
    return said


def add(said: Said, batch: Batch) -> None:
    said.opened = batch.opened or said.opened
    loose: set[int] = set()  # lines of which a part has a loose schema
    for line in (*batch.lines, *batch.streams, *batch.samples, *batch.tags):
        content: Any
        if isinstance(line, (Dense, Sparse)):
            what, content = "metrics", tuple(sorted((v.metric, v.asks, plain(v.observations)) for v in values_of(line)))
            loose.update([line.offset] if isinstance(line, Dense) and line.schema.loose else [])
            beside = said.lines[-1] if (isinstance(line, Sparse) or line.offset in loose) and said.lines else None
            if beside is not None and beside[:2] == (line.offset, "metrics"):  # the packed part of the same line
                said.lines[-1] = (*beside[:5], tuple(sorted(beside[5] + content)))
                continue
        elif isinstance(line, SampleLine):
            what, content = "sample", (line.table, line.score, line.pri)
        else:
            assert isinstance(line, TagLine)
            what, content = "tag", line.tag
        said.lines.append((line.offset, what, line.segment, line.step, line.t, content))
    said.adoption = said.adoption or batch.adoption
    for barriers in batch.barriers:
        said.lines += [(at, "barrier", barriers.segment, step, t, None) for step, t, at, _ in barriers.each()]
    said.dead += [(dead.offset, dead.reason, dead.metric) for dead in batch.dead]
    said.marks += [(m.kind, m.segment, m.step, m.gap, m.t) for m in batch.notes if m.kind not in ("barrier", "run")]
    said.runs += batch.said
    said.clocks += batch.clocks
    said.unknown += batch.counts.get("unknown kinds", 0)


TIMES = ("", "", '"t":{t},', '"t":{t}.25,', '"t":{t}.25,', '"t":{t}.25,', '"t":1,', '"t":null,', '"t":true,')
STEPS = ("", '"step":{step},', '"step":{step},', '"step":{step},', '"step":null,', '"step":-1,', '"step":2.0,')
BODIES = (
    *('"m":{{"a":{x}}}',) * 4,
    *('"m":{{"a":{x},"b":1}}',) * 2,
    '"m":{{"a":[{x},null,"NaN"],"b":1}}',
    '"m":{{"a":{{"v":[{x}],"w":[2]}},"":1,"b":"x"}}',
    '"m":{{"a":{{"n":2,"sum":{x}}}}}',
    '"m":{{"a":{{"n":4294967297}},"b":{x}}}',
    '"m":{{"a":{{"n":4294967297,"sum":{x}}}}}',
    '"m":{{"b":{{"v":["NaN"],"w":[0]}},"a":{{"n":2,"m2":{x}}}}}',
    '"m":{{"b":1,"a":true}}',
    '"m":{{"a\\n":{x}}}',
    '"m":{{}}',
    '"m":7',
    '"kind":"barrier","x":1',
    '"kind":"barrier","adopts":true',
    '"stream":true,"m":{{"a":{x}}}',
    '"stream":true,"m":{{"a":[{x},1]}}',
    '"kind":"event","name":"e","stream":true',
    '"kind":"event","name":"rlship_error"',
    '"kind":"rollback","x":1',
    '"kind":"span","name":"s","dur":2.5',
    '"kind":"span","name":"","dur":1',
    '"kind":"event","name":"e"',
    '"kind":"event","name":"step_tag","attrs":{{"tag":"x"}}',
    '"kind":"sample","table":"r","pri":0.5,"row":{{}},"score":{x}',
    '"kind":"sample","table":"r","pri":0.5,"row":{{}},"score":"NaN"',
    '"kind":"define","m":{{"a":{{"reduce":"max"}},"b":5}}',
    '"kind":"define","m":{{"s_s":{{"reduce":["p50"],"unit":"s"}},"event/e":{{}}}}',
    '"kind":"gap","n":2,"from":1,"to":3',
    '"kind":"gap","n":2',
    '"kind":"clock","offset":-1,"err":0.5',
    '"kind":"clock","offset":-1,"err":0.5,"client_time":true',
    '"kind":"beat","x":1',
    '"kind":"close","reason":"roll"',
    '"kind":"close","x":1',
    '"kind":["later"]',
)
NUMBERS = st.sampled_from(("0", "-0.0", "0.1", "1e400", "9007199254740993", "18446744073709551616", "7"))


def record(time: str, step: str, body: str, t: int, number: int, x: str) -> bytes:
    return ("{" + (time + step + body).format(t=1763600000 + t, step=number, x=x) + "}").encode()


RECORDS = st.builds(
    record,
    st.sampled_from(TIMES),
    st.sampled_from(STEPS),
    st.sampled_from(BODIES),
    st.integers(0, 9),
    st.integers(0, 3),
    NUMBERS,
)
# As the Python writer writes them: what the shortcuts are for.
COMMON = st.builds(
    lambda shape, t, step, x: shape.format(t=1763600000 + t, step=step, x=x).encode(),
    st.sampled_from(
        (
            '{{"t":{t}.5,"step":{step},"m":{{"a":{x}}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"a":{x},"b":1.5}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"a":"NaN","b":1.5}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"b":{x}}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"c":{x}}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"b":{x},"a":2,"c":"NaN"}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"a":{{"v":[{x}],"w":[0.5]}},"b":{x}}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"a":{{"v":["Infinity",{x}],"w":[0,2]}},"b":1}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"a":[{x},1.5],"b":{{"v":[{x}],"w":[2]}}}}}}',
            '{{"t":{t}.5,"step":{step},"m":{{"a":{{"n":3,"sum":{x}}},"b":[{x}]}}}}',
            '{{"t":{t}.5,"m":{{"a":{{"v":[{x}],"w":[0.5]}},"b":{x}}}}}',
            *(
                '{{"kind":"span","t":{t}.500000,"dur":{x},"step":{step},"name":"s","lane":"main"}}',
                '{{"kind":"span","t":{t}.500000,"dur":2.5,"step":{step},"name":"s","lane":"main"}}',
                '{{"kind":"span","t":{t}.500000,"dur":2.5,"step":{step},"name":"other","lane":"main"}}',
                '{{"kind":"span","t":{t}.500000,"dur":2.5,"name":"s","lane":"main"}}',
                '{{"kind":"span","t":{t}.5,"dur":1e9,"step":{step},"name":"s","err":"Error"}}',
                '{{"kind":"span","t":{t}.5,"dur":1,"name":"s"}} {{"kind":"span","t":{t},"dur":1,"name":"s"}}',
                '{{"kind":"span","t":{t}.5,"dur":1,"step":{step},"name":"\\ud800"}}',
            ),
            '{{"kind":"barrier","step":{step},"t":{t}.75}}',
        )
    ),
    st.integers(0, 9),
    st.integers(0, 3),
    NUMBERS,
)
DAMAGED = st.builds(
    lambda line, place, piece: line[: place % len(line)] + piece + line[place % len(line) + len(piece) :],
    st.one_of(RECORDS, COMMON),
    st.integers(0, 200),
    st.sampled_from((b"", b"x", b'"', b"\x00", b"}", b" ", b"9", b"-", b"\xff")),
)
OTHERS = st.sampled_from((*DEAD_LINES, *IDLE_LINES, *BAD_OPENS, OPEN))
ANY = st.one_of(RECORDS, DAMAGED, OTHERS)
ONE = ANY.map(lambda line: [line])
DEFINES = st.sampled_from([body.format(x=1) for body in BODIES if '"define"' in body]).map(
    lambda body: ("{" + body + "}").encode()
)
# A run of one line, something else, and the line again: the shortcut must notice what has changed.
RUNS = st.tuples(COMMON, st.integers(1, 4), st.one_of(DEFINES, DEFINES, ANY), st.integers(0, 2)).map(
    lambda drawn: [drawn[0]] * drawn[1] + [drawn[2]] + [drawn[0]] * drawn[3]
)


@st.composite
def cycles(draw: st.DrawFn) -> list[bytes]:
    """Steps of lines of single metrics, or of spans, always in one order; sometimes one is damaged, or another line."""
    names = draw(st.lists(st.sampled_from("abcde"), min_size=2, max_size=4))
    shape = draw(st.sampled_from(('{{"t":{t}.5,"step":{step},"m":{{"{name}":{x}}}}}',) * 3 + (SPANNED,)))
    lines = [
        shape.format(t=1763600000 + step, step=step, name=name, x=draw(LITERALS)).encode()
        for step in range(draw(st.integers(2, 5)))
        for name in (*names, "")
    ]
    barrier = '{{"kind":"barrier","step":{step},"t":{t}.75}}'
    for place in range(len(names), len(lines), len(names) + 1):
        step = place // (len(names) + 1)
        lines[place] = barrier.format(step=step, t=1763600000 + step).encode()
    if draw(st.booleans()):
        lines[draw(st.integers(0, len(lines) - 1))] = draw(st.one_of(COMMON, DAMAGED))
    return lines


SPANNED = '{{"kind":"span","t":{t}.500000,"dur":{x},"step":{step},"name":"{name}","lane":"main"}}'
LITERALS = st.sampled_from(("0.5", "1", "-0.0", "0.1", "2.5", '"NaN"', "7"))
OPENINGS = st.sampled_from(([OPEN], [OPEN], [OPEN], [], [b'{"kind":"open","rlship":2,"id":"a","actor":"b"}', OPEN]))
FILES = st.tuples(OPENINGS, st.lists(st.one_of(RUNS, RUNS, cycles(), ONE), max_size=14)).map(
    lambda drawn: [*drawn[0], *(line for lines in drawn[1] for line in lines)]
)


FEW = st.sampled_from((4, 2))  # lines of so many metrics are laid together, and so many sets of metrics are varied


@statistical(400)
@given(lines=FILES, pieces=st.lists(st.integers(1, 30), min_size=1, max_size=5), few=FEW)
def test_the_decoder_says_what_the_reader_says(lines: list[bytes], pieces: list[int], few: int) -> None:
    """Mixed records of every kind, damaged lines and inherited times, in batches of any size: the same lines with the
    same bits, governed by the same entries; the same dead letters and dead values; the same state at the end. The order
    of a line's metrics does not count.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "FEWEST", few)
        patch.setattr(schemas, "OFTEN", few - 1)
        patch.setattr(governing, "OVERLAPPING", few)
        patch.setattr(governing, "LEAST", few // 2)
        assert by_decoder(lines, pieces) == by_reader(lines)
