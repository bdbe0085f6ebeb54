"""The conformance driver of a language as a process: the orders that it gets, and the files that it leaves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.writer.reading import CLEAN
from tests.writers.languages import Language

Record = dict[str, Any]
DEADLINE_S = 60.0
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Ended:
    """How a driver ended, and what it said on its standard error."""

    pid: int
    code: int
    said: str


class Driver:
    """A running driver. Use it as a context manager: it does not outlive its test."""

    def __init__(
        self,
        language: Language,
        home: Path,
        settings: Mapping[str, str] = NOTHING,
        before: tuple[str, ...] = (),
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """`home` is its current folder; `before` a program that executes it, `prepare` runs in the new process."""
        self.process = subprocess.Popen(
            [*before, *language.command()],
            cwd=home,
            env={**CLEAN, **language.settings, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=prepare,
        )
        self.pid = self.process.pid

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, *lines: str) -> None:
        """Give commands without waiting for what they do."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(lines).encode())
        self.process.stdin.flush()

    def end(self, *lines: str) -> Ended:
        """Give the last commands and wait until the driver is gone. It prints nothing of its own."""
        out, said = self.process.communicate("".join(lines).encode(), timeout=DEADLINE_S)
        assert out == b""
        return Ended(self.pid, self.process.returncode, said.decode("utf-8", "replace"))


def drive(language: Language, home: Path, *lines: str, settings: Mapping[str, str] = NOTHING) -> Ended:
    """Run a driver with these commands to its end."""
    with Driver(language, home, settings) as driver:
        return driver.end(*lines)


def files(experiment: Path) -> list[Path]:
    """The writers' files, by the time of their first lines."""
    found = [path for path in (experiment / "rlship").glob("*.jsonl") if path.read_bytes().count(b"\n")]
    return sorted(found, key=lambda path: (json.loads(path.read_bytes().split(b"\n", 1)[0])["t"], path.name))


def lines(path: Path) -> list[bytes]:
    """The whole lines of a file, without their LF, and without blank ones."""
    return [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()]


def records(path: Path) -> list[Record]:
    """The records of a file; each of its whole lines is one."""
    return [json.loads(line) for line in lines(path)]


def all_records(experiment: Path) -> list[Record]:
    """Those of all files; a line that a full disk tore, and that a gap reports, is passed over."""
    found = []
    for path in files(experiment):
        for line in lines(path):
            try:
                found.append(json.loads(line))
            except ValueError:
                assert b'"gap"' in path.read_bytes(), line
    return found


def of_kind(found: list[Record], kind: str | None) -> list[Record]:
    """Those of a kind; None: of metrics."""
    return [record for record in found if record.get("kind") == kind]


def only_file(experiment: Path) -> Path:
    """The file, where there is one."""
    (path,) = files(experiment)
    return path


def is_there(experiment: Path, text: bytes) -> Callable[[], bool]:
    """Whether a file of the experiment holds these bytes."""
    return lambda: any(text in path.read_bytes() for path in (experiment / "rlship").glob("*.jsonl"))
