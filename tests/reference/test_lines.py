"""The reading of lines and values, case by case."""

from __future__ import annotations

import random

import orjson
import pytest

from tests.reference import strict_json
from tests.reference.lines import read_file
from tests.reference.reduction import dead_letters, final_rows
from tests.reference.values import Moments

OPEN = b'{"kind":"open","rlship":1,"id":"a","actor":"trainer","t":1763600000}\n'


def reasons(*lines: bytes) -> list[str]:
    """The reasons of the dead letters in a file of these lines."""
    return [reason for _, reason, _ in read_file("f", b"".join(line + b"\n" for line in lines)).dead]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"step":1,"m":{}}'.ljust(1_048_577), "line too long"),
        (b" " * 1_048_577, "line too long"),
        (b"rubbish", "not JSON"),
        (b'{"step":1,"m":{"loss":NaN}}', "not JSON"),
        (b'{"step":1,"m":{"loss":1e999}}', "not JSON"),
        (b'{"step":1,"m":{"\xff":1}}', "not JSON"),
        (b'{"step":1,\x00"m":{}}', "not JSON"),
        (b'{"note":"\\ud800","note":1,"step":1,"m":{}}', "not JSON"),
        (b'{"step":1,"m":{},"deep":' + b"[" * 1024 + b"]" * 1024 + b"}", "not JSON"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'{"kind":"open","id":"b","actor":"trainer"}', "second open record"),
        (b'{"kind":"open","rlship":2}', "second open record"),
        (b'{"step":1.0,"m":{}}', "bad step"),
        (b'{"step":"1","m":{}}', "bad step"),
        (b'{"step":true,"m":{}}', "bad step"),
        (b'{"step":null,"m":{}}', "bad step"),
        (b'{"step":-1,"m":{}}', "bad step"),
        (b'{"step":9007199254740992,"m":{}}', "bad step"),
        (b'{"step":-1}', "bad step"),
        (b'{"kind":"barrier"}', "bad step"),
        (b'{"kind":"rollback"}', "bad step"),
        (b'{"kind":"beat","step":-1}', "bad step"),
        (b'{"step":1}', "bad metrics"),
        (b'{"m":[1]}', "bad metrics"),
        (b'{"kind":"define"}', "bad define"),
        (b'{"kind":"define","m":[]}', "bad define"),
        (b'{"kind":"gap"}', "bad gap"),
        (b'{"kind":"gap","n":0}', "bad gap"),
        (b'{"kind":"gap","n":true}', "bad gap"),
        (b'{"kind":"gap","n":1,"from":2,"to":1}', "bad gap"),
        (b'{"kind":"gap","n":1,"from":2}', "bad gap"),
        (b'{"kind":"gap","n":1,"to":2}', "bad gap"),
        (b'{"kind":"gap","n":1,"from":0,"to":9007199254740992}', "bad gap"),
        (b'{"kind":"span"}', "bad span"),
        (b'{"kind":"span","step":-1}', "bad step"),
        (b'{"kind":"span","name":"","dur":1}', "bad span"),
        (b'{"kind":"span","name":"a"}', "bad span"),
        (b'{"kind":"span","name":"a","dur":true}', "bad span"),
        (b'{"kind":"span","name":"a","dur":-0.1}', "bad span"),
        (b'{"kind":"span","name":"a","dur":1000000000.1}', "bad span"),
        (b'{"kind":"span","name":"a","dur":"NaN"}', "bad span"),
        (b'{"kind":"event"}', "bad event"),
        (b'{"kind":"event","name":""}', "bad event"),
        (b'{"kind":"event","name":"step_tag"}', "bad event"),
        (b'{"kind":"event","name":"step_tag","attrs":["eval"]}', "bad event"),
        (b'{"kind":"event","name":"step_tag","attrs":{"tag":""}}', "bad event"),
        (b'{"kind":"event","name":"step_tag","attrs":{"tag":1}}', "bad event"),
        (b'{"kind":"sample","table":"a","row":{}}', "bad sample"),
        (b'{"kind":"sample","table":"","row":{},"pri":0}', "bad sample"),
        (b'{"kind":"sample","table":"a","row":[],"pri":0}', "bad sample"),
        (b'{"kind":"sample","table":"a","row":{},"pri":1.1}', "bad sample"),
        (b'{"kind":"sample","table":"a","row":{},"pri":false}', "bad sample"),
        (b'{"kind":"sample","table":"a","row":{},"pri":0,"score":true}', "bad sample"),
        (b'{"kind":"sample","table":"a","row":{},"pri":0,"score":"nan"}', "bad sample"),
        (b'{"kind":"clock","offset":1}', "bad clock"),
        (b'{"kind":"clock","offset":1,"err":-1}', "bad clock"),
        (b'{"kind":"clock","offset":1,"err":1000000001}', "bad clock"),
        (b'{"kind":"clock","offset":-1000000001,"err":0}', "bad clock"),
        (b'{"kind":"clock","offset":true,"err":0}', "bad clock"),
    ],
)
def test_dead_lines(line: bytes, reason: str) -> None:
    """Each unusable line is one dead letter of the reason that the page gives, where the line begins."""
    assert dead_letters({"f": OPEN + line + b"\n"}) == [("f", len(OPEN), reason, None)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" \t\r",
        b'{"kind":"novelty","step":-1}',
        b'{"kind":"metrics"}',
        b'{"kind":null}',
        b'{"kind":["open"]}',
        b'{"step":9007199254740991,"m":{},"new":[1]}',
        b'{"step":0,"m":{}}\r',
        b'{"step":1,"m":{}}'.ljust(1_048_576),
        b'{"deep":' + b"[" * 1023 + b"]" * 1023 + b',"m":{}}',
        b'{"note":"\\ud83d\\ude00","m":{}}',
        b'{"kind":"gap","n":1}',
        b'{"kind":"span","name":"a","dur":0}',
        b'{"kind":"span","name":"a","dur":1000000000,"lane":5,"err":null}',
        b'{"kind":"event","name":"a","attrs":7}',
        b'{"kind":"event","name":"step_tag","attrs":{"tag":"eval"}}',
        b'{"kind":"sample","table":"a","row":{},"pri":0}',
        b'{"kind":"sample","table":"a","row":{},"pri":1,"score":null,"cut":5}',
        b'{"kind":"sample","table":"a","row":{},"pri":0.5,"score":"NaN"}',
        b'{"kind":"clock","offset":-1000000000,"err":1000000000}',
        b'{"kind":"close","reason":5}',
    ],
)
def test_lines_that_are_not_dead(line: bytes) -> None:
    """Blank lines, unknown kinds and fields, and lines at a limit are no dead letters."""
    assert dead_letters({"f": OPEN + line + b"\n"}) == []


