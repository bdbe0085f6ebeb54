"""The Python code that CONTRIBUTING.md shows, by the heading above it."""

from __future__ import annotations

import re

from tests.guards.tree import ROOT

PAGE = ROOT / "CONTRIBUTING.md"


def code_below(heading: str) -> list[str]:
    """The Python blocks of a section, in order; fails where there is no such section or no code in it."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert blocks, f"CONTRIBUTING.md has no code below {heading!r}"
    return blocks
