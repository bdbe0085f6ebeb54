"""The screen of `watch` on a terminal. It is redrawn in place, below the messages, and stays there at the end.

The cursor is always on the line under the screen and never hidden. So the terminal is usable however the process ends.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import TYPE_CHECKING, TextIO

import click

from rlship_sidecar.cli.plain_report import is_terminal, plain_report, until_gone

if TYPE_CHECKING:
    from rlship_sidecar.cli.plain_report import OnStatus
    from rlship_sidecar.report.screen import StyledLine
    from rlship_sidecar.report.status import Status

MESSAGE_S = 30.0  # for so long the screen leaves room for a message above itself
_STYLES: Mapping[str, dict[str, bool | str]] = {
    "": {},
    "bold": {"bold": True},
    "dim": {"dim": True},
    "yellow": {"fg": "yellow"},
    "red": {"fg": "red"},
}
Size = Callable[[], tuple[int, int]]


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of a terminal; 80 x 24 if it does not know them."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24


def styled(line: StyledLine, env: Mapping[str, str]) -> str:
    """The line with the codes of its style, unless NO_COLOR is set."""
    return line.text if env.get("NO_COLOR") else click.style(line.text, **_STYLES[line.style])  # type: ignore[arg-type]


def drawn_lines(found: Sequence[StyledLine], width: int, env: Mapping[str, str]) -> str:
    """What draws lines over others. One that goes on fills its row, and the terminal wraps it."""
    from rich.cells import cell_len

    drawn, wrapped = "", False
    for line in found:
        # What was there is cleared before, because in the last column a terminal may take the cursor to be on it still;
        # a row that is wrapped into can only be cleared after the text.
        clears = "\x1b[K" if wrapped and cell_len(line.text) < width else ""
        drawn += ("" if wrapped else "\r\x1b[K") + styled(line, env) + clears + ("" if line.goes_on else "\n")
        wrapped = line.goes_on
    return drawn


class Live:
    """Draws the newest statuses. Any thread may call it."""

    def __init__(self, stream: TextIO, title: str, env: Mapping[str, str], size: Size | None = None) -> None:
        self._stream = stream
        self._title = title
        self._env = env
        self._size = size or (lambda: terminal_size(stream))
        self._lock = threading.Lock()
        self._statuses: list[Status] = []
        self._drawn = 0
        self._messages: list[tuple[float, str]] = []
        self._put = until_gone(self._write)

    def show(self, statuses: list[Status]) -> None:
        """Draw these statuses in place of the former ones."""
        with self._lock:
            self._statuses = statuses
            above = self._up()
            self._put(above + (self._scrolled_off() if self._are_messages_old() else "") + self._screen())

    def resized(self) -> None:
        """Draw everything again: a terminal that becomes narrower wraps the old lines, and they may be anywhere."""
        with self._lock:
            self._drawn = 0
            self._put("\x1b[H\x1b[J" + "".join(text for _, text in self._recent()) + self._screen())

    def message(self, text: str) -> None:
        """Write whole lines above the screen. Once they are old, they scroll off."""
        with self._lock:
            above = self._up()
            self._messages.append((time.monotonic(), text))
            self._put(f"{above}\x1b[J{text}{self._screen()}")

    def _up(self) -> str:
        return f"\r\x1b[{self._drawn}A" if self._drawn else "\r"

    def _scrolled_off(self) -> str:
        """Clear the screen from the cursor on, and scroll off what stands above it."""
        _, height = self._size()
        return f"\x1b[J\x1b[{height}B" + "\n" * height + "\x1b[H"

    def _are_messages_old(self) -> bool:
        return bool(self._messages) and not self._recent()

    def _screen(self) -> str:
        from rlship_sidecar.report import screen

        width, height = self._size()
        # One line for the cursor; and what was said lately stays in sight, as long as there is half a screen left.
        said = sum(_height(text, width) for _, text in self._recent())
        height = max(1, height - 1 - min(said, height // 2))
        found = screen.lines(screen.Screen(self._title, self._statuses, time.time()), width, height)
        self._drawn = len(found)
        # Cleared first: after the last column a terminal may take the cursor to be on it still.
        return drawn_lines(found, width, self._env) + "\r\x1b[J"

    def _recent(self) -> list[tuple[float, str]]:
        now = time.monotonic()
        self._messages = [(at, text) for at, text in self._messages[-20:] if now - at < MESSAGE_S]
        return self._messages

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _height(text: str, width: int) -> int:
    from rich.cells import cell_len

    return sum(max(1, -(-cell_len(line) // max(1, width))) for line in text.splitlines())


class _Above(io.TextIOBase):
    """Standard error while a screen is drawn: whole lines go above it."""

    def __init__(self, live: Live, stream: TextIO) -> None:
        self._live = live
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._live.message(whole + newline)
        return len(text)

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding


@contextmanager
def report(
    stream: TextIO, env: Mapping[str, str], *, title: str, quiet: bool, table: bool, once: bool = False
) -> Iterator[tuple[OnStatus | None, Callable[[], None]]]:
    """Yield the daemon's `on_status`, and what to call when the terminal was resized.

    On a capable terminal `on_status` draws a screen if `table` is True; elsewhere it writes lines.
    """
    if quiet:
        yield None, lambda: None
    elif table and is_terminal(stream, env) and shows_bars(stream):
        live = Live(stream, title, env)
        with redirect_stderr(_Above(live, stream)) if stream is sys.stderr else nullcontext():
            yield live.show, live.resized
    else:
        with plain_report(stream, once=once) as on_status:
            yield on_status, lambda: None


def shows_bars(stream: TextIO) -> bool:
    """True if the stream's encoding has the characters of sparklines."""
    try:
        "▁…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
