"""A terminal for tests: a pseudo-terminal with a program in it, and the screen that its output makes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence

_CODE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class TerminalScreen:
    """The visible lines. It knows the few codes that the sidecar uses, and fails on any other.

    Like a real terminal, it wraps what is wider than itself and scrolls at the end. `scrolled` holds the lines that
    left it at the top.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [""] * height
        self.scrolled: list[str] = []
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        """Take output, whole codes at a time."""
        position = 0
        while position < len(text):
            code = _CODE.match(text, position)
            if code:
                self._obey(code[2], code[1])
                position = code.end()
            else:
                self._put(text[position])
                position += 1

    def resize(self, width: int, height: int) -> None:
        """Take another size, and keep what is there as well as a terminal does: too wide lines wrap."""
        kept = [row[i : i + width] for row in self.rows for i in range(0, max(1, len(row)), width)]
        self.width, self.height = width, height
        self.rows = (kept + [""] * height)[:height]
        self.row, self.column = min(self.row, height - 1), 0

    @property
    def lines(self) -> list[str]:
        """The visible lines down to the last one that is not empty."""
        last = max((number for number, row in enumerate(self.rows) if row.strip()), default=-1)
        return [row.rstrip() for row in self.rows[: last + 1]]

    def _obey(self, letter: str, parameters: str) -> None:
        if letter == "A":
            self.row = max(0, self.row - int(parameters or 1))
        elif letter == "B":
            self.row = min(self.height - 1, self.row + int(parameters or 1))
        elif letter == "H" and not parameters:
            self.row = self.column = 0
        elif letter == "K" and not parameters:
            self.rows[self.row] = self.rows[self.row][: self.column]
        elif letter == "J" and not parameters:
            self.rows[self.row] = self.rows[self.row][: self.column]
            self.rows[self.row + 1 :] = [""] * (self.height - self.row - 1)
        else:
            assert letter == "m", f"code ESC [ {parameters} {letter} is unknown here"

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self._next_line()
        else:
            assert character.isprintable(), f"{character!r} is no text"
            cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self.column + cells > self.width:
                self._next_line()
                self.column = 0
            row = self.rows[self.row].ljust(self.column)
            # A wide character stands in two cells; the second one holds nothing here.
            self.rows[self.row] = row[: self.column] + character + "\0" * (cells - 1) + row[self.column + cells :]
            self.column += cells

    def _next_line(self) -> None:
        if self.row + 1 < self.height:
            self.row += 1
        else:
            self.scrolled.append(self.rows.pop(0))
            self.rows.append("")


class Session:
    """A program on a terminal of its own; a context manager that kills it at the end."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], width: int = 80, height: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        self.screen = TerminalScreen(width, height)
        self._set_size()
        self.process = subprocess.Popen(
            command, env=dict(env), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._rest = b""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def resize(self, width: int, height: int) -> None:
        """Change the size, and tell the program as a terminal does."""
        self.read(0.0)
        self.screen.resize(width, height)
        self._set_size()
        self.process.send_signal(signal.SIGWINCH)

    def until(self, seen: Callable[[list[str]], bool], timeout_s: float = 60.0) -> list[str]:
        """Read output until the lines of the screen are as wanted; returns them."""
        deadline = time.monotonic() + timeout_s
        while not seen(self.screen.lines):
            assert time.monotonic() < deadline, "\n".join(self.screen.lines)
            if not self.read(1.0) and self.process.poll() is not None:
                assert seen(self.screen.lines), "\n".join(self.screen.lines)
        return self.screen.lines

    def end(self, timeout_s: float = 60.0) -> int:
        """Read the output to its end; returns the exit code."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "\n".join(self.screen.lines)
            self.read(0.2)
        while self.read(0.0):
            pass
        return self.process.returncode

    def read(self, wait_s: float) -> bool:
        """Take what the program wrote meanwhile; False if there was nothing."""
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        try:
            data = self._rest + os.read(self._ours, 65536)
        except OSError:  # the program ended and nothing is left
            return False
        # A character or a code may be cut; its rest comes next.
        cut = max(data.rfind(b"\n"), data.rfind(b"J"), data.rfind(b"K")) + 1
        self._rest = data[cut:]
        self.screen.feed(data[:cut].decode())
        return True

    def _set_size(self) -> None:
        size = struct.pack("HHHH", self.screen.height, self.screen.width, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
