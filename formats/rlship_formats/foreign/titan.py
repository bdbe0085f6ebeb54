"""TorchTitan's structured logger: `structured_logs/{source}.global_rank_{rank}.{time}-{random}.jsonl`. Each process has
a file of its own. Each begin and end of a span, each instant and each scalar is a line.

A span is read from its end, which has the duration; a span that never ended is lost. An error in a span is a line
before its end and becomes an event. Ranks count within a mesh, so two generators may share source and rank. All files
have attempt 0, so rlship's own rule for such writers applies: those that run at one time all count, and of those that
follow one another the last does.
"""

from __future__ import annotations

from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import is_number, is_time, parse, step_of
from rlship_formats.reading import MAIN_LANE
from rlship_formats.records import MAX_WORLD

SPAN, INSTANT, SCALAR = "event", "instant", "metric_value"
# rlship's names for these actors; other sources keep their own names.
ACTORS = {"training": "trainer", "rl_trainer": "trainer", "rl_generator": "generator", "rl_controller": "controller"}
KEPT = ("caller", "context")


def bind(path: str, line: bytes) -> tuple[Translation, ...]:
    """The writer of a file, recognised by any of its lines."""
    found = parse(line)
    source, rank, host, pid = (found.get(name) for name in ("source", "rank", "host_name", "pid"))
    if found.get("log_type") not in (SPAN, INSTANT) or "log_type_name" not in found or "seq_id" not in found:
        return ()
    if not isinstance(source, str) or not source or type(rank) is not int or not 0 <= rank < MAX_WORLD:
        return ()
    opened: Record = {"actor": ACTORS.get(source, source), "rank": rank, "t": _time(found), "host": host, "pid": pid}
    return (Translation(opened, read),)


def read(raw: bytes) -> list[Record]:
    """The records of a line. Raises BadRecord."""
    found = parse(raw)
    at: Record = {"t": _time(found)}
    if "step" in found:
        at["step"] = step_of(found["step"])
    name = found.get("log_type_name")
    if not isinstance(name, str) or not name:
        raise BadRecord("no name")
    # The type is checked before the name, because an instant may be called training_start.
    if found.get("log_type") == INSTANT:
        made = _scalar(found, at) if name == SCALAR else [_event(found, at, name)]
    elif found.get("log_type") == SPAN:
        made = _span(found, at, name)
    else:
        raise BadRecord("bad log_type")
    return made + _tags(found, at)


def _scalar(found: dict[str, Any], at: Record) -> list[Record]:
    name, value = found.get("event_name"), found.get("value")
    if not isinstance(name, str) or not name or not is_number(value):
        raise BadRecord("bad scalar")
    return [{**at, "m": {name: value}}]


def _span(found: dict[str, Any], at: Record, name: str) -> list[Record]:
    if name.endswith("_start"):
        return []
    if name.endswith("_end"):
        took_ms = found.get("value")
        if not isinstance(took_ms, float) or took_ms < 0:
            raise BadRecord("bad span")
        dur = took_ms / 1e3
        span = {**at, "t": at["t"] - dur, "dur": dur, "name": name.removesuffix("_end"), "lane": _lane(found)}
        return [{"kind": "span", **span}]
    event = _event(found, at, name)
    if name.endswith("_error"):
        message = found.get("message")
        error = message.partition(f"{name}: ")[2] if isinstance(message, str) else ""
        event["attrs"] = {"error": error, **event["attrs"]}
    return [event]


def _event(found: dict[str, Any], at: Record, name: str) -> Record:
    attrs = {key: found[key] for key in KEPT if found.get(key)}
    return {"kind": "event", **at, "name": name, "attrs": attrs}


def _tags(found: dict[str, Any], at: Record) -> list[Record]:
    tags = found.get("step_tags")
    if not isinstance(tags, list) or "step" not in at:
        return []
    made = [tag for tag in dict.fromkeys(map(str, tags)) if tag]
    return [{"kind": "event", **at, "name": "step_tag", "attrs": {"tag": tag}} for tag in made]


def _lane(found: dict[str, Any]) -> str:
    task, tid = found.get("task_name"), found.get("tid")
    if isinstance(task, str) and task:
        return task
    return MAIN_LANE if tid == found.get("pid") else f"thread {tid}"


def _time(found: dict[str, Any]) -> float:
    for name, each in (("time_us", 1e6), ("time_ms", 1e3), ("time", 1.0)):
        stamp = found.get(name)
        if isinstance(stamp, (int, float)) and is_time(stamp / each):
            return stamp / each
    raise BadRecord("bad time")


READER = Reader("torchtitan", ("structured_logs/*.jsonl",), bind)
