"""The output of `watch` where it is no terminal: a line for each change, and now and then one of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import click

from rlship_sidecar.report import terminal

if TYPE_CHECKING:
    from rlship_sidecar.report.status import Status

    OnStatus = Callable[[list[Status]], None]

T = TypeVar("T")

PROGRESS_S = 30.0


class PlainReport:
    """Prints changes when they come, and at most one line of progress in `every_s` seconds. `echo` takes one line.

    With `once` the sidecar ends as soon as all is delivered, and then reports itself which sinks refused the rows.
    """

    def __init__(
        self,
        echo: Callable[[str], None],
        *,
        once: bool = False,
        every_s: float = PROGRESS_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._echo = echo
        self._once = once
        self._every_s = every_s
        self._clock = clock
        self._last: dict[str, Status] = {}
        self._shown_progress: dict[str, str] = {}
        self._shown_waits: dict[tuple[str, str], tuple[str, float]] = {}
        self._refused: set[str] = set()
        self._next = clock() + every_s

    def __call__(self, statuses: list[Status]) -> None:
        """Print what changed since the last call."""
        for status in statuses:
            for line in terminal.lines(self._last.get(status.experiment), status, refusals=False):
                self._echo(_prefix(status, statuses) + line)
            for line in self._waits(status):
                self._echo(_prefix(status, statuses) + line)
            self._last[status.experiment] = status
        if not self._once:
            for line in self._refusals(statuses):
                self._echo(line)
        if self._clock() >= self._next:
            self._next = self._clock() + self._every_s
            self._progress(statuses)

    def _refusals(self, statuses: list[Status]) -> list[str]:
        """The new refusals, each once for all experiments whose sinks refuse for one reason, such as a lacking key."""
        found: dict[str, list[Status]] = {}
        for status in statuses:
            for sink in status.sinks:
                if sink.state == "refused":
                    found.setdefault(terminal.refusal(sink), []).append(status)
        new = [(line, alike) for line, alike in found.items() if line not in self._refused]
        self._refused = set(found)
        return [
            f"{len(alike)} experiments: {line}" if len(alike) > 1 else _prefix(alike[0], statuses) + line
            for line, alike in new
        ]

    def _waits(self, status: Status) -> list[str]:
        """The ranks that each actor waits for, if they changed or were last printed `every_s` ago."""
        lines = []
        for actor in status.actors:
            key, now = (status.experiment, actor.actor), self._clock()
            whom, at = self._shown_waits.get(key, ("", now - self._every_s))
            if actor.waiting and (actor.waiting != whom or now - at >= self._every_s):
                self._shown_waits[key] = actor.waiting, now
                lines.append(f"{terminal.clean(actor.actor)}: {terminal.clean(actor.note)}")
        return lines

    def finish(self) -> None:
        """Print the last progress of each experiment, and which rows lack ranks.

        Dead letters and ranks that were claimed twice have been printed when they were found.
        """
        statuses = list(self._last.values())
        self._progress(statuses)
        lines = [_prefix(status, statuses) + line for status in statuses for line in terminal.lacking_rows(status)]
        if len(lines) > terminal.MAX_LINES:
            lines[terminal.MAX_LINES - 1 :] = [f"and {len(lines) - terminal.MAX_LINES + 1} more: see `rlship status`"]
        for line in lines:
            self._echo(line)

    def _progress(self, statuses: list[Status]) -> None:
        # A folder of experiments gets one line for the one that moved most recently, not one for each of hundreds.
        moved = []
        for status in statuses:
            line = terminal.progress(status)
            if self._shown_progress.get(status.experiment) != line:
                self._shown_progress[status.experiment] = line
                moved.append((status, line))
        if moved:
            status, line = max(moved, key=lambda pair: pair[0].rows)
            more = f" (and {terminal.counted(len(moved) - 1, 'more experiment')})" if len(moved) > 1 else ""
            self._echo(_prefix(status, statuses) + line + more)


@contextmanager
def plain_report(stream: TextIO, *, once: bool) -> Iterator[OnStatus]:
    """Yield an `on_status` that writes lines to `stream`; at the end they are completed."""
    plain = PlainReport(_echo_to(stream), once=once)
    yield plain
    plain.finish()


def is_terminal(stream: TextIO, env: Mapping[str, str]) -> bool:
    """True if `stream` can show a screen that redraws itself."""
    return stream.isatty() and env.get("TERM", "dumb") not in ("", "dumb")


def _echo_to(stream: TextIO) -> Callable[[str], None]:
    def echo(line: str) -> None:
        click.echo(f"{terminal.date(time.time())} {line}", file=stream)

    return until_gone(echo)


def until_gone(show: Callable[[T], None]) -> Callable[[T], None]:
    """Wrap `show`: once its terminal or pipe is gone it does nothing, because that must not stop the shipping."""
    gone = False

    def guarded(what: T) -> None:
        nonlocal gone
        if gone:
            return
        try:
            show(what)
        except (OSError, ValueError) as problem:
            if isinstance(problem, ValueError) and "closed file" not in str(problem):
                raise
            gone = True

    return guarded


def _prefix(status: Status, statuses: list[Status]) -> str:
    return f"{terminal.clean(Path(status.experiment).name)}: " if len(statuses) > 1 else ""
