"""Conditions over the names of signals: `and`, `or`, `not`, brackets and `atleast(2, a, b, c)`. Pure.

Python's own parser reads the text, and only these forms are accepted. Nothing is ever evaluated as Python.

A signal may be unknown (None), because its metric was not logged. The logic is that of three values: `a or b` is true
if either is, whatever the other one is, and unknown only where that decides.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

MAX_LENGTH = 1000  # characters
MAX_DEPTH = 20
ALLOWED = "allowed are names of signals, and, or, not, brackets and atleast(2, a, b, c)"

Truth = bool | None


class BadExpression(ValueError):
    """The text is no condition; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Name:
    """A signal."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    of: Expression


@dataclass(frozen=True, slots=True)
class AtLeast:
    """True if at least `count` of the parts are: `and` needs all of them, `or` one."""

    count: int
    parts: tuple[Expression, ...]


Expression = Name | Not | AtLeast


def parse(text: str) -> Expression:
    """The condition that a text states. Raises BadExpression."""
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"it has {len(text)} characters, more than {MAX_LENGTH}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise BadExpression("it cannot be parsed") from problem
    return _read(tree.body, 0)


def _read(node: ast.expr, depth: int) -> Expression:
    if depth > MAX_DEPTH:
        raise BadExpression(f"it is nested deeper than {MAX_DEPTH}")
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Not(_read(node.operand, depth + 1))
    if isinstance(node, ast.BoolOp):
        parts = tuple(_read(part, depth + 1) for part in node.values)
        return AtLeast(len(parts) if isinstance(node.op, ast.And) else 1, parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "atleast":
        return _at_least(node, depth)
    raise BadExpression(f"{_shown(node)} is not allowed in it")


def _at_least(call: ast.Call, depth: int) -> AtLeast:
    count = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    parts = tuple(_read(part, depth + 1) for part in call.args[1:])
    if type(count) is not int or not 1 <= count <= len(parts) or call.keywords:
        raise BadExpression(f"{_shown(call)} needs a number and at least as many conditions")
    return AtLeast(count, parts)


def _shown(node: ast.expr) -> str:
    try:
        return f"{ast.unparse(node)[:60]!r}"
    except (RecursionError, ValueError):  # it is nested deeper than Python writes
        return "what is nested so deep"


def names(expression: Expression) -> Iterator[str]:
    """The signals in a condition."""
    if isinstance(expression, Name):
        yield expression.name
    elif isinstance(expression, Not):
        yield from names(expression.of)
    else:
        for part in expression.parts:
            yield from names(part)


def truth(expression: Expression, signals: Mapping[str, Truth]) -> Truth:
    """Whether a condition holds; None if that depends on unknown signals."""
    if isinstance(expression, Name):
        return signals[expression.name]
    if isinstance(expression, Not):
        found = truth(expression.of, signals)
        return None if found is None else not found
    parts = [truth(part, signals) for part in expression.parts]
    return _counted(expression.count, parts)


def reasons(expression: Expression, signals: Mapping[str, Truth]) -> Iterator[str]:
    """The signals whose truths are enough to make a condition what it is; none if that is not known."""
    found = truth(expression, signals)
    if found is None:
        return
    if isinstance(expression, Name):
        yield expression.name
    elif isinstance(expression, Not):
        yield from reasons(expression.of, signals)
    else:
        for part in expression.parts:
            if truth(part, signals) is found:
                yield from reasons(part, signals)


def least(expression: Expression, signals: Mapping[str, Truth], kept: Collection[str], *, most: bool = False) -> Truth:
    """Whether a condition holds if signals that are unknown speak against it (`most`: for it), except for those in
    `kept`, which stay unknown.
    """
    if isinstance(expression, Name):
        found = signals[expression.name]
        return most if found is None and expression.name not in kept else found
    if isinstance(expression, Not):
        found = least(expression.of, signals, kept, most=not most)
        return None if found is None else not found
    return _counted(expression.count, [least(part, signals, kept, most=most) for part in expression.parts])


def _counted(count: int, parts: list[Truth]) -> Truth:
    certain = parts.count(True)
    if certain >= count:
        return True
    return None if certain + parts.count(None) >= count else False
