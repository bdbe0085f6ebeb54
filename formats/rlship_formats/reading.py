"""What a line of a writer's file is: formats/SPEC.md, sections 3 to 5 and 10, one function for each kind of record.

This module is the definition, and it is written to be compared with the text. Everything that reads files uses it. The
decoder reads the most frequent lines in a quicker way beside it; tests/pipeline/test_decoder_equals_reader.py compares
the two. Pure: no I/O, no clock.

A new kind of record starts here: its class, its function, and its entry in `READERS` (CONTRIBUTING.md).
Records are named tuples because a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import orjson

from rlship_formats.records import (
    CONFIG,
    FORMAT_VERSION,
    MAX_LINE_BYTES,
    MAX_OFFSET_S,
    MAX_STEP,
    MAX_WORLD,
    T_MAX,
    T_MIN,
    BadRecord,
    Definition,
    Gap,
    Open,
    is_step,
    time_of,
)
from rlship_formats.values import NONFINITE, DeadValue, Observations, is_reduction, observe

MAX_DURATION_S = 1e9
MAX_ERROR = 300  # characters of the error of a close
MAX_EXIT_CODE = 255
MAX_KEY = 200  # characters of the key of a group

RUN_OBJECTS = ("config", "summary", "facts")
RUN_TEXTS = ("name", "notes", "group", "project", "entity", "job_type")
_RUN_MEMBERS: dict[str, type] = {
    **dict.fromkeys(RUN_OBJECTS, dict),
    **dict.fromkeys(RUN_TEXTS, str),
    **dict.fromkeys(("tags", "dropped"), list),
    "exit_code": int,
}

MAIN_LANE = "main"
STEP_TAG = "step_tag"  # the event that tags its step
WRONG_USE = "rlship_error"  # the event by which a writer says that it could not do what the job asked for
_ABOUT_WRITER = frozenset((WRONG_USE, CONFIG))
TAGGED = f"event/{STEP_TAG}"  # the metric by which tags are counted; it has no value in rows
SPAN_REDUCTIONS = ("mean", "max")
EVENT_REDUCTIONS = ("sum",)

Body: TypeAlias = dict[str, Any]  # a line's JSON object
METRICS: Any = object()  # the kind of a record without `kind`; no line can spell it


class DeadLetter(NamedTuple):
    """A line that cannot be used. `reason` is one of section 10, `member` the member at fault, "" if it is not one."""

    reason: str
    member: str = ""


class FileReader:
    """Reads the lines of one file, in their order.

    `opened` is the file's usable `open` record, None before it. `unsupported`: the file is of another version of the
    format, so none of its lines can be used. `labels` are those of the `open` record that it read. `t` is the time that
    the last record handed on. `segment` counts the rollbacks so far. To go on in the middle of a file, start with the
    values that a reader had there.
    """

    __slots__ = ("labels", "opened", "segment", "t", "unsupported")

    def __init__(
        self, opened: Open | None = None, *, t: float = 0.0, segment: int = 0, unsupported: bool = False
    ) -> None:
        self.opened = opened
        self.labels: dict[str, str] = {}
        self.t = t
        self.segment = segment
        self.unsupported = unsupported

    def read(self, line: bytes) -> Record | DeadLetter | None:
        """What a line (without its LF) is; None if it is blank."""
        if len(line) > MAX_LINE_BYTES:
            return DeadLetter("line too long")
        if not line.strip(b" \t\r"):
            return None
        try:
            body = orjson.loads(line)
        except orjson.JSONDecodeError:
            return DeadLetter("not JSON")
        return self.read_body(body)

    def read_body(self, body: object) -> Record | DeadLetter:
        """What a line is, given its JSON."""
        try:
            if not isinstance(body, dict):
                raise BadRecord("not an object")
            kind = body.get("kind", METRICS)
            if kind == "open":
                return self._open(body)
            if self.opened is None:
                raise BadRecord("no open record")
            read = READERS.get(kind) if kind is METRICS or isinstance(kind, str) else None
            if read is None:
                return Unknown()  # it hands no `t` on, as a dead letter does not
            step = body.get("step")
            if not is_step(step) and "step" in body:
                raise BadRecord("bad step", "step")
            record = read(body, self.t, step)
        except BadRecord as bad:
            return DeadLetter(str(bad), bad.member)
        if read is read_rollback:
            self.segment += 1
        self.t = record.t
        return record

    def _open(self, body: Body) -> Open:
        if self.opened is not None:
            raise BadRecord("second open record")
        if self.unsupported:
            raise BadRecord("no open record")
        version = body.get("rlship", FORMAT_VERSION)
        self.unsupported = type(version) is int and version != FORMAT_VERSION
        self.opened = read_open(body)
        labels = body.get("labels")
        if isinstance(labels, dict):
            self.labels = {name: text for name, text in labels.items() if isinstance(text, str)}
        self.t = self.opened.t
        return self.opened


# Section 5, one kind after the other. `before` is the `t` that the record before hands on, `step` the record's step.


class Unknown(NamedTuple):
    """A record of a kind that this version does not know. It hands no `t` on."""


def read_open(body: Body) -> Open:
    """Section 5.1. Raises BadRecord."""
    if type(version := body.get("rlship", FORMAT_VERSION)) is not int:
        raise BadRecord("bad open record", "rlship")
    if version != FORMAT_VERSION:
        raise BadRecord("unsupported format version", "rlship")
    id, actor = _opening_text(body, "id", None), _opening_text(body, "actor", None)
    replica = body.get("replica", "0")
    if type(replica) is int:
        replica = str(replica)
    if not isinstance(replica, str):
        raise BadRecord("bad open record", "replica")
    rank = _opening_integer(body, "rank", 0, MAX_WORLD - 1, 0)
    world = None if body.get("world") is None else _opening_integer(body, "world", 1, MAX_WORLD, 1)
    attempt = _opening_integer(body, "attempt", 0, MAX_STEP, 0)
    axis = _opening_text(body, "axis", "global_step")
    beat = body.get("beat")
    if beat is not None and (not is_number(beat) or beat <= 0):
        raise BadRecord("bad open record", "beat")
    parent = None if body.get("parent") is None else _opening_text(body, "parent", None)
    host, pid, writer = body.get("host"), body.get("pid"), body.get("writer")
    job, labels, pid_space = body.get("job"), body.get("labels"), body.get("pid_space")
    agent, source = (labels.get("agent"), labels.get("source")) if isinstance(labels, dict) else (None, None)
    return Open(
        id=id,
        actor=actor,
        replica=replica,
        rank=rank,
        world=world,
        attempt=attempt,
        axis=axis,
        t=time_of(body, 0.0),
        beat=None if beat is None else float(beat),
        parent=parent,
        job=job if is_text(job) else None,
        host=host if isinstance(host, str) else "",
        pid=pid if type(pid) is int else 0,
        pid_space=pid_space if isinstance(pid_space, str) else "",
        writer=writer if isinstance(writer, str) else "",
        agent=agent if isinstance(agent, str) else "",
        source=source if isinstance(source, str) else "",
    )


def _opening_text(body: Body, member: str, default: str | None) -> str:
    if not is_text(value := body.get(member, default)):
        raise BadRecord("bad open record", member)
    return value


def _opening_integer(body: Body, member: str, low: int, high: int, default: int) -> int:
    value = body.get(member, default)
    if type(value) is not int or not low <= value <= high:
        raise BadRecord("bad open record", member)
    return value


class DeadEntry(NamedTuple):
    """One metric's value on a line, or its entry in a `define`, that cannot be used. The rest of the line counts."""

    metric: str
    reason: str


