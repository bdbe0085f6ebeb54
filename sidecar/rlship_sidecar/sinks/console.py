"""One readable line per row on a stream. It cannot tell what it holds: after a crash its last lines may come again."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rlship_sidecar import output
from rlship_sidecar.rows import Row, count_ranks
from rlship_sidecar.sinks.contract import Run, SinkRefused
from rlship_sidecar.sinks.flat import axis
from rlship_sidecar.sinks.options import check_names


class ConsoleSink:
    """Prints rows to `stream`, by default standard output as it is at the time of `open`. Options: none.

    Rows are data; what the sidecar says of itself goes to standard error.
    """

    where = "standard output"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream
        self._stream: TextIO | None = None

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("console", options, ())

    def open(self, run: Run) -> int | None:
        """Always None: nobody can read back what a terminal showed."""
        self.check_options(run.options)
        self._stream = self._given if self._given is not None else sys.stdout
        return None

    def write(self, rows: Sequence[Row]) -> None:
        """Print one line for each row. Raises SinkRefused once the reader is gone, as `head` is after ten lines."""
        assert self._stream is not None
        try:
            self._stream.write("".join(line(row) + "\n" for row in rows))
        except BrokenPipeError as error:
            raise _nobody_reads(self._stream) from error

    def flush(self) -> None:
        """Hand the lines to the operating system. Raises as `write` does."""
        assert self._stream is not None
        try:
            self._stream.flush()
        except BrokenPipeError as error:
            raise _nobody_reads(self._stream) from error

    def close(self) -> None:
        """The stream is not ours to close."""
        self._stream = None


def _nobody_reads(stream: TextIO) -> SinkRefused:
    output.discard(stream)
    return SinkRefused(f"sink console: {output.NOBODY_READS}")


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
