"""Lines as TorchTitan's structured logger writes them: its fields in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

T = 1_795_208_612.0


def line(
    log_type: str, name: str, after: float, *, step: int | None = None, value: float | None = None, **more: Any
) -> bytes:
    """One line at `after` seconds past T. `more`: `event_name`, `task_name`, `step_tags`, `message`, `rank`, …"""
    us = round((T + after) * 1e6)
    rank = more.get("rank", 0)
    record: dict[str, Any] = {"delta_ms": 0.06, "tid": more.get("tid", 7), "rank": rank, "global_rank": rank}
    record |= {"local_rank": 0, "source": more.get("source", "training"), "host_name": "vm", "pid": 7}
    record |= {} if step is None else {"step": step, "relative_step": step}
    record |= {"step_tags": more["step_tags"]} if "step_tags" in more else {}
    record |= {"time": us // 1_000_000, "time_ms": us // 1000, "time_us": us, "log_type": log_type}
    record |= {"log_type_name": name, "event_name": more.get("event_name")}
    record |= {} if value is None else {"value": value}
    record |= {"task_name": more["task_name"]} if "task_name" in more else {}
    record |= {"caller": "t.py:14:s", "log_file": "t.py", "log_function": "s", "log_level": "INFO"}
    record |= {"logger_name": "torchtitan.structured_logger", "seq_id": 1, "message": more.get("message", name)}
    return json.dumps(record).encode() + b"\n"


def scalar(name: str, value: float, after: float, step: int | None, **more: Any) -> bytes:
    return line("instant", "metric_value", after, step=step, value=value, event_name=name, **more)


def instant(name: str, after: float, step: int | None = None, **more: Any) -> bytes:
    return line("instant", name, after, step=step, **more)


def span(name: str, end: float, ms: float, step: int | None = None, **more: Any) -> bytes:
    """The two lines of a span that took `ms` and ended at `end`."""
    begin = line("event", f"{name}_start", end - ms / 1e3, step=step, **more)
    return begin + line("event", f"{name}_end", end, step=step, value=ms, **more)


def put(experiment: Path, name: str, *lines: bytes) -> Path:
    """Append lines to a file in `structured_logs/`."""
    path = experiment / "structured_logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(b"".join(lines))
    return path
