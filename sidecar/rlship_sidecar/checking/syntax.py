"""Why a line is not JSON, and which of its names occur twice."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

from rlship_sidecar.checking.finding import Reason, shown

_ONE_LINE = "write one whole JSON object a line, its LF included, with one write call"
_HALF_A_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u....)\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s\[\]{}:,"]+')
MAX_DEPTH = 1024


class _Bare(ValueError):
    """A bare word that is not JSON."""


def not_json(line: bytes) -> Reason:
    """The reason why a strict parser rejects the line."""
    if line.startswith(b"\xef\xbb\xbf"):
        return Reason("it begins with a byte order mark", "write UTF-8 without one", 1)
    if (nul := line.find(0)) >= 0:
        fix = "never write NUL bytes; a run of them is a hole that a crash or a network filesystem left in the file"
        return Reason("it has NUL bytes", fix, nul + 1)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        why = f"byte 0x{line[error.start]:02x} is not UTF-8"
        return Reason(why, "write UTF-8, and never cut a text within a character", error.start + 1)
    try:
        json.loads(text, parse_constant=_bare)
    except _Bare as word:
        column = _column_of(line, str(word).encode())
        return Reason(f"{word} is not JSON", f'write the string "{word}"', column)
    except json.JSONDecodeError as error:
        return _refused(text, error)
    except RecursionError:
        pass
    else:
        for found in _TOKEN.finditer(line):
            if found[0][:1] != b'"' and _is_infinite(found[0]):
                why = f"{shown(found[0].decode())} is too large for a double"
                return Reason(
                    why, 'write a number up to 1.7976931348623157e308, or the string "Infinity"', found.start() + 1
                )
        if half := _HALF_A_PAIR.search(text):
            why = f"{half[0]} is half a surrogate pair"
            return Reason(why, "write U+FFFD in its place, or both halves", len(text[: half.start()].encode()) + 1)
    if max(line.count(b"["), line.count(b"{")) >= MAX_DEPTH // 2:
        return Reason(f"arrays and objects are nested deeper than {MAX_DEPTH}", "write flatter values")
    try:
        orjson.loads(line)
    except ValueError as error:
        return Reason(f"a strict JSON parser reports: {error}", _ONE_LINE)
    return Reason("a strict JSON parser rejects it", _ONE_LINE)


def _refused(text: str, error: json.JSONDecodeError) -> Reason:
    column = len(text[: error.pos].encode()) + 1
    if not text.lstrip().startswith("{"):  # plain text, or the end of a record: the parser's own words would mislead
        begin = len(text) - len(text.lstrip()) + 1
        return Reason(f"it does not begin with {{: {shown(text.strip())}", _ONE_LINE, begin)
    if error.msg == "Extra data":
        why = f"something follows its object: {shown(text[error.pos :])}"
        return Reason(why, "end each record with an LF: two records that were written at once share one line", column)
    torn = not text.rstrip().endswith("}") or error.pos >= len(text)
    why = "it is torn: it ends in the middle of a record" if torn else error.msg[0].lower() + error.msg[1:]
    fix = _ONE_LINE
    if torn:
        fix += "; after a write that may have been cut short write an LF, a gap, and the defines again"
    elif error.msg.startswith("Invalid control character"):
        fix = "escape control characters in strings: \\n, \\t, \\u0000 to \\u001f"
    return Reason(why, fix, column)


def _bare(word: str) -> NoReturn:
    raise _Bare(word)


def _is_infinite(token: bytes) -> bool:
    try:
        return float(token) in (float("inf"), float("-inf"))
    except ValueError:
        return False


def _column_of(line: bytes, word: bytes) -> int | None:
    return next((found.start() + 1 for found in _TOKEN.finditer(line) if found[0] == word), None)


def twice(line: bytes) -> list[str]:
    """The names that occur twice in one object of the line, which is JSON."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen and name not in found:
                found.append(name)
            seen.add(name)

    try:
        json.loads(line, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return []
    return found
