"""Digests of fields: the vectors both ways, the reference, every form of a value, swaps."""

from __future__ import annotations

import json
import re
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.ledgers import canonical, entry
from rlship.ledgers.digest import field_digest, keeps, mix64
from rlship.values import UnusableError
from tests.kit.cases import statistical
from tests.ledger.swaps import missed
from tests.reference import digests as reference
from tests.spec.vectors import VECTORS

VECTOR: dict[str, Any] = json.loads((VECTORS / "digests.json").read_text(encoding="utf-8"))
INT64 = st.integers(-(2**63), 2**63 - 1)
TOKENS = st.one_of(st.lists(st.integers(0, 200_000)), st.lists(INT64), st.lists(st.integers(-(2**31), 2**31 - 1)))
NUMBERS = st.lists(st.one_of(st.floats(), st.floats(width=32), st.integers(-5, 5)))


def record_of(**given: Any) -> dict[str, Any]:
    """The record that a call makes of its one group."""
    (line,) = entry.lines(entry.Given("trained", "k", given), [("k", None)], None, 1.0)
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("case", VECTOR["mix64"], ids=lambda case: case["x"])
def test_mixing_is_that_of_the_vectors(case: dict[str, str]) -> None:
    """The finaliser gives the words of the vectors, in the writer and in the reference."""
    assert mix64(int(case["x"])) == reference.mix64(int(case["x"])) == int(case["is"])


@pytest.mark.parametrize("case", VECTOR["canonical"], ids=lambda case: f"{case['field']}-{case['bytes'][:20]}")
def test_canonical_bytes_are_those_of_the_vectors(case: dict[str, Any]) -> None:
    """Values have the bytes and CRCs of the vectors, from lists and from arrays."""
    values = [float(x) if isinstance(x, str) else x for x in case["values"]]
    precision = case.get("precision", "")
    crc: Any = {
        "integers": canonical.integers_crc,
        "mask": canonical.mask_crc,
        "numbers": lambda row: canonical.floats_crc(row, precision),
    }[case["kind"]]
    dtype = {"integers": np.int64, "mask": np.uint8, "numbers": np.float64}[case["kind"]]
    bytes_of: Any = {
        "integers": reference.of_integers,
        "mask": reference.of_mask,
        "numbers": lambda row: reference.of_numbers(row, precision),
    }[case["kind"]]
    assert bytes_of(values).hex() == case["bytes"]
    assert crc(values) == crc(np.array(values, dtype)) == reference.crc(bytes.fromhex(case["bytes"])) == case["crc"]
    assert reference.crc(bytes.fromhex(case["bytes"]) + case["field"].encode()) == case["value"]


@pytest.mark.parametrize("case", VECTOR["groups"], ids=lambda case: case["about"])
def test_groups_have_the_digests_of_the_vectors(case: dict[str, Any]) -> None:
    """A call makes the digests of the vectors."""
    found = record_of(**case["given"])
    assert (found.get("by", ""), found["d"]) == (case["by"], case["d"])


@pytest.mark.parametrize("case", VECTOR["keys"], ids=lambda case: case["key"])
def test_keys_are_kept_as_in_the_vectors(case: dict[str, Any]) -> None:
    """The word of a key decides: every share above it keeps the key, and none below."""
    word = case["word"] / 2**53
    assert not keeps(case["key"], word)
    assert keeps(case["key"], (case["word"] + 1) / 2**53)
    assert keeps(case["key"], 1 / 8) == case["kept_of_an_eighth"]
    assert keeps(case["key"], 1) and not keeps(case["key"], 0)


@statistical(200)
@given(TOKENS)
def test_integers_are_equal_in_every_form(row: list[int]) -> None:
    """Lists, tuples and arrays of any width that holds them give the CRC of the reference."""
    expected = reference.crc(reference.of_integers(row))
    forms: list[Any] = [row, tuple(row), array("q", row), np.array(row, np.int64), np.array(row, ">i8")]
    if all(-(2**31) <= x < 2**31 for x in row):
        forms += [
            np.array(row, np.int32),
            array("i", row),
            memoryview(array("i", row)),
            np.array(row * 2, np.int64)[: len(row)],
        ]
        forms.append(np.repeat(np.array(row, np.int64), 2)[::2])
    if all(x >= 0 for x in row):
        forms.append(np.array(row, np.uint64))
    assert {canonical.integers_crc(form) for form in forms} == {expected}


