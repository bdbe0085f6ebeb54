"""Values to lines: nothing a metric can be is lost or changed on the way."""

from __future__ import annotations

import array
import enum
import math
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.encode import MAX_LINE_BYTES, MAX_NAME, Encoder
from tests.kit.cases import few


class Heard:
    """Collects what an Encoder could not use."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def __call__(self, name: str, value: Any, why: str) -> None:
        self.told.append((name, why))


def encode(metrics: dict[Any, Any], step: int | None = 1, weight: Any = None) -> tuple[list[dict[str, Any]], Heard]:
    """The metrics records made of `metrics`, the way `log` makes them, parsed strictly."""
    heard = Heard()
    encoder = Encoder(heard)
    line = None if weight is not None else encoder.line(metrics, step, 5.0)
    made = [line] if line is not None else encoder.lines(metrics, step, 5.0, weight)
    assert all(text.endswith("\n") and text.count("\n") == 1 and len(text.encode()) <= MAX_LINE_BYTES for text in made)
    return [orjson.loads(text) for text in made], heard


def only(metrics: dict[Any, Any], weight: Any = None) -> Any:
    """The one value in the one record of `metrics`."""
    (record,), heard = encode(metrics, weight=weight)
    assert heard.told == []
    (value,) = record["m"].values()
    return value


def bits(value: float) -> bytes:
    return struct.pack("<d", float(value))


def observation(value: Any) -> Any:
    """How a reader sees one plain observation."""
    if value is None:
        return None
    number = float(value)
    if math.isfinite(number):
        return bits(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def seen(value: Any) -> Any:
    return bits(value) if isinstance(value, (int, float)) else value


NUMBERS = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.none(),
    st.sampled_from([0.0, -0.0, 1e-4, 5e-324, 1.7976931348623157e308, 2**53 + 1, 2**63, -(2**63), 0.1, 1e22]),
)
# Surrogates are tested apart; a "/" is what groups are flattened with.
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(deadline=None)
@given(st.dictionaries(NAMES, NUMBERS, max_size=8), st.integers(0, 2**53 - 1) | st.none())
def test_any_plain_metrics_come_back_with_equal_bits(metrics: dict[str, Any], step: int | None) -> None:
    """Every name and number is read back by a strict JSON parser as the same double, whichever path wrote it."""
    (record,), heard = encode(metrics, step)
    assert heard.told == []
    assert record.get("step") == step
    assert {name: seen(value) for name, value in record["m"].items()} == {
        name: observation(value) for name, value in metrics.items()
    }


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b%d", "c"]), NUMBERS, min_size=1), max_size=12))
def test_one_encoder_gives_each_record_its_own_values(records: list[dict[str, Any]]) -> None:
    """A format string learnt from one record never changes what a later one with the same names says."""
    encoder = Encoder(Heard())
    for metrics in records:
        line = encoder.line(metrics, 3, 5.0)
        (text,) = [line] if line is not None else encoder.lines(metrics, 3, 5.0)
        found = orjson.loads(text)["m"]
        assert {k: seen(v) for k, v in found.items()} == {k: observation(v) for k, v in metrics.items()}


@settings(deadline=None)
@given(st.lists(NUMBERS, max_size=30))
def test_lists_are_several_observations(values: list[Any]) -> None:
    """A list and a tuple of numbers become an array of the same observations in the same order."""
    assert [seen(value) for value in only({"x": values})] == [observation(value) for value in values]
    assert only({"x": tuple(values)}) == only({"x": values})


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=20), st.data())
def test_weights_stand_beside_the_values(values: list[float], data: st.DataObject) -> None:
    """`{"v","w"}`, `weight=[...]` and numpy arrays of both give the same value with the same weights."""
    weights = data.draw(st.lists(st.floats(0, 1e300), min_size=len(values), max_size=len(values)))
    expected = only({"x": {"v": values, "w": weights}})
    assert [seen(v) for v in expected["v"]] == [observation(v) for v in values]
    assert [bits(w) for w in expected["w"]] == [bits(w) for w in weights]
    assert only({"x": values}, weight=weights) == expected
    assert only({"x": {"v": np.array(values), "w": np.array(weights)}}) == expected


def test_a_weight_applies_to_every_scalar() -> None:
    """One weight for a record becomes the weight of each observation in it."""
    (record,), heard = encode({"a": 0.5, "b": [1, 2]}, weight=3)
    assert heard.told == []
    assert record["m"] == {"a": {"v": [0.5], "w": [3]}, "b": {"v": [1, 2], "w": [3, 3]}}


class Level(enum.IntEnum):
    HIGH = 7


class Wrapped(float):
    def __repr__(self) -> str:
        return "Wrapped!"


class OneIndex:
    def __index__(self) -> int:
        return 5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.1), 0.1),
        (np.float32(0.1), 0.10000000149011612),
        (np.float16(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int64(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.array(2.5), 2.5),
        (np.array([1, 2], dtype=np.int8), [1, 2]),
        (np.array([[1.5, 2.5], [3.5, np.nan]]), [1.5, 2.5, 3.5, "NaN"]),
        (np.array([True, False]), [True, False]),
        ([np.float32(0.5), np.int32(3), 1], [0.5, 3, 1]),
        (array.array("d", [1.5, 2.5]), [1.5, 2.5]),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 4), 0.25),
        (Level.HIGH, 7),
        (Wrapped(0.5), 0.5),
        (OneIndex(), 5),
        (2**53 + 1, 2**53 + 1),
    ],
)
def test_foreign_numbers_are_numbers(value: Any, expected: Any) -> None:
    """Scalars and arrays of other libraries, and anything with a numeric conversion, are written as plain numbers."""
    assert only({"x": value}) == expected


def test_integers_beyond_two_to_the_53_are_written_exactly() -> None:
    """An integer keeps its digits: converting it to a double is the reader's decision."""
    encoder = Encoder(Heard())
    assert '"x":9007199254740993}' in (encoder.line({"x": 9007199254740993}, 1, 5.0) or "")
    assert f'"x":{3**80}}}' in encoder.lines({"x": 3**80}, 1, 5.0)[0]


