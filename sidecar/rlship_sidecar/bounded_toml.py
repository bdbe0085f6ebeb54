"""TOML with bounds that are checked before it is parsed.

The standard library's parser takes a gigabyte for 32 kB of dotted keys, and ends in a traceback for deep arrays and
long integers.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

MAX_BYTES = 1 << 18
MAX_KEY_PARTS = 16
MAX_NESTING = 16
MAX_WORD = 200

# An unterminated string reaches to the end of the line or of the file, where the parser fails.
_STRING_OR_COMMENT = re.compile(
    r""""{3}(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|(#[^\n]*)""",
    re.DOTALL,
)
_BLANKS = re.compile(r"[ \t]+")
_LONG_KEY = re.compile(rf'(?:\.(?:[\w-]+|"")){{{MAX_KEY_PARTS}}}')
_LONG_WORD = re.compile(rf"[\w+-]{{{MAX_WORD + 1}}}")
_BRACKET = re.compile(r"[][{}]")


class BadToml(Exception):
    """The text is not TOML, or exceeds a bound. `message` names the problem, `hint` the way out."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint


def decode(raw: bytes) -> dict[str, Any]:
    """Parse `raw` into a table. Raises BadToml."""
    if len(raw) > MAX_BYTES:
        raise BadToml(f"is larger than {MAX_BYTES >> 10} KiB", "settings are short: keep everything else elsewhere")
    try:
        _check(raw.decode())
        table: dict[str, Any] = msgspec.toml.decode(raw)
    except (msgspec.DecodeError, ValueError) as problem:
        raise BadToml(f"not TOML: {problem}", 'strings need quotes: state_dir = "/scratch/state"') from problem
    return table


def _check(text: str) -> None:
    """Raise BadToml if the text outside of strings and comments exceeds a bound."""
    bare = _BLANKS.sub("", _STRING_OR_COMMENT.sub(lambda found: "" if found[1] else '""', text))
    if _LONG_KEY.search(bare):
        raise BadToml(
            f"a key has more than {MAX_KEY_PARTS} parts with dots between them",
            "no setting lies so deep; a metric's name needs quotes",
        )
    if _LONG_WORD.search(bare):
        raise BadToml(
            f"a number, or a name without quotes, has more than {MAX_WORD} characters", "a long name needs quotes"
        )
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise BadToml(f"more than {MAX_NESTING} brackets are open at once", "no setting lies so deep")
