"""What the documents say about the command line exists, and their links lead to something."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import msgspec
import pytest

from rlship_sidecar.cli.group import SETTINGS, rlship
from rlship_sidecar.report.status import (
    ActorStatus,
    ClockStatus,
    DeadLetterStatus,
    LackingStatus,
    RunStatus,
    SinkStatus,
    Status,
    StreamStatus,
    TrendStatus,
    WriterStatus,
)
from tests.guards.tree import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(page for folder in ("docs", "formats", "tests", "examples") for page in (ROOT / folder).rglob("*.md")),
]
FENCED = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# Commands of others that have the word as an argument: pip install rlship, docker run rlship …
COMMAND = re.compile(r"(?:^|[|;&$(]|python3? -m|uvx|sudo|nohup|exec|bin/)\s*rlship((?:[ \t]+[^\s|;&`)]+)*)")


def code(text: str) -> Iterator[str]:
    """Lines of fenced blocks, joined where they end in a backslash, and spans of inline code."""
    for block in FENCED.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", FENCED.sub("", text))


def problems(text: str) -> list[str]:
    """Verbs and flags in `text` that the command line does not have."""
    told = []
    for line in code(text):
        for words in (match.split() for match in COMMAND.findall(line)):
            told += [f"{line.strip()}: {problem}" for problem in _unknown(words)]
    return told


def _unknown(words: list[str]) -> Iterator[str]:
    command: click.Command = rlship
    for word in words:
        if word in ("#", "--"):  # what follows is a comment, or a command of another program
            return
        if word.startswith("-") and word != "-":
            if word.partition("=")[0] not in _flags(command):
                yield f"no option {word}"
        elif command is rlship and re.fullmatch(r"[a-z][a-z-]*", word):
            if word not in rlship.commands:
                yield f"no verb {word}"
                return
            command = rlship.commands[word]
        elif isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]


def _flags(command: click.Command) -> set[str]:
    options = command.get_params(command.make_context("rlship", [], resilient_parsing=True, **SETTINGS))
    return {flag for option in options for flag in (*option.opts, *option.secondary_opts) if flag.startswith("-")}


def test_documents_match_the_command_line() -> None:
    """Every `rlship <verb>` and `--flag` in README.md and docs/ exists."""
    found = [f"{file.name}: {line}" for file in DOCUMENTS for line in problems(file.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_mistakes_in_documents_are_found() -> None:
    """Verbs and flags that do not exist are found in blocks, spans and continued lines; others' commands are let be."""
    text = """
Run `rlship wach DIR` or `python -m rlship watch --onse`, `rlship --versio`, but `pip install rlship --no-deps`,
`rlship watch DIR --once --sink=jsonl`, `rlship -h`, `import rlship` and `rlship status --json | jq .rows` are fine.
```sh
$ rlship demo demo \\
    --quick
rlship watch outputs/   # rlship: --comments are no flags
```
"""
    assert [line.rpartition(": ")[2] for line in problems(text)] == [
        "no option --quick",
        "no verb wach",
        "no option --onse",
        "no option --versio",
    ]


def test_every_verb_is_in_the_readme() -> None:
    """README.md shows how to use each verb."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [verb for verb in rlship.commands if f"rlship {verb}" not in readme] == []


def test_every_field_of_the_status_is_documented() -> None:
    """docs/status.md has a row for each field of the JSON that `status` and `watch` print."""
    told = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "status.md").read_text(encoding="utf-8")))
    parts = (
        Status,
        ActorStatus,
        WriterStatus,
        SinkStatus,
        DeadLetterStatus,
        LackingStatus,
        StreamStatus,
        ClockStatus,
        TrendStatus,
        RunStatus,
    )
    known = [part.__name__ + "." + one.name for part in parts for one in msgspec.inspect.type_info(part).fields]  # type: ignore[attr-defined]
    assert [name for name in known if name.partition(".")[2] not in told] == []


def anchors(text: str) -> set[str]:
    """What GitHub lets the headings of a page be linked by: the second of two equal ones ends in -1."""
    seen: Counter[str] = Counter()
    found = set()
    for title in re.findall(r"^#+ (.*?)\s*$", FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


TABLE = re.compile(r"(?:^ *\|.*\n?)+", re.MULTILINE)


def headless_tables(text: str) -> list[str]:
    """The first lines of tables that lack the line below their head, so that Markdown shows their text as it is."""
    tables = [found.splitlines() for found in TABLE.findall(FENCED.sub("", text))]
    return [lines[0] for lines in tables if len(lines) < 2 or not re.fullmatch(r" *\|(?: *:?-+:? *\|)+", lines[1])]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_have_heads(page: Path) -> None:
    """An empty line within a table makes a second one of its rest, which has none."""
    assert headless_tables(page.read_text(encoding="utf-8")) == []


def test_a_table_that_was_cut_is_found() -> None:
    """Only the part without a head is, and nothing in a block of code."""
    assert headless_tables("| a | b |\n|---|--:|\n| 1 | 2 |\n\n| 3 | 4 |\n| 5 | 6 |\n") == ["| 3 | 4 |"]
    assert headless_tables("```\n| 3 | 4 |\n```\n") == []


def dead_links(page: Path, text: str) -> list[str]:
    """Links in `text`, which stands in `page`, to files and headings that do not exist. Other sites are not asked."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", FENCED.sub("", text))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        other = page.parent / name if name else page
        if not other.exists():
            found.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(text if other == page else other.read_text(encoding="utf-8")):
            found.append(f"{target}: no such heading")
    return found


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the project, and to a heading, leads there."""
    assert dead_links(page, page.read_text(encoding="utf-8")) == []


def test_dead_links_are_found() -> None:
    """A file and a heading that do not exist are found; sites, code and the second of equal headings pass."""
    text = """
# One `--flag`, and [two](there.md)
## Again
## Again
[a](#one---flag-and-two) [b](#again-1) [c](#again-2) [d](README.md#documents) [e](README.md#nowhere) [f](no.md)
[g](https://example.com/#h) `[h](no.md)`
```sh
# [i](no.md)
```
[j](#i)
"""
    assert dead_links(ROOT / "docs" / "query.md", text) == [
        "there.md: no such file",
        "#again-2: no such heading",
        "README.md#nowhere: no such heading",
        "no.md: no such file",
        "#i: no such heading",
    ]
