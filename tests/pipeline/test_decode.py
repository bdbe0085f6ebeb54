"""Lines to batches: reasons of dead letters, definitions, and that pieces and restarts change nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.records import Definition, Gap
from rlship_formats.values import REDUCTIONS
from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Batch, Dead, Dense, Note, Sparse, too_long, values_of
from rlship_sidecar.decode.schemas import Schemas
from tests.kit.cases import statistical
from tests.reference.experiments import experiments

OPEN = b'{"kind":"open","rlship":1,"id":"a","actor":"trainer","t":1763600000}'
ALL = 1 << 62


def with_offsets(lines: Sequence[bytes]) -> list[int]:
    offsets, at = [], 0
    for line in lines:
        offsets.append(at)
        at += len(line) + 1
    return offsets


def decoded(*lines: bytes) -> Batch:
    return Decoder(Schemas()).decode(lines, with_offsets(lines), max_steps=ALL, last_step=ALL)


def reasons(*lines: bytes) -> list[tuple[str, str | None]]:
    return [(dead.reason, dead.metric) for dead in decoded(*lines).dead]


def plain(line: Dense | Sparse) -> tuple[Any, ...]:
    """A line without the identity of its schema."""
    if isinstance(line, Dense):
        return (*line[:4], line.schema.names, line.schema.asks, line.schema.shapes, line.data)
    return line


def content(batches: Sequence[Batch]) -> dict[str, Any]:
    """What consecutive batches say together; barriers of one segment count by their highest, as one promise."""
    marks = [mark for batch in batches for mark in batch.notes]
    barriers: dict[int, int] = {}
    for mark in marks:
        if mark.kind == "barrier":
            barriers[mark.segment] = max(mark.step, barriers.get(mark.segment, -1))
    counts: dict[str, int] = {}
    for batch in batches:
        for name, count in batch.counts.items():
            counts[name] = counts.get(name, 0) + count
    return {
        "lines": [plain(line) for batch in batches for line in batch.lines],
        "marks": [mark for mark in marks if mark.kind != "barrier"],
        "barriers": barriers,
        "dead": [dead for batch in batches for dead in batch.dead],
        "kept": [kept for batch in batches for kept in batch.governing],
        "counts": counts,
        "opened": [(batch.opened, batch.opened_at) for batch in batches if batch.opened is not None],
        "begins": next((batch.begins for batch in batches if batch.begins is not None), None),
        "lowest": min((batch.lowest for batch in batches if batch.lowest >= 0), default=-1),
        "highest": max((batch.highest for batch in batches), default=-1),
        "newest_t": max((batch.newest_t for batch in batches), default=0.0),
        "inherited_t": sum(batch.inherited_t for batch in batches),
        "consumed": sum(batch.consumed for batch in batches),
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"rubbish", "not JSON"),
        (b'{"step":1,"m":{"loss":NaN}}', "not JSON"),
        (b'{"step":1,"m":{"loss":1}', "not JSON"),
        (b'{"step":1,\x00"m":{}}', "not JSON"),
        (b'{"step":1,"m":{"\xff":1}}', "not JSON"),
        (b"[" * 2000 + b"]" * 2000, "not JSON"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (OPEN, "second open record"),
        (b'{"kind":"open","rlship":2,"id":"b","actor":"x"}', "second open record"),
        (b'{"step":1.0,"m":{}}', "bad step"),
        (b'{"step":true,"m":{}}', "bad step"),
        (b'{"step":-1,"m":{}}', "bad step"),
        (b'{"step":9007199254740992,"m":{}}', "bad step"),
        (b'{"step":null,"m":{}}', "bad step"),
        (b'{"kind":"barrier"}', "bad step"),
        (b'{"kind":"barrier","step":"1"}', "bad step"),
        (b'{"kind":"rollback"}', "bad step"),
        (b'{"kind":"sample","step":-5}', "bad step"),
        (b'{"step":1}', "bad metrics"),
        (b'{"step":1,"m":[]}', "bad metrics"),
        (b'{"t":1763600000}', "bad metrics"),
        (b'{"kind":"define"}', "bad define"),
        (b'{"kind":"define","m":[]}', "bad define"),
        (b'{"kind":"gap"}', "bad gap"),
        (b'{"kind":"gap","n":0}', "bad gap"),
        (b'{"kind":"gap","n":1,"from":2,"to":1}', "bad gap"),
        (b'{"kind":"gap","n":1,"from":2}', "bad gap"),
    ],
)
def test_a_line_that_cannot_be_used_is_one_dead_letter(line: bytes, reason: str) -> None:
    """Each kind of unusable line has its reason, its offset and its beginning, and the lines around it count."""
    batch = decoded(OPEN, line, b'{"step":1,"m":{"loss":1.5}}')
    (dead,) = batch.dead
    assert (dead.offset, dead.reason, dead.metric) == (len(OPEN) + 1, reason, None)
    assert dead.excerpt.encode()[:4] == line[:4]
    assert len(batch.lines) == 1


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((b'{"step":1,"m":{}}', OPEN), ["no open record"]),
        ((b'{"kind":"barrier","step":1}', b'{"kind":"new"}', OPEN), ["no open record", "no open record"]),
        ((b'{"kind":"open"}', b'{"kind":"beat"}'), ["bad open record", "no open record"]),
        ((b'{"kind":"open","id":"a","actor":"x","rank":-1}', OPEN), ["bad open record"]),
        (
            (b'{"kind":"open","rlship":2,"id":"a","actor":"x"}', OPEN, b'{"kind":"beat"}'),
            ["unsupported format version", "no open record", "no open record"],
        ),
        ((b'{"kind":"open","rlship":"1","id":"a","actor":"x"}', OPEN), ["bad open record"]),
        ((b"", b" \t\r", OPEN, b"\r"), []),
    ],
)
def test_before_a_usable_open_nothing_counts(lines: tuple[bytes, ...], expected: list[str]) -> None:
    """Lines before the first usable open are dead, and all of a file of another version; blank lines are nothing."""
    assert [dead.reason for dead in decoded(*lines).dead] == expected


def test_a_bad_value_leaves_the_rest_of_its_line() -> None:
    """Dead values name their metric and reason, and show the value; the other metrics of the line count."""
    batch = decoded(OPEN, b'{"step":1,"m":{"a":"x","":1,"b":2,"c":{"n":-1}}}')
    assert batch.dead == [
        Dead(len(OPEN) + 1, "bad value", '"a": "x"', "a"),
        Dead(len(OPEN) + 1, "bad value", '"": 1', ""),
        Dead(len(OPEN) + 1, "bad value", '"c": {"n":-1}', "c"),
    ]
    (line,) = batch.lines
    assert [(value.metric, value.observations.xs) for value in values_of(line)] == [("b", (2.0,))]


def test_a_value_nested_deeper_than_json_is_written_is_a_dead_value() -> None:
    """What the parser accepts but no encoder can write is reported without its text, and stops nothing."""
    deep = b'{"step":1,"m":{"a":' + b"[" * 500 + b"]" * 500 + b',"b":1}}'
    batch = decoded(OPEN, deep)
    assert [(dead.reason, dead.metric) for dead in batch.dead] == [("bad value", "a")]
    assert len(batch.lines) == 1


def test_excerpts_are_short_and_safe() -> None:
    """An excerpt holds no control character that a terminal would obey, and only the beginning of a long line."""
    (dead,) = decoded(OPEN, b"\x1b[2J\x07" + b"x" * 100_000).dead
    assert dead.excerpt.startswith("\\x1b[2J\\x07xxx")
    assert len(dead.excerpt) < 200
    assert too_long(5, b"\x1b" + b"y" * 500) == Dead(5, "line too long", "\\x1b" + "y" * 119)


def test_a_definition_governs_later_lines_only() -> None:
    """Lines before a define have the default, later ones what it says, until the next one of that metric."""
    batch = decoded(
        OPEN,
        b'{"step":1,"m":{"a":1,"b":1}}',
        b'{"kind":"define","m":{"a":{"reduce":["max","max","mean"]}}}',
        b'{"step":1,"m":{"a":1,"b":1}}',
        b'{"kind":"define","m":{"a":{},"b":{"reduce":"sum"}}}',
        b'{"step":1,"m":{"a":[1],"b":1}}',
    )
    first, second, third = batch.lines
    assert isinstance(first, Dense) and isinstance(second, Dense)
    assert first.schema.asks == (Definition(("mean",)), Definition(("mean",)))
    assert second.schema.asks == (Definition(("max", "mean"), asked=True), Definition(("mean",)))
    assert {value.metric: value.asks for value in values_of(third)} == {
        "a": Definition(("mean",)),
        "b": Definition(("sum",), asked=True),
    }


def known(actor: str, metric: str) -> Definition | None:
    return Definition(("max", "p99"), per_rank=True, unit="s") if (actor, metric) == ("trainer", "busy") else None


def test_what_is_known_of_a_name_governs_until_a_definition_does() -> None:
    """A metric without a definition has what is known of its name; an entry without `reduce` takes its reductions
    from there, one without `unit` its unit, and nothing else.
    """
    lines = (
        OPEN,
        b'{"step":1,"m":{"busy":1,"other":1}}',
        b'{"step":1,"m":{"busy":[1],"other":1}}',
        b'{"kind":"define","m":{"busy":{"unit":"ms","stream":true,"per_rank":1},"other":{"per_rank":true}}}',
        b'{"step":2,"m":{"busy":1,"other":1}}',
        b'{"kind":"define","m":{"busy":{"reduce":["min","mypkg.x"],"unit":5}}}',
        b'{"step":3,"m":{"busy":[1],"other":1}}',
    )
    decoder = Decoder(Schemas(known))
    batch = decoder.decode(lines, with_offsets(lines), max_steps=ALL, last_step=ALL)
    asked = [tuple(value.asks for value in sorted(values_of(line))) for line in batch.lines]
    usual = Definition(("max", "p99"), True, False, "s")
    other = Definition(("mean",), True)
    assert asked == [
        (usual, Definition()),
        (usual, Definition()),
        (Definition(("max", "p99"), False, True, "ms"), other),
        (Definition(("min", "mypkg.x"), unit="s", asked=True), other),
    ]
    again = Decoder(Schemas(known))
    assert batch.opened is not None
    again.restore(batch.opened, 0.0, None, [line for _, line in batch.governing])
    (line,) = again.decode(lines[-1:], [0], max_steps=ALL, last_step=ALL).lines
    assert values_of(line) == values_of(batch.lines[-1])


def test_reductions_that_a_definition_may_ask_for() -> None:
    """All of rlship's own, and names with a dot of at most 100 characters."""
    good = [*REDUCTIONS, "mypkg.x", ".", "x." + "y" * 98]
    bad = ["", "median", "P50", "x." + "y" * 99, 7, None]
    line = {"kind": "define", "m": {f"good{n}": {"reduce": name} for n, name in enumerate(good)}}
    line["m"].update({f"bad{n}": {"reduce": name} for n, name in enumerate(bad)})  # type: ignore[attr-defined]
    assert reasons(OPEN, orjson.dumps(line)) == [("bad define", f"bad{n}") for n in range(len(bad))]


