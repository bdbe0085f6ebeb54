"""What the server holds of a run, how it answers for it and how it takes history lines."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

ENTITY = "loopback"
HISTORY = "wandb-history.jsonl"
SUMMARY = "wandb-summary.json"


@dataclass(slots=True)
class Run:
    """What the server holds of one run. `history` are the lines as they came, by line number."""

    entity: str
    project: str
    name: str
    display_name: str = ""
    group: str = ""
    notes: str = ""
    job_type: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[str | None] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    """time.time() of the first arrival of each line."""
    rewritten: list[tuple[int, str, str]] = field(default_factory=list)
    """(line number, text before, text after) of lines that came again with another text."""
    resent: int = 0
    """How many lines came again unchanged."""
    finished: bool = False

    def rows(self) -> list[dict[str, Any]]:
        """The history lines, decoded; a line that never came is an AssertionError."""
        missing = [number for number, line in enumerate(self.history) if line is None]
        assert not missing, f"lines {missing} of run {self.name} never came"
        return [json.loads(line) for line in self.history if line is not None]

    def steps(self) -> list[int]:
        """`_step` of every line, in line order."""
        return [row["_step"] for row in self.rows()]

    def overwritten(self) -> list[tuple[int, str, str]]:
        """`rewritten` without the lines that only differ in the client's own clock: the same row, sent by another."""

        def figures(line: str) -> dict[str, Any]:
            return {key: value for key, value in json.loads(line).items() if key != "_runtime"}

        return [(number, old, new) for number, old, new in self.rewritten if figures(old) != figures(new)]

    def value(self, key: str) -> Any:
        """A value of the run's config."""
        return self.config[key]["value"]

    def describe(self, stale_lines: int) -> dict[str, Any]:
        """What a query about the run answers, without its newest `stale_lines` history lines."""
        history = self.history[: max(0, len(self.history) - stale_lines)]
        steps = [json.loads(line)["_step"] for line in history[-1:] if line is not None]
        telemetry = self.config.get("_wandb", {}).get("value", {}).get("t")
        return {
            "id": f"{self.project}:{self.name}",
            "name": self.name,
            "displayName": self.display_name or self.name,
            "state": "finished" if self.finished else "running",
            "summaryMetrics": json.dumps(self.summary),
            "config": json.dumps(self.config),
            "wandbConfig": json.dumps({} if telemetry is None else {"t": telemetry}),
            "historyLineCount": len(history),
            "historyTail": json.dumps(history[-1:]),
            "historyKeys": {"lastStep": steps[0] if steps else -1, "keys": {}, "sets": []},
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "tags": self.tags,
            "notes": self.notes,
            "description": "",
            "sweepName": None,
            "project": {"id": self.project, "name": self.project, "entity": entity_object(self.entity)},
        }

    def take(self, payload: dict[str, Any], *, summary: bool = True) -> None:
        """Apply one file_stream request; without `summary` the lines in it make the summary."""
        files = payload.get("files") or {}
        lines = files.get(HISTORY, {})
        for number, line in enumerate(lines.get("content", ()), lines.get("offset", 0)):
            while number >= len(self.history):
                self.history.append(None)
                self.arrived.append(time.time())
            before = self.history[number]
            if before is not None and before != line:
                self.rewritten.append((number, before, line))
            self.resent += before == line
            self.history[number] = line
            if not summary:
                self.summary.update(json.loads(line))
        for line in files.get(SUMMARY, {}).get("content", ()) if summary else ():
            self.summary.update(json.loads(line))
        self.finished = self.finished or bool(payload.get("complete"))


def entity_object(name: str) -> dict[str, str]:
    return {"id": name, "name": name}


def viewer() -> dict[str, Any]:
    return {
        "id": "viewer",
        "entity": ENTITY,
        "username": ENTITY,
        "name": ENTITY,
        "email": "",
        "flags": "{}",
        "teams": {"edges": [{"node": {"name": ENTITY}}]},
    }
