"""`rlship run --watch` as a real process, and jobs that say what they get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.endtoend.sidecar import RLSHIP, environment
from tests.kit.waiting import wait_until

# Notes each signal in a file until SIGUSR2, then ends with 5.
NOTES_SIGNALS = """
import os, signal, sys
notes = open(sys.argv[1], "a", buffering=1)
def note(number, frame):
    notes.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGUSR2:
        os._exit(5)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, note)
notes.write(f"{os.getpid()}\\n")
while True:
    signal.pause()
"""
LOGS = """
import sys, rlship
logger = rlship.init(actor="trainer")
for step in range(3):
    rlship.log({"loss": 1 / (step + 1)}, step=step)
    rlship.barrier(step)
rlship.flush()
"""


def logs(after: str = "") -> str:
    """A job of three steps, with `after` at its end."""
    return LOGS + after


JSONL = {"RLSHIP_SINKS": "jsonl"}


@contextmanager
def started(
    home: Path, *command: str, settings: Mapping[str, str] = JSONL, flags: tuple[str, ...] = ("--dir", "run", "--watch")
) -> Iterator[subprocess.Popen[str]]:
    """`rlship run --watch` in a group of its own. What is left at the end is killed."""
    home.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [*RLSHIP, "run", *flags, "--", *command],
        cwd=home,
        env=environment(home, settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


class Noted:
    """The job that notes its signals in a file below `home`, beside an experiment that has a sidecar from the start."""

    def __init__(self, home: Path) -> None:
        (home / "run" / "rlship").mkdir(parents=True)
        self.file = home / "notes"
        self.command = (sys.executable, "-c", NOTES_SIGNALS, str(self.file))

    def lines(self) -> list[str]:
        """What it noted so far."""
        return self.file.read_text().splitlines() if self.file.exists() else []

    def pid(self) -> int:
        """Its process id, once its handlers are there."""
        wait_until(lambda: self.lines(), "the job's first note")
        return int(self.lines()[0])

    def until(self, *names: str) -> None:
        """Wait for these signals."""
        wait_until(lambda: all(name in self.lines() for name in names), lambda: str(self.lines()))

    def end(self, process: subprocess.Popen[str]) -> list[str]:
        """End the job, and return the signals before its end."""
        os.kill(self.pid(), signal.SIGUSR2)
        assert process.wait(60) == 5
        return self.lines()[1:-1]


def children(pid: int) -> dict[int, str]:
    """The processes below `pid`, with their command lines."""
    found: dict[int, str] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
    return found


def sidecar_of(pid: int) -> int | None:
    """The sidecar that `rlship run --watch` started, if it runs."""
    return next((child for child, line in children(pid).items() if " watch " in line and "--beside" in line), None)


def noted_in(sidecar: int) -> int:
    """The descriptor of the file in which a sidecar notes the places that it has printed."""
    arguments = Path(f"/proc/{sidecar}/cmdline").read_bytes().split(b"\0")
    return int(arguments[arguments.index(b"--places") + 1])
