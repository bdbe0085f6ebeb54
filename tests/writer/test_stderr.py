"""What is said must not cost the job anything, whatever its stderr is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.writer.reading import logger_at, metrics, program, records


def test_a_stderr_that_nobody_reads_blocks_nothing(tmp_path: Path) -> None:
    """Where a pipe is full, a notice is left out, and the call goes on."""
    program(
        """
import sys, rlship
signal.alarm(20)
rlship.init(sys.argv[1], "trainer")
read, write = os.pipe()
os.set_blocking(write, False)
try:
    while True: os.write(write, b"x" * 512)
except BlockingIOError: pass
os.set_blocking(write, True)
os.dup2(write, 2)
rlship.log({"a": "text", "b": 1.0}, step=1)
""",
        tmp_path,
    )
    assert metrics(records(tmp_path)) == [{"step": 1, "m": {"b": 1.0}}]


def test_a_stderr_whose_reader_is_gone_ends_nothing(tmp_path: Path) -> None:
    """Also where SIGPIPE would end the process, a pipe without a reader is left alone."""
    program(
        """
import sys, rlship
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
rlship.init(sys.argv[1], "trainer")
read, write = os.pipe()
os.close(read)
os.dup2(write, 2)
rlship.log({"a": "text", "b": 1.0}, step=1)
""",
        tmp_path,
    )
    assert metrics(records(tmp_path)) == [{"step": 1, "m": {"b": 1.0}}]


def test_a_stderr_that_raises_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may put any object in its place, and whatever that raises stays there."""

    class Odd:
        def fileno(self) -> int:
            raise KeyError("no such thing")

        def write(self, text: str) -> int:
            raise ZeroDivisionError

    logger = logger_at(tmp_path)
    monkeypatch.setattr("sys.stderr", Odd())
    logger.log({"a": "text", "b": 1.0})
    logger.close()
    assert metrics(records(tmp_path)) == [{"m": {"b": 1.0}}]
    assert logger.errors == 0


def test_names_of_folders_cannot_move_the_cursor(tmp_path: Path) -> None:
    """The line that says where a process writes has control characters of the folder's name escaped."""
    done = program(
        """
import sys, rlship
rlship.init(sys.argv[1] + "/\\x1b]0;owned\\x07\\nrlship: all is well", "trainer")
""",
        tmp_path,
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("rlship: trainer writes to "), line
    assert line.endswith(r"/\x1b]0;owned\x07\nrlship: all is well/rlship")
