"""The close record of a process that an exception ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.writer.reading import CLEAN, MORTAL, files, whole

ORDERLY = {"reason": "exit"}
FAILED = {"reason": "error", "error": "RuntimeError: CUDA out of memory"}
JOB = """
import sys, rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({"loss": 1.0}, step=20)
"""
CHILD = """
import multiprocessing, sys, rlship
def work(folder):
    rlship.init(folder, "trainer", rank=1)
    rlship.log({"loss": 1.0}, step=20)
    %s
if __name__ == "__main__":
    try:
        raise ValueError("of the parent")
    except ValueError:
        child = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(sys.argv[1],))
        child.start()
        child.join()
"""


def closes(folder: Path) -> list[dict[str, Any]]:
    """The close records of all files, without kind and time."""
    records = [json.loads(line) for path in files(folder) for line in whole(path)]
    return [
        {name: value for name, value in record.items() if name not in ("kind", "t")}
        for record in records
        if record.get("kind") == "close"
    ]


def play(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "job.py"
    script.write_text(MORTAL + source)
    return subprocess.run(
        [sys.executable, script, folder / "run", *arguments], env=CLEAN, timeout=60, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("end", "close"),
    [
        ('raise RuntimeError("CUDA out of memory\\nCompile with ...")', FAILED),
        ("raise RuntimeError", {"reason": "error", "error": "RuntimeError"}),
        ('raise RuntimeError("x" * 1000)', {"reason": "error", "error": "RuntimeError: " + "x" * 286}),
        ("class Odd(Exception):\n    __str__ = None\nraise Odd", {"reason": "error", "error": "Odd"}),
        ("raise KeyboardInterrupt", ORDERLY),
        ("sys.exit(0)", ORDERLY),
        ("", ORDERLY),
        (
            "import os, signal\nsignal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))\n"
            "os.kill(os.getpid(), signal.SIGTERM)",
            ORDERLY,
        ),
        ('rlship.close()\nraise RuntimeError("after the close")', ORDERLY),
        ("import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()", ORDERLY),
    ],
)
def test_the_close_record_has_the_uncaught_exception(tmp_path: Path, end: str, close: dict[str, Any]) -> None:
    """Its type and the first line of its message. Only what ends the program counts, and Ctrl-C is no error."""
    play(tmp_path, JOB + end)
    assert closes(tmp_path / "run") == [close]


def test_the_hook_of_the_job_is_left_alone(tmp_path: Path) -> None:
    """The job sees its own hook called once, with the exception."""
    ended = play(
        tmp_path,
        "import sys\nsys.excepthook = lambda *args: print('hook', args[0].__name__)\n"
        + JOB
        + "assert sys.excepthook.__name__ == '<lambda>'\nraise RuntimeError('CUDA out of memory')",
    )
    assert (ended.returncode, ended.stdout) == (1, "hook RuntimeError\n")
    assert closes(tmp_path / "run") == [FAILED]


def test_an_error_that_the_program_survived_does_not_end_it(tmp_path: Path) -> None:
    """Test runners leave the errors of tests there, and C code those of its callbacks."""
    end = """
def show():
    try:
        raise RuntimeError("survived")
    except RuntimeError as error:
        sys.last_value, sys.last_traceback = error, error.__traceback__
show()
"""
    play(tmp_path, JOB + end)
    assert closes(tmp_path / "run") == [ORDERLY]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("end", "close"),
    [
        ('raise RuntimeError("CUDA out of memory")', FAILED),
        ('try: raise RuntimeError("CUDA out of memory")\n    except RuntimeError: sys.exit(1)', FAILED),
        ("sys.exit(1)", {"reason": "error", "error": "SystemExit: 1"}),
        ("sys.exit()", ORDERLY),
        ("pass", ORDERLY),
    ],
)
def test_the_close_record_of_a_multiprocessing_child(
    tmp_path: Path, end: str, close: dict[str, Any], method: str
) -> None:
    """Its exception ends it, not the one that the parent handled at the fork. `sys.exit` with a code is an error."""
    play(tmp_path, CHILD % end, method)
    assert closes(tmp_path / "run") == [close]