@statistical(200)
@given(NUMBERS, st.sampled_from(["", "bf16"]))
def test_numbers_are_equal_in_every_form(row: list[float], precision: str) -> None:
    """Lists and arrays of float64 give the CRC of the reference, and so do the same numbers as float32."""
    expected = reference.crc(reference.of_numbers(row, precision))
    with np.errstate(over="ignore"):
        forms: list[Any] = [row, np.array(row, np.float64), np.array(row, np.float64).astype(np.float32)]
    assert {canonical.floats_crc(form, precision) for form in forms} == {expected}


@statistical(100)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=6), st.floats(width=32)), max_size=6), st.data())
def test_order_and_parts_make_no_difference(samples: list[tuple[list[int], float]], data: st.DataObject) -> None:
    """The digests of samples in another order are the same, and those of two parts add up to those of the whole."""
    whole = field_digests(samples)
    assert field_digests(data.draw(st.permutations(samples))) == whole
    at = data.draw(st.integers(0, len(samples)))
    assert [a + b for a, b in zip(field_digests(samples[:at]), field_digests(samples[at:]))] == whole


def field_digests(samples: list[tuple[list[int], float]]) -> list[int]:
    """The digests of tokens and reward, one after the other."""
    ids = [canonical.integers_crc(tokens) for tokens, _ in samples]
    rewards = [canonical.floats_crc(reward) for _, reward in samples]
    return [*field_digest("tokens", ids, ids), *field_digest("reward", ids, rewards)]


def test_padding_is_left_out_in_every_layout() -> None:
    """A group in ragged lists, padded with lengths, with a mask at the right, and with padding at the left agree."""
    rows = [[5, 6, 7], [8], [9, 10]]
    right = np.array([[5, 6, 7, 0], [8, 0, 0, 0], [9, 10, 0, 0]])
    left = np.array([[0, 5, 6, 7], [0, 0, 0, 8], [0, 0, 9, 10]])
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    scores = [0.5, 1.0, 0.0]
    by_token = np.array([[0, 0, 0.5, 0], [1.0, 0, 0, 0], [0, 0, 0, 0]], np.float32)
    expected = record_of(tokens=rows, reward=scores, mask=[[1, 1, 1], [1], [0, 1]])
    for form in (
        {"tokens": right.astype(np.int32), "lengths": [3, 1, 2], "reward": np.array(scores, np.float32), "mask": mask},
        {"tokens": right.tolist(), "lengths": np.array([3, 1, 2]), "reward": scores, "mask": mask.tolist()},
        {"tokens": right, "mask": mask, "reward": by_token},
        {
            "tokens": left,
            "attention_mask": left != 0,
            "reward": scores,
            "mask": np.array([[0, 1, 1, 1], [0, 0, 0, 1], [0, 0, 0, 1]]),
        },
        {"tokens": [np.array(row) for row in rows], "reward": scores, "mask": [[1, 1, 1], [1], [0, 1]]},
    ):
        assert record_of(**form) == expected
    assert expected["mask"] == [5, 6, 0]


def test_a_batch_is_recorded_by_group() -> None:
    """With a key for each sample, each group has the digests of its own samples, in whatever order they stand."""
    keys, tokens, rewards = np.array(["a", "b", "a"], object), [[1], [2, 3], [4]], np.array([1.0, 0.0, 0.5])
    given = entry.Given("trained", keys, {"tokens": tokens, "reward": rewards, "version": np.array([3, 4, 5])})
    groups = entry.groups_of(given, 1.0)
    of_a, of_b = map(json.loads, entry.lines(given, groups, 7, 1.0))
    assert of_a["d"] == record_of(tokens=[[4], [1]], reward=[0.5, 1.0])["d"]
    assert of_b["d"] == record_of(tokens=[[2, 3]], reward=[0.0])["d"]
    assert (of_a["n"], of_a["version"], of_a["step"]) == (2, [3, 5], 7)


