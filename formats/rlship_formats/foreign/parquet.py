"""The rows of a Parquet file, within bounds. pyarrow reads them, if it is installed."""

from __future__ import annotations

from typing import Any

import orjson

from rlship_formats.foreign.contract import Unreadable

_MAGIC = b"PAR1"
MAX_ROWS = 100_000
MAX_ROWS_BYTES = 64 << 20  # of all rows as JSON
_BATCH = 16  # rows; one of them may be long


def rows_of(text: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of the columns, and the rows.

    Raises Unreadable for a file that is not whole, that no Parquet reader takes, or that is too large. Raises
    ImportError without pyarrow.
    """
    if len(text) < 12 or not text.startswith(_MAGIC) or not text.endswith(_MAGIC):
        raise Unreadable("no Parquet footer")  # it is the last that a writer writes
    try:
        import pyarrow  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from pyarrow import parquet
    except ImportError as missing:
        raise ImportError("Parquet files need the package pyarrow: pip install 'rlship[query]'") from missing
    try:
        return _rows(parquet.ParquetFile(pyarrow.BufferReader(text), pre_buffer=False))
    except Unreadable:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError) as bad:
        raise Unreadable("a damaged Parquet file") from bad


def _rows(file: Any) -> tuple[list[str], list[dict[str, Any]]]:
    names = list(map(str, file.schema_arrow.names))
    if file.metadata.num_rows > MAX_ROWS:
        raise Unreadable("a Parquet file of too many rows")
    rows: list[dict[str, Any]] = []
    size = 0
    for batch in file.iter_batches(batch_size=_BATCH, use_threads=False):
        size += batch.nbytes
        if size > MAX_ROWS_BYTES:
            raise Unreadable("a Parquet file of too many bytes")
        for row in batch.to_pylist():
            size += len(orjson.dumps(row, default=str))  # columns that refer to one value have it in each row
            if size > 2 * MAX_ROWS_BYTES or len(rows) >= MAX_ROWS:
                raise Unreadable("a Parquet file of too many bytes")
            rows.append(row)
    return names, rows
