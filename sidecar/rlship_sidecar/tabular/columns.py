"""The tables that `rlship export` writes and `rlship query` reads, with the names and types of their columns.

They are a promise: new columns are added at the end of a table, and no column is renamed, retyped or removed.
docs/query.md describes them. A missing value is null, never 0 or "".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Type = Literal["text", "int", "float", "bool", "json", "texts", "ints", "floats"]
EVERY = "_all"  # suffix of a table of rows that holds all revisions of each row, not only the last


class Column(NamedTuple):
    """`int` has 64 bits, `float` is a double, `json` is a text, and a plural is a list."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class TableSpec:
    """`of` names the source: "records" are in the writers' files, all else is in the store."""

    name: str
    of: Literal["rows", "dead letters", "run data", "records"]
    columns: tuple[Column, ...]

    def has(self, column: str) -> bool:
        """Whether the table has a column of this name."""
        return any(one.name == column for one in self.columns)


def _columns(**types: Type) -> tuple[Column, ...]:
    return tuple(Column(name, type) for name, type in types.items())


# Every table of rows begins with these columns. `step` is null except for the kinds step and aligned.
ROW = _columns(
    experiment="text",
    row="int",
    actor="text",
    kind="text",
    index="int",
    step="int",
    axis="text",
    x="float",
    t="float",
    revision="int",
)
COVERAGE = _columns(
    ranks="texts",
    ranks_in="int",
    expected="int",
    missing="texts",
    absent="texts",
    attempts="ints",
    gap="int",
    underivable="texts",
    tags="texts",
)
# Every table of records begins with these columns: the writer, then the record.
WRITER = _columns(experiment="text", file="text", actor="text", replica="text", rank="int", attempt="int")
RECORD = (*WRITER, *_columns(step="int", t="float"))

OF_ALERTS = _columns(
    id="text",
    rule="text",
    severity="text",
    state="text",
    place="text",
    first_step="int",
    first_t="float",
    fired_step="int",
    fired_t="float",
    last_step="int",
    last_t="float",
    ended_step="int",
    ended_t="float",
    lineage="json",
    evidence="json",
)
_OF_ROWS = {
    "rows": _columns(closed="text", changed="texts", short="json", lives="int"),
    "figures": _columns(key="text", value="float", changed="bool"),
    "per_rank": _columns(key="text", replica="text", rank="int", value="float", changed="bool"),
    "hists": _columns(key="text", edges="floats", counts="ints", changed="bool"),
    "alerts": OF_ALERTS,
}
_OF_RECORDS = {
    "observations": _columns(metric="text", value="float", weight="float", summary="json"),
    "spans": _columns(name="text", lane="text", dur="float", err="text"),
    "events": _columns(name="text", attrs="json"),
    "samples": _columns(name="text", score="float", pri="float", content="json", cut="json"),
    "barriers": (),
    "clocks": _columns(host="text", offset_s="float", error_s="float"),
    "config": _columns(source="text", key="text", value="json"),
    "ledger": _columns(
        hop="text",
        key="text",
        n="int",
        part="int",
        parts="int",
        retry="int",
        passes="int",
        why="text",
        version_from="int",
        version_to="int",
        reward_sum="float",
        advantage_sum="float",
        mask_tokens="int",
        tokens="int",
        masked_out="int",
        response="int",
        digests="json",
        fingerprint="text",
    ),
}
_OF_DEAD = {
    "dead_letters": _columns(experiment="text", file="text", byte="int", metric="text", reason="text", excerpt="text"),
    "dead_counts": _columns(
        experiment="text", file="text", reason="text", of="text", count="int", byte="int", excerpt="text"
    ),
}
_OF_RUN = {
    "run": _columns(experiment="text", part="text", key="text", value="json"),
    "run_changes": (
        *WRITER,
        *_columns(t="float", part="text", key="text", before="json", after="json"),
    ),
}
_WRITERS = _columns(
    id="text",
    world="int",
    axis="text",
    host="text",
    pid="int",
    parent="text",
    opened_t="float",
    last_t="float",
    last_step="int",
    last_barrier="int",
    closed="text",
    bytes="int",
    labels="json",
    job="text",
)


def _tables() -> dict[str, TableSpec]:
    tables = []
    for name, columns in _OF_ROWS.items():
        whole = (*ROW, *COVERAGE, *columns) if name == "rows" else (*ROW, *columns)
        tables += [TableSpec(name, "rows", whole), TableSpec(name + EVERY, "rows", whole)]
    tables += [TableSpec(name, "records", (*RECORD, *columns)) for name, columns in _OF_RECORDS.items()]
    tables.append(TableSpec("writers", "records", (*WRITER, *_WRITERS)))
    tables += [TableSpec(name, "dead letters", columns) for name, columns in _OF_DEAD.items()]
    tables += [TableSpec(name, "run data", columns) for name, columns in _OF_RUN.items()]
    return {table.name: table for table in tables}


TABLES = _tables()
