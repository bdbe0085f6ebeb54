"""Playing the scripts of calls on the Python writer, and comparing any writer's records with what they should be."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

from rlship.logger import Logger
from tests.reference.values import partials_of

Record = dict[str, Any]

T_MIN, T_MAX = 946684800, 4102444800
HALF_A_LINE = 1 << 19
# Members of each kind: what else a record has is its writer's own.
KNOWN: dict[str, tuple[str, ...]] = {
    "open": (
        *("kind", "rlship", "id", "actor", "replica", "rank", "world", "attempt", "axis", "t", "beat", "parent"),
        *("continues", "host", "pid", "writer", "labels"),
    ),
    "metrics": ("t", "step", "m"),
    "define": ("kind", "t", "m"),
    "span": ("kind", "t", "step", "name", "dur", "lane", "err"),
    "event": ("kind", "t", "step", "name", "attrs", "cut"),
    "sample": ("kind", "t", "step", "table", "score", "pri", "row", "cut"),
    "barrier": ("kind", "t", "step"),
    "rollback": ("kind", "t", "step"),
    "gap": ("kind", "t", "n", "from", "to"),
    "close": ("kind", "t", "reason"),
    "run": (
        *("kind", "t", "config", "summary", "name", "notes", "group", "project", "entity", "job_type", "tags"),
        *("dropped", "exit_code"),
    ),
    "ledger": (
        *("kind", "t", "step", "hop", "key", "n", "by", "d", "precision", "version", "reward", "advantage", "mask"),
        *("response", "part", "try", "passes", "why", "fingerprint"),
    ),
}
PASSED_OVER = ("beat", "clock")


def play(script: dict[str, Any], logger: Logger) -> None:
    """Make the calls of a script."""
    for call in script["calls"]:
        _CALLS[call["call"]](logger, {name: value for name, value in call.items() if name != "call"})


def given(value: Any) -> Any:
    """A value of a script as the language has it."""
    if isinstance(value, list):
        return [given(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"double"}:
        return float(value["double"])
    if value.keys() == {"integer"}:
        return int(value["integer"])
    if value.keys() == {"text"}:
        return value["text"]
    if value.keys() == {"repeat"}:
        text, count = value["repeat"]
        return text * count
    return {name: given(item) for name, item in value.items()}


def _log(logger: Logger, call: Record) -> None:
    logger.log(given(call["m"]), step=call.get("step"), weight=given(call.get("weight")))


def _span(logger: Logger, call: Record) -> None:
    error = type(call["error"], (Exception,), {}) if "error" in call else None

    def inside() -> None:
        with logger.span(call["name"]):
            if error is not None:
                raise error

    try:
        if "step" in call:
            with logger.step(call["step"]):
                inside()
        else:
            inside()
    except Exception as left:
        if type(left) is not error:
            raise


def _ledger(logger: Logger, call: Record) -> None:
    members = {name: given(value) for name, value in call.items() if name not in ("hop", "key")}
    members |= {name: tuple(members[name]) for name in ("version", "part") if name in members}
    logger.ledger_share = 1.0
    logger.ledger(given(call["hop"]), given(call["key"]), **members)


_CALLS: dict[str, Any] = {
    "ledger": _ledger,
    "weights": lambda logger, call: logger.weights(**call),
    "log": _log,
    "span": _span,
    "define": lambda logger, call: logger.define(call["m"]),
    "event": lambda logger, call: logger.event(call["name"], step=call.get("step"), **given(call.get("attrs", {}))),
    "sample": lambda logger, call: logger.sample(
        call["table"], given(call["row"]), score=call.get("score"), step=call.get("step")
    ),
    "run": lambda logger, call: logger.run_data(**{name: given(value) for name, value in call.items()}),
    "barrier": lambda logger, call: logger.barrier(call["step"]),
    "rollback": lambda logger, call: logger.rollback(call["step"]),
    "flush": lambda logger, call: logger.flush(),
    "close": lambda logger, call: logger.close(),
}


# --- comparing ---


def differences(expected: list[Record], found: list[Record], pid: int) -> list[str]:
    """What is wrong with a writer's records, in words; nothing if they are what they should be."""
    said = [record for record in found if not _passed_over(record)]
    told = []
    for number, (should, is_) in enumerate(itertools.zip_longest(expected, said)):
        if should is None or is_ is None:
            told.append(f"record {number}: {'too much: ' + repr(is_) if should is None else f'lacks {should}'}")
        else:
            told += [f"record {number}{what}" for what in _record(should, is_, pid)]
    return told