def test_a_definition_is_used_as_far_as_it_can_be() -> None:
    """Metrics whose entry is unusable are dead values of reason `bad define`, and keep what governed them."""
    lines = (
        OPEN,
        b'{"kind":"define","m":{"a":{"reduce":"max"}}}',
        b'{"kind":"define","m":{"a":{"reduce":"median"},"b":5,"":{},"c":{"reduce":[]},"d":{"reduce":"min"}}}',
        b'{"step":1,"m":{"a":1,"d":1}}',
    )
    assert reasons(*lines) == [("bad define", name) for name in ("a", "b", "", "c")]
    (line,) = decoded(*lines).lines
    assert isinstance(line, Dense)
    assert line.schema.asks == (Definition(("max",), asked=True), Definition(("min",), asked=True))


def test_only_definitions_that_change_something_are_kept() -> None:
    """A writer that repeats its definitions costs no room: a define that changes nothing is not kept."""
    again = b'{"kind":"define","m":{"a":{"reduce":"max"},"b":{"reduce":"mean"}}}'
    batch = decoded(OPEN, again, again, b'{"kind":"rollback","step":3}', again)
    offsets = with_offsets((OPEN, again, again, b'{"kind":"rollback","step":3}', again))
    assert batch.governing == [(offsets[1], again), (offsets[3], b'{"kind":"rollback","step":3}')]