class Metrics(NamedTuple):
    """Observations of metrics. `m` holds the values as they stand in the line; `observed` says what they are.

    `stream`: without a step on purpose, as in the next three classes, so that no barrier adopts it.
    """

    t: float
    step: int | None
    m: dict[str, Any]
    stream: bool = False

    def observed(self) -> tuple[list[tuple[str, Observations]], list[DeadEntry]]:
        """The observations of each metric that has any, and the dead values, both in the line's order."""
        found: list[tuple[str, Observations]] = []
        dead: list[DeadEntry] = []
        for metric, value in self.m.items():
            try:
                observations = observations_of(metric, value)
            except DeadValue as bad:
                dead.append(DeadEntry(metric, str(bad)))
                continue
            if observations is not None:
                found.append((metric, observations))
        return found, dead


def read_metrics(body: Body, before: float, step: int | None) -> Metrics:
    """Section 5.2: a record without `kind`. Raises BadRecord."""
    metrics = body.get("m")
    if not isinstance(metrics, dict):
        raise BadRecord("bad metrics", "m")
    return Metrics(time_of(body, before), step, metrics, body.get("stream") is True)


def observations_of(metric: str, value: Any) -> Observations | None:
    """Section 6: the observations in a metric's value, None if it holds none. Raises DeadValue."""
    if not metric:
        raise DeadValue("bad value")
    return observe(value)


