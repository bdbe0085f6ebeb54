"""The rules of the Trace Event Format, as far as rlship's traces use it, and those that viewers add to it."""

from __future__ import annotations

import json
from typing import Any

METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


class Trace:
    """A trace that keeps the rules, taken apart. Anything against them is an AssertionError."""

    def __init__(self, data: bytes | str) -> None:
        whole = json.loads(data, parse_constant=_no_constant)
        assert set(whole) <= {"traceEvents", "displayTimeUnit", "otherData"}
        assert whole["displayTimeUnit"] in ("ms", "ns")
        assert isinstance(whole["otherData"], dict)
        self.about: dict[str, str] = whole["otherData"]
        self.events: list[dict[str, Any]] = whole["traceEvents"]
        self.processes: dict[int, str] = {}
        self.labels: dict[int, str] = {}
        self.threads: dict[int, str] = {}
        self.order: dict[int, int] = {}
        self._owner: dict[int, int] = {}
        self._stacks: dict[int, list[int]] = {}
        self._newest: dict[int, int] = {}
        for event in self.events:
            self._check(event)

    def spans(self, thread: str | None = None) -> list[dict[str, Any]]:
        """The complete events, or those of one thread's name."""
        return [
            event
            for event in self.events
            if event["ph"] == "X" and (thread is None or self.threads[event["tid"]] == thread)
        ]

    def of(self, phase: str) -> list[dict[str, Any]]:
        """The events of a phase."""
        return [event for event in self.events if event["ph"] == phase]

    def _check(self, event: dict[str, Any]) -> None:
        assert isinstance(event["name"], str), event
        assert type(event["pid"]) is int, event
        assert event["pid"] > 0, event
        assert isinstance(event.get("args", {}), dict), event
        phase = event["ph"]
        if phase == "M":
            self._metadata(event)
            return
        assert event["pid"] in self.processes, "an event of a process that was not named"
        assert type(event["ts"]) is int, event
        assert 0 <= event["ts"] < 2**53, event
        if phase == "C":
            assert event["args"], event
            assert all(type(value) in (int, float) for value in event["args"].values()), event
            return
        assert self._owner[event["tid"]] == event["pid"], "a thread that was not named, or of another process"
        if phase == "i":
            assert event["s"] in ("g", "p", "t"), event
            return
        assert phase == "X", event
        self._nests(event["tid"], event["ts"], event["dur"])

    def _metadata(self, event: dict[str, Any]) -> None:
        key, kind = METADATA[event["name"]]
        assert list(event["args"]) == [key], event
        assert type(event["args"][key]) is kind, event
        value, pid = event["args"][key], event["pid"]
        if event["name"] == "process_name":
            assert pid not in self.processes, "a process was named twice"
            self.processes[pid] = value
        elif event["name"] == "process_labels":
            self.labels[pid] = value
        elif event["name"] == "process_sort_index":
            assert abs(value) < 2**31
        elif event["name"] == "thread_name":
            assert event["tid"] not in self.threads, "a thread was named twice"
            assert event["tid"] not in self.processes, "viewers take it for a process's main thread"
            self.threads[event["tid"]] = value
            self._owner[event["tid"]] = pid
        else:
            assert abs(value) < 2**31
            self.order[event["tid"]] = value

    def _nests(self, tid: int, start: int, dur: int) -> None:
        """Of two that overlap one lies in the other; what contains another comes first, as viewers need it."""
        assert type(dur) is int
        assert dur >= 0
        assert start >= self._newest.get(tid, 0), "not in order of time"
        self._newest[tid] = start
        stack = self._stacks.setdefault(tid, [])
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or start + dur <= stack[-1], "crosses the end of what it begins in"
        stack.append(start + dur)


def _no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")