def test_short_numbers_stay_short_after_learning() -> None:
    """A learning rate reads 0.0003 in the file even when its neighbour needs all digits."""
    encoder = Encoder(Heard())
    for _ in range(3):
        assert encoder.line({"lr": 0.0003, "loss": 0.1 + 0.2}, 1, 5.0) == (
            '{"t":5.000,"step":1,"m":{"lr":0.0003,"loss":0.30000000000000004}}\n'
        )


def test_minus_zero_keeps_its_sign() -> None:
    """A column that is written with all its digits still writes -0.0 as such."""
    encoder = Encoder(Heard())
    assert encoder.line({"x": 0.1 + 0.2}, 1, 5.0) is not None
    assert encoder.line({"x": -0.0}, 1, 5.0) == '{"t":5.000,"step":1,"m":{"x":-0.0}}\n'


@pytest.mark.parametrize(
    "value",
    [
        "text",
        b"bytes",
        object(),
        ["a"],
        [[1], [2]],
        1j,
        np.complex128(1j),
        np.array(["a"]),
        np.datetime64("2026-01-01"),
        10**400,
        {"n": -1, "sum": 1.0},
        {"n": 2, "sum": float("nan")},
        {"n": 1.5},
        {"v": [1, 2], "w": [1]},
        {"v": [1], "w": [-1]},
        {"v": [1], "w": [float("nan")]},
        {1, 2},
        lambda: 1,
        range(3),
    ],
)
def test_an_unusable_value_is_left_out_and_told_and_the_rest_is_kept(value: Any) -> None:
    """The other values of the record are written, and the name of the bad one is reported."""
    (record,), heard = encode({"good": 1.5, "bad": value, "last": 2})
    assert record["m"] == {"good": 1.5, "last": 2}
    assert [name for name, _ in heard.told] == ["bad"]