class Define(NamedTuple):
    """How metrics are to be reduced from the next line on, by metric. `dead` are the entries that cannot be used."""

    t: float
    m: dict[str, Definition]
    dead: list[DeadEntry]


def read_define(body: Body, before: float, step: int | None) -> Define:
    """Section 5.3. Raises BadRecord."""
    entries = body.get("m")
    if not isinstance(entries, dict):
        raise BadRecord("bad define", "m")
    asked: dict[str, Definition] = {}
    dead: list[DeadEntry] = []
    for metric, entry in entries.items():
        asks = _entry(entry)
        if asks is None or not metric:
            dead.append(DeadEntry(metric, "bad define"))
        else:
            asked[metric] = asks
    return Define(time_of(body, before), asked, dead)


def _entry(entry: Any) -> Definition | None:
    """An entry of a `define`; None if it cannot be used."""
    if not isinstance(entry, dict):
        return None
    wanted: Any = ()
    if "reduce" in entry:
        wanted = entry["reduce"]
        if isinstance(wanted, str):
            wanted = [wanted]
        if not isinstance(wanted, list) or not wanted or not all(is_reduction(name) for name in wanted):
            return None
    unit = entry.get("unit")
    return Definition(
        tuple(dict.fromkeys(wanted)),
        entry.get("per_rank") is True,
        entry.get("stream") is True,
        unit if isinstance(unit, str) else None,
    )


class Span(NamedTuple):
    """Something took from `t` (Unix seconds) for `dur` seconds in `lane`, a thread or a task. `step` is that of its
    end, None in a stream. `err` is the name of the error that ended it, or None.
    """

    name: str
    lane: str
    t: float
    dur: float
    step: int | None
    err: str | None
    stream: bool = False


def read_span(body: Body, before: float, step: int | None) -> Span:
    """Section 5.4. Raises BadRecord."""
    name, dur = body.get("name"), body.get("dur")
    if not is_text(name):
        raise BadRecord("bad span", "name")
    if not is_number(dur) or not 0 <= dur <= MAX_DURATION_S:
        raise BadRecord("bad span", "dur")
    lane, err = body.get("lane"), body.get("err")
    return Span(
        name,
        lane if isinstance(lane, str) else MAIN_LANE,
        time_of(body, before),
        float(dur),
        step,
        err if isinstance(err, str) else None,
        body.get("stream") is True,
    )


class Event(NamedTuple):
    """Something happened at `t` (Unix seconds). `tag` is what a `step_tag` event tags its step with, else ""."""

    name: str
    t: float
    step: int | None
    attrs: dict[str, Any]
    tag: str = ""
    stream: bool = False

    @property
    def is_report(self) -> bool:
        """Whether the writer reports a wrong use."""
        return self.name == WRONG_USE

    @property
    def is_about_writer(self) -> bool:
        """Whether it says something of its writer, and so stands for no metrics and belongs to no step."""
        return self.name in _ABOUT_WRITER


def read_event(body: Body, before: float, step: int | None) -> Event:
    """Section 5.5. Raises BadRecord."""
    name, attrs = body.get("name"), body.get("attrs")
    if not is_text(name):
        raise BadRecord("bad event", "name")
    facts = attrs if isinstance(attrs, dict) else {}
    tag = ""
    if name == STEP_TAG:
        if not is_text(facts.get("tag")):
            raise BadRecord("bad event", "attrs")
        tag = facts["tag"]
    # What a writer says of itself belongs to no step.
    return Event(name, time_of(body, before), step, facts, tag, body.get("stream") is True)


