"""A table as a file: CSV, JSON lines or Parquet, written as its records come. Values are read back exactly."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.export.chrome import Writes
from rlship_sidecar.output import as_printed
from rlship_sidecar.tabular.columns import Column

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]

FORMATS = ("parquet", "csv", "jsonl")
# Not by rlship's own name: it is on no index, and anyone could put a package of that name there.
INSTALL = f"{sys.executable} -m pip install duckdb pyarrow pytz"
_GROUP_RECORDS = 50_000  # of a Parquet row group, …
_GROUP_CELLS = 500_000  # … of which as many are in memory at most


def write(format: str, columns: Sequence[Column], records: Iterable[tuple[Any, ...]], stream: Writes) -> int:
    """Write a table to `stream`; returns the number of records. Raises UsageProblem if a package is missing."""
    return _WRITERS[format](columns, records, stream)


def write_csv(columns: Sequence[Column], records: Iterable[tuple[Any, ...]], stream: Writes) -> int:
    """RFC 4180 with LF.

    Null is an empty field and an empty text is `""`. Lists are JSON. Numbers are as in JSON, with NaN, Infinity,
    -Infinity.
    """
    count = 0
    stream.write(csv_line(column.name for column in columns).encode() + b"\n")
    for record in records:
        stream.write(csv_line(record).encode() + b"\n")
        count += 1
    return count


def write_lines(columns: Sequence[Column], records: Iterable[tuple[Any, ...]], stream: Writes) -> int:
    """One JSON object a line, with every column; numbers that are not finite are texts, as in writers' files."""
    names, count = [column.name for column in columns], 0
    nested = [place for place, column in enumerate(columns) if column.type == "json"]
    for record in records:
        values: list[Any] = [plain(value) for value in record]
        for place in nested:
            if values[place] is not None:
                values[place] = orjson.Fragment(values[place])
        stream.write(as_printed(orjson.dumps(dict(zip(names, values)))) + b"\n")
        count += 1
    return count


def write_parquet(columns: Sequence[Column], records: Iterable[tuple[Any, ...]], stream: Writes) -> int:
    """Parquet, compressed by zstd; `json` is a text there."""
    arrow = require_arrow()
    from pyarrow import parquet

    count = 0
    with parquet.ParquetWriter(stream, arrow_schema(columns), compression="zstd") as writer:
        for batch in batches(columns, records):
            writer.write_table(arrow.Table.from_batches([batch]))
            count += batch.num_rows
    return count


_WRITERS: dict[str, Callable[[Sequence[Column], Iterable[tuple[Any, ...]], Writes], int]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "jsonl": write_lines,
}


def plain(value: Any) -> Any:
    """A value as JSON; numbers that are not finite and types that JSON lacks become texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _word(value)
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Decimal):  # the type that SQL gives 0.5
        number = float(value)
        return number if Decimal(repr(number)) == value else str(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def csv_line(values: Iterable[Any]) -> str:
    """A line of CSV without its LF; see `write_csv`."""
    return ",".join([_CSV.get(type(value), _csv_other)(value) for value in values])


def _csv_text(value: str) -> str:
    return '"' + value.replace('"', '""') + '"' if _QUOTED.search(value) else value


def _csv_float(value: float) -> str:
    return repr(value) if math.isfinite(value) else _word(value)


def _csv_other(value: Any) -> str:
    value = plain(value)
    return _csv_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


_QUOTED = re.compile(r'[",\r\n]|^\s|\s$|^$')
_CSV: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "",
    bool: lambda value: "true" if value else "false",
    str: _csv_text,
    int: repr,
    float: _csv_float,
}


def require_arrow() -> Any:
    """The module pyarrow; raises UsageProblem if it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise UsageProblem(
            "this needs the package pyarrow, which is not installed", f"{INSTALL}, or write JSON lines or CSV"
        ) from error
    return pyarrow


def arrow_schema(columns: Sequence[Column]) -> pyarrow.Schema:
    """The columns' types for Arrow."""
    arrow = require_arrow()
    text, integer, double = arrow.string(), arrow.int64(), arrow.float64()
    types = {
        "text": text,
        "json": text,
        "int": integer,
        "float": double,
        "bool": arrow.bool_(),
        "texts": arrow.list_(text),
        "ints": arrow.list_(integer),
        "floats": arrow.list_(double),
    }
    return arrow.schema([(column.name, types[column.type]) for column in columns])


def batches(columns: Sequence[Column], records: Iterable[tuple[Any, ...]]) -> Iterator[pyarrow.RecordBatch]:
    """Records as batches, few enough at a time."""
    arrow, schema = require_arrow(), arrow_schema(columns)
    most = max(1, min(_GROUP_RECORDS, _GROUP_CELLS // len(columns)))
    coming = iter(records)
    while held := list(islice(coming, most)):
        arrays = [arrow.array(values, type) for values, type in zip(zip(*held), schema.types)]
        yield arrow.RecordBatch.from_arrays(arrays, schema=schema)