def test_an_integer_no_double_can_hold_never_makes_a_line_unreadable() -> None:
    """Of a huge integer and its negative, whose sum is small, neither is written."""
    (record,), heard = encode({"a": 10**400, "b": -(10**400), "c": 1.0})
    assert record["m"] == {"c": 1.0}
    assert len(heard.told) == 2


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "2", None.__class__, [1, 2]])
def test_a_bad_weight_drops_the_value_rather_than_the_weight(weight: Any) -> None:
    """A value without its weight would be a wrong figure."""
    (record,), heard = encode({"a": 0.5}, weight=weight)
    assert record["m"] == {}
    assert [name for name, _ in heard.told] == ["a"]


def test_groups_are_flattened_and_summaries_are_not() -> None:
    """A dict is a summary if all its fields are a summary's, weighted values if it has exactly v and w, and else a
    group.
    """
    (record,), heard = encode(
        {
            "loss": {"pg": 1, "kl": {"forward": 0.5}},
            "reward": {"n": 3, "sum": 1.5, "m2": 0},
            "x": {"v": [1, 2], "w": [1, 1]},
            "grad": {"q": 1, "k": 2, "v": 3},
            "attn": {"v": 0.1, "w": 0.2},
            "n": 5,
            "counts": {"n": 3, "wrong": 1},
        }
    )
    assert heard.told == []
    assert record["m"] == {
        "loss/pg": 1,
        "loss/kl/forward": 0.5,
        "reward": {"n": 3, "sum": 1.5, "m2": 0},
        "x": {"v": [1, 2], "w": [1, 1]},
        "grad/q": 1,
        "grad/k": 2,
        "grad/v": 3,
        "attn/v": 0.1,
        "attn/w": 0.2,
        "n": 5,
        "counts/n": 3,
        "counts/wrong": 1,
    }


def test_a_summary_may_have_bins() -> None:
    """Edges and counts stand behind the other members, from lists or arrays; counts are written as integers."""
    summary = {"n": 3, "edges": np.array([0.0, 0.5, 2.0]), "counts": np.array([1.0, 2.0]), "sum": 2.5}
    heard = Heard()
    (line,) = Encoder(heard).lines({"h": summary}, 1, 5.0)
    assert line == '{"t":5.000,"step":1,"m":{"h":{"n":3,"sum":2.5,"edges":[0.0,0.5,2.0],"counts":[1,2]}}}\n'


@pytest.mark.parametrize(
    ("bins", "why"),
    [
        ({"edges": [0, 1]}, "counts are no list of finite numbers"),
        ({"edges": [0, 1], "counts": [1, 2]}, "2 edges and 2 counts, not one edge more"),
        ({"edges": [0], "counts": []}, "1 edges and 0 counts"),
        ({"edges": [1, 0], "counts": [3]}, "edges descend"),
        ({"edges": [0, float("inf")], "counts": [3]}, "edges are no list of finite numbers"),
        ({"edges": [0, 1, 2], "counts": [4, -1]}, "counts are not integers >= 0 that add up to its n, 3"),
        ({"edges": [0, 1, 2], "counts": [1.5, 1.5]}, "counts are not integers"),
        ({"edges": [0, 1], "counts": [2]}, "add up to its n, 3"),
    ],
)
def test_bins_that_are_no_histogram_are_told(bins: dict[str, Any], why: str) -> None:
    """The value is left out with the reason, and the others are kept."""
    (record,), heard = encode({"good": 1.5, "h": {"n": 3, **bins}})
    assert record["m"] == {"good": 1.5}
    assert why in heard.told[0][1]


def test_names_that_are_no_strings_are_made_into_them() -> None:
    """Integers, enums and None as keys are written as their text, also where equal keys have different texts."""
    encoder = Encoder(Heard())
    assert [orjson.loads(encoder.lines({key: 1.5}, 1, 5.0)[0])["m"] for key in (1, True, 1.0, None)] == [
        {"1": 1.5},
        {"True": 1.5},
        {"1.0": 1.5},
        {"None": 1.5},
    ]
    assert encoder.line({1: 1.5}, 1, 5.0) is None