class Sample(NamedTuple):
    """A row of `table`, offered at `t` (Unix seconds). `score` is None without one, or if it is not finite: then `word`
    is how it stands in the line. `pri` is in 0..1. `cut` is what the record says of members that were shortened, None
    if nothing.
    """

    table: str
    t: float
    step: int | None
    score: float | None
    pri: float
    row: dict[str, Any]
    cut: Any
    word: str | None = None
    stream: bool = False


def read_sample(body: Body, before: float, step: int | None) -> Sample:
    """Section 5.6. Raises BadRecord."""
    table, row, pri, score = body.get("table"), body.get("row"), body.get("pri"), body.get("score")
    if not is_text(table):
        raise BadRecord("bad sample", "table")
    if not isinstance(row, dict):
        raise BadRecord("bad sample", "row")
    if not is_number(pri) or not 0 <= pri <= 1:
        raise BadRecord("bad sample", "pri")
    word = score if isinstance(score, str) and score in NONFINITE else None
    if word is not None:
        score = None
    if score is not None and not is_number(score):
        raise BadRecord("bad sample", "score")
    score = None if score is None else float(score)
    stream = body.get("stream") is True
    return Sample(table, time_of(body, before), step, score, float(pri), row, body.get("cut"), word, stream)


class Barrier(NamedTuple):
    """Nothing more of steps up to `step` will come. `adopts`: the lines without a step before it belong to `step`."""

    t: float
    step: int
    adopts: bool = False


def read_barrier(body: Body, before: float, step: int | None) -> Barrier:
    """Section 5.7. Raises BadRecord."""
    return Barrier(time_of(body, before), _needed(step), body.get("adopts") is True)


class Rollback(NamedTuple):
    """The process went back to `step`: what follows is of a newer segment."""

    t: float
    step: int


def read_rollback(body: Body, before: float, step: int | None) -> Rollback:
    """Section 5.7. Raises BadRecord."""
    return Rollback(time_of(body, before), _needed(step))


def _needed(step: int | None) -> int:
    if step is None:
        raise BadRecord("bad step", "step")
    return step


class GapRecord(NamedTuple):
    """A `gap`: lines were dropped or may be lost, somewhere after the record that was written at `since`."""

    t: float
    gap: Gap
    since: float


def read_gap(body: Body, before: float, step: int | None) -> GapRecord:
    """Section 5.7. Raises BadRecord."""
    n, first, last = body.get("n"), body.get("from"), body.get("to")
    if type(n) is not int or n < 1:
        raise BadRecord("bad gap", "n")
    if "from" not in body and "to" not in body:
        return GapRecord(time_of(body, before), Gap(n, None, None), before)
    if "from" in body and not is_step(first):
        raise BadRecord("bad gap", "from")
    if "to" in body and not is_step(last):
        raise BadRecord("bad gap", "to")
    if not (is_step(first) and is_step(last) and first <= last):
        raise BadRecord("bad gap")
    return GapRecord(time_of(body, before), Gap(n, first, last), before)


class Clock(NamedTuple):
    """At `t` (Unix seconds, of this host's clock) that clock was `offset` seconds ahead of the file server's, give or
    take `err`. With `client_time` the record proves nothing: the server stamps files with this host's own time.
    """

    t: float
    offset: float
    err: float
    client_time: bool = False


def read_clock(body: Body, before: float, step: int | None) -> Clock:
    """Section 5.7. Raises BadRecord."""
    offset, err = body.get("offset"), body.get("err")
    if not is_number(offset) or not -MAX_OFFSET_S <= offset <= MAX_OFFSET_S:
        raise BadRecord("bad clock", "offset")
    if not is_number(err) or not 0 <= err <= MAX_OFFSET_S:
        raise BadRecord("bad clock", "err")
    return Clock(time_of(body, before), float(offset), float(err), body.get("client_time") is True)


class Beat(NamedTuple):
    """The writer lives."""

    t: float


def read_beat(body: Body, before: float, step: int | None) -> Beat:
    """Section 5.7."""
    return Beat(time_of(body, before))


