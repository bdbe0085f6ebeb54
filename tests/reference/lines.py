"""What each line of a file is: sections "Lines" and "Values" of docs/semantics.md, read literally."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from tests.reference import strict_json

LONGEST = 1_048_576
LAST_STEP = 2**53 - 1
MOST_RANKS = 2**20
MAY_BE_NULL = ("world", "parent", "beat")
YEAR_2000, YEAR_2100 = 946684800, 4102444800
REDUCTIONS = ("mean", "sum", "min", "max", "first", "last", "std", "count")
NON_FINITE = ("NaN", "Infinity", "-Infinity")
METRICS = object()  # what a record without `kind` is: not a string, so that no line can spell it
KNOWN = (METRICS, "define", "barrier", "rollback", "gap", "close", "span", "event", "sample", "clock", "beat")


@dataclass(frozen=True)
class Partial:
    """The page's nine. Where n > 0, None is unknown; where n = 0, min, max, first and last mean nothing."""

    n: int
    w: float
    sum: float | None
    m2: float | None
    min: float | None
    max: float | None
    first: float | None
    last: float | None
    nonfinite: int


@dataclass
class Measured:
    """One metrics record that has a step. `values`: each metric that yields anything, with its observations or its
    one summary; `asked`: what governs each of those on this line."""

    t: float
    step: int
    values: dict[str, list[Partial]]
    asked: dict[str, tuple[str, ...]]


@dataclass
class Segment:
    """The lines of one file between rollbacks. `rolled_back_to` is None for segment 0."""

    number: int
    rolled_back_to: int | None
    barriers: list[int] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    first_stepped: int | None = None


@dataclass
class Writer:
    """One file with a usable `open`."""

    file: str
    actor: str
    id: str
    replica: str
    rank: int
    world: int | None
    attempt: int
    t: float
    parent: str | None
    axis: str
    segments: list[Segment]
    newest_t: float
    closed: bool = False
    gaps: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class File:
    """What one file holds. `dead`: (offset, reason, metric or None) in file order."""

    writer: Writer | None
    dead: list[tuple[int, str, str | None]]


class DeadLetterError(Exception):
    """The line, or one value, is a dead letter of this reason."""


def read_file(name: str, data: bytes) -> File:
    """Read all complete lines of one file."""
    file = File(None, [])
    unsupported = False
    defines: dict[str, tuple[str, ...]] = {}
    t = 0.0
    offset = 0
    while (end := data.find(b"\n", offset)) >= 0:
        line, start, offset = data[offset:end], offset, end + 1
        if len(line) <= LONGEST and not line.strip(b" \t\r"):
            continue
        try:
            body = whole_object(line)
            kind = body.get("kind", METRICS)
            if kind == "open" and file.writer is None and not unsupported:
                unsupported = has_other_version(body)
                file.writer = opened(name, body)
                t = file.writer.t
                continue
            if file.writer is None:
                raise DeadLetterError("no open record")
            if kind == "open":
                raise DeadLetterError("second open record")
            t = read_record(file, start, kind, body, t, defines)
        except DeadLetterError as reason:
            file.dead.append((start, str(reason), None))
    return file


