"""One readable line per row on a stream. It cannot tell what it holds: after a crash its last lines may come again."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from rlship_sidecar.rows import Row, count_ranks
from rlship_sidecar.sinks.contract import Run, SinkRefused
from rlship_sidecar.sinks.flat import axis


class ConsoleSink:
    """Prints rows to `stream`, by default standard error as it is at the time of `open`. Options: none."""

    where = "standard error"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream
        self._stream: TextIO | None = None

    def open(self, run: Run) -> int | None:
        """Always None: nobody can read back what a terminal showed."""
        if run.options:
            given = ", ".join(sorted(run.options))
            raise SinkRefused(f"sink console has no options, but was given {given}: remove them from [sink.console]")
        self._stream = self._given if self._given is not None else sys.stderr
        return None

    def write(self, rows: Sequence[Row]) -> None:
        """Print one line for each row."""
        assert self._stream is not None
        self._stream.write("".join(line(row) + "\n" for row in rows))

    def flush(self) -> None:
        """Hand the lines to the operating system."""
        assert self._stream is not None
        self._stream.flush()

    def close(self) -> None:
        """The stream is not ours to close."""
        self._stream = None


def line(row: Row) -> str:
    """A row in one line: actor, where it stands, who is missing, then the shipped figures by name, four digits each."""
    name, value = axis(row)
    parts = [f"{row.unit.actor} {name}={value:g}" if isinstance(value, float) else f"{row.unit.actor} {name}={value}"]
    coverage = row.coverage
    if coverage.missing:
        parts.append(
            f"[{count_ranks(coverage.ranks)} of {coverage.expected} ranks, missing {' '.join(coverage.missing)}]"
        )
    if row.arrival.revision:
        parts.append(f"[revision {row.arrival.revision}]")
    prefix = f"{row.unit.actor}/"
    parts += [f"{key.removeprefix(prefix)}={figure:.4g}" for key, figure in sorted(row.shipped.items())]
    return "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in "  ".join(parts))
