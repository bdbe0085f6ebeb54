"""Trace Event Format, the JSON that Perfetto and chrome://tracing open. Pure except for the stream that it writes to.

Times are whole microseconds since 1970, which a double holds exactly. So several traces fit on one time axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from rlship_sidecar.output import as_printed

_OPTIONS = orjson.OPT_NON_STR_KEYS
# Colours of chrome://tracing; other viewers ignore them.
_FAILED = b',"cname":"terrible"'


class Writes(Protocol):
    """Something that takes bytes: a file, a pipe, a gzip stream."""

    def write(self, data: bytes, /) -> Any:
        """Write some bytes."""


def text(value: Any) -> bytes:
    """`value` as JSON. Text that is not Unicode gets replacement characters."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError:
        return orjson.dumps(str(value).encode("utf-8", "replace").decode())


class ChromeTrace:
    """Writes one trace, an event a line. `close` completes it, but does not close the stream."""

    def __init__(self, stream: Writes, about: Mapping[str, str]) -> None:
        self._stream = stream
        self._first = True
        stream.write(b'{"displayTimeUnit":"ms","otherData":' + as_printed(text(dict(about))) + b',"traceEvents":[')

    def process(self, pid: int, name: str, labels: str) -> None:
        """Name a process; processes are shown in the order of `pid`. `labels` are separated by commas."""
        for what, args in (
            ("process_name", {"name": name}),
            ("process_labels", {"labels": labels}),
            ("process_sort_index", {"sort_index": pid}),
        ):
            self._event(b'"ph":"M","pid":%d,"name":%b,"args":%b' % (pid, text(what), text(args)))

    def thread(self, pid: int, tid: int, name: str, order: int) -> None:
        """Name a thread; `order` sorts the threads of a process."""
        for what, args in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": order})):
            self._event(b'"ph":"M","pid":%d,"tid":%d,"name":%b,"args":%b' % (pid, tid, text(what), text(args)))

    def span(self, pid: int, tid: int, start: int, end: int, body: bytes) -> None:
        """A complete event from `start` to `end` (µs), with the result of `span_body`."""
        self._event(b'"ph":"X","pid":%d,"tid":%d,"ts":%d,"dur":%d%b' % (pid, tid, start, end - start, body))

    def instant(self, pid: int, tid: int, at: int, body: bytes) -> None:
        """An instant event at `at` (µs), with the result of `instant_body`."""
        self._event(b'"ph":"i","s":"t","pid":%d,"tid":%d,"ts":%d%b' % (pid, tid, at, body))

    def counter(self, pid: int, at: int, body: bytes) -> None:
        """A value at `at` (µs), with the result of `counter_body`."""
        self._event(b'"ph":"C","pid":%d,"ts":%d%b' % (pid, at, body))

    def close(self) -> None:
        """End the JSON."""
        self._stream.write(b"\n]}\n")

    def _event(self, inside: bytes) -> None:
        self._stream.write((b"\n{%b}" if self._first else b",\n{%b}") % as_printed(inside))
        self._first = False


def span_body(name: str, step: int | None, err: str | None, measured: int) -> bytes:
    """The part of a span's event beside place and time; `measured` is its duration in µs before it was fitted."""
    args: dict[str, Any] = {} if step is None else {"step": step}
    if err is not None:
        args["err"] = err
    args["measured_us"] = measured
    return b',"cat":"span","name":%b,"args":%b%b' % (text(name), text(args), b"" if err is None else _FAILED)


def instant_body(category: str, name: str, step: int | None, attrs: Mapping[str, Any]) -> bytes:
    """The part of an instant event beside place and time."""
    args = dict(attrs) if step is None else {"step": step, **attrs}
    return b',"cat":%b,"name":%b,"args":%b' % (text(category), text(name), text(args))


def counter_body(name: str, value: float) -> bytes:
    """The part of a counter event beside place and time."""
    return b',"cat":"counter","name":%b,"args":%b' % (text(name), text({name: value}))
