"""Parses foreign JSON into plain data for native records."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from rlship_formats.reading import MAX_DURATION_S
from rlship_formats.records import MAX_STEP, T_MAX, T_MIN, BadRecord


def parse(raw: bytes) -> dict[str, Any]:
    """The object in a line. Bare NaN, Infinity and -Infinity are not JSON; they become the texts that stand for them in
    native records. Raises BadRecord.
    """
    found = parse_any(raw)
    if not isinstance(found, dict):
        raise BadRecord("not an object")
    return found


def parse_any(raw: bytes) -> Any:
    """Like `parse`, for any JSON value."""
    try:
        return orjson.loads(raw)
    except ValueError:
        if b"NaN" not in raw and b"Infinity" not in raw:
            raise BadRecord("not JSON") from None
    try:
        found = json.loads(raw, parse_constant=str, parse_float=_float, parse_int=_int)
        if b"\\u" in raw:
            json.dumps(found, ensure_ascii=False).encode()  # rejects half a surrogate pair, as orjson does
    except (ValueError, RecursionError):
        raise BadRecord("not JSON") from None
    return found


def step_of(value: object) -> int:
    """A step: an integer in 0..2^53-1, which may be written like 10.0. Raises BadRecord."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_STEP:
        raise BadRecord("bad step")
    return value


def is_number(value: object) -> bool:
    """True if a value of a foreign line is one observation: a number, or the text of a non-finite one."""
    if isinstance(value, str):
        return value in ("NaN", "Infinity", "-Infinity")
    return isinstance(value, (float, int)) and not isinstance(value, bool)


def is_time(value: object) -> bool:
    """True if a value can be the `t` of a record, in Unix seconds."""
    return isinstance(value, (float, int)) and not isinstance(value, bool) and T_MIN <= value <= T_MAX


def time_of(value: object) -> float | None:
    """A value as the `t` of a record; None if it cannot be one."""
    return float(value) if isinstance(value, (float, int)) and is_time(value) else None


def duration_of(value: object) -> float:
    """A value as the length of a span, in seconds. Raises BadRecord."""
    if not isinstance(value, (float, int)) or isinstance(value, bool) or not 0 <= value <= MAX_DURATION_S:
        raise BadRecord("bad duration")
    return float(value)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadRecord("not JSON")
    return value


def _int(text: str) -> int | float:
    return int(text) if len(text) <= 18 else _float(text)