@pytest.mark.parametrize(
    "fields",
    [
        '"id":"a"',
        '"actor":"","id":"a"',
        '"actor":"x"',
        '"actor":"x","id":""',
        '"actor":"x","id":7',
        '"actor":"x","id":"a","replica":1.5',
        '"actor":"x","id":"a","replica":true',
        '"actor":"x","id":"a","replica":null',
        '"actor":"x","id":"a","rank":-1',
        '"actor":"x","id":"a","rank":1.0',
        '"actor":"x","id":"a","rank":1048576',
        '"actor":"x","id":"a","rank":null',
        '"actor":"x","id":"a","world":1048577',
        '"actor":"x","id":"a","world":0',
        '"actor":"x","id":"a","attempt":-1',
        '"actor":"x","id":"a","parent":""',
        '"actor":"x","id":"a","beat":0',
        '"actor":"x","id":"a","beat":"10"',
        '"actor":"x","id":"a","axis":""',
        '"actor":"x","id":"a","rlship":"1"',
        '"actor":"x","id":"a","rlship":true',
    ],
)
def test_bad_opens(fields: str) -> None:
    """An `open` without usable identity is dead; the lines after it wait for a usable one, which may still come."""
    bad = f'{{"kind":"open",{fields}}}'.encode()
    assert reasons(bad, b'{"m":{}}', OPEN[:-1], b'{"m":{}}') == ["bad open record", "no open record"]


def test_open_defaults() -> None:
    """An `open` needs only actor and id: replica "0", rank 0, attempt 0, t 0, axis global_step, no world, no parent."""
    writer = read_file("f", b'{"kind":"open","actor":"x","id":"a"}\n').writer
    assert writer is not None
    assert (writer.replica, writer.rank, writer.attempt, writer.t, writer.axis) == ("0", 0, 0, 0.0, "global_step")
    assert (writer.world, writer.parent) == (None, None)


def test_nulls_in_an_open() -> None:
    """For `world`, `parent` and `beat`, null is absent."""
    line = b'{"kind":"open","actor":"x","id":"a","world":null,"parent":null,"beat":null,"rank":1048575}\n'
    writer = read_file("f", line).writer
    assert writer is not None
    assert (writer.world, writer.parent, writer.rank) == (None, None, 1048575)


