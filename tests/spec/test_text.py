"""The text of the specification against the code: whatever code names stands there."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlship import buffer, definitions, encode, endings, filesystem, identity, quota, registry, rundata, settings, spans
from rlship import records as record_lines
from rlship import values as written_values
from rlship.flusher import Timing
from rlship.ledgers import entry
from rlship_formats import reading, records, values
from rlship_formats.reading import KNOWN_KINDS
from rlship_formats.values import REDUCTIONS
from tests.guards.tree import PACKAGES, ROOT, modules
from tests.spec import decoded
from tests.spec.schemas import documents, faults
from tests.spec.vectors import SPEC

TEXT = SPEC.read_text(encoding="utf-8")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [line for kind, block in FENCED.findall(TEXT) if kind == "json" for line in block.splitlines()]
PROSE = FENCED.sub("", TEXT)
SAID = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`\n]+)`", PROSE)))) | {
    name for line in EXAMPLES for name in re.findall(r'"(\w+)":', line)
}
READERS = [
    *(PACKAGES["rlship_formats"] / f"{name}.py" for name in ("records", "reading", "values")),
    PACKAGES["rlship_sidecar"] / "decode" / "decoder.py",
]


def section(title: str) -> str:
    """The text under a heading of the second level."""
    return TEXT.split(f" {title}\n", 1)[1].split("\n## ", 1)[0]


def trees(files: list[Path]) -> Iterator[ast.AST]:
    """Every node of these modules."""
    for file in files:
        yield from ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def text_of(node: ast.AST | None) -> str | None:
    """The text that a node is, None if it is something else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def texts(files: list[Path]) -> Iterator[str]:
    """Every text in these modules but docstrings."""
    nodes = list(trees(files))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    yield from (text for node in nodes if (text := text_of(node)) is not None and id(node) not in docstrings)


def test_every_kind_is_in_the_table() -> None:
    """The table of kinds has those that the decoder knows, and no others."""
    rows = re.findall(r"^\| `(\w+)` \|", section("5. Records").split("### 5.1")[0], re.MULTILINE)
    assert set(rows) == KNOWN_KINDS
    assert len(rows) == len(KNOWN_KINDS)


@cache
def members_read() -> frozenset[str]:
    """Names of members that the readers ask records for."""
    found = set()
    for node in trees(READERS):
        if isinstance(node, ast.Call) and node.args:
            if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                found.add(text_of(node.args[0]))
            elif isinstance(node.func, ast.Name) and node.func.id in ("_opening_text", "_opening_integer"):
                found.add(text_of(node.args[1]))
        elif isinstance(node, ast.Subscript):
            found.add(text_of(node.slice))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            found.add(text_of(node.left))
    return frozenset(name for name in found if name and name.isidentifier())


@cache
def members_written() -> frozenset[str]:
    """Names of members in the texts that the Python writer makes records of, and those of its `open`."""
    found = frozenset(name for text in texts(modules(PACKAGES["rlship"])) for name in re.findall(r'"(\w+)":', text))
    fields = next(node for node in trees([Path(record_lines.__file__)]) if isinstance(node, ast.Dict))
    return found | {text for key in fields.keys if (text := text_of(key))}


def test_every_member_is_told() -> None:
    """Members that the readers ask for and those that the writer writes are in the text, and in a schema."""
    read, written = members_read(), members_written()
    assert read >= {"t", "step", "m", "kind", "id", "parent", "from", "to", "n", "pri", "row", "attrs", "lane", "err"}
    assert written >= {"kind", "t", "step", "dur", "lane", "cut", "offset", "err", "client_time", "labels", "beat"}
    assert sorted((read | written) - SAID) == []
    schemas = json.dumps(documents())
    assert [name for name in sorted(read | written) if f'"{name}"' not in schemas] == []


