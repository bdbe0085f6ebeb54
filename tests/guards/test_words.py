"""A guard against phrases that no native engineer writes."""

from __future__ import annotations

import re

from tests.guards.tree import ROOT, files, name_of

TEXT = {".py", ".md", ".toml", ".sh", ".c", ".h", ".rs", ".go", ".js", ".mjs", ".ts", ".yaml", ".service", ""}
FOREIGN_ENGLISH = re.compile(
    r"\b(?:(?:is|are)\s+told|told\s+of|who\s+(?:reads|asks|watches)|whoever|nobody|somebody|to\s+be\s+had)\b"
    # In lower case only: `is None` is Python.
    r"|(?-i:\b(?:(?:is|are)\s+none|none\s+is)\b)",
    re.IGNORECASE,
)


def test_no_text_has_such_a_phrase() -> None:
    """A sentence names its subject, and says what is not there."""
    found = {}
    for file in files():
        if file.suffix in TEXT and file.parent != ROOT / "tests" / "guards":
            text = re.sub(r"\n\s*(?:#|//|\*)?\s*", " ", file.read_text(encoding="utf-8", errors="replace"))
            if phrases := FOREIGN_ENGLISH.findall(text):
                found[name_of(file)] = phrases
    assert not found, f"{found}: write who does what (docs/glossary.md has the nouns)"


def test_phrases_are_found() -> None:
    """Each phrase counts, in capitals too; Python's `is None` and an ordinary relative clause do not."""
    text = "Nobody is told who reads. None is to be had, so there is none. If x is None, ask the user who wrote it."
    assert FOREIGN_ENGLISH.findall(text) == ["Nobody", "is told", "who reads", "to be had", "is none"]
    assert FOREIGN_ENGLISH.findall("Whoever asks, told of it once, sees that none is left.") == [
        "Whoever",
        "told of",
        "none is",
    ]
