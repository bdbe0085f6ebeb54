"""The quick way to read lines whose metrics are known, and barrier records, gives what the general way gives."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.reading import FileReader, Metrics
from rlship_formats.records import MAX_STEP, Definition, Open, is_step, time_of
from rlship_formats.values import Observations
from rlship_sidecar.decode import decoder, schemas
from rlship_sidecar.decode.decoder import BatchLimit, Decoder, Habits, read_barrier, take_usual
from rlship_sidecar.decode.lines import BarrierLines, Batch, Dense, Schema, chain_parser, values_of
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.decode.shapes import PLAIN, SUMMARY, order_of_shapes
from tests.kit.cases import number

ASKS = (Definition(), Definition())
NAMES = ("a", "b/ü")
EDGES = [
    "0",
    "-0",
    "0.0",
    "-0.0",
    "1E5",
    "1e400",
    "-1e400",
    "1.7976931348623159e308",
    "5e-324",
    "2.4703282292062327e-324",
    "2.4703282292062328e-324",
    "9007199254740993",
    "18446744073709551616",
    "-9223372036854775809",
    "123456789012345678901234567890",
    "0e999999",
    "1e23",
    "2.2250738585072011e-308",
    "1.",
    "01",
    ".5",
    "+1",
    "NaN",
    "Infinity",
    "true",
    "null",
    "[1]",
    "{}",
    '"1"',
    "7.2057594037927933e16",
]


OPEN = b'{"kind":"open","rlship":1,"id":"w","actor":"trainer","rank":0,"t":1763600000.0}'


Found = tuple[int, float, list[str]]


def quick(line: bytes, shapes: tuple[int, ...] = (PLAIN, PLAIN)) -> Found | None:
    """A line as the quick way reads it that expects values of these shapes; None where it declines."""
    order = order_of_shapes(shapes)
    schema = Schema(tuple(NAMES[at] for at in order), ASKS, tuple(shapes[at] for at in order))
    habits = Habits()
    habits.note(schema)
    habits.note(schema)
    batch = Batch()
    taken, _ = take_usual(habits, [line], [0], 0, batch, BarrierLines(0, None), BatchLimit(MAX_STEP, 1), 0.0)
    if not taken:
        assert not batch.lines
        return None
    (found,) = batch.lines
    assert isinstance(found, Dense) and (batch.newest_t, batch.begins) == (found.t, found.step)
    values = found.schema.values(found.data)
    return found.step, found.t, sorted(f"{value.metric}: {plain(value.observations)}" for value in values)


def general(line: bytes) -> Found | None:
    """A line by the definition; None if something of it is unusable, or if it inherits its time."""
    record = FileReader(Open("w", "trainer")).read(line)
    if not isinstance(record, Metrics) or record.step is None or record.m.keys() != set(NAMES) or not record.t:
        return None
    observed, dead = record.observed()
    if dead or len(observed) < len(NAMES):
        return None
    return record.step, record.t, sorted(f"{metric}: {plain(found)}" for metric, found in observed)


def plain(observations: Observations) -> str:
    """Observations by their bits."""
    xs, ws, nonfinite, summary, bins = observations
    return repr((list(xs), None if ws is None else list(ws), nonfinite, summary, bins))


def literals(source: random.Random) -> str:
    """A number in one of the ways that JSON has, or something else."""
    whole = str(source.getrandbits(source.choice((1, 53, 63, 64, 65, 200))))
    shapes = (
        source.choice(EDGES),
        repr(struct.unpack("d", source.randbytes(8))[0]),
        "-" + whole,
        f"{whole}.{source.getrandbits(source.choice((1, 64)))}e{source.randint(-330, 310)}",
    )
    return source.choice(shapes)


def damaged(line: bytes, source: random.Random) -> bytes:
    """The line with one to three bytes changed, added or gone."""
    found = bytearray(line)
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(found))
        found[place : place + source.randint(0, 1)] = bytes(source.choices(b'{}[]:,"019.eE-+ \t\x00\xff\\uab', k=1))
    return bytes(found)


def value_of(shape: int, source: random.Random) -> str:
    """A value of a shape, as writers write it."""

    def some(count: int) -> str:
        return ",".join(literals(source) if source.random() < 0.7 else '"NaN"' for _ in range(count))

    if shape == PLAIN:
        return some(1)
    if shape > 0 and shape != SUMMARY:
        return f"[{some(shape)}]"
    if shape < 0:
        return f'{{"v":[{some(-shape)}],"w":[{",".join(source.choice(WEIGHTS) for _ in range(-shape))}]}}'
    fields = [name for name in ("w", "sum", "m2", "min", "max", "first", "last") if source.random() < 0.5]
    members = [f'"{name}":{literals(source)}' for name in fields]
    members.insert(source.randint(0, len(members)), f'"n":{source.choice(COUNTS)}')
    return "{" + ",".join(members) + "}"


WEIGHTS = ("0", "1", "0.5", "-0.0", "512", "1e-3", "-1", "true", "null", '"NaN"')
COUNTS = ("1", "2", "32", "4294967296", "4294967297", "0", "-1", "1.0", "true", "null")
TYPICAL = [(PLAIN, PLAIN), (-1, PLAIN), (PLAIN, -1), (-1, -1), (4, 1), (-3, 2), (SUMMARY, PLAIN), (SUMMARY, -1)]


@pytest.mark.statistical
@pytest.mark.parametrize("shapes", TYPICAL)
def test_what_is_taken_is_read_alike(shapes: tuple[int, int]) -> None:
    """Whatever line the quick way takes, sound or damaged, comes to the same bits as by the definition."""
    source = random.Random(repr(shapes))
    taken = 0
    for _ in range(number(10_000)):
        values = f'{{"a":{value_of(shapes[0], source)},"b/ü":{value_of(shapes[1], source)}}}'
        data = f'{{"t":1763600000.5,"step":{source.randint(0, 99)},"m":{values}}}'.encode()
        if source.random() < 0.3:
            data = damaged(data, source)
        found = quick(data, shapes)
        if found is not None:
            taken += 1
            assert found == general(data), data
    assert taken > number(200)


@pytest.mark.parametrize(
    "line",
    [
        f'{{"t":1763600000.5,"step":{MAX_STEP + 1},"m":{{"a":1,"b/ü":2}}}}',
        '{"t":1763600000.5,"step":-1,"m":{"a":1,"b/ü":2}}',
        '{"t":1763600000.5,"step":true,"m":{"a":1,"b/ü":2}}',
        '{"t":5,"step":1,"m":{"a":1,"b/ü":2}}',
        '{"t":1763600000.5,"step":1,"m":{"a":1}}',
        '{"t":1763600000.5,"step":1,"m":{"a":1,"b/ü":2,"c":3}}',
        '{"t":1763600000.5,"step":1,"kind":"event","m":{"a":1,"b/ü":2}}',
        '{"t":1763600000.5,"step":1,"m":{"a":true,"b/ü":2}}',
    ],
)
def test_other_lines_are_declined(line: str) -> None:
    """A line with a step, time, kind, value or metric that is out of the ordinary is left to the general way."""
    assert quick(line.encode()) is None


def test_a_define_governs_lines_that_look_as_before() -> None:
    """A define between lines of the same metrics changes what is asked for, also where the quick way reads them."""
    lines = [
        b'{"kind":"open","rlship":1,"id":"w","actor":"trainer","rank":0,"t":1763600000.0}',
        *(b'{"t":1763600000.5,"step":%d,"m":{"a":1.5}}' % step for step in range(4)),
        b'{"kind":"define","m":{"a":{"reduce":"max"}}}',
        *(b'{"t":1763600000.5,"step":%d,"m":{"a":1.5}}' % step for step in range(4, 8)),
    ]
    batch = Decoder(Schemas()).decode(lines, list(range(len(lines))), max_steps=99, last_step=99)
    asked = [line.schema.asks for line in batch.lines if isinstance(line, Dense)]
    assert asked == [(Definition(("mean",)),)] * 4 + [(Definition(("max",), asked=True),)] * 4


def test_a_name_that_json_escapes_is_read() -> None:
    """A metric whose name JSON writes escaped takes the general way, line after line."""
    lines = [b'{"kind":"open","rlship":1,"id":"w","actor":"trainer","rank":0,"t":1763600000.0}']
    lines += [b'{"t":1763600000.5,"step":%d,"m":{"a\\"\\n":1.5}}' % step for step in range(4)]
    batch = Decoder(Schemas()).decode(lines, list(range(len(lines))), max_steps=99, last_step=99)
    assert [line.schema.names for line in batch.lines if isinstance(line, Dense)] == [('a"\n',)] * 4


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(4))
def test_barrier_records_are_read_alike(seed: int) -> None:
    """Whatever barrier record the quick way takes, sound or damaged, is one with the same step and time."""
    source = random.Random(seed)
    taken = 0
    for _ in range(number(10_000)):
        step = source.choice((str(source.randint(0, 99)), literals(source)))
        t = source.choice((f"{1763600000 + source.random():.3f}", "1763600000", literals(source)))
        data = f'{{"kind":"barrier","step":{step},"t":{t}}}'.encode()
        if source.random() < 0.5:
            data = damaged(data, source)
        found = read_barrier(data)
        if found is not None:
            taken += 1
            record = orjson.loads(data)
            assert record["kind"] == "barrier" and is_step(record["step"]) and set(record) == {"kind", "step", "t"}
            assert found == (record["step"], float(record["t"])) == (record["step"], time_of(record, 0.0)), data
    assert taken > number(1_000)


SHAPES = (
    '{{"t":{t},"step":{step},"m":{{"a":{x}}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":{x}}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":{x}}}}}',
    '{{"kind":"barrier","step":{step},"t":{t}}}',
    '{{"kind":"barrier","step":{step},"t":{t}}}',
    '{{"step":{step},"kind":"barrier","t":{t}}}',
    '{{"kind":"barrier","step":{step}}}',
    '{{"kind":"barrier","step":-1,"t":{t}}}',
    '{{"t":{t},"step":{step},"m":{{"a":[1,{x}]}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":"NaN"}}}}',
    '{{"t":{t},"step":{step},"m":{{"b":{{"v":[{x}],"w":[2]}},"a":{x}}}}}',
    '{{"t":{t},"step":{step},"m":{{"b":{{"v":[{x}],"w":[2]}},"a":{x}}}}}',
    '{{"t":{t},"step":{step},"m":{{"b":{{"v":["NaN"],"w":[0]}},"a":null}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":{{"n":3,"sum":{x}}}}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":{{"n":3,"m2":1,"x":{x}}}}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":{{"n":4294967297}},"b":{x}}}}}',
    '{{"t":{t},"step":{step},"m":{{"a":{x},"b":{x}}}}}',
    '{{"t":{t},"m":{{"a":{x}}}}}',
    '{{"t":5,"step":{step},"m":{{"a":{x}}}}}',
    '{{"kind":"span","t":{t},"dur":1.5,"step":{step},"name":"n","lane":"l"}}',
    '{{"kind":"rollback","step":{step},"t":{t}}}',
    '{{"kind":"rollback","t":{t}}}',
    "nothing",
)
LINES = st.builds(
    lambda shape, step, t, x: shape.format(step=step, t=1763600000 + t / 4, x=x).encode(),
    st.sampled_from(SHAPES),
    st.integers(0, 6),
    st.integers(0, 20),
    st.floats(-1, 1),
)


def told(lines: list[bytes], max_steps: int, last_step: int) -> tuple[list[object], set[object]]:
    """What the batches of a file say, read to its end as far as one call goes at a time, and its schemas' content."""
    decoder, at = Decoder(Schemas()), 0
    found: list[object] = []
    schemas: set[object] = set()
    while at < len(lines):
        batch = decoder.decode(lines[at:], range(at, len(lines)), max_steps=max_steps, last_step=last_step)
        assert batch.consumed > 0
        at += batch.consumed
        last_step += 1
        schemas.update(one for schema in batch.schemas for one in zip(schema.names, schema.asks))
        parts: dict[object, list[object]] = {}  # of a line whose metrics vary there may be several
        for line in batch.lines:
            parts.setdefault(line[:4], []).extend(values_of(line))
        dense = [(*line, sorted(map(repr, values))) for line, values in parts.items()]
        streams = [(*line[:4], repr(values_of(line))) if isinstance(line, Dense) else line for line in batch.streams]
        rest = {name: getattr(batch, name) for name in Batch.__slots__ if name not in ("runs", "streams", "schemas")}
        found.append((dense, streams, rest, decoder.t, decoder.barrier_t, decoder.segment))
    return found, schemas


