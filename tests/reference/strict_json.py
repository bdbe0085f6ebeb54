"""RFC 8259 and nothing more, on top of the standard library's lenient parser."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

DEEPEST = 1024
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def parse(line: bytes) -> Any:
    """The value of one JSON text in UTF-8; ValueError for whatever a strict parser refuses.

    Duplicate names: the last wins. An integer outside -2^63..2^64-1 becomes a float. Refused beyond the grammar's own
    rules: numbers too large for a double, escapes of half a surrogate pair, a byte order mark, and anything nested more
    than 1024 deep.
    """
    text = line.decode("utf-8")
    depth = nesting(text)
    if depth > DEEPEST:
        raise ValueError(f"nested {depth} deep, more than {DEEPEST}")
    limit = sys.getrecursionlimit()
    try:
        # The standard parser recurses once a level, on top of however deep the caller already is.
        sys.setrecursionlimit(max(limit, 20_000) if depth > 50 else limit)
        value = json.loads(
            text,
            object_pairs_hook=checked_object,
            parse_constant=refused_constant,
            parse_float=finite,
            parse_int=integer,
        )
    finally:
        sys.setrecursionlimit(limit)
    refuse_half_pairs(value)
    return value


def nesting(text: str) -> int:
    """How many arrays and objects are open at once, at most."""
    if text.count("[") + text.count("{") <= 50:
        return 0
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", STRING.sub("", text)):
        depth += 1 if mark in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, once every name and string in it is known to be sound: a duplicate that loses is checked too."""
    for name, value in pairs:
        refuse_half_pairs(name)
        refuse_half_pairs(value)
    return dict(pairs)


def refuse_half_pairs(value: Any) -> None:
    """ValueError if a string, or a string somewhere in a list, holds half a surrogate pair."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            item.encode("utf-8")  # UnicodeEncodeError is a ValueError
        elif isinstance(item, list):
            waiting.extend(item)


def refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a double")
    return number


def integer(text: str) -> int | float:
    if len(text) <= 20:
        number = int(text)
        if -(2**63) <= number <= 2**64 - 1:
            return number
    return finite(text)