def test_integer_replica() -> None:
    """An integer replica is its digits."""
    writer = read_file("f", b'{"kind":"open","actor":"x","id":"a","replica":12}\n').writer
    assert writer is not None
    assert writer.replica == "12"


def test_unsupported_version() -> None:
    """Another format version closes the whole file, even to a later good `open`; bad JSON stays bad JSON."""
    other = b'{"kind":"open","rlship":2,"id":"a","rank":"new"}'
    lines = (other, b'{"m":{}}', OPEN[:-1], b'{"m":{}}', b"", b"[", b'{"kind":"novelty"}')
    assert reasons(*lines) == ["unsupported format version", *["no open record"] * 3, "not JSON", "no open record"]


def test_torn_tail() -> None:
    """Bytes after the last LF are not there: neither a record nor a dead letter."""
    whole = OPEN + b'{"step":1,"m":{"loss":1}}\n'
    for tail in (b'{"step":2,"m":{"loss":1}}', b"rubb", b"\xff"):
        assert final_rows({"f": whole + tail}) == final_rows({"f": whole})
        assert dead_letters({"f": whole + tail}) == []


@pytest.mark.parametrize(
    "value",
    [
        '"0.5"', '"nan"', "{}", "[[1]]", '[1,"x"]', '{"v":[1]}', '{"v":[1],"n":1}', '{"v":[1,2],"w":[1]}',
        '{"v":[1],"w":[-1]}', '{"v":[1],"w":["NaN"]}', '{"v":[1],"w":[true]}', '{"v":[null],"w":[null]}', '{"w":[1]}',
        '{"sum":1}', '{"n":-1}', '{"n":1.0}', '{"n":true}', '{"n":2,"sum":"NaN"}', '{"n":2,"sum":null}',
        '{"v":1,"w":1}', '{"n":2,"m2":-1}', '{"n":2,"w":-1}', '{"n":0,"max":"x"}', '{"n":1,"first":false}',
    ],
)  # fmt: skip
def test_dead_values(value: str) -> None:
    """A value of no known form is dead alone: the other metrics of its line, the empty name apart, count."""
    line = f'{{"step":4,"m":{{"a":1,"bad":{value},"b":2,"":3}}}}\n'.encode()
    assert dead_letters({"f": OPEN + line}) == [
        ("f", len(OPEN), "bad value", "bad"),
        ("f", len(OPEN), "bad value", ""),
    ]
    (row,) = final_rows({"f": OPEN + line}).values()
    assert row.values == {"trainer/a": 1.0, "trainer/b": 2.0}


def one(x: float, w: float = 1.0) -> Moments:
    return Moments(1, w, w * x, 0.0, x, x, x, x, 0)


def other(nonfinite: int) -> Moments:
    return Moments(0, 0.0, 0.0, 0.0, None, None, None, None, nonfinite)


@pytest.mark.parametrize(
    ("value", "partials"),
    [
        ("2", [one(2.0)]),
        ("true", [one(1.0)]),
        ("false", [one(0.0)]),
        ("9007199254740993", [one(9007199254740992.0)]),
        ("18446744073709551616", [one(18446744073709551616.0)]),
        ("[1,2.5,null,true]", [one(1.0), one(2.5), one(1.0)]),
        ('"NaN"', [other(1)]),
        ('["Infinity","-Infinity"]', [other(1), other(1)]),
        ('{"v":[3,null,"NaN","NaN"],"w":[2,5,0,7]}', [one(3.0, 2.0), other(0), other(1)]),
        ('{"v":[3],"w":[0],"n":9}', [one(3.0, 0.0)]),
        (
            '{"n":32,"w":2,"sum":7.5,"min":-1,"max":1,"first":0,"last":0.5,"m2":3}',
            [Moments(32, 2.0, 7.5, 3.0, -1.0, 1.0, 0.0, 0.5, 0)],
        ),
        ('{"n":4}', [Moments(4, 4.0, None, None, None, None, None, None, 0)]),
        ('{"n":4,"m2":1}', [Moments(4, 4.0, None, None, None, None, None, None, 0)]),
        ('{"n":4,"sum":1,"new":"x"}', [Moments(4, 4.0, 1.0, None, None, None, None, None, 0)]),
    ],
)
def test_values(value: str, partials: list[Moments]) -> None:
    """Each form of value becomes these partials, one an observation, or one for a summary."""
    writer = read_file("f", OPEN + f'{{"step":4,"m":{{"a":{value}}}}}\n'.encode()).writer
    assert writer is not None
    assert writer.segments[0].measured[0].values == {"a": partials}


