"""What each line of a file is: sections 3 to 5 and 10 of formats/SPEC.md, read literally."""

from __future__ import annotations

from typing import Any

from tests.reference import strict_json
from tests.reference.records import Entered, Entry, File, Measured, Sample, Segment, Writer
from tests.reference.values import (
    NON_FINITE,
    DeadLetterError,
    bins,
    is_finite,
    is_integer,
    is_name,
    is_step,
    partials_of,
)

LONGEST = 1_048_576
MOST_RANKS = 2**20
LONGEST_CUSTOM = 100
MAY_BE_NULL = ("world", "parent", "beat")
YEAR_2000, YEAR_2100 = 946684800, 4102444800
REDUCTIONS = (
    *("mean", "sum", "min", "max", "first", "last", "std", "count", "p50", "p90", "p95", "p99", "hist", "rate"),
    "sum_last",
)
RUN_MEMBERS = (
    *("config", "summary", "facts", "name", "notes", "group", "project", "entity", "job_type", "tags", "dropped"),
    "exit_code",
)
METRICS = object()  # what a record without `kind` is: not a string, so that no line can spell it
KNOWN = (
    *(METRICS, "define", "barrier", "rollback", "gap", "close", "span", "event", "sample", "clock", "beat", "run"),
    "ledger",
)
STAND_FOR_METRICS = (METRICS, "span", "event", "sample")


def read_file(name: str, data: bytes) -> File:
    """Read all complete lines of one file."""
    file = File(None, [])
    unsupported = False
    defines: dict[str, Entry] = {}
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
    host = body.get("host")
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
        job=body["job"] if is_name(body.get("job")) else None,
        made_by=body.get("writer", ""),
        axis=body.get("axis", "global_step"),
        host=host if isinstance(host, str) else "",
        segments=[Segment(0, None, t)],
        times=[t],
    )


def check_step(kind: Any, body: dict[str, Any]) -> None:
    """A step is an integer; a barrier and a rollback need one."""
    if "step" in body and not is_step(body["step"]):
        raise DeadLetterError("bad step")
    if kind in ("barrier", "rollback") and "step" not in body:
        raise DeadLetterError("bad step")


def read_record(
    file: File, start: int, kind: Any, body: dict[str, Any], before: float, defines: dict[str, Entry]
) -> float:
    """Take one line after the `open` into the file's writer, and return the `t` that it hands on.

    A dead line and one of unknown kind leave no trace, not even their `t`.
    """
    writer = file.writer
    assert writer is not None
    if kind not in KNOWN:
        return before
    check_step(kind, body)
    t = time_of(body, before)
    line = Measured(t, body.get("step"), start)
    segment = writer.segments[-1]
    if kind is METRICS:
        read_metrics(file, line, body)
    elif kind == "span":
        read_span(line, body)
    elif kind == "event":
        read_event(writer, line, body)
    elif kind == "sample":
        read_sample(line, body)
    elif kind == "define":
        read_define(file, start, body, defines)
    elif kind == "gap":
        read_gap(writer, body, before)
    elif kind == "clock":
        read_clock(writer, body, t)
    elif kind in ("run", "ledger"):
        read_apart(writer, line, kind, body)
    elif kind == "barrier":
        if body.get("adopts") is True and segment.number == 0 and not segment.barriers:
            adopt(segment, body["step"])
        segment.barriers.append((body["step"], t))
        note_first(segment, body)
    elif kind == "rollback":
        writer.segments.append(Segment(len(writer.segments), body["step"], t))
    elif kind == "close":
        read_close(writer, body, t)
    writer.times.append(line.t)
    if kind in STAND_FOR_METRICS and not is_about_writer(kind, body):
        line.on_purpose = body.get("stream") is True
        line.defined = {metric: defines[metric] for metric in line.values if metric in defines}
        segment.measured.append(line)
        note_first(segment, body)
    return t


def read_apart(writer: Writer, line: Measured, kind: Any, body: dict[str, Any]) -> None:
    """Records that stand for no metrics: what the run is, and entries of the ledger."""
    if kind == "run":
        writer.runs.append((line.t, read_run(body)))
    else:
        segment = writer.segments[-1].number
        writer.ledger.append(Entered(line.t, line.step, line.place, segment, read_ledger(body)))