def test_an_empty_name_is_left_out() -> None:
    """The format has no metric without a name."""
    (record,), heard = encode({"": 1.0, "a": 2.0})
    assert record["m"] == {"a": 2.0}
    assert heard.told == [("", "the name is empty")]


def test_half_surrogate_pairs_become_the_replacement_character() -> None:
    """Text that UTF-8 cannot hold is still written, and a real pair is kept."""
    encoder = Encoder(Heard())
    for key, expected in (("a\ud83d", "a\ufffd"), ("\udc00b", "\ufffdb"), ("\ud83d\ude00", "😀"), ("😀", "😀")):
        line = encoder.line({key: 1.5}, 1, 5.0)
        assert line is not None
        assert orjson.loads(line.encode())["m"] == {expected: 1.5}


def test_a_record_without_usable_values_still_says_that_the_step_was_reached() -> None:
    """An empty metrics record is written."""
    (record,), _ = encode({"a": "text"}, step=4)
    assert record == {"t": 5.0, "step": 4, "m": {}}


@settings(max_examples=few(25), deadline=None)
@given(st.integers(1, 60), st.integers(1, 400), st.integers(300, 3000))
def test_a_record_that_is_too_long_becomes_several(keys: int, values: int, limit: int) -> None:
    """Under any limit no line is longer than it, no name stands twice in a line, and no observation is lost or
    reordered.
    """
    encoder = Encoder(Heard(), limit)
    given_values = {f"metric/{k}": [k + i / 7 for i in range(values)] for k in range(keys)}
    given_values["scalar"] = 0.5
    found: dict[str, list[float]] = {}
    for text in encoder.lines(given_values, 9, 5.0):
        assert len(text) <= limit
        record = orjson.loads(text)
        assert record["step"] == 9
        assert text.count('"metric/0":') <= 1
        for name, value in record["m"].items():
            found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    assert found == {**given_values, "scalar": [0.5]}


def test_weighted_values_are_cut_with_their_weights() -> None:
    """Each part of a long weighted value has as many weights as values."""
    n = 100_000
    records, heard = encode({"x": {"v": [i + 0.123456789 for i in range(n)], "w": list(range(n))}})
    assert heard.told == []
    assert len(records) > 1
    assert all(len(record["m"]["x"]["v"]) == len(record["m"]["x"]["w"]) for record in records)
    assert [w for record in records for w in record["m"]["x"]["w"]] == list(range(n))


def test_a_short_record_that_does_not_fit_the_limit_is_split_too() -> None:
    """Many scalars beyond 1 MiB become several lines with all of them."""
    given_values = {f"metric_with_a_long_name_{i}": i + 1 / 3 for i in range(40_000)}
    records, heard = encode(given_values)
    assert heard.told == []
    assert len(records) == 2 or len(records) == 3
    assert {name: value for record in records for name, value in record["m"].items()} == given_values


@pytest.mark.parametrize("length", [MAX_NAME + 1, MAX_LINE_BYTES])
def test_a_name_that_is_too_long_is_left_out(length: int) -> None:
    """It is reported with its length, and its record's other values are kept; one of the longest name is kept."""
    (record,), heard = encode({"a" * length: 1.0, "b": 2.0, "c" * MAX_NAME: 3.0})
    assert record["m"] == {"b": 2.0, "c" * MAX_NAME: 3.0}
    assert [why for _, why in heard.told] == [f"the name has {length} characters, 1000 are allowed"]


def test_what_several_takes_is_not_told_one_by_one() -> None:
    """All that one call leaves out is offered at once, in the order of the call."""
    offered: list[list[Any]] = []

    def several(left_out: list[Any]) -> list[Any]:
        offered.append(left_out)
        return left_out[taken:]

    for taken in (0, 1, 2):
        heard = Heard()
        Encoder(heard, several=several).lines({"a": "text", "b": 1, "c": {"d": object()}}, 1, 5.0)
        assert [name for name, _, _ in offered[-1]] == ["a", "c/d"]
        assert [name for name, _ in heard.told] == ["a", "c/d"][taken:]
