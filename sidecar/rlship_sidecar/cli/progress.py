"""The progress of a replay: a bar on a terminal, a plain line every few seconds elsewhere. That of a query: a line on a
terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from rlship_sidecar.cli.plain_report import is_terminal, until_gone
from rlship_sidecar.report.terminal import date

if TYPE_CHECKING:
    from rlship_sidecar.replay.run import ReplayProgress

    OnProgress = Callable[[ReplayProgress], None]

EVERY_S = 5.0
SMOOTH_S = 10.0  # the time that rates are averaged over


SHOW_AFTER_S = 2.0
REDRAW_S = 0.2
CLEAR_LINE = "\r\x1b[K"


class Rate:
    """The recent growth rate of a count. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: list[tuple[float, float]] = []

    def of(self, count: float) -> float:
        """The rate per second, given the count now; 0 as long as it is unknown."""
        now = self._clock()
        self._seen.append((now, count))
        while len(self._seen) > 2 and now - self._seen[0][0] > SMOOTH_S:
            del self._seen[0]
        first, before = self._seen[0]
        return (count - before) / (now - first) if now > first else 0.0


class ReadingProgress:
    """A line on a terminal that says how much is read, from `SHOW_AFTER_S` after the start on. Nothing elsewhere."""

    def __init__(self, stream: TextIO, env: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._shows = is_terminal(stream, env)
        self._clock = clock
        self._rate = Rate(clock)
        self._read = self._total = 0
        self._next = clock() + SHOW_AFTER_S
        self._drawn = False

    def start(self, total: int) -> None:
        """Set the number of bytes to read."""
        self._total = total

    def add(self, count: int) -> None:
        """Count bytes that were read, and draw the line if it is due."""
        self._read += count
        if self._shows and self._clock() >= self._next:
            self._next = self._clock() + REDRAW_S
            left = _left(self._total - self._read, self._rate.of(self._read))
            self._draw(f"{CLEAR_LINE}reading {_mb(self._read)} of {_mb(self._total)} MB{left}")
            self._drawn = True

    def clear(self) -> None:
        """Remove the line."""
        if self._drawn:
            self._draw(CLEAR_LINE)
            self._drawn = False

    def _draw(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:  # the terminal is gone; the answer may go elsewhere
            self._shows = False


class Words:
    """Describes the progress of one experiment."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes, self._lines, self._rows = Rate(clock), Rate(clock), Rate(clock)

    def of(self, progress: ReplayProgress) -> str:
        """Describe the state in one line: the reading rate while anything is unread, then the sinks that lack rows."""
        byte_rate, line_rate = self._bytes.of(progress.bytes_read), self._lines.of(progress.lines)
        least = min(progress.delivered.values(), default=progress.rows)
        row_rate = self._rows.of(least)
        if progress.bytes_read < progress.bytes_total or least >= progress.rows:
            left = _left(progress.bytes_total - progress.bytes_read, byte_rate)
            size = f"{_mb(progress.bytes_read)} of {_mb(progress.bytes_total)} MB"
            return f"{size}, {byte_rate / 1e6:.0f} MB/s, {line_rate:,.0f} lines/s, {progress.rows:,} rows{left}"
        lacking = [f"{name} has {has:,}" for name, has in progress.delivered.items() if has < progress.rows]
        return f"{progress.rows:,} rows made; so far {', '.join(lacking)}{_left(progress.rows - least, row_rate)}"

    @staticmethod
    def share(progress: ReplayProgress) -> float:
        """The share of the work that is done, in 0..1: first of reading, then of delivering."""
        if progress.bytes_read < progress.bytes_total:
            return progress.bytes_read / progress.bytes_total
        return min(progress.delivered.values(), default=progress.rows) / progress.rows if progress.rows else 1.0


@contextmanager
def reporting(stream: TextIO, env: Mapping[str, str], name: str, *, quiet: bool) -> Iterator[OnProgress]:
    """Yield `on_progress` for `replay`: a bar if `stream` is a capable terminal, else lines.

    A terminal or pipe that goes away does not stop the replay.
    """
    if quiet:
        yield lambda progress: None
    elif is_terminal(stream, env):
        with _bar(stream, name) as on_progress:
            yield until_gone(on_progress)
    else:
        yield until_gone(_Lines(stream, name))


class _Lines:
    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._words = Words()
        self._next = time.monotonic() + EVERY_S
        self._said = ""

    def __call__(self, progress: ReplayProgress) -> None:
        words = self._words.of(progress)
        if time.monotonic() >= self._next and words != self._said:
            self._next, self._said = time.monotonic() + EVERY_S, words
            click.echo(f"{date(time.time())} {self._name}: {words}", file=self._stream)


@contextmanager
def _bar(stream: TextIO, name: str) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.text import Text

    words = Words()
    console = Console(file=stream)
    columns = (TextColumn("{task.fields[name]}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=console, auto_refresh=False, redirect_stdout=False) as bar:
        task = bar.add_task("", total=1.0, name=Text(name).markup, words="")

        def show(progress: object) -> None:
            bar.update(task, completed=words.share(progress), words=words.of(progress), refresh=True)  # type: ignore[arg-type]

        yield show


def _left(remaining: float, rate: float) -> str:
    if remaining <= 0 or rate <= 0:
        return ""
    seconds = round(remaining / rate)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    said = f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
    return f", {said} left"


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f}" if count >= 10_000_000 else f"{count / 1e6:.1f}"