def test_equal_metrics_share_one_schema() -> None:
    """Lines of different files with the same metrics and reductions are of one schema; another order is another."""
    schemas = Schemas()
    first, second = Decoder(schemas), Decoder(schemas)
    lines = (OPEN, b'{"step":1,"m":{"a":1,"b":2}}', b'{"step":1,"m":{"b":2,"a":1}}')
    one = first.decode(lines, [0, 1, 2], max_steps=ALL, last_step=ALL).lines
    two = second.decode(lines, [0, 1, 2], max_steps=ALL, last_step=ALL).lines
    assert [line.schema for line in one if isinstance(line, Dense)] == [
        line.schema for line in two if isinstance(line, Dense)
    ]
    assert one[0] != one[1]


def test_numbers_are_packed_as_doubles() -> None:
    """Integers, booleans and floats of a plain line become native doubles, 64-bit integers by rounding."""
    (line,) = decoded(OPEN, b'{"step":1,"m":{"a":true,"b":-0.0,"c":18446744073709551615,"d":9007199254740993}}').lines
    assert isinstance(line, Dense)
    assert line.data == struct.pack("4d", 1.0, -0.0, 18446744073709551615.0, 9007199254740992.0)


def test_the_time_of_a_line() -> None:
    """A missing or absurd t is that of the record before; dead letters and unknown kinds hand none on."""
    batch = decoded(
        OPEN,
        b'{"step":1,"m":{}}',
        b'{"kind":"beat","t":1763600005}',
        b'{"kind":"novelty","t":1763600999}',
        b'{"kind":"barrier","t":1763600999}',
        b'{"step":1,"m":{},"t":1e300}',
        b'{"kind":"span","t":1763600007.5}',
        b'{"step":1,"m":{},"t":true}',
        b'{"step":2,"m":{},"t":1763600006}',
    )
    assert [line.t for line in batch.lines] == [1763600000.0, 1763600005.0, 1763600005.0, 1763600006.0]
    assert (batch.newest_t, batch.inherited_t) == (1763600006.0, 3)


