"""Exports every sample of a table from the writers' files: as JSON lines, or as Parquet if pyarrow is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rlship_formats.reading import Event, Sample
from rlship_formats.records import is_step
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.export.chrome import Writes
from rlship_sidecar.export.reading import Unreadable, WriterFile, entries, files_of
from rlship_sidecar.output import as_printed
from rlship_sidecar.reduce.samples import TOO_DEEP
from rlship_sidecar.steps import Steps

GROUP_ROWS = 1000  # rows of one Parquet row group, held in memory
FIXED = ("actor", "replica", "rank", "attempt", "step", "t", "score", "pri")


@dataclass(slots=True)
class ExportedTable:
    """The result of an export; `others` are the other tables that the files hold.

    `of_other_steps` counts samples that were left out because of their step. `dropped` counts samples of any table that
    writers dropped. `unreadable` maps file names to reasons.
    """

    samples: int = 0
    of_other_steps: int = 0
    dropped: int = 0
    others: set[str] = field(default_factory=set)
    unreadable: dict[str, str] = field(default_factory=dict)


def export_lines(experiment: Path, table: str, stream: Writes, steps: Steps | None = None) -> ExportedTable:
    """Write one JSON object a line, files by name and samples in file order, each sample once, superseded ones as well.

    With `steps` it writes only samples of these steps, whatever the steps count. Fields: table, actor, replica, rank,
    attempt, step (or null), t, score (or null), pri, row, and cut if the writer shortened the sample. Raises OSError if
    the folder or the stream fails.
    """
    result = ExportedTable()
    with files_of(experiment) as files:
        for file in files:
            with _reading(file, result):
                for sample in _samples(file, table, result, steps):
                    stream.write(as_printed(as_json(sample)) + b"\n")
                    result.samples += 1
    return result


def export_parquet(experiment: Path, table: str, stream: Any, steps: Steps | None = None) -> ExportedTable:
    """Write the same as a Parquet file: the samples' own columns follow the fields as `row.<name>`.

    A column holds numbers or bools if all its values are such; otherwise it holds text, with JSON for other values.
    `cut` is JSON. Raises UsageProblem without pyarrow.
    """
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from pyarrow import parquet
    except ImportError as error:
        raise UsageProblem(
            "Parquet needs the package pyarrow, which is not installed",
            f"{sys.executable} -m pip install pyarrow, or write JSON lines: -o samples.jsonl",
        ) from error
    result = ExportedTable()
    with files_of(experiment) as files:
        kinds: dict[str, set[str]] = {}
        for file in files:  # once for the columns, which have to be known before the first row
            with _reading(file, result):
                for sample in _samples(file, table, ExportedTable(), steps):
                    for name, value in sample["row"].items():
                        kinds.setdefault(name, set()).add(_kind(value))
        types = {"int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_(), "text": pyarrow.string()}
        own = {name: _joint(found) for name, found in kinds.items()}
        integers, texts = {"rank", "attempt", "step"}, {"actor", "replica"}
        fixed = {name: "int" if name in integers else "text" if name in texts else "float" for name in FIXED}
        columns = {**fixed, **{f"row.{name}": kind for name, kind in own.items()}, "cut": "text"}
        schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
        with parquet.ParquetWriter(stream, schema) as writer:
            held: list[dict[str, Any]] = []
            for file in files:
                with _reading(file, result):
                    for sample in _samples(file, table, result, steps):
                        held.append(_flat(sample, own))
                        result.samples += 1
                        if len(held) == GROUP_ROWS:
                            writer.write_table(pyarrow.Table.from_pylist(held, schema=schema))
                            held.clear()
            if held:
                writer.write_table(pyarrow.Table.from_pylist(held, schema=schema))
    return result


@contextmanager
def _reading(file: WriterFile, result: ExportedTable) -> Iterator[None]:
    try:
        yield
    except Unreadable as problem:
        result.unreadable[file.name] = str(problem)


def _samples(file: WriterFile, table: str, result: ExportedTable, steps: Steps | None) -> Iterator[dict[str, Any]]:
    """The samples of a table in one file; `result` collects the names of other tables and counts dropped samples.

    Unusable lines are skipped: `rlship status` reports them.
    """
    for entry in entries(file):
        kept = steps is None or (entry.step is not None and entry.step in steps)
        if entry.kind == "event" and kept:
            result.dropped += _dropped(entry.body)
        if entry.kind != "sample":
            continue
        sample: Sample = entry.body
        if sample.table != table:
            result.others.add(sample.table)
            continue
        if not kept:
            result.of_other_steps += 1
            continue
        opened = file.open
        assert opened is not None  # `identify` ran first, so no entry precedes it
        found = {
            "table": table,
            "actor": opened.actor,
            "replica": opened.replica,
            "rank": opened.rank,
            "attempt": opened.attempt,
            "step": entry.step,
            "t": sample.t,
            "score": sample.score,
            "pri": sample.pri,
            "row": sample.row,
        }
        if sample.cut is not None:
            found["cut"] = sample.cut
        yield found


def _dropped(event: Event) -> int:
    """How many samples the writer dropped, according to this event."""
    n = event.attrs.get("n") if event.name == "samples_dropped" else None
    return n if is_step(n) else 0


def as_json(value: Any) -> bytes:
    """As JSON, without the values that are nested too deeply for it."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        if not isinstance(value, dict):
            return orjson.dumps(TOO_DEEP)
        return b"{" + b",".join(orjson.dumps(name) + b":" + as_json(inner) for name, inner in value.items()) + b"}"


def _kind(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(1 << 63) <= value < 1 << 63 else "float"
    return "float" if isinstance(value, float) else "text"


def _joint(kinds: set[str]) -> str:
    """The kind of a column that has values of these kinds."""
    found = kinds - {""}
    if len(found) == 1:
        return found.pop()
    return "float" if found == {"int", "float"} else "text"


def _flat(sample: dict[str, Any], own: dict[str, str]) -> dict[str, Any]:
    flat = {name: sample[name] for name in FIXED}
    for name, value in sample["row"].items():
        kind = own.get(name)
        if value is None or kind is None:
            continue
        flat[f"row.{name}"] = value if kind != "text" or isinstance(value, str) else as_json(value).decode()
        if kind == "float":
            flat[f"row.{name}"] = float(value)
    if "cut" in sample:
        flat["cut"] = as_json(sample["cut"]).decode()
    return flat
