"""The preloaded library slows and counts calls on writers' files, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.network import SlowCalls, compiled
from tests.kit.tools import needed

pytestmark = pytest.mark.toolchain

_PROGRAM = """
import os, sys, threading, time

def look(*path, **at):
    fd = os.open(*path, os.O_RDONLY, **at)
    os.fstat(fd), os.pread(fd, 4, 0), os.close(fd)

folder = os.open("rlship", os.O_PATH | os.O_DIRECTORY)
os.mkdir("rlship/state")
for other in ("rlship/state/rows.jsonl", "rlship/a.txt", "a.jsonl"):
    open(other, "w").close()
    look(other)
began = time.monotonic()
look("rlship/a.jsonl")
look("a.jsonl", dir_fd=folder)
os.stat("a.jsonl", dir_fd=folder), os.stat(os.path.abspath("rlship/a.jsonl"))
alone = time.monotonic() - began
threads = [threading.Thread(target=look, args=("rlship/a.jsonl",)) for _ in range(5)]
began = time.monotonic()
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(alone, time.monotonic() - began, {line.split(" - ")[1].split()[0] for line in open("/proc/self/mountinfo")})
"""


def test_only_calls_on_writers_files_are_slow(tmp_path: Path) -> None:
    """Each call sleeps in its own thread and is counted, whichever way the path is given; other files are quick."""
    needed("gcc")
    (tmp_path / "rlship").mkdir()
    (tmp_path / "rlship" / "a.jsonl").write_text("{}\n")
    with SlowCalls(tmp_path, 0.05) as calls:
        environment = os.environ | calls.environment(compiled(tmp_path))
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert calls.counts() == {"open": 7, "stat": 9, "read": 7, "close": 7, "list": 0, "state": 0}
    alone_s, together_s, types = done.stdout.split(maxsplit=2)
    assert float(alone_s) >= 10 * 0.05
    assert 4 * 0.05 <= float(together_s) < 5 * 4 * 0.05
    assert types.strip() == "{'nfs4'}"