def test_marks_of_a_file() -> None:
    """Barriers count per segment by their highest; rollbacks number the segments; a roll is no close."""
    batch = decoded(
        OPEN,
        b'{"kind":"barrier","step":5}',
        b'{"kind":"barrier","step":4}',
        b'{"kind":"gap","n":2,"from":1,"to":3}',
        b'{"kind":"rollback","step":2}',
        b'{"step":2,"m":{"a":1}}',
        b'{"kind":"barrier","step":2}',
        b'{"kind":"close","reason":"roll"}',
        b'{"kind":"close"}',
        b'{"kind":7}',
    )
    assert batch.notes == [
        Note("gap", 0, -1, Gap(2, 1, 3), 1763600000.0),
        Note("barrier", 0, 5),
        Note("rollback", 1, 2, t=1763600000.0),
        Note("close", 1, -1, t=1763600000.0),
        Note("barrier", 1, 2),
    ]
    assert (batch.begins, batch.lowest, batch.highest) == (5, 2, 2)
    assert [line.segment for line in batch.lines] == [1]
    assert batch.counts == {"unknown kinds": 1}


def test_decoding_stops_at_the_limits() -> None:
    """No step beyond `last_step` and no more than `max_steps` changes of step are taken, but always one line."""
    lines = (OPEN, *(b'{"step":%d,"m":{"a":1}}' % step for step in (1, 1, 2, 2, 3, 4)))
    offsets = with_offsets(lines)
    by_count = Decoder(Schemas()).decode(lines, offsets, max_steps=2, last_step=ALL)
    assert by_count.consumed == 5
    by_step = Decoder(Schemas()).decode(lines, offsets, max_steps=ALL, last_step=1)
    assert by_step.consumed == 3
    decoder = Decoder(Schemas())
    decoder.decode(lines[:1], offsets[:1], max_steps=ALL, last_step=ALL)
    assert decoder.decode(lines[6:], offsets[6:], max_steps=1, last_step=0).consumed == 1


@st.composite
def files(draw: st.DrawFn) -> list[bytes]:
    """The complete lines of one file of a random experiment."""
    data = draw(experiments())
    whole = draw(st.sampled_from([*data.values(), b""]))
    return [line for line in whole.split(b"\n")[:-1] if len(line) < 10_000]


