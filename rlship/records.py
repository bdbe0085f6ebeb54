"""The lines of a writer's file: one function for each kind of record in section 5 of the format's specification.

Metrics records are the exception. Nearly all lines are of that kind, so `encode` has their own faster way.
"""

from __future__ import annotations

import os
from math import ceil

from ._version import __version__
from .encode import MAX_LINE_BYTES, json_string, size_of
from .jsondata import json_object, json_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from .identity import Identity


BARRIER_BYTES = 96  # the most that a barrier's line has
_HALF_A_MICROSECOND = 0.0005  # in milliseconds: less is the rounding of a double, not a time


def open_line(
    identity: Identity,
    writer: str,
    *,
    axis: str,
    beat: float,
    t: float,
    parent: str | None,
    labels: Mapping[str, str],
    pid_space: str | None = None,
) -> str:
    """The first line. `t` is Unix seconds; a silent writer writes a beat after `beat` seconds."""
    fields = {
        "kind": "open",
        "rlship": 1,
        "id": writer,
        "actor": identity.actor,
        "replica": identity.replica,
        "rank": identity.rank,
        "world": identity.world,
        "attempt": identity.attempt,
        "axis": axis,
        "beat": beat,
        "host": identity.host,
        "pid": os.getpid(),
        "pid_space": pid_space,
        "t": round(t, 6),
        "writer": f"python/{__version__}",
        "parent": parent,
        "job": identity.job,
        "labels": dict(labels) or None,
    }
    return json_value({name: value for name, value in fields.items() if value is not None}) + "\n"


def define_line(members: Iterable[str]) -> str:
    """A `define` record of encoded members, each `"name":{…}`."""
    return f'{{"kind":"define","m":{{{",".join(members)}}}}}\n'


def barrier_line(step: int, t: float, adopts: bool = False, *, exact: bool = False) -> str:
    """A `barrier` record: this process writes nothing more for steps up to `step`.

    With `adopts`, what stands before it without a step belongs to `step`. The time is rounded up: spans have
    microseconds, and what ended before the barrier must not seem to end after it. With `exact` it has microseconds:
    what comes right after the barrier must not seem to come before it.
    """
    mark = ',"adopts":true' if adopts else ""
    if exact:
        return f'{{"kind":"barrier","step":{step},"t":{t:.6f}{mark}}}\n'
    return f'{{"kind":"barrier","step":{step},"t":{ceil(t * 1000 - _HALF_A_MICROSECOND) / 1000:.3f}{mark}}}\n'


def rollback_line(step: int, t: float) -> str:
    """A `rollback` record: this process goes back to `step`."""
    return f'{{"kind":"rollback","step":{step},"t":{t:.3f}}}\n'


def beat_line(t: float) -> str:
    """A `beat` record: this process lives and has nothing to write."""
    return f'{{"kind":"beat","t":{t:.3f}}}\n'


def close_line(t: float, error: str = "") -> str:
    """A `close` record: this process writes nothing more, because of `error` if there is one."""
    reason = f'"error","error":{json_string(error)}' if error else '"exit"'
    return f'{{"kind":"close","t":{t:.3f},"reason":{reason}}}\n'


def gap_line(count: int, t: float, steps: tuple[int, int] | None = None) -> str:
    """A `gap` record: `count` lines are missing, with steps from the first to the last of `steps`, or without steps."""
    between = "" if steps is None else f'"from":{steps[0]},"to":{steps[1]},'
    return f'{{"kind":"gap","n":{count},{between}"t":{t:.3f}}}\n'


def clock_line(t: float, offset: float, error: float, client_time: bool) -> str:
    """A `clock` record: this host's clock minus the file server's, in seconds.

    With `client_time` the filesystem stamps files with the time of the host that writes, so the record proves nothing.
    """
    mark = ',"client_time":true' if client_time else ""
    return f'{{"kind":"clock","t":{t:.3f},"offset":{offset:.6f},"err":{error:.6f}{mark}}}\n'


def event_line(
    name: str,
    attrs: Mapping[Any, Any],
    step: int | None,
    t: float,
    report: Callable[[str, str], object] = lambda attribute, why: None,
    *,
    stream: bool = False,
) -> str:
    """An `event` record. Calls `report(attribute, why)` for each attribute that is changed or left out. `stream` says
    that it has no step on purpose.

    Raises UnusableError.
    """
    # To the microsecond like spans, so that an event inside a span stays inside it.
    head = f'{_head("event", f"{t:.6f}", step, stream)}"name":{json_string(name)},"attrs":{{'
    body, cut = json_object(attrs, MAX_LINE_BYTES - size_of(head) - 16, report)
    return f"{head}{body}}}{_cut(cut)}}}\n"


def error_line(where: str, error: str, t: float) -> str:
    """The `event` record that carries a message of the writer itself."""
    return event_line("rlship_error", {"where": where, "error": error[:1000]}, None, t)


def on_purpose(line: str) -> str:
    """The metrics record or event `line`, which has no step, marked so that no barrier adopts it."""
    return '{"stream":true,' + line[1:]


def sample_line(
    table: str,
    row: Mapping[Any, Any],
    score: str | None,
    pri: float,
    step: int | None,
    t: float,
    report: Callable[[str, str], object],
    *,
    stream: bool = False,
) -> str:
    """A `sample` record; `score` is already encoded. `report` and `stream` as above. Raises UnusableError."""
    ranked = "" if score is None else f'"score":{score},'
    time = f"{t:.6f}" if stream else f"{t:.3f}"
    head = f'{_head("sample", time, step, stream)}"table":{json_string(table)},{ranked}"pri":{pri!r},"row":{{'
    body, cut = json_object(row, MAX_LINE_BYTES - size_of(head) - 16, report)
    return f"{head}{body}}}{_cut(cut)}}}\n"


def span_form(name: str) -> str:
    """The format string of `span` records with one name, for time, duration, step and the lane's name as JSON."""
    own = json_string(name).replace("%", "%%")
    return f'{{"kind":"span","t":%.6f,"dur":%.9g,"step":%d,"name":{own},"lane":%s}}\n'


def span_line(form: str, t: float, dur: float, step: int | None, lane: str, error: str | None) -> str:
    """A `span` record in a form of `span_form`, also for a span without a step or with an error."""
    line = form % (t, dur, step or 0, lane)
    if step is None:
        line = line.replace('"step":0,', "", 1)
    if error is not None:
        line = f'{line[:-2]},"err":{json_string(error)}}}\n'
    return line


def _head(kind: str, t: str, step: int | None, stream: bool) -> str:
    place = '"stream":true,' if stream else "" if step is None else f'"step":{step},'
    return f'{{"kind":"{kind}","t":{t},{place}'


def _cut(members: str) -> str:
    return f',"cut":{{{members}}}' if members else ""