@given(st.lists(LINES, max_size=40), st.integers(1, 5), st.integers(0, 6))
def test_files_say_the_same_by_either_way(lines: list[bytes], max_steps: int, last_step: int) -> None:
    """A file of lines of many kinds, read a few steps at a time, says the same where the quick way declines all."""
    lines = [OPEN, *lines]
    expected = told(lines, max_steps, last_step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "COMMON", b"no line begins like this")
        patch.setattr(decoder, "BARRIER", b"no line begins like this")
        patch.setattr(decoder, "SPAN", b"no line begins like this")
        assert told(lines, max_steps, last_step) == expected


def varied(steps: range, source: random.Random) -> list[bytes]:
    """Lines that each have some of eight metrics, never the first two together."""
    names = [f"m{number}" for number in range(8)]
    lines = []
    for step in steps:
        chosen = [name for name in names[step % 2 :: 2] + names[2:] if source.random() < 0.9]
        metrics = ",".join(f'"{name}":{step}.5' for name in dict.fromkeys([names[step % 2], *chosen]))
        lines.append(f'{{"t":1763600000.5,"step":{step},"m":{{{metrics}}}}}'.encode())
    return lines


def test_lines_of_varied_metrics_share_a_schema() -> None:
    """Lines that each have other metrics soon have one schema, in which each has its own values; files of an actor
    share it. The metrics that are noted are those of lines. A line without any keeps to the general way.
    """
    schemas, source = Schemas(), random.Random(7)
    found = []
    for _ in range(2):
        lines = [
            OPEN,
            *varied(range(40), source),
            b'{"t":1763600000.5,"step":40,"m":{}}',
            *varied(range(41, 50), source),
        ]
        batch = Decoder(schemas).decode(lines, range(len(lines)), max_steps=99, last_step=99)
        (loose,) = {schema for _, schema in batch.runs if schema.loose}
        assert len(batch.runs[0, loose].steps) >= 40
        read = [{value.metric: value.observations.xs for value in values_of(line)} for line in batch.lines]
        assert read == [{name: (x,) for name, x in orjson.loads(line)["m"].items()} for line in lines[1:]]
        assert batch.names | {name for schema in batch.schemas for name in schema.names} == {
            f"m{at}" for at in range(8)
        }
        found.append(loose)
    assert found[0] is found[1]