def test_sums_beside_the_digests() -> None:
    """Sums of rewards and advantages, the product that shows a flipped sign, and the tokens that count."""
    tokens = [[1, 2], [3, 4], [5, 6]]
    found = record_of(
        tokens=tokens,
        reward=[0.0, 1.0, 2.0],
        advantage=[[-1.0] * 2, [9.0, 0.0], [1.0] * 2],
        mask=[[1, 1], [0, 1], [0, 0]],
        response=[2, 2, 1],
        passes=3,
        part=(1, 4),
        retry=2,
        why="x",
    )
    assert found["reward"] == [3.0, 5.0]
    assert found["advantage"] == [-1.0, 1.0, 1.0]  # of the third sample no token counts
    assert (found["mask"], found["response"]) == ([3, 6, 1], 5)
    assert (found["passes"], found["part"], found["try"], found["why"]) == (3, [1, 4], 2, "x")
    assert "reward" not in record_of(tokens=tokens, reward=[1.0, float("nan"), 0.0])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "n= is needed"),
        ({"n": -1}, "n=-1 is not an integer"),
        ({"n": 2, "reward": [1.0]}, "reward= has values of 1 samples, and n is 2"),
        ({"tokens": 5}, "tokens= has no value for each sample"),
        ({"tokens": "ab"}, "tokens= has no value for each sample"),
        ({"tokens": [[1.5]]}, "tokens= holds something that is no number"),
        ({"tokens": np.array([[1.5]])}, "integers are needed, not float64"),
        ({"tokens": [[2**63]]}, "does not fit in 64 bits"),
        ({"tokens": np.array([[2**63]], np.uint64)}, "does not fit in 64 bits"),
        ({"reward": ["x"]}, "reward= holds something that is no number"),
        ({"reward": [10**400]}, "reward= holds something that is no number"),
        ({"reward": {"a": 1.0}}, "reward= has no value for each sample"),
        ({"n": 1, "part": (2, 2)}, "part=(2, 2) is not (i, k)"),
        ({"n": 1, "part": (0,)}, "part=(0,) is not (i, k)"),
        ({"n": 1, "part": 3}, "part=3 is not (i, k)"),
        ({"n": 2, "version": [1]}, "version= has values of 1 samples, and the call has 2"),
        ({"n": 2, "response": [1, 2, 3]}, "response= has values of 3 samples, and the call has 2"),
        ({"n": 1, "passes": 0}, "passes=0 is not an integer from 1"),
        ({"n": 1, "version": "a"}, "version"),
        ({"n": 1, "precision": "fp8"}, "precision='fp8' is not known"),
        ({"tokens": [[1, 2]], "attention_mask": [[1]]}, "attention_mask"),
    ],
)
def test_what_cannot_be_used_is_said(given: dict[str, Any], why: str) -> None:
    """A call that cannot be used raises the error that the writer reports."""
    with pytest.raises(UnusableError, match=re.escape(why)):
        record_of(**given)


@pytest.mark.parametrize("keys", [["a", "a"], ["a", "a", "b", "b", "b"]])
def test_a_batch_has_as_many_keys_as_samples(keys: list[str]) -> None:
    """Samples without a key would be missing in their groups, so the call is left out; and so with keys too many."""
    given = entry.Given("generated", keys, {"tokens": [[1], [2], [3], [4]]})
    with pytest.raises(UnusableError, match=f"tokens= has values of 4 samples, and key= of {len(keys)}"):
        entry.lines(given, entry.groups_of(given, 1.0), None, 0.0)


@pytest.mark.parametrize("key", [7, "7", np.int64(7), np.array(7)])
def test_a_number_is_the_key_of_one_group(key: Any) -> None:
    """A scalar of numpy, too, as the index of a data set gives it."""
    assert entry.groups_of(entry.Given("generated", key, {}), 1.0) == [("7", None)]


@pytest.mark.parametrize("key", [None, 1.5, b"ab", {"a": 1}, object()])
def test_anything_else_is_no_key(key: Any) -> None:
    """The error says what is."""
    with pytest.raises(UnusableError, match="give a text, an integer, or a list of them"):
        entry.groups_of(entry.Given("generated", key, {}), 1.0)


def test_what_a_fault_may_leave_is_recorded() -> None:
    """The ledger is there to see faults: texts that are half a surrogate pair, rewards of tokens whose sum no double
    holds, and a mask that is shorter than its row and counts nothing make a record.
    """
    assert [name for name, _ in entry.groups_of(entry.Given("generated", "\ud800", {}), 1.0)] == ["\ud800"]
    assert record_of(sample=["\ud800", "\ud801"], reward=[1.0, 2.0])["n"] == 2
    assert "reward" not in record_of(tokens=[[1]], reward=[[float("inf"), float("-inf")]])
    assert "reward" not in record_of(tokens=[[1]], reward=[[1e308, 1e308]])
    assert record_of(tokens=[[1, 2, 3]], mask=[[0, 0]], advantage=[[1.0, 2.0, 3.0]])["advantage"] == [0.0, 0.0]


def test_the_share_of_keys_is_kept() -> None:
    """Of a hundred thousand keys a share of one eighth keeps an eighth, within five standard deviations."""
    kept = sum(keeps(f"prompt-{number}:{number % 3}", 1 / 8) for number in range(100_000))
    assert abs(kept - 12_500) < 5 * (100_000 * 7 / 64) ** 0.5


def test_every_swap_of_two_samples_is_seen() -> None:
    """Of 100,000 swaps of the rewards, tokens or masks of two samples, each changes the digest."""
    assert missed(100_000, seed=1) == []
