"""Which known names a wrong one may stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CLOSE = 0.7  # of difflib's ratio; below it, names that merely share some letters are suggested


def similar(word: str, words: Iterable[str], most: int = 1) -> list[str]:
    """The known names that are nearly `word`, the nearest first; in upper or lower case."""
    known: dict[str, str] = {}
    for name in words:
        known.setdefault(name.lower(), name)
    return [known[name] for name in difflib.get_close_matches(word.lower(), known, most, CLOSE)]
