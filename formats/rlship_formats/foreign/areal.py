"""AReaL's tracers. `perf_tracer/…/traces-r<rank>.jsonl` has spans whose times count from the start of their process,
and no wall clock anywhere: those that name a step are spans of it, without a time, and others are left out.
`session_tracer/…/sessions-r<rank>.jsonl` has sessions of rollouts with their wall clock, and no step.

A restart appends to both. In a trace each process names itself before its first span, which is a rollback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rlship_formats.foreign.contract import BadRecord, Reader, Record, Translation
from rlship_formats.foreign.parsing import duration_of, is_number, is_time, parse, step_of, time_of
from rlship_formats.foreign.rollouts import ACTOR
from rlship_formats.reading import MAIN_LANE
from rlship_formats.records import MAX_WORLD

# Below the tracer's folder may be one for each role.
_PATH = re.compile(r"(perf_tracer|session_tracer)/(?:([^/]{1,100})/)?(?:traces|sessions)-r([0-9]{1,7})\.jsonl")
_SPAN, _INSTANT, _METADATA = "X", "i", "M"
_PROCESS = "process_name"
_OWN = ("global_step", "rank", "role")
_MAX_SPANS = 1000  # of one session


def bind(path: str, line: bytes) -> Sequence[Translation]:
    """The process that writes the file."""
    known, found = _PATH.fullmatch(path), parse(line)
    if known is None or int(known[3]) >= MAX_WORLD:
        return ()
    rank = int(known[3])
    if known[1] == "perf_tracer":
        opened: Record = {"actor": known[2] or "trainer", "rank": rank}
        return (Translation(opened, read_trace),) if "ph" in found and "name" in found else ()
    if "session_id" not in found or not is_time(found.get("submit_ts")):
        return ()
    return (Translation({"actor": known[2] or ACTOR, "rank": rank, "t": found["submit_ts"]}, read_session),)


def read_trace(raw: bytes) -> list[Record]:
    """The span or event in a line, if it names its step."""
    found = parse(raw)
    name, phase, args = found.get("name"), found.get("ph"), found.get("args")
    if not isinstance(name, str) or not name or not isinstance(phase, str):
        raise BadRecord("no name or ph")
    if phase == _METADATA and name == _PROCESS:
        return [{"kind": "rollback", "step": 0}]
    if phase not in (_SPAN, _INSTANT) or not isinstance(args, dict) or args.get("global_step") is None:
        return []
    step = step_of(args["global_step"])
    if phase == _INSTANT:
        attrs = {key: value for key, value in args.items() if key not in _OWN}
        return [{"kind": "event", "step": step, "name": name, "attrs": attrs}]
    record: Record = {"kind": "span", "step": step, "name": name, "dur": _seconds(found.get("dur"))}
    record["lane"] = MAIN_LANE if found.get("tid") == found.get("pid") else f"thread {found.get('tid')}"
    if isinstance(args.get("exception"), str):
        record["err"] = args["exception"]
    return [record]


def _seconds(microseconds: object) -> float:
    return duration_of(microseconds / 1e6 if isinstance(microseconds, (int, float)) else None)


def read_session(raw: bytes) -> list[Record]:
    """The spans of a session, its counters, and how it ended."""
    found = parse(raw)
    begin, end = time_of(found.get("submit_ts")), time_of(found.get("finalized_ts"))
    if begin is None:
        raise BadRecord("no submit_ts")
    lane = f"session {found.get('session_id')}"
    t = begin if end is None else end
    attrs = {name: found.get(name) for name in ("status", "reason", "task_id", "session_id")}
    records: list[Record] = [] if end is None else [_span("session", begin, end, lane)]
    records += _phases(found.get("phases"), lane)
    counters = found.get("counters")
    if isinstance(counters, dict):
        counted = {f"session/{name}": value for name, value in counters.items() if is_number(value)}
        records += [{"t": t, "m": counted}] if counted else []
    ended: Record = {"kind": "event", "t": t, "name": "session"}
    return [*records, ended | {"attrs": {name: value for name, value in attrs.items() if value is not None}}]


def _phases(phases: Any, lane: str) -> Iterator[Record]:
    if not isinstance(phases, dict):
        return
    given = ((name, one) for name, spans in phases.items() if isinstance(spans, list) for one in spans)
    for count, (name, one) in enumerate(given):
        if count >= _MAX_SPANS:
            return
        begin, end = (time_of(one.get(at)) if isinstance(one, dict) else None for at in ("start_ts", "end_ts"))
        if begin is not None and end is not None:
            yield _span(f"session/{name}", begin, end, lane)


def _span(name: str, begin: float, end: float, lane: str) -> Record:
    return {"kind": "span", "t": begin, "dur": duration_of(end - begin), "name": name, "lane": lane}


_ROLES = ("", "*/")
READER = Reader(
    "areal",
    tuple(
        f"{folder}/{role}{name}-r*.jsonl"
        for folder, name in (("perf_tracer", "traces"), ("session_tracer", "sessions"))
        for role in _ROLES
    ),
    bind,
)
