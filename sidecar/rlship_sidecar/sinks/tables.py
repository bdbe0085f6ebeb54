"""A row's samples as tables of columns and cells, for W&B, TensorBoard and the console. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson

from rlship_sidecar.rows import Row, Sample

MAX_CELL_BYTES = 8 << 10
MAX_TABLE_BYTES = 4 << 20
MAX_TABLES = 50  # of one row
WHY, RANK, SCORE = OWN = ("why", "rank", "score")
_UNSAFE = re.compile(r"[^\w. -]")
_MAX_NAME_CHARACTERS = 100

Cell = float | int | str | bool | None


class SampleTable(NamedTuple):
    """Samples in columns; each row of `data` has one cell for each."""

    columns: list[str]
    data: list[list[Cell]]


def tables(row: Row) -> dict[str, Sequence[Sample]]:
    """The tables that a row ships, by key. A value or histogram of the row with such a key wins."""
    shipped = row.shipped_samples
    taken = (row.values, row.hists, row.x)
    keys = [key for key in shipped if not any(key in others for others in taken)]
    return {key: shipped[key] for key in keys[:MAX_TABLES]}


def table(samples: Sequence[Sample], *, max_cell_bytes: int = MAX_CELL_BYTES) -> SampleTable:
    """The columns why, rank and score, then the samples' own in the order of their appearance.

    A sample's column with one of these names is called `row/<name>`, with enough `row/` to be unique. Lists and dicts
    are JSON. Longer texts are cut and marked as cut, as are those that the writer cut.
    """
    names = list(dict.fromkeys(name for sample in samples for name in sample.row))
    cell_bytes = max(64, min(max_cell_bytes, MAX_TABLE_BYTES // (len(samples) * max(1, len(names)) or 1)))
    return SampleTable(
        [*OWN, *(_column(name, names) for name in names)],
        [
            [" ".join(one.why), one.rank, one.score, *(_cell(one, name, cell_bytes) for name in names)]
            for one in samples
        ],
    )


def _column(name: str, names: Sequence[str]) -> str:
    if name in OWN:
        name = f"row/{name}"
        while name in names:
            name = f"row/{name}"
    return name


def safe_name(key: str) -> str:
    """The key with its table's name in a form that a file name allows; different names stay different."""
    family, separator, name = key.partition("/samples/")
    safe = _UNSAFE.sub("_", name)[:_MAX_NAME_CHARACTERS]
    if safe != name or not name.strip(". "):
        safe = f"{safe.strip('. ')}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
    return f"{family}{separator}{safe}"


def markdown(samples: Sequence[Sample], *, max_columns: int = 8, max_cell_bytes: int = 1000) -> str:
    """The first columns of the table as Markdown."""
    found = table(samples, max_cell_bytes=max_cell_bytes)
    lines = [found.columns[:max_columns], ["---"] * min(len(found.columns), max_columns)]
    lines += [[_plain(cell) for cell in cells[:max_columns]] for cells in found.data]
    left = len(found.columns) - max_columns
    more = (
        f"\n\n{left} more column{'s' if left > 1 else ''}: {', '.join(found.columns[max_columns:])}" if left > 0 else ""
    )
    return "\n".join(f"| {' | '.join(escaped(cell) for cell in cells)} |" for cells in lines) + more


def brief(samples: Sequence[Sample]) -> str:
    """The samples in a few words: their number, and the range of scores."""
    scores = [sample.score for sample in samples if isinstance(sample.score, (int, float))]
    ends = f" score {min(scores):.4g}..{max(scores):.4g}" if scores else ""
    return f"[{len(samples)} samples{ends}]"


def _cell(sample: Sample, name: str, max_bytes: int) -> Cell:
    value = sample.row.get(name)
    if value is None or isinstance(value, (bool, float, int)):
        return value
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    shown = _cut(text, max_bytes)
    had = sample.cut.get(name) if isinstance(sample.cut, Mapping) else None
    if had is None:
        return shown if len(shown) == len(text) else f"{shown}… (cut; {len(text)} characters)"
    return f"{shown}… (cut; it had {had})"


def _cut(text: str, max_bytes: int) -> str:
    """The longest beginning that fits into this many bytes."""
    if len(text) * 4 <= max_bytes:
        return text
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _plain(cell: Cell) -> str:
    return "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def escaped(text: str) -> str:
    """A text that cannot break out of its cell."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")