class Close(NamedTuple):
    """The writer is done, unless it `rolls`: then another file goes on. `reason` is "" where the record has none.

    If it `failed`, its process ended with an uncaught exception; `error` is that exception's type and message.
    """

    t: float
    reason: str
    error: str = ""

    @property
    def rolls(self) -> bool:
        """Whether another file goes on."""
        return self.reason == "roll"

    @property
    def failed(self) -> bool:
        """Whether the process ended with an error, so that its rank did not leave in order."""
        return self.reason == "error"


def read_close(body: Body, before: float, step: int | None) -> Close:
    """Section 5.7."""
    reason = body.get("reason")
    error = body.get("error")
    return Close(
        time_of(body, before),
        reason if isinstance(reason, str) else "",
        error[:MAX_ERROR] if isinstance(error, str) else "",
    )


class Run(NamedTuple):
    """What the writer's run is: its configuration, its results, and facts about the process.

    `config`, `summary` and `facts` are {} where the record lacks them, `dropped` is (); any other member is then None.
    `tags` () takes earlier tags back. `dropped` holds the dotted paths of members that the writer kept to itself.
    """

    t: float
    config: dict[str, Any]
    summary: dict[str, Any]
    facts: dict[str, Any]
    name: str | None = None
    notes: str | None = None
    group: str | None = None
    project: str | None = None
    entity: str | None = None
    job_type: str | None = None
    tags: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()
    exit_code: int | None = None


def read_run(body: Body, before: float, step: int | None) -> Run:
    """Section 5.8. Raises BadRecord."""
    for member, kind in _RUN_MEMBERS.items():
        if member in body and type(body[member]) is not kind:
            raise BadRecord("bad run", member)
    for member in ("tags", "dropped"):
        if any(type(item) is not str for item in body.get(member, ())):
            raise BadRecord("bad run", member)
    code, tags = body.get("exit_code"), body.get("tags")
    if code is not None and not -MAX_EXIT_CODE <= code <= MAX_EXIT_CODE:
        raise BadRecord("bad run", "exit_code")
    return Run(
        t=time_of(body, before),
        config=body.get("config", {}),
        summary=body.get("summary", {}),
        facts=body.get("facts", {}),
        name=body.get("name"),
        notes=body.get("notes"),
        group=body.get("group"),
        project=body.get("project"),
        entity=body.get("entity"),
        job_type=body.get("job_type"),
        tags=None if tags is None else tuple(tags),
        dropped=tuple(body.get("dropped", ())),
        exit_code=code,
    )


class Ledger(NamedTuple):
    """What a group of samples is at one hop, or one part of `parts` of it. For the hop `weights`, which weights a
    version has; then `key` is the version.

    `by` is what samples are known by: "sample", "tokens", or "" if they have no ids. `digests` are those of the fields,
    by name. `reward` is (sum, sum of squares), `advantage` the same with the sum of (reward - mean) x advantage, `mask`
    is (tokens that count, tokens, samples without any that counts); () where the record has none.
    """

    t: float
    step: int | None
    hop: str
    key: str
    n: int
    by: str = ""
    digests: dict[str, tuple[int, int]] = {}  # noqa: RUF012 - never changed, as any part of a record
    precision: str = ""
    version: tuple[int, ...] = ()
    reward: tuple[float, ...] = ()
    advantage: tuple[float, ...] = ()
    mask: tuple[int, ...] = ()
    response: int | None = None
    part: int = 0
    parts: int = 1
    retry: int = 0
    passes: int = 1
    why: str = ""
    fingerprint: str = ""


