"""The quick way to read a line whose metrics are known gives what the general way gives, or declines."""

from __future__ import annotations

import random
import struct

import orjson
import pytest

from rlship_formats.records import MAX_STEP, Asks, is_step
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Dense, Schema, Schemas

ASKS = (Asks(), Asks())
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


def general(line: bytes) -> tuple[int, float, bytes] | None:
    """A line as a parser reads it that knows nothing about it."""
    try:
        record = orjson.loads(line)
        values = struct.pack("2d", *(record["m"][name] for name in NAMES))
        assert set(record["m"]) == set(NAMES) and is_step(record["step"])
        return record["step"], float(record["t"]), values
    except (ValueError, TypeError, KeyError, AssertionError, OverflowError, struct.error):
        return None


def literals(source: random.Random) -> str:
    """A number in one of the ways that JSON has, or something that is none."""
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


@pytest.mark.parametrize("seed", range(4))
def test_what_is_taken_is_read_alike(seed: int) -> None:
    """Whatever line the quick way takes, sound or damaged, comes to the same bits as by the general way."""
    source = random.Random(seed)
    schema = Schema(NAMES, ASKS)
    taken = 0
    for _ in range(10_000):
        values = f'{{"a":{literals(source)},"b/ü":{literals(source)}}}'
        data = f'{{"t":1763600000.5,"step":{source.randint(0, 99)},"m":{values}}}'.encode()
        if source.random() < 0.5:
            data = damaged(data, source)
        found = schema.read(data)
        if found is not None:
            taken += 1
            assert found == general(data), data
    assert taken > 2_000


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
    assert Schema(NAMES, ASKS).read(line.encode()) is None


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
    assert asked == [(Asks(("mean",)),)] * 4 + [(Asks(("max",)),)] * 4


def test_a_name_that_json_escapes_is_read() -> None:
    """A metric whose name JSON writes escaped takes the general way, line after line."""
    lines = [b'{"kind":"open","rlship":1,"id":"w","actor":"trainer","rank":0,"t":1763600000.0}']
    lines += [b'{"t":1763600000.5,"step":%d,"m":{"a\\"\\n":1.5}}' % step for step in range(4)]
    batch = Decoder(Schemas()).decode(lines, list(range(len(lines))), max_steps=99, last_step=99)
    assert [line.schema.names for line in batch.lines if isinstance(line, Dense)] == [('a"\n',)] * 4
