"""Tables of results in a document, each between two comments, so that one command renews it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence

from benchmarks.report import Finding, Result, cells
from benchmarks.rounds import ROOT

_TABLE = re.compile(r"<!-- benchmarks (\S+) -->\n.*?<!-- end -->\n", re.DOTALL)
_HEADINGS = ("figure", "ours", "beside", "", "ours / beside", "aim", "reached")


def tables_in(text: str) -> list[str]:
    """The benchmarks that have a table in a document, as they are named on the command line."""
    return _TABLE.findall(text)


def renewed(text: str, word: str, block: str) -> str:
    """The document with another table for the benchmark that the command line calls `word`."""
    return _TABLE.sub(
        lambda found: f"<!-- benchmarks {word} -->\n{block}<!-- end -->\n" if found[1] == word else found[0],
        text,
    )


def block(word: str, result: Result, machine: str, loads: str) -> str:
    """A result as Markdown: the command, what was measured where, and the table."""
    says = (
        f"`.venv/bin/python -m benchmarks {word}`, as of {commit()}, {time.strftime('%Y-%m-%d')}: {machine}; {loads}."
    )
    return f"{says}\n\n{_markdown(result.findings)}\n"


def commit() -> str:
    """The commit of this checkout, and whether it has changes beside."""
    name = _git("rev-parse", "--short", "HEAD")
    return (
        f"{name} with changes" if name and _git("status", "--porcelain", "--", "rlship", "sidecar", "formats") else name
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _markdown(findings: Sequence[Finding]) -> str:
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *map(_emphasised, findings)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _emphasised(finding: Finding) -> tuple[str, ...]:
    *others, reached = cells(finding)
    return (*others, "**no**" if reached == "NO" else reached)