def whole_object(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST:
        raise DeadLetterError("line too long")
    try:
        body = strict_json.parse(line)
    except ValueError:
        raise DeadLetterError("not JSON") from None
    if not isinstance(body, dict):
        raise DeadLetterError("not an object")
    return body


def has_other_version(body: dict[str, Any]) -> bool:
    return is_integer(body.get("rlship")) and body["rlship"] != 1


def opened(name: str, body: dict[str, Any]) -> Writer:
    if has_other_version(body):
        raise DeadLetterError("unsupported format version")
    replica = body.get("replica", "0")
    if is_integer(replica):
        replica = str(replica)
    body = {field: value for field, value in body.items() if value is not None or field not in MAY_BE_NULL}
    beat, world = body.get("beat", 1), body.get("world", 1)
    usable = (
        is_integer(body.get("rlship", 1))
        and is_name(body.get("actor"))
        and is_name(body.get("id"))
        and isinstance(replica, str)
        and is_integer(body.get("rank", 0), least=0)
        and body.get("rank", 0) < MOST_RANKS
        and is_integer(world, least=1)
        and world <= MOST_RANKS
        and is_integer(body.get("attempt", 0), least=0)
        and body.get("attempt", 0) < 2**53
        and is_name(body.get("parent", "-"))
        and is_finite(beat)
        and beat > 0
        and is_name(body.get("axis", "global_step"))
    )
    if not usable:
        raise DeadLetterError("bad open record")
    t = time_of(body, 0.0)
    return Writer(
        file=name,
        actor=body["actor"],
        id=body["id"],
        replica=replica,
        rank=body.get("rank", 0),
        world=body.get("world"),
        attempt=body.get("attempt", 0),
        t=t,
        parent=body.get("parent"),
        axis=body.get("axis", "global_step"),
        segments=[Segment(0, None)],
        newest_t=t,
    )


def read_record(
    file: File, start: int, kind: Any, body: dict[str, Any], t: float, defines: dict[str, tuple[str, ...]]
) -> float:
    """Take one line after the `open` into the file's writer, and return its `t`.

    A dead line and one of unknown kind leave no trace, not even their `t`.
    """
    writer = file.writer
    assert writer is not None
    if kind not in KNOWN:
        return t
    if "step" in body and not is_step(body["step"]):
        raise DeadLetterError("bad step")
    if kind in ("barrier", "rollback") and "step" not in body:
        raise DeadLetterError("bad step")
    if kind in (METRICS, "define") and not isinstance(body.get("m"), dict):
        raise DeadLetterError("bad metrics" if kind is METRICS else "bad define")

    t = time_of(body, t)
    segment = writer.segments[-1]
    if kind is METRICS:
        values = usable_values(file, start, body["m"])
        if "step" in body:
            asked = {metric: defines.get(metric, ("mean",)) for metric in values}
            segment.measured.append(Measured(t, body["step"], values, asked))
    elif kind == "define":
        read_define(file, start, body["m"], defines)
    elif kind == "gap":
        read_gap(writer, body)
    elif kind == "barrier":
        segment.barriers.append(body["step"])
    elif kind == "rollback":
        writer.segments.append(Segment(len(writer.segments), body["step"]))
    elif kind == "close":
        writer.closed = writer.closed or body.get("reason") != "roll"
    if kind in (METRICS, "barrier") and "step" in body and segment.first_stepped is None:
        segment.first_stepped = body["step"]
    writer.newest_t = max(writer.newest_t, t)
    return t


def read_gap(writer: Writer, body: dict[str, Any]) -> None:
    if not is_integer(body.get("n"), least=1):
        raise DeadLetterError("bad gap")
    if "from" not in body and "to" not in body:
        return
    first, last = body.get("from"), body.get("to")
    if not (is_step(first) and is_step(last) and first <= last):
        raise DeadLetterError("bad gap")
    writer.gaps.append((body["n"], first, last))


def read_define(file: File, start: int, entries: dict[str, Any], defines: dict[str, tuple[str, ...]]) -> None:
    for metric, entry in entries.items():
        reduce = entry.get("reduce", "mean") if isinstance(entry, dict) else None
        names: list[Any] = reduce if isinstance(reduce, list) else [reduce]
        if metric == "" or not names or not all(name in REDUCTIONS for name in names):
            file.dead.append((start, "bad define", metric))
        else:
            defines[metric] = tuple(dict.fromkeys(names))


def usable_values(file: File, start: int, entries: dict[str, Any]) -> dict[str, list[Partial]]:
    """Each metric that yields an observation or a non-empty summary; dead values go to the file's dead letters."""
    values = {}
    for metric, value in entries.items():
        try:
            if metric == "":
                raise DeadLetterError("bad value")
            partials = partials_of(value)
        except DeadLetterError as reason:
            file.dead.append((start, str(reason), metric))
        else:
            if partials:
                values[metric] = partials
    return values


def partials_of(value: Any) -> list[Partial]:
    """One partial per observation, in order, or that of the one summary."""
    if isinstance(value, list):
        return observations(value, [1.0] * len(value))
    if not isinstance(value, dict):
        return observations([value], [1.0])
    if "v" not in value:
        return summary(value)
    v, w = value["v"], value.get("w")
    if not (isinstance(v, list) and isinstance(w, list) and len(v) == len(w)):
        raise DeadLetterError("bad value")
    if not all(is_finite(weight) and weight >= 0 for weight in w):
        raise DeadLetterError("bad value")
    return observations(v, [float(weight) for weight in w])


def observations(v: list[Any], w: list[float]) -> list[Partial]:
    partials = []
    for x, weight in zip(v, w):
        if x is None:
            continue
        if isinstance(x, (int, float)):
            partials.append(observation(float(x), weight))
        elif isinstance(x, str) and x in NON_FINITE:
            partials.append(Partial(0, 0.0, 0.0, 0.0, None, None, None, None, nonfinite=0 if weight == 0 else 1))
        else:
            raise DeadLetterError("bad value")
    return partials


def observation(x: float, w: float) -> Partial:
    return Partial(n=1, w=w, sum=w * x, m2=0.0, min=x, max=x, first=x, last=x, nonfinite=0)


def summary(value: dict[str, Any]) -> list[Partial]:
    if not is_integer(value.get("n"), least=0):
        raise DeadLetterError("bad value")
    known = {name: value[name] for name in ("w", "sum", "min", "max", "first", "last", "m2") if name in value}
    if not all(is_finite(number) for number in known.values()) or known.get("w", 0) < 0 or known.get("m2", 0) < 0:
        raise DeadLetterError("bad value")
    if value["n"] == 0:
        return []
    given = {name: float(number) for name, number in known.items()}
    return [
        Partial(
            n=value["n"],
            w=given.get("w", float(value["n"])),
            sum=given.get("sum"),
            m2=given.get("m2") if "sum" in given else None,
            min=given.get("min"),
            max=given.get("max"),
            first=given.get("first"),
            last=given.get("last"),
            nonfinite=0,
        )
    ]


def time_of(body: dict[str, Any], before: float) -> float:
    t = body.get("t")
    return float(t) if is_finite(t) and YEAR_2000 <= t <= YEAR_2100 else before


def is_integer(value: Any, least: int | None = None) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def is_step(value: Any) -> TypeGuard[int]:
    return is_integer(value, least=0) and value <= LAST_STEP


def is_finite(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""