def is_about_writer(kind: Any, body: dict[str, Any]) -> bool:
    """An event `rlship_error` or `config` is about the writer, and stands for no metrics record."""
    return kind == "event" and body["name"] in ("rlship_error", "config")


def note_first(segment: Segment, body: dict[str, Any]) -> None:
    """A segment begins with its first record of a step."""
    if "step" in body and segment.first_stepped is None:
        segment.first_stepped = body["step"]


def adopt(segment: Segment, step: int) -> None:
    """The file's first barrier gives its step to the lines before it that have none, but not on purpose."""
    for line in segment.measured:
        if line.step is None and not line.on_purpose:
            line.step, line.adopted = step, True


# --- what stands for a metrics record ---


def read_metrics(file: File, line: Measured, body: dict[str, Any]) -> None:
    """Each metric that yields an observation or a non-empty summary; dead values go to the file's dead letters."""
    if not isinstance(body.get("m"), dict):
        raise DeadLetterError("bad metrics")
    for metric, value in body["m"].items():
        try:
            if metric == "":
                raise DeadLetterError("bad value")
            partials = partials_of(value)
        except DeadLetterError as reason:
            file.dead.append((line.place, str(reason), metric))
        else:
            if partials:
                line.values[metric] = partials
                if isinstance(value, dict) and "v" not in value:
                    line.summaries |= {metric}
                    line.bins[metric] = bins(value)


def read_span(line: Measured, body: dict[str, Any]) -> None:
    """A span stands for its duration, at its end."""
    dur = body.get("dur")
    if not is_name(body.get("name")) or not is_finite(dur) or not 0 <= dur <= 10**9:
        raise DeadLetterError("bad span")
    end = line.t + float(dur)
    line.t = end if YEAR_2000 <= end <= YEAR_2100 else line.t
    line.values = {body["name"] + "_s": partials_of(dur)}
    line.reduce = ("mean", "max")


def read_event(writer: Writer, line: Measured, body: dict[str, Any]) -> None:
    """An event stands for one more of its name; one named `config` says what the run is."""
    name, attrs = body.get("name"), body.get("attrs")
    if not is_name(name):
        raise DeadLetterError("bad event")
    if name == "step_tag":
        if not isinstance(attrs, dict) or not is_name(attrs.get("tag")):
            raise DeadLetterError("bad event")
        line.tag = attrs["tag"]
    if name == "config":
        writer.runs.append((line.t, {"config": attrs} if isinstance(attrs, dict) else {}))
    line.values = {f"event/{name}": partials_of(1)}
    line.reduce = ("sum",)


def read_sample(line: Measured, body: dict[str, Any]) -> None:
    """A sample stands for a metrics record without metrics."""
    table, row, pri, score = body.get("table"), body.get("row"), body.get("pri"), body.get("score")
    is_number = is_finite(score)
    usable = (
        is_name(table)
        and isinstance(row, dict)
        and is_finite(pri)
        and 0 <= pri <= 1
        and (score is None or is_number or (isinstance(score, str) and score in NON_FINITE))
    )
    if not usable:
        raise DeadLetterError("bad sample")
    line.sample = Sample(
        table=body["table"],
        pri=float(body["pri"]),
        score=float(body["score"]) if is_number else score,
        row=body["row"],
        cut=body.get("cut"),
    )


# --- the other records ---


def read_close(writer: Writer, body: dict[str, Any], t: float) -> None:
    """The first `close` in order counts; a failed one makes the process failed."""
    if body.get("reason") == "error":
        writer.failed = True
    elif body.get("reason") != "roll" and writer.closed is None:
        writer.closed = t


def read_gap(writer: Writer, body: dict[str, Any], before: float) -> None:
    if not is_integer(body.get("n"), least=1):
        raise DeadLetterError("bad gap")
    if "from" not in body and "to" not in body:
        writer.lost.append((body["n"], before))
        return
    first, last = body.get("from"), body.get("to")
    if not (is_step(first) and is_step(last) and first <= last):
        raise DeadLetterError("bad gap")
    writer.gaps.append((body["n"], first, last))


