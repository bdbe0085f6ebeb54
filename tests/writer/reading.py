"""What the tests of the writer share: reading its files, and running a small program that uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlship.file import Disk
from rlship.flusher import Timing
from rlship.identity import Identity
from rlship.logger import Logger
from tests.kit.waiting import wait_until

# No launcher of the machine that runs the tests may reach the programs they start.
CLEAN = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH") if key in os.environ}
# The first line of every program here: if a test fails or is ended halfway, no process of it lives on. An alarm stays
# with a process through exec but not through fork.
MORTAL = "import os, signal; signal.alarm(60); os.register_at_fork(after_in_child=lambda: signal.alarm(60))\n"
NOW = 1763600000.125
QUICK = {"flush": 0.02, "backoff": 0.01, "backoff_most": 0.05}


def identity(**changes: Any) -> Identity:
    """A plain writer: rank 0, nothing known of others."""
    facts: dict[str, Any] = {
        "actor": "trainer",
        "replica": "0",
        "rank": 0,
        "world": None,
        "attempt": 0,
        "source": "none",
        "host": "n07",
    }
    return Identity(**{**facts, **changes})


def logger_at(folder: Path, disk: Disk | None = None, timing: Timing | None = None, **changes: Any) -> Logger:
    """A Logger with a fixed clock and quick timing that does not touch the process's own state at exit."""
    own = {key: changes.pop(key) for key in ("labels", "axis", "buffer_bytes", "clock") if key in changes}
    own.setdefault("clock", lambda: NOW)
    network, parent = changes.pop("network", lambda path: False), changes.pop("parent", None)
    disk = disk or Disk()
    disk.network = network  # type: ignore[method-assign]
    logger = Logger(str(folder), identity(**changes), disk=disk, timing=timing or Timing(**QUICK), **own)
    logger.adopt(parent)
    return logger


def files(folder: Path) -> list[Path]:
    """The writers' files of an experiment, oldest first."""
    found = (folder / "rlship").glob("*.jsonl")
    return sorted(found, key=lambda path: (json.loads(path.read_bytes().split(b"\n", 1)[0])["t"], path.name))


def lines(folder: Path) -> list[str]:
    """The lines of the only file there, without its LFs. A torn last line fails the test."""
    (path,) = files(folder)
    return whole(path)


def whole(path: Path) -> list[str]:
    """The lines of one file, all of them ended by an LF."""
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


def records(folder: Path) -> list[dict[str, Any]]:
    """The records of the only file there."""
    return [json.loads(line) for line in lines(folder)]


def answers(folder: Path) -> list[tuple[str, str]]:
    """What the file says of wrong use: about what, and the text."""
    found = [record["attrs"] for record in records(folder) if record.get("name") == "rlship_error"]
    return [(attrs["where"], attrs["error"]) for attrs in found]


def soon(folder: Path, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The records of the file that is being written, once they are `enough`."""
    found: list[dict[str, Any]] = []

    def read() -> bool:
        found.clear()
        for path in (folder / "rlship").glob("*.jsonl"):
            found[:] = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        return enough(found)

    wait_until(read, lambda: found[-3:])
    return found


def metrics(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Only the metrics records, without their time."""
    return [{key: value for key, value in record.items() if key != "t"} for record in found if "kind" not in record]


def kinds(found: list[dict[str, Any]]) -> list[str]:
    """The kinds of the records in order, "metrics" for a record without one; without the facts that `init` adds."""
    return [record.get("kind", "metrics") for record in found if "facts" not in record]


def merged(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What the `run` records come to, as section 5.8 says it."""
    state: dict[str, Any] = {}
    for record in found:
        if record.get("kind") == "run":
            for member, value in record.items():
                if member in ("config", "summary", "facts"):
                    _join(state.setdefault(member, {}), value)
                elif member == "dropped":
                    state[member] = list(dict.fromkeys([*state.get(member, []), *value]))
                elif member not in ("kind", "t"):
                    state[member] = value
    return state


def _join(into: dict[str, Any], value: dict[str, Any]) -> None:
    for name, inner in value.items():
        if isinstance(inner, dict) and inner and isinstance(into.get(name), dict):
            _join(into[name], inner)
        else:
            into[name] = json.loads(json.dumps(inner))


def program(
    source: str, folder: Path, *, env: dict[str, str] | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `source` with the folder as sys.argv[1], and check the exit code."""
    done = subprocess.run(
        [sys.executable, "-c", MORTAL + source, str(folder)],
        env={**CLEAN, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done
