"""The checker of traces finds what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.trace.rules import Trace

PROCESS = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "trainer"}}
THREAD = {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "main"}}


def a_span(ts: Any, dur: Any, **changes: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": 2, "ts": ts, "dur": dur, "name": "fwd", "args": {}} | changes


def check(*events: dict[str, Any]) -> Trace:
    return Trace(json.dumps({"displayTimeUnit": "ms", "otherData": {}, "traceEvents": [*events]}))


def test_sound_traces_pass() -> None:
    """Nested, neighbouring and empty spans are fine."""
    trace = check(
        PROCESS, THREAD, a_span(0, 10), a_span(0, 10), a_span(2, 3), a_span(5, 5), a_span(10, 0), a_span(10, 4)
    )
    assert len(trace.spans("main")) == 6


@pytest.mark.parametrize(
    "events",
    [
        (PROCESS, THREAD, a_span(0, 10), a_span(5, 6)),
        (PROCESS, THREAD, a_span(5, 1), a_span(4, 1)),
        (PROCESS, THREAD, a_span(0, 5), a_span(0, 10)),
        (PROCESS, THREAD, a_span(0, -1)),
        (PROCESS, THREAD, a_span(0.5, 1)),
        (PROCESS, THREAD, a_span(-1, 1)),
        (PROCESS, THREAD, a_span(0, 1, name=None)),
        (PROCESS, THREAD, a_span(0, 1, pid=2)),
        (PROCESS, THREAD, PROCESS),
        (PROCESS, THREAD, THREAD),
        (PROCESS, a_span(0, 1)),
        (THREAD, a_span(0, 1)),
        (PROCESS, THREAD, {"ph": "i", "pid": 1, "tid": 2, "ts": 0, "name": "x", "s": "q"}),
        (PROCESS, THREAD, {"ph": "C", "pid": 1, "ts": 0, "name": "x", "args": {"x": "1"}}),
        (PROCESS, THREAD, {"ph": "B", "pid": 1, "tid": 2, "ts": 0, "name": "x"}),
    ],
)
def test_broken_traces_do_not(events: tuple[dict[str, Any], ...]) -> None:
    """Each breach of a rule is noticed."""
    with pytest.raises((AssertionError, KeyError)):
        check(*events)
