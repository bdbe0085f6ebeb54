"""Writers' files for tests of traces, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

T = 1763600000.0


def opened(actor: str = "trainer", rank: int = 0, **changes: Any) -> dict[str, Any]:
    """An `open` record."""
    record: dict[str, Any] = {
        "kind": "open",
        "rlship": 1,
        "id": f"{actor}{rank}",
        "actor": actor,
        "replica": "0",
        "rank": rank,
        "attempt": 0,
        "host": "n07",
        "pid": 4121,
        "t": T,
    }
    return record | changes


def span(name: str, t: float, dur: float, step: int | None = None, **changes: Any) -> dict[str, Any]:
    """A `span` record that begins `t` seconds after T."""
    record: dict[str, Any] = {"kind": "span", "t": T + t, "dur": dur, "name": name, "lane": "main"}
    return record | ({} if step is None else {"step": step}) | changes


def write(experiment: Path, name: str, *lines: dict[str, Any] | str) -> Path:
    """A writer's file with these lines."""
    folder = experiment / "rlship"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path
