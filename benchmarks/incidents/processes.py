"""The files of a simulated job's processes, in the format of the writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rlship.ledgers import entry

Value = Mapping[str, Any]


@dataclass(slots=True)
class Process:
    """One process: its identity, what it defines, and the lines of its file so far."""

    actor: str
    replica: str
    rank: int
    world: int
    host: str
    defines: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    attempt: int = -1
    lines: list[bytes] = field(default_factory=list)

    def begin(self, t: float, least: int = 0) -> None:
        """Start, or start again after an end: a file of its own. The job is at attempt `least`."""
        self.attempt = max(self.attempt + 1, least)
        name = self._name()
        self.add(
            {
                "kind": "open",
                "rlship": 1,
                "id": name,
                "actor": self.actor,
                "replica": self.replica,
                "rank": self.rank,
                "world": self.world,
                "attempt": self.attempt,
                "t": t,
                "beat": 10.0,
                "host": self.host,
                "pid": 1000 + self.attempt,
                "labels": dict(self.labels),
            }
        )
        if self.defines:
            self.add({"kind": "define", "m": dict(self.defines)})

    def _name(self) -> str:
        return f"{self.actor}-{self.replica}-r{self.rank}-a{self.attempt}"

    def add(self, record: Value) -> None:
        """Append a record."""
        self.lines.append(orjson.dumps(record) + b"\n")

    def log(self, step: int, t: float, metrics: Value) -> None:
        """The metrics of a step, and its barrier."""
        self.add({"t": t, "step": step, "m": metrics})
        self.add({"kind": "barrier", "step": step, "t": t})

    def record(self, hop: str, key: str, step: int | None, t: float, **given: Any) -> None:
        """A record of the ledger, as `rlship.ledger` makes it."""
        given["lengths"] = None
        for line in entry.lines(entry.Given(hop, key, given), [(key, None)], step, t):
            self.lines.append(line.encode() + b"\n")

    def loaded(self, version: int, fingerprint: str, step: int | None, t: float) -> None:
        """A record of `rlship.weights`."""
        self.lines.append(entry.weights_line(version, fingerprint, step, t).encode() + b"\n")

    def close(self, t: float) -> None:
        """The end of a process that is done."""
        self.add({"kind": "close", "t": t, "reason": "exit"})

    def write(self, folder: Path) -> None:
        """Append what is not yet in the file."""
        with open(folder / f"{self._name()}.jsonl", "ab") as file:
            file.writelines(self.lines)
        self.lines.clear()
