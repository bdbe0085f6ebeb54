"""Conditions are parsed and walked: nothing in them runs, and unknown signals decide nothing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.alerts.expression import MAX_LENGTH, BadExpression, least, names, parse, reasons, truth

HOSTILE = (
    "__import__('os').system('true')",
    "a.b",
    "a[0]",
    "a == b",
    "a + b",
    "9**9**9",
    "1",
    "True",
    "'a'",
    "lambda: a",
    "[a for a in b]",
    "a if b else c",
    "(a := b)",
    "atleast(0, a)",
    "atleast(3, a, b)",
    "atleast(a, b)",
    "atleast(True, a)",
    "atleast(1, a, k=b)",
    "atleast(1, *a)",
    "other(1, a)",
    "atleast",
    "a, b",
    "a; b",
    "",
    "a and",
    "f'{a}'",
    "await a",
    "(" * 300 + "a" + ")" * 300,
    "not " * 200 + "a",
    "a or " * 400 + "a",
    "a\x00b",
    "-" * 900 + "a",
    "a" + ".b" * 400,
)


@pytest.mark.parametrize("text", HOSTILE)
def test_everything_else_is_refused(text: str) -> None:
    """Calls, attributes, numbers, comparisons, depth and length: what is no condition has a message, and never runs."""
    if text == "atleast":
        assert list(names(parse(text))) == ["atleast"]  # a name like any other, which no signal has
        return
    with pytest.raises(BadExpression):
        parse(text)


@given(st.text(max_size=60) | st.text(alphabet="abn()not,2 leas", max_size=60))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    """No text raises anything else."""
    try:
        parse(text)
    except BadExpression as problem:
        assert str(problem)


def test_names_are_those_of_the_signals() -> None:
    """Each name in a condition, `atleast` not among them."""
    assert list(names(parse("a and not b or atleast(2, c, d, a)"))) == ["a", "b", "c", "d", "a"]
    assert len("a or b" * 200) > MAX_LENGTH


ONCE_EACH = ["a and b", "a or b", "not a", "atleast(2, a, b, c)", "a and not (b or c)", "not (a or not b) or c"]
VALUES = [dict(zip("abc", values)) for values in itertools.product((True, False, None), repeat=3)]


@pytest.mark.parametrize("text", ONCE_EACH)
def test_reasons_are_enough(text: str) -> None:
    """What a condition is follows from its reasons alone, and no reason is unknown."""
    condition = parse(text)
    for signals in VALUES:
        found, by = truth(condition, signals), set(reasons(condition, signals))
        assert truth(condition, {name: one if name in by else None for name, one in signals.items()}) is found
        assert bool(by) == (found is not None) and not any(signals[name] is None for name in by)


@pytest.mark.parametrize("text", ONCE_EACH)
def test_what_is_unknown_speaks_against_a_condition(text: str) -> None:
    """`least` is false where some values of the unknown signals make the condition false, whatever kept ones are."""
    condition = parse(text)
    for signals, count in itertools.product(VALUES, range(4)):
        kept = "abc"[:count]
        free = [name for name, one in signals.items() if one is None and name not in kept]
        ways = itertools.product((True, False), repeat=len(free))
        could = any(truth(condition, {**signals, **dict(zip(free, way))}) is False for way in ways)
        assert (least(condition, signals, kept) is False) == could


@pytest.mark.parametrize(
    "text", ["a and b", "a or b", "not a", "atleast(2, a, b, c)", "a and not (b or c)", "atleast(2, a or b, c, not a)"]
)
def test_unknown_signals_decide_nothing(text: str) -> None:
    """A condition without unknowns is Python's own; with some it is unknown only where they decide."""
    condition = parse(text)

    def plainly(a: bool, b: bool, c: bool) -> bool:
        return bool(eval(text, {"a": a, "b": b, "c": c, "atleast": lambda k, *them: sum(them) >= k}))

    for values in itertools.product((True, False, None), repeat=3):
        found = truth(condition, dict(zip("abc", values)))
        ways = {
            plainly(*way)
            for way in itertools.product(*[(one,) if one is not None else (True, False) for one in values])
        }
        if found is not None:
            assert ways == {found}
        elif None not in values:
            pytest.fail("unknown without an unknown signal")
    assert truth(parse("a or b"), {"a": True, "b": None}) is True
    assert truth(parse("a and b"), {"a": False, "b": None}) is False
    assert truth(parse("atleast(2, a, b, c)"), {"a": True, "b": None, "c": False}) is None
