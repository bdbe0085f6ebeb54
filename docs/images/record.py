"""Draw what a command printed as an SVG of a terminal: `python docs/images/record.py OUT.svg TITLE < text`.

The picture names fonts of the reader's machine only, so that it loads nothing from elsewhere.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

MAX_LINES = 40


def svg(text: str, title: str) -> str:
    """The last lines of `text` as an SVG, with its terminal colours."""
    lines = text.splitlines()[-MAX_LINES:]
    width = max(map(len, lines), default=1)
    console = Console(record=True, width=min(100, width), file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), overflow="crop", no_wrap=True)
    own_fonts = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=title, code_format=own_fonts, unique_id="terminal")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(svg(sys.stdin.read(), sys.argv[2]), encoding="utf-8")
