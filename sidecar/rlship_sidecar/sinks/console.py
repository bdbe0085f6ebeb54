"""One readable line per row on a stream. After a crash its last lines may come again."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from rlship_sidecar import output
from rlship_sidecar.rows import Row, axis, count_ranks, rank_words, split_rank
from rlship_sidecar.sinks.budget import MODES as REDUCED
from rlship_sidecar.sinks.budget import PER_RANK_NO_REDUCE, PER_RANK_REDUCE, RankValues, check_budget
from rlship_sidecar.sinks.contract import Observed, Sink, SinkContext, SinkRefused
from rlship_sidecar.sinks.names import REWARD_AND_LOSS, check_patterns, family, is_extra, place, rank_keys
from rlship_sidecar.sinks.observing import text
from rlship_sidecar.sinks.options import WrongOption, check_names
from rlship_sidecar.sinks.tables import brief, tables

MODES = (*REDUCED, PER_RANK_NO_REDUCE)


class ConsoleSink(Sink):
    """Prints rows to `stream`, by default to standard output as it is at the time of `open`.

    Options:

    - `metrics`: patterns of the keys that a line shows, in their order. Without it a line shows what the job logged,
      reward and loss first.
    - `extras`: true adds what rlship adds, after the rest.
    - `ranks`: "global_reduce" (default), "per_rank_reduce" to add values of single ranks, or "per_rank_no_reduce" for
      every observation in place of rows.

    A row of which nothing is shown has no line. Rows are data; messages of the sidecar go to standard error.
    """

    where = "standard output"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream
        self._stream: TextIO | None = None
        self._run: SinkContext | None = None
        self._rank_values: RankValues | None = None

    @staticmethod
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise WrongOption for an option that cannot be used."""
        check_names("console", options, ("metrics", "extras", "ranks"))
        check_patterns("console", "metrics", options.get("metrics"))
        if options.get("extras") not in (None, False, True):
            raise WrongOption("console", "extras", f"is {options['extras']!r}", "true, false")
        check_budget("console", options, MODES)

    def open(self, run: SinkContext) -> int | None:
        """Always None, because the output on a terminal cannot be read back."""
        self.check_options(run.options)
        self._run = run
        self._rank_values = RankValues("console") if run.options.get("ranks") == PER_RANK_REDUCE else None
        self._stream = self._given if self._given is not None else sys.stdout
        self.observes = run.options.get("ranks") == PER_RANK_NO_REDUCE
        return None

    def write(self, rows: Sequence[Row]) -> None:
        """Print a line for each row that shows anything, unless observations take their place.

        Raises SinkRefused once the other end of a pipe is closed, as `head` does after ten lines.
        """
        assert self._stream is not None and self._run is not None
        if self.observes:
            return
        ranks = self._rank_values
        if ranks is not None:
            for row in rows:
                self.note = ranks.look(row)
        metrics, extras = self._run.options.get("metrics"), bool(self._run.options.get("extras"))
        choice = LineChoice(None if metrics is None else tuple(metrics), extras, self._run.over_time())
        lines = [line(row, choice, ranks=ranks is not None) for row in rows]
        try:
            self._stream.write("".join(one + "\n" for one in lines if one))
        except BrokenPipeError as error:
            raise _reader_gone(self._stream) from error

    def flush(self) -> None:
        """Hand the lines to the operating system. Raises as `write` does."""
        assert self._stream is not None
        try:
            self._stream.flush()
        except BrokenPipeError as error:
            raise _reader_gone(self._stream) from error

    def observe(self, lines: bytes, position: Observed) -> None:
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
        if self._rank_values is not None:
            self._rank_values.end()


def _reader_gone(stream: TextIO) -> SinkRefused:
    output.discard(stream)
    return SinkRefused(f"sink console: {output.OUTPUT_CLOSED}")


class LineChoice(NamedTuple):
    """What a line shows: keys that match `metrics`, else what the job logged, and with `extras` what rlship adds."""

    metrics: tuple[str, ...] | None = None
    extras: bool = False
    over_time: bool = False

    def order(self, row: Row, key: str) -> tuple[int, str] | None:
        """Where in the line a key stands; None if the line does not show it."""
        if self.metrics is not None:
            chosen = place(key, self.metrics)
            return None if chosen is None else (chosen, key)
        extra = is_extra(row, key, over_time=self.over_time)
        if extra and not self.extras:
            return None
        first = None if extra else place(key, REWARD_AND_LOSS)
        last = len(REWARD_AND_LOSS) + extra
        return (last if first is None else first, key)


LOGGED = LineChoice()


def line(row: Row, choice: LineChoice = LOGGED, *, ranks: bool = False) -> str:
    """A row in one line: actor, position on its axis, tags, missing ranks, metrics that ranks left out, then the
    shipped values of the `choice`. "" without any.

    Numbers have four digits. A histogram is shown as `[least..greatest n=count]`, samples by their number and scores.
    With `ranks` the values of single ranks follow.
    """
    shown = {key: f"{number:.4g}" for key, number in row.shipped.items()}
    for key, hist in row.shipped_hists.items():
        shown[key] = f"[{hist.edges[0]:.4g}..{hist.edges[-1]:.4g} n={sum(hist.counts)}]"
    for key, samples in tables(row).items():
        shown[key] = brief(samples)
    placed = ((choice.order(row, key), key) for key in shown)
    keys = [key for _, key in sorted((order, key) for order, key in placed if order is not None)]
    if ranks:
        of_ranks = {key: f"{value:.4g}" for key, value in rank_keys(row)}
        shown.update(of_ranks)
        keys += sorted(of_ranks)
    if not keys:
        return ""
    prefix = f"{family(row)}/"
    values = [f"{key.removeprefix(prefix)}={shown[key]}" for key in keys]
    return _printable("  ".join([*_head(row), *values]))


def _head(row: Row) -> list[str]:
    name, value = axis(row)
    of = row.unit.actor or row.unit.kind
    parts = [f"{of} {name}={value:g}" if isinstance(value, float) else f"{of} {name}={value}"]
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
    return parts


def _printable(text: str) -> str:
    return "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)