def test_a_bad_sample_hides_no_step() -> None:
    """A line that is no use right before one of the same step does not keep that step from being noted."""
    lines = (OPEN, b'{"step":5,"m":{"a":1}}', b'{"kind":"sample","step":1,"table":"t"}', b'{"step":1,"m":{"a":1}}')
    batch = decoded(*lines)
    assert (batch.lowest, batch.highest) == (1, 5)


@statistical(120)
@given(data=st.data(), lines=files())
def test_pieces_say_what_the_whole_says(data: st.DataObject, lines: list[bytes]) -> None:
    """Cut anywhere and stopped by any limits, the batches of a file together equal the batch of it in one go."""
    offsets = with_offsets(lines)
    whole = Decoder(Schemas()).decode(lines, offsets, max_steps=ALL, last_step=ALL)
    decoder, batches, at = Decoder(Schemas()), [], 0
    while at < len(lines):
        end = data.draw(st.integers(at + 1, len(lines)))
        limits = {
            "max_steps": data.draw(st.sampled_from((0, 1, 2, ALL))),
            "last_step": data.draw(st.sampled_from((-1, 0, 1, 3, ALL))),
        }
        batches.append(decoder.decode(lines[at:end], offsets[at:end], **limits))
        assert 1 <= batches[-1].consumed <= end - at
        at += batches[-1].consumed
    assert content(batches) == content([whole])


@statistical(120)
@given(data=st.data(), lines=files())
def test_a_restored_decoder_goes_on_the_same(data: st.DataObject, lines: list[bytes]) -> None:
    """Restored at any line after its open from what was kept, a decoder says of the rest what it would have said."""
    offsets = with_offsets(lines)
    cut = data.draw(st.integers(0, len(lines)))
    first = Decoder(Schemas())
    before = first.decode(lines[:cut], offsets[:cut], max_steps=ALL, last_step=ALL)
    if first.opened is None:
        assert before.lines == before.governing == []
        return
    again = Decoder(Schemas())
    again.restore(first.opened, first.t, first.barrier_t, [line for _, line in before.governing])
    rest = (lines[cut:], offsets[cut:])
    assert content([again.decode(*rest, max_steps=ALL, last_step=ALL)]) == content(
        [first.decode(*rest, max_steps=ALL, last_step=ALL)]
    )


def test_lengths_that_vary_make_few_schemas() -> None:
    """Arrays of any length, several in a line, have room in a few schemas, and say what they said."""
    source = random.Random(5)
    lengths = [[source.randint(1, 60) for _ in range(4)] for _ in range(300)]
    values = [{f"m{n}": [source.random() for _ in range(count)] for n, count in enumerate(one)} for one in lengths]
    weighted = [{name: {"v": xs, "w": [2.0] * len(xs)} for name, xs in one.items()} for one in values]
    for forms in (values, weighted):
        found = decoded(OPEN, *(orjson.dumps({"step": step, "m": one}) for step, one in enumerate(forms))).lines
        assert [{v.metric: list(v.observations.xs) for v in values_of(line)} for line in found] == values
        assert len({(line.schema.names, line.schema.shapes) for line in found if isinstance(line, Dense)}) < 40


def test_lines_read_one_by_one_and_together_all_stay() -> None:
    """Lines of single metrics, of which some steps are read at once and others line by line, are all there."""
    names = [f"m{n}" for n in range(5)]
    lines = [
        line
        for step in range(6)
        for line in (
            *(orjson.dumps({"t": 1763600000.5, "step": step, "m": {name: step + 0.5}}) for name in names),
            orjson.dumps({"kind": "barrier", "step": step, "t": 1763600000.5}),
        )
    ]
    spans = [
        orjson.dumps({"kind": "span", "t": 1763600000.5, "dur": 1.5, "step": step, "name": name, "lane": lane})
        for step, lane in ((6, 7), (7, "main"), (8, "main"))
        for name in names
    ]
    found = [(line.step, v.metric) for line in decoded(OPEN, *lines, *spans).lines for v in values_of(line)]
    expected = [(step, name) for step in range(6) for name in names]
    assert found == expected + [(step, f"{name}_s") for step in (6, 7, 8) for name in names]