def read_clock(writer: Writer, body: dict[str, Any], t: float) -> None:
    offset, err = body.get("offset"), body.get("err")
    if not (is_finite(offset) and -(10**9) <= offset <= 10**9 and is_finite(err) and 0 <= err <= 10**9):
        raise DeadLetterError("bad clock")
    proves_nothing = body.get("client_time") is True
    (writer.unproven if proves_nothing else writer.clocks).append((t, float(offset), float(err)))


def read_run(body: dict[str, Any]) -> dict[str, Any]:
    """The members that say what the run is."""
    found = {member: body[member] for member in RUN_MEMBERS if member in body}
    for member, value in found.items():
        if member in ("config", "summary", "facts"):
            usable = isinstance(value, dict)
        elif member in ("tags", "dropped"):
            usable = isinstance(value, list) and all(isinstance(item, str) for item in value)
        elif member == "exit_code":
            usable = is_integer(value, least=-255) and value <= 255
        else:
            usable = isinstance(value, str)
        if not usable:
            raise DeadLetterError("bad run")
    return found


LEDGER_TEXTS = ("by", "precision", "why", "fingerprint")
LEDGER_COUNTS = ("n", "response", "try", "passes")
LEDGER_LISTS = {"version": (2,), "part": (2,), "mask": (3,), "reward": (2,), "advantage": (2, 3)}


def read_ledger(body: dict[str, Any]) -> dict[str, Any]:
    """The members of an entry of the ledger, as they stand in the line."""
    if not is_name(body.get("hop")) or not is_name(body.get("key")) or len(body["key"]) > 200 or "n" not in body:
        raise DeadLetterError("bad ledger")
    for member in LEDGER_TEXTS:
        if not isinstance(body.get(member, ""), str):
            raise DeadLetterError("bad ledger")
    for member in LEDGER_COUNTS:
        if not is_step(body.get(member, 0)):
            raise DeadLetterError("bad ledger")
    for member, lengths in LEDGER_LISTS.items():
        if member in body:
            value = body[member]
            usable = is_finite if member in ("reward", "advantage") else is_step
            if not isinstance(value, list) or len(value) not in lengths or not all(usable(x) for x in value):
                raise DeadLetterError("bad ledger")
    if "version" in body and body["version"][0] > body["version"][1]:
        raise DeadLetterError("bad ledger")
    if "part" in body and body["part"][0] >= body["part"][1]:
        raise DeadLetterError("bad ledger")
    digests = body.get("d", {})
    if not isinstance(digests, dict):
        raise DeadLetterError("bad ledger")
    for name, pair in digests.items():
        if not name or not isinstance(pair, list) or len(pair) != 2 or not all(is_step(x) for x in pair):
            raise DeadLetterError("bad ledger")
    known = ("hop", "key", "d", *LEDGER_TEXTS, *LEDGER_COUNTS, *LEDGER_LISTS)
    return {member: body[member] for member in known if member in body}


def read_define(file: File, start: int, body: dict[str, Any], defines: dict[str, Entry]) -> None:
    if not isinstance(body.get("m"), dict):
        raise DeadLetterError("bad define")
    for metric, entry in body["m"].items():
        try:
            if metric == "" or not isinstance(entry, dict):
                raise DeadLetterError("bad define")
            defines[metric] = Entry(
                reduce=reductions_of(entry["reduce"]) if "reduce" in entry else None,
                per_rank=entry.get("per_rank") is True,
                stream=entry.get("stream") is True,
                unit=entry["unit"] if isinstance(entry.get("unit"), str) else None,
            )
        except DeadLetterError as reason:
            file.dead.append((start, str(reason), metric))


def reductions_of(reduce: Any) -> tuple[str, ...]:
    names = reduce if isinstance(reduce, list) else [reduce]
    if not names or not all(is_reduction(name) for name in names):
        raise DeadLetterError("bad define")
    return tuple(dict.fromkeys(names))


def is_reduction(name: Any) -> bool:
    return isinstance(name, str) and (name in REDUCTIONS or ("." in name and len(name) <= LONGEST_CUSTOM))


def time_of(body: dict[str, Any], before: float) -> float:
    t = body.get("t")
    return float(t) if is_finite(t) and YEAR_2000 <= t <= YEAR_2100 else before