def unreported(script: dict[str, Any], found: list[Record]) -> list[tuple[str | None, str | None]]:
    """What a writer should have reported, beside what it reported in its place, where they differ."""
    said = [record["attrs"]["error"] for record in found if record.get("name") == "rlship_error"]
    pairs = itertools.zip_longest(script["reports"], said)
    return [(should, is_) for should, is_ in pairs if should is None or is_ is None or should not in is_]


def _passed_over(record: Record) -> bool:
    return record.get("kind") in PASSED_OVER or record.get("name") == "rlship_error" or _has_facts_alone(record)


def _has_facts_alone(record: Record) -> bool:
    return record.get("kind") == "run" and record.keys() <= {"kind", "t", "facts"}


def _record(should: Record, is_: Record, pid: int) -> Iterator[str]:
    kind = should.get("kind", "metrics")
    known = {name: value for name, value in is_.items() if name in KNOWN[kind] or name == "kind"}
    for name in sorted(should.keys() | known.keys()):
        where = f" {name}"
        if name not in should:
            if name == "attrs" and known[name] == {}:
                continue  # the same as none
            yield f"{where}: is {known[name]!r:.200}, should not be there"
        elif kind == "metrics" and name == "m" and name in known:
            if list(should["m"]) != list(known["m"]) or _decoded(should["m"]) != _decoded(known["m"]):
                yield f"{where}: is {known['m']!r:.400}, not {should['m']!r:.400}"
        else:
            yield from _value(where, should[name], known.get(name, _ABSENT), pid)


_ABSENT = object()


def _decoded(m: Record) -> dict[str, str]:
    """Every bit of what the values come to."""
    return {name: repr(partials_of(value)) for name, value in m.items()}


def _value(where: str, should: Any, is_: Any, pid: int) -> Iterator[str]:
    if isinstance(should, dict) and "$" in should:
        if not _fits(should, is_, pid):
            yield f"{where}: is {is_!r:.200}, which is not {should}"
    elif isinstance(should, dict) and isinstance(is_, dict) and should.keys() == is_.keys():
        for name in should:
            yield from _value(f"{where}.{name}", should[name], is_[name], pid)
    elif isinstance(should, list) and isinstance(is_, list) and len(should) == len(is_):
        for number, (one, other) in enumerate(zip(should, is_)):
            yield from _value(f"{where}[{number}]", one, other, pid)
    elif is_ is _ABSENT or _bits(should) != _bits(is_):
        yield f"{where}: is {'absent' if is_ is _ABSENT else repr(is_)[:200]}, not {should!r:.200}"


def _bits(value: Any) -> Any:
    return struct.pack("d", value) if _is_number(value) else (type(value).__name__, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fits(mark: Record, is_: Any, pid: int) -> bool:
    what = mark["$"]
    if what == "beat":
        return is_ is _ABSENT or (_is_number(is_) and is_ > 0)
    if what == "beginning":
        text, count = mark["of"]
        return isinstance(is_, str) and (text * count).startswith(is_) and len(is_.encode()) >= HALF_A_LINE
    if what == "pid":
        return bool(is_ == pid)
    if what in ("time", "seconds", "random"):
        low, high = {"time": (T_MIN, T_MAX), "seconds": (0, 10**9), "random": (0, 1)}[what]
        return _is_number(is_) and low <= is_ <= high and not (what == "random" and is_ == 1)
    return what in ("id", "host", "program", "lane") and isinstance(is_, str) and is_ != ""