@pytest.mark.parametrize(
    "value", ["null", "[]", "[null]", '{"v":[],"w":[]}', '{"v":[null],"w":[3]}', '{"n":0,"sum":3}']
)
def test_values_that_say_nothing(value: str) -> None:
    """A value without observations is no dead letter and no metric, but its record makes the unit exist."""
    data = OPEN + f'{{"step":4,"m":{{"a":{value}}}}}\n'.encode()
    assert dead_letters({"f": data}) == []
    (row,) = final_rows({"f": data}).values()
    assert (row.values, row.coverage.ranks, row.coverage.attempts) == ({}, (), ())


@pytest.mark.parametrize(
    ("time", "t"),
    [
        ('"t":1763600009.5,', 1763600009.5),
        ('"t":946684800,', 946684800.0),
        ('"t":4102444800,', 4102444800.0),
        ("", 1763600007.0),
        ('"t":null,', 1763600007.0),
        ('"t":true,', 1763600007.0),
        ('"t":"1763600009",', 1763600007.0),
        ('"t":946684799.9,', 1763600007.0),
        ('"t":4102444801,', 1763600007.0),
    ],
)
def test_times(time: str, t: float) -> None:
    """A missing or absurd `t` is that of the record before; dead lines and unknown kinds lend none."""
    data = (
        OPEN + b'{"kind":"beat","t":1763600007}\n{"kind":"novelty","t":1763600111}\n{"step":-1,"m":{},"t":1763600111}\n'
    )
    (row,) = final_rows({"f": data + f'{{{time}"step":1,"m":{{}}}}\n'.encode()}).values()
    assert row.t == t


def test_first_time_is_the_opens() -> None:
    """Before any other record the `open` lends its `t`; an `open` without one has 0."""
    (row,) = final_rows({"f": OPEN + b'{"step":1,"m":{}}\n'}).values()
    assert row.t == 1763600000.0
    (row,) = final_rows({"f": b'{"kind":"open","actor":"x","id":"a"}\n{"step":1,"m":{}}\n'}).values()
    assert row.t == 0.0


def test_bad_entries_of_a_define() -> None:
    """Unusable entries of a `define` are dead values, the others govern; one without `reduce` asks for the mean."""
    define = (
        b'{"kind":"define","m":{"a":5,"b":{"reduce":"median"},"c":{"reduce":[]},"d":{"reduce":["max","max",3]},"":{},'
    )
    define += b'"e":{"reduce":null},"f":{"unit":"s"},"g":{"reduce":["sum","min","sum"]}}}\n'
    data = OPEN + define + b'{"step":1,"m":{"a":1,"f":[1,2],"g":[4,5]}}\n'
    assert dead_letters({"f": data}) == [
        ("f", len(OPEN), "bad define", metric) for metric in ("a", "b", "c", "d", "", "e")
    ]
    (row,) = final_rows({"f": data}).values()
    assert row.values == {"trainer/a": 1.0, "trainer/f": 1.5, "trainer/g": 9.0, "trainer/g/min": 4.0}


def test_strict_parser_agrees_with_orjson() -> None:
    """On 4000 lines with a few bytes changed, and on the known traps, the parser refuses and reads what orjson does."""
    chance = random.Random(7)
    whole = [
        b'{"a":[1,2.5e3,"x\\u00e9",null,true],"b":{"v":[1],"w":[-0]}}',
        b'{"t":1763600000.12,"m":{"k":"NaN","z":"\\ud83d\\ude00"}}',
    ]
    lines = [
        b"-0",
        b"-0.0",
        b"1e999",
        b"9" * 400,
        b"9" * 300,
        b"18446744073709551615",
        b"-9223372036854775809",
        b"1e-400",
    ]
    lines += [
        b'"\\ud800"',
        b'{"\\udc00":1}',
        b'[{"a":[["\\ud800"]]}]',
        b'{"a":"\\ud800","a":1}',
        b"\xef\xbb\xbf1",
        b"\x0c1",
    ]
    for _ in range(4000):
        changed = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.choice(b'{}[],:"\\ 0123eE+-.udD8tfn\x00\t\xc3\xa9')
        lines.append(bytes(changed))
    for line in lines:
        try:
            expected = repr(orjson.loads(line))
        except orjson.JSONDecodeError:
            with pytest.raises(ValueError):
                strict_json.parse(line)
        else:
            assert repr(strict_json.parse(line)) == expected
