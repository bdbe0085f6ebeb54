"""No line makes a reader fail: see `fuzz`, which also runs by itself for longer."""

from __future__ import annotations

import tracemalloc

import pytest

from rlship_formats.foreign.contract import BadRecord, Reader
from rlship_formats.foreign.native import document
from rlship_formats.foreign.parsing import parse
from rlship_formats.foreign.registry import installed
from tests.foreign import fuzz
from tests.kit.cases import few

READERS = installed()[0]
EACH = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


@EACH
def test_every_reader_has_samples_to_begin_with(reader: Reader) -> None:
    """A reader without any would pass what follows without being asked."""
    assert fuzz.samples(reader)


@pytest.mark.statistical
@EACH
def test_changed_lines_give_records_or_are_refused(reader: Reader) -> None:
    """Bytes, types, numbers, lengths and nesting at random: records that the decoder takes, or BadRecord."""
    assert fuzz.run(reader, few(1500), seed=1)


@EACH
def test_the_answer_depends_on_the_line_alone(reader: Reader) -> None:
    """Asked again, after other lines or by another instance, a reader says the same."""
    for _, natives, lines in fuzz.prepared(reader):
        some = lines[:100]
        for native in natives:
            first = [_answer(native.lines, raw) for raw in some]
            assert [_answer(native.lines, raw) for raw in reversed(some)] == first[::-1]


def _answer(read: object, raw: bytes) -> object:
    try:
        return read(raw)  # type: ignore[operator]
    except BadRecord as bad:
        return str(bad)


@EACH
@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b"9" * 1_000_000,
        b'{"step":' + b"9" * 900_000 + b',"x":NaN}',
        b'"' * 999_999,
    ],
    ids=["lists", "objects", "digits", "digits with NaN", "quotes"],
)
def test_long_lines_take_memory_like_their_length(reader: Reader, raw: bytes) -> None:
    """Lines of a megabyte, as deep or as long as can be: refused or not, in bounded memory."""
    (sample, natives, _), *_ = fuzz.prepared(reader)
    tracemalloc.start()
    try:
        fuzz.feed(reader, sample.path, raw, natives)
        if reader.lines is not None:
            with pytest.raises(BadRecord):
                document(reader, raw)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":NaN', '{"a":NaN,"b":1e999}', '{"a":[NaN]}x'])
def test_what_is_no_object_is_refused(text: str) -> None:
    """Bare NaN is the only thing beyond JSON that is taken."""
    with pytest.raises(BadRecord):
        parse(text.encode())


def test_bare_constants_are_the_texts_of_native_records() -> None:
    """Everything else is as JSON has it; integers that no record holds are doubles."""
    raw = b'{"a":NaN,"b":[Infinity,-Infinity],"c":123456789012345678901234567890,"d":12,"e":1.5,"f":"NaN"}'
    assert parse(raw) == {
        "a": "NaN",
        "b": ["Infinity", "-Infinity"],
        "c": 123456789012345678901234567890.0,
        "d": 12,
        "e": 1.5,
        "f": "NaN",
    }
