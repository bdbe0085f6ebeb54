"""When lines and rows became visible on the file server, where no client's cache is in between."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlship_sidecar.rows import Row, Unit

EVERY_S = 0.02


@dataclass(frozen=True)
class Delays:
    """Some delays in seconds."""

    count: int
    median: float
    most: float

    def __str__(self) -> str:
        return f"p50 {self.median:.2f} s, max {self.most:.2f} s ({self.count} steps)"


def delays_of(seconds: Iterable[float]) -> Delays:
    """The figures of some delays; there has to be one."""
    found = sorted(seconds)
    return Delays(len(found), statistics.median(found), found[-1])


class Sight:
    """Looks at an experiment's growing files on the server, in a thread, until `stop`.

    `called`, `shown` and `rows` say for a step (as Unit) when its last barrier was called, when that could be seen, and
    when its first row could be; `complete` are the steps whose first row was.
    """

    def __init__(self, experiment: Path) -> None:
        self.called: dict[Unit, float] = {}
        self.shown: dict[Unit, float] = {}
        self.rows: dict[Unit, float] = {}
        self.complete: set[Unit] = set()
        self._folder = experiment / "rlship"
        self._positions: dict[Path, int] = {}
        self._actors: dict[Path, str] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def steps(self, actor: str, since: float) -> list[Unit]:
        """An actor's steps with a complete first row whose last barrier was called after `since`."""
        return [unit for unit in sorted(self.complete) if unit.actor == actor and self.called.get(unit, 0.0) > since]

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            for path in self._folder.glob("*.jsonl"):
                for line in self._lines(path):
                    self._barrier(path, json.loads(line), time.time())
            for line in self._lines(self._folder / "state" / "rows.jsonl"):
                row = Row.from_json(line)
                if self.rows.setdefault(row.unit, time.time()) and row.arrival.closed == "complete":
                    self.complete.add(row.unit)

    def _barrier(self, path: Path, record: dict[str, Any], now: float) -> None:
        if record.get("kind") == "open":
            self._actors[path] = record["actor"]
        elif record.get("kind") == "barrier":
            unit = Unit(self._actors[path], "step", record["step"])
            self.called[unit] = max(self.called.get(unit, 0.0), record["t"])
            self.shown[unit] = now

    def _lines(self, path: Path) -> list[bytes]:
        position = self._positions.get(path, 0)
        try:
            with open(path, "rb") as file:
                file.seek(position)
                data = file.read()
        except FileNotFoundError:  # it may be on its way
            return []
        whole = data.rfind(b"\n") + 1
        self._positions[path] = position + whole
        return data[:whole].splitlines()