def reasons_in_code() -> set[str]:
    """The reasons of dead letters and dead values that the code gives for rlship's own files."""
    found = set()
    native = [file for file in modules(PACKAGES["rlship_formats"]) if file.parent.name != "foreign"]
    for node in trees([*native, *modules(PACKAGES["rlship_sidecar"] / "decode")]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = {"BadRecord": 0, "DeadLetter": 0, "DeadEntry": 1, "DeadValue": 0, "Dead": 1}.get(node.func.id)
            if place is not None and (reason := text_of(node.args[place])) is not None:
                found.add(reason)
    return found


def test_every_reason_is_in_the_tables() -> None:
    """The tables of dead letters and dead values have the reasons that the code gives, and no others."""
    rows = re.findall(r"^\| `([\w ]+)` \|", section("10. Dead letters"), re.MULTILINE)
    assert set(rows) == reasons_in_code()
    assert len(rows) == len(set(rows)) + 1  # `bad define` is of a line, and of an entry


TIMES = Timing()
LIMITS: dict[str, tuple[float, ...]] = {
    "1,048,576 bytes": (records.MAX_LINE_BYTES, encode.MAX_LINE_BYTES, quota.BYTES_PER_STEP, buffer.RESERVE),
    "9007199254740991": (records.MAX_STEP, identity.ATTEMPTS_END - 1),
    "1,048,576 (2^20)": (records.MAX_WORLD, identity.RANKS_END),
    "946684800..4102444800": (records.T_MIN, records.T_MAX),
    "10^9 s": (records.MAX_OFFSET_S, reading.MAX_DURATION_S),
    "-255..255": (reading.MAX_EXIT_CODE, rundata.MAX_EXIT_CODE),
    "10,000": (records.MAX_RUN_KEYS, rundata.MAX_KEYS),
    "4,194,304 bytes": (rundata._MAX_BYTES,),
    "65,536 characters": (settings.MAX_TEXT,),
    "300 characters": (reading.MAX_ERROR, endings._MAX_TEXT),
    "100 characters": (values.MAX_CUSTOM_NAME,),
    "1000 characters": (encode.MAX_NAME,),
    "500 characters": (spans.MAX_NAME,),
    "200 characters": (identity.MAX_NAME, reading.MAX_KEY, entry.MAX_KEY),
    "2,097,152 (2^21)": (entry.MAX_SAMPLES,),
    "8192 characters": (registry._MAX_LABELS,),
    "262,144": (written_values.MAX_ELEMENTS,),
    "65,536 bytes": (definitions._LINE_BYTES,),
    "8,388,608 bytes": (buffer.CAPACITY,),
}


@pytest.mark.parametrize("told", LIMITS)
def test_every_limit_is_told(told: str) -> None:
    """The tables of limits have the numbers that the code has."""
    assert told in section("11. Limits")
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", told.replace("10^9", "1000000000"))]
    assert set(LIMITS[told]) <= set(numbers) | {2.0**20 if "2^20" in told else -1.0}


def test_no_limit_of_the_format_is_forgotten() -> None:
    """Each number of the formats that bounds something is in the table above."""
    known = {float(number) for numbers in LIMITS.values() for number in numbers}
    for module in (records, reading, values):
        for name, value in vars(module).items():
            if re.match(r"(MAX|T|LONGEST|MOST)_", name) and isinstance(value, (int, float)):
                assert float(value) in known, name


def test_times_and_filesystems_are_told() -> None:
    """How soon a writer flushes, beats, tries again, looks and gives up, and on which filesystems it syncs."""
    durability = section("9. Durability")
    assert (TIMES.flush, TIMES.close, TIMES.backoff_most, TIMES.look, TIMES.sync) == (0.5, 5, 5, 5, 0.5)
    for told in ("0.5 s after a call", "(for at most 5 s)", "pauses of at most 5 s", "look every 5 s"):
        assert told in durability
    assert "max(0.5, min(world / 500, 2), world / 2000) s" in durability
    assert TIMES.beat == 10 and "(10 s is usual)" in section("7. Steps, barriers, closing")
    names = set(re.findall(r"[\w]+", durability))
    assert filesystem._NETWORK - names == frozenset()


def test_names_with_a_meaning_are_told() -> None:
    """Events that the writer makes by itself, and all reductions."""
    written = {
        name
        for node in trees(modules(PACKAGES["rlship"]))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "event_line"
        if (name := text_of(node.args[0]))
    }
    assert written == {"rlship_error", "samples_dropped"}
    assert written | {reading.STEP_TAG, "where", "error"} <= SAID
    assert f"`{' '.join(REDUCTIONS)}`" in TEXT


def test_the_environment_is_that_of_the_writer() -> None:
    """The variables that the text names are those that the page on writing has."""
    page = (ROOT / "docs" / "writing.md").read_text(encoding="utf-8").split("## The environment", 1)[1]
    assert set(re.findall(r"RLSHIP_\w+", TEXT)) == set(re.findall(r"RLSHIP_\w+", page))


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_are_records(line: str) -> None:
    """Every record that the text shows is valid by the schemas and used whole by a reader."""
    assert not faults("record", json.loads(line))
    opened = b'{"kind":"open","id":"a","actor":"trainer"}\n'
    (_, said) = decoded.by_reference(opened + line.encode() + b"\n")["lines"]
    assert "record" in said and "dead_values" not in said


def test_a_member_that_is_not_told_is_found() -> None:
    """The search sees members of every way in which code asks for them and writes them."""
    found: Any = members_read() | members_written()
    assert {"from", "v", "w", "reason", "reduce", "unit", "per_rank", "stream", "tag", "rank", "axis"} <= found
