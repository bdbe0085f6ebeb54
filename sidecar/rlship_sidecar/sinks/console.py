"""One readable line per row on a stream. After a crash its last lines may come again."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rlship_sidecar import output
from rlship_sidecar.rows import Row, axis, count_ranks, family, rank_keys, rank_words, split_rank
from rlship_sidecar.sinks.budget import MODES as REDUCED
from rlship_sidecar.sinks.budget import PER_RANK_NO_REDUCE, PER_RANK_REDUCE, check_budget
from rlship_sidecar.sinks.contract import Position, Sink, SinkContext, SinkRefused
from rlship_sidecar.sinks.observing import text
from rlship_sidecar.sinks.options import check_names
from rlship_sidecar.sinks.tables import brief, tables

MODES = (*REDUCED, PER_RANK_NO_REDUCE)


class ConsoleSink(Sink):
    """Prints rows to `stream`, by default to standard output as it is at the time of `open`.

    Option `ranks`: "global_reduce" (default), "per_rank_reduce" to add values of single ranks, or "per_rank_no_reduce"
    for every observation in place of rows. Rows are data; messages of the sidecar go to standard error.
    """

    where = "standard output"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream
        self._stream: TextIO | None = None
        self._ranks = False

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("console", options, ("ranks",))
        check_budget("console", options, MODES)

    def open(self, run: SinkContext) -> int | None:
        """Always None, because the output on a terminal cannot be read back."""
        self.check_options(run.options)
        self._ranks = run.options.get("ranks") == PER_RANK_REDUCE
        self._stream = self._given if self._given is not None else sys.stdout
        self.observes = run.options.get("ranks") == PER_RANK_NO_REDUCE
        return None

    def write(self, rows: Sequence[Row]) -> None:
        """Print one line for each row, unless observations take their place.

        Raises SinkRefused once the other end of a pipe is closed, as `head` does after ten lines.
        """
        assert self._stream is not None
        if self.observes:
            return
        try:
            self._stream.write("".join(line(row, ranks=self._ranks) + "\n" for row in rows))
        except BrokenPipeError as error:
            raise _reader_gone(self._stream) from error

    def flush(self) -> None:
        """Hand the lines to the operating system. Raises as `write` does."""
        assert self._stream is not None
        try:
            self._stream.flush()
        except BrokenPipeError as error:
            raise _reader_gone(self._stream) from error

    def observe(self, lines: bytes, position: Position) -> None:
        """Print one line for each observation. Raises as `write` does."""
        assert self._stream is not None
        try:
            self._stream.write("".join(_printable(text(one)) + "\n" for one in lines.splitlines()))
            self._stream.flush()
        except BrokenPipeError as error:
            raise _reader_gone(self._stream) from error

    def close(self) -> None:
        """Leave the stream open: its owner closes it."""
        self._stream = None


def _reader_gone(stream: TextIO) -> SinkRefused:
    output.discard(stream)
    return SinkRefused(f"sink console: {output.OUTPUT_CLOSED}")


def line(row: Row, *, ranks: bool = False) -> str:
    """A row in one line: actor, position on its axis, tags, missing ranks, metrics that ranks left out, then the
    shipped values by name.

    Numbers have four digits. A histogram is shown as `[least..greatest n=count]`, samples by their number and scores.
    With `ranks` the values of single ranks follow.
    """
    name, value = axis(row)
    parts = [f"{row.unit.actor} {name}={value:g}" if isinstance(value, float) else f"{row.unit.actor} {name}={value}"]
    coverage = row.coverage
    if row.tags:
        parts.append(f"[{', '.join(row.tags)}]")
    if coverage.missing:
        named = map(split_rank, (*coverage.ranks, *coverage.missing, *coverage.absent))
        missing = ", ".join(rank_words(coverage.missing, {part[0] for part in named if part is not None}))
        parts.append(f"[{count_ranks(coverage.ranks)} of {coverage.expected} ranks, missing {missing}]")
    if coverage.short:
        metrics = (
            f"{key.removeprefix(f'{row.unit.actor}/')} {', '.join(rank_words(names))}"
            for key, names in coverage.short.items()
        )
        parts.append(f"[left out: {', '.join(metrics)}]")
    if row.arrival.revision:
        parts.append(f"[revision {row.arrival.revision}]")
    prefix = f"{family(row)}/"
    shown = {key: f"{number:.4g}" for key, number in row.shipped.items()}
    for key, hist in row.shipped_hists.items():
        shown[key] = f"[{hist.edges[0]:.4g}..{hist.edges[-1]:.4g} n={sum(hist.counts)}]"
    for key, samples in tables(row).items():
        shown[key] = brief(samples)
    if ranks:
        shown.update((key, f"{value:.4g}") for key, value in rank_keys(row))
    parts += [f"{key.removeprefix(prefix)}={text}" for key, text in sorted(shown.items())]
    return _printable("  ".join(parts))


def _printable(text: str) -> str:
    return "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)