def test_a_value_of_another_form_leaves_its_line_in_the_shared_schema() -> None:
    """Of a line with a weighted value and a dead one only these are apart from the lines whose metrics vary."""
    lines = [OPEN, *varied(range(20), random.Random(7))]
    lines.append(b'{"t":1763600000.5,"step":20,"m":{"m2":1.5,"m3":{"v":[2.5],"w":[3]},"m4":"bad","m5":0.5}}')
    batch = Decoder(Schemas()).decode(lines, range(len(lines)), max_steps=99, last_step=99)
    last = {line.schema.loose: values_of(line) for line in batch.lines[-2:] if isinstance(line, Dense)}
    assert [(value.metric, value.observations.xs) for value in last[True]] == [("m2", (1.5,)), ("m5", (0.5,))]
    assert [(value.metric, value.observations.ws) for value in last[False]] == [("m3", (3.0,))]
    assert [(dead.offset, dead.metric) for dead in batch.dead] == [(21, "m4")]


@pytest.mark.parametrize(("shuffled", "made"), [(False, 1), (True, 0)])
def test_a_parser_is_made_for_an_order_that_comes_again(
    shuffled: bool, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of single metrics that are logged in the same order have one; in another order at each step, none has."""
    parsers = 0

    def counted(parts: tuple[Schema, ...]) -> Callable[[bytes], Any]:
        nonlocal parsers
        parsers += 1
        return chain_parser(parts)

    monkeypatch.setattr(schemas, "chain_parser", counted)
    chance, names = random.Random(3), [f"m{at}" for at in range(30)]
    lines = [OPEN]
    for step in range(30):
        if shuffled:
            chance.shuffle(names)
        lines += [b'{"t":1763600000.5,"step":%d,"m":{"%b":%d}}' % (step, name.encode(), step) for name in names]
        lines.append(b'{"kind":"barrier","t":1763600000.5,"step":%d}' % step)
    batch = Decoder(Schemas()).decode(lines, range(len(lines)), max_steps=99, last_step=99)
    assert parsers == made
    read = {(line.step, value.metric): value.observations.xs for line in batch.lines for value in values_of(line)}
    assert read == {(step, name): (float(step),) for step in range(30) for name in names}
