"""A server of `rlship view` as a process of its own, and what asks it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.rounds import ROOT, clean_environment

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Server(NamedTuple):
    process: subprocess.Popen[str]
    base: str
    token: str

    def open(self, path: str) -> Any:
        """The answer to a request, as a file."""
        asked = urllib.request.Request(self.base + path, headers={"Authorization": f"Bearer {self.token}"})
        return urllib.request.urlopen(asked, timeout=120)

    def ask(self, path: str) -> Any:
        """The answer to a request."""
        with self.open(path) as answer:
            return orjson.loads(answer.read())

    def experiment(self) -> str:
        """The path of requests about the only experiment."""
        return f"/api/e/{self.ask('/api/experiments')['experiments'][0]['id']}"

    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        return cpu_s(self.process.pid)

    def peak_mb(self) -> float:
        """Its greatest resident memory."""
        return peak_mb(self.process.pid)


@contextmanager
def serving(experiment: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "rlship", "view", "--no-open", "--port", "0", os.fspath(experiment)]
    process = subprocess.Popen(command, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        base, _, token = process.stdout.readline().strip().partition("/#token=")
        yield Server(process, base, token)
    finally:
        process.terminate()
        process.wait()


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def peak_mb(pid: int) -> float:
    """The greatest resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
