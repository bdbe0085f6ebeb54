"""A guard against phrases that no native engineer writes."""

from __future__ import annotations

import re
from collections import Counter

from tests.guards.known import PHRASES
from tests.guards.tree import ROOT, files, name_of

TEXT = {".py", ".md", ".toml", ".sh", ".c", ".h", ".rs", ".go", ".js", ".mjs", ".ts", ".yaml", ".service", ""}
FOREIGN_ENGLISH = re.compile(
    r"\b(?:(?:is|are)\s+told|who\s+(?:reads|asks|watches)|nobody|somebody|to\s+be\s+had)\b"
    # In lower case only: `is None` is Python.
    r"|(?-i:\b(?:is|are)\s+none\b)",
    re.IGNORECASE,
)


def folder_of(name: str) -> str:
    """What a file's phrases are counted under: the package or the folder at the top that it lies in."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in ("sidecar", "formats") else parts[0]


def test_phrases_become_fewer() -> None:
    """No folder has more of them than it had."""
    counts: Counter[str] = Counter()
    for file in files():
        if file.suffix in TEXT and file.parent != ROOT / "tests" / "guards":
            text = re.sub(r"\n\s*(?:#|//|\*)?\s*", " ", file.read_text(encoding="utf-8", errors="replace"))
            counts[folder_of(name_of(file))] += len(FOREIGN_ENGLISH.findall(text))
    found = {folder: count for folder, count in counts.items() if count > PHRASES.get(folder, 0)}
    assert not found, f"{found}: write who does what (docs/glossary.md has the nouns)"


def test_phrases_are_found() -> None:
    """Each phrase counts, in capitals too; Python's `is None` and an ordinary relative clause do not."""
    text = "Nobody is told who reads. None is to be had, so there is none. If x is None, ask the user who wrote it."
    assert FOREIGN_ENGLISH.findall(text) == ["Nobody", "is told", "who reads", "to be had", "is none"]