def read_ledger(body: Body, before: float, step: int | None) -> Ledger:
    """Section 5.9. Raises BadRecord."""
    hop, key = body.get("hop"), body.get("key")
    if not is_text(hop):
        raise BadRecord("bad ledger", "hop")
    if not is_text(key) or len(key) > MAX_KEY:
        raise BadRecord("bad ledger", "key")
    version = _ledger_counts(body, "version", (2,))
    if version and version[0] > version[1]:
        raise BadRecord("bad ledger", "version")
    part = _ledger_counts(body, "part", (2,)) or (0, 1)
    if not part[0] < part[1]:
        raise BadRecord("bad ledger", "part")
    response = body.get("response")
    if "response" in body and not is_step(response):
        raise BadRecord("bad ledger", "response")
    return Ledger(
        t=time_of(body, before),
        step=step,
        hop=hop,
        key=key,
        n=_ledger_count(body, "n", None),
        by=_ledger_text(body, "by"),
        digests=_digests(body),
        precision=_ledger_text(body, "precision"),
        version=version,
        reward=_ledger_numbers(body, "reward", (2,)),
        advantage=_ledger_numbers(body, "advantage", (2, 3)),
        mask=_ledger_counts(body, "mask", (3,)),
        response=response,
        part=part[0],
        parts=part[1],
        retry=_ledger_count(body, "try", 0),
        passes=_ledger_count(body, "passes", 1),
        why=_ledger_text(body, "why"),
        fingerprint=_ledger_text(body, "fingerprint"),
    )


def _ledger_count(body: Body, member: str, default: int | None) -> int:
    if not is_step(value := body.get(member, default)):
        raise BadRecord("bad ledger", member)
    return value


def _ledger_text(body: Body, member: str) -> str:
    if type(value := body.get(member, "")) is not str:
        raise BadRecord("bad ledger", member)
    return value


def _ledger_counts(body: Body, member: str, lengths: tuple[int, ...]) -> tuple[int, ...]:
    if member not in body:
        return ()
    value = body[member]
    if type(value) is not list or len(value) not in lengths or not all(map(is_step, value)):
        raise BadRecord("bad ledger", member)
    return tuple(value)


def _ledger_numbers(body: Body, member: str, lengths: tuple[int, ...]) -> tuple[float, ...]:
    if member not in body:
        return ()
    value = body[member]
    if type(value) is not list or len(value) not in lengths or not all(map(is_number, value)):
        raise BadRecord("bad ledger", member)
    return tuple(map(float, value))


def _digests(body: Body) -> dict[str, tuple[int, int]]:
    given = body.get("d", {})
    if type(given) is not dict:
        raise BadRecord("bad ledger", "d")
    found = {}
    for name, value in given.items():
        if not name or type(value) is not list or len(value) != 2 or not all(map(is_step, value)):
            raise BadRecord("bad ledger", "d")
        found[name] = (value[0], value[1])
    return found


# What spans and events stand for.


class DerivedMetric(NamedTuple):
    """The metrics record that a span or an event stands for: at `t`, `metric` has `value`. It is reduced by `reduce`
    where no `define` says otherwise.
    """

    t: float
    metric: str
    value: float
    reduce: tuple[str, ...]


def derive_metric(record: Span | Event) -> DerivedMetric:
    """A span stands for its duration at its end, an event for one more of its name."""
    if isinstance(record, Event):
        return DerivedMetric(record.t, f"event/{record.name}", 1.0, EVENT_REDUCTIONS)
    name, _, t, dur, *_ = record
    end = t + dur
    return DerivedMetric(end if T_MIN <= end <= T_MAX else t, f"{name}_s", dur, SPAN_REDUCTIONS)


Timed: TypeAlias = (
    "Metrics | Define | Span | Event | Sample | Barrier | Rollback | GapRecord | Clock | Beat | Close | Run | Ledger"
)
Later: TypeAlias = "Timed | Unknown"
Record: TypeAlias = "Open | Later"

# By the member `kind`. `open` is not here: it is `FileReader`'s own.
READERS: dict[str, Callable[[Body, float, int | None], Timed]] = {
    METRICS: read_metrics,
    "define": read_define,
    "span": read_span,
    "event": read_event,
    "sample": read_sample,
    "barrier": read_barrier,
    "rollback": read_rollback,
    "gap": read_gap,
    "clock": read_clock,
    "beat": read_beat,
    "close": read_close,
    "run": read_run,
    "ledger": read_ledger,
}
KNOWN_KINDS = frozenset(("open", *READERS)) - {METRICS}


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a string that is not empty."""
    return type(value) is str and value != ""


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a JSON number. A boolean is not."""
    return type(value) is float or type(value) is int
