"""The vectors as they lie in formats/vectors: lines, experiments, and scripts of calls."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.guards.tree import ROOT

SPEC = ROOT / "formats" / "SPEC.md"
SCHEMAS = ROOT / "formats" / "schema"
VECTORS = ROOT / "formats" / "vectors"
DECODED = ".expected.json"
PARTS = ".parts.json"


@dataclass(frozen=True)
class RecordCase:
    """Some bytes of one file, and what its lines are."""

    name: str
    data: bytes

    @property
    def expected_at(self) -> Path:
        """Where it is said what the lines are."""
        return VECTORS / "records" / f"{self.name}{DECODED}"

    def expected(self) -> dict[str, Any]:
        """`about`, `lines` and `rest`, see formats/vectors/README.md."""
        found: dict[str, Any] = json.loads(self.expected_at.read_text(encoding="utf-8"))
        return found


def record_cases() -> list[RecordCase]:
    """All of them, by name."""
    folder = VECTORS / "records"
    plain = [RecordCase(path.stem, path.read_bytes()) for path in folder.glob("*.jsonl")]
    made = [RecordCase(path.name.removesuffix(PARTS), _made(path)) for path in folder.glob(f"*{PARTS}")]
    return sorted((*plain, *made), key=lambda case: case.name)


def _made(path: Path) -> bytes:
    """The bytes of a case that is too long to lie there as it is."""
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
    return b"".join(text.encode() * count for text, count in parts)


@dataclass(frozen=True)
class RowCase:
    """One experiment: its writers' files, what is configured, and its rows."""

    folder: Path

    @property
    def name(self) -> str:
        """What the case is called."""
        return self.folder.name

    @property
    def files(self) -> dict[str, bytes]:
        """The writers' files by name."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.jsonl"))}

    @property
    def case(self) -> dict[str, Any]:
        """`about` and `configuration`."""
        found: dict[str, Any] = json.loads((self.folder / "case.json").read_text(encoding="utf-8"))
        return found

    @property
    def expected_at(self) -> Path:
        """Where the rows are."""
        return self.folder / "expected.json"

    def expected(self) -> list[dict[str, Any]]:
        """The rows."""
        found: list[dict[str, Any]] = json.loads(self.expected_at.read_text(encoding="utf-8"))["rows"]
        return found


def row_cases() -> list[RowCase]:
    """All of them, by name."""
    return [RowCase(path) for path in sorted((VECTORS / "rows").iterdir()) if path.is_dir()]


def call_scripts() -> dict[str, dict[str, Any]]:
    """All scripts of calls, by name."""
    found = sorted((VECTORS / "calls").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in found}


def decimal(x: float | int) -> str:
    """A double as the vectors have it: the shortest decimal that reads back as it."""
    return repr(float(x))
