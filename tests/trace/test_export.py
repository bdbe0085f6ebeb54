"""An experiment's files as one trace."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_sidecar.errors import RlshipError
from rlship_sidecar.export.selection import Selection, parse_steps
from rlship_sidecar.export.trace import ExportedTrace, export
from tests.kit.cases import few
from tests.trace.files import T, opened, span, write
from tests.trace.rules import Trace

US = 1763600000000000

PEAK = """
import re, sys
from pathlib import Path
from rlship_sidecar.export.trace import export
from rlship_sidecar.export.selection import Selection

class Threads:
    named = 0
    def write(self, data):
        self.named += data.count(b'"thread_name"')

threads = Threads()
told = export(Path(sys.argv[1]), threads, Selection(), align_clocks=True, in_memory=400)
print(told.spans, threads.named, re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def run(
    experiment: Path, *, steps: str | None = None, counters: tuple[str, ...] = (), **options: Any
) -> tuple[Trace, ExportedTrace]:
    """The trace of an experiment, checked against the format, and what is reported of it."""
    stream = io.BytesIO()
    selection = Selection(None if steps is None else parse_steps(steps), counters)
    told = export(experiment, stream, selection, **({"align_clocks": True} | options))
    return Trace(stream.getvalue()), told


def test_the_format_is_pinned(tmp_path: Path) -> None:
    """One writer with one of each kind of record, byte for byte."""
    write(
        tmp_path / "grpo",
        "trainer-0-r3",
        opened(rank=3, attempt=2),
        span("fwd", 0.25, 0.5, 12),
        span("step", 0.125, 1.5, 12, err="ValueError"),
        {"t": T + 1.75, "step": 12, "m": {"loss": 0.5, "kl": [1, 2]}},
        {"kind": "event", "t": T + 1.8, "step": 12, "name": "weights_pushed", "attrs": {"bytes": 123}},
        {"kind": "barrier", "step": 12, "t": T + 2},
    )
    stream = io.BytesIO()
    export(tmp_path / "grpo", stream, Selection(None, ("loss",)), align_clocks=True)
    head, *lines = stream.getvalue().decode().splitlines()
    about = json.loads(head + "]}")["otherData"]
    assert about.pop("made by").startswith("rlship ")
    assert about == {"experiment": "grpo", "clocks": "as each host has it"}
    assert head.startswith('{"displayTimeUnit":"ms","otherData":{') and head.endswith(',"traceEvents":[')
    assert lines == [
        '{"ph":"M","pid":1,"name":"process_name","args":{"name":"trainer/0/r3 attempt 2"}},',
        '{"ph":"M","pid":1,"name":"process_labels","args":{"labels":"host n07,pid 4121"}},',
        '{"ph":"M","pid":1,"name":"process_sort_index","args":{"sort_index":1}},',
        '{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"main"}},',
        '{"ph":"M","pid":1,"tid":2,"name":"thread_sort_index","args":{"sort_index":1}},',
        '{"ph":"X","pid":1,"tid":2,"ts":1763600000125000,"dur":1500000,"cat":"span","name":"step",'
        '"args":{"step":12,"err":"ValueError","measured_us":1500000},"cname":"terrible"},',
        '{"ph":"X","pid":1,"tid":2,"ts":1763600000250000,"dur":500000,"cat":"span","name":"fwd",'
        '"args":{"step":12,"measured_us":500000}},',
        '{"ph":"C","pid":1,"ts":1763600001750000,"cat":"counter","name":"loss","args":{"loss":0.5}},',
        '{"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"events"}},',
        '{"ph":"M","pid":1,"tid":3,"name":"thread_sort_index","args":{"sort_index":1073741824}},',
        '{"ph":"i","s":"t","pid":1,"tid":3,"ts":1763600001800000,"cat":"event","name":"weights_pushed",'
        '"args":{"step":12,"bytes":123}},',
        '{"ph":"M","pid":1,"tid":4,"name":"thread_name","args":{"name":"barriers"}},',
        '{"ph":"M","pid":1,"tid":4,"name":"thread_sort_index","args":{"sort_index":1073741825}},',
        '{"ph":"i","s":"t","pid":1,"tid":4,"ts":1763600002000000,"cat":"barrier","name":"barrier 12",'
        '"args":{"step":12}}',
        "]}",
    ]


def test_writers_are_processes_in_order(tmp_path: Path) -> None:
    """Processes go by actor, replica, rank and attempt, numbers as numbers, whatever the files are called."""
    for number, (actor, replica, rank, attempt) in enumerate(
        [
            ("trainer", "0", 10, 0),
            ("trainer", "0", 2, 1),
            ("trainer", "0", 2, 0),
            ("gen", "10", 0, 0),
            ("gen", "9", 0, 0),
        ]
    ):
        head = opened(actor, rank, replica=replica, attempt=attempt, id=str(number))
        write(tmp_path, f"f{number}", head, span("x", 1, 1))
    write(tmp_path, "child", opened("trainer", 2, attempt=2, parent="9f"), span("x", 1, 1))
    trace, told = run(tmp_path)
    assert list(trace.processes.values()) == [
        "gen/9/r0",
        "gen/10/r0",
        "trainer/0/r2",
        "trainer/0/r2 attempt 1",
        "trainer/0/r2 attempt 2 child",
        "trainer/0/r10",
    ]
    assert sorted(trace.processes) == list(trace.processes)
    assert (told.writers, told.spans, told.complete) == (6, 6, True)


def test_lanes_are_threads(tmp_path: Path) -> None:
    """Each lane is a thread in order of appearance; what overlaps without nesting goes to `main (2)` beside it."""
    write(
        tmp_path,
        "a",
        opened(),
        span("a", 0, 2),
        span("loader", 0.5, 9, lane="loader"),
        span("b", 1, 3),
        span("inside b", 3, 0.5),
        {"kind": "event", "t": T, "name": "first of all"},
    )
    trace, _ = run(tmp_path)
    assert sorted(trace.threads.values(), key=lambda name: _place(trace, name)) == [
        "main",
        "main (2)",
        "loader",
        "events",
    ]
    assert [event["name"] for event in trace.spans("main (2)")] == ["b", "inside b"]


def _place(trace: Trace, name: str) -> int:
    return next(trace.order[tid] for tid, thread in trace.threads.items() if thread == name)


def test_what_begins_together_is_drawn_outside_in(tmp_path: Path) -> None:
    """Of spans with the same start the longer one comes first; of equal ones that which was left last."""
    write(tmp_path, "a", opened(), span("inner", 1, 1), span("middle", 1, 2), span("outer", 1, 2))
    trace, _ = run(tmp_path)
    assert [event["name"] for event in trace.spans("main")] == ["outer", "middle", "inner"]


def test_clocks_are_aligned(tmp_path: Path) -> None:
    """Times of a host are corrected by its last known offset, also in files of it that have no clock records.

    A record that says of itself that it proves nothing does not count.
    """
    write(
        tmp_path,
        "a",
        opened(host="n1"),
        {"kind": "clock", "t": T + 61, "offset": 60.0, "err": 0.01},
        {"kind": "clock", "t": T + 71, "offset": 60.5, "err": 0.01},
        {"kind": "clock", "t": T + 71, "offset": 0.4, "err": 0.5, "client_time": True},
        span("early", 60.0, 1),
        span("late", 72.0, 1),
        {"kind": "barrier", "step": 0, "t": T + 72.5},
    )
    write(tmp_path, "b", opened(rank=1, host="n1"), span("same host", 65, 1))
    write(tmp_path, "c", opened(rank=2, host="n2"), span("right clock", 65, 1))
    trace, told = run(tmp_path)
    starts = {event["name"]: event["ts"] - US for event in trace.events if event["ph"] != "M"}
    assert starts == {
        "early": 0,
        "late": 11_500_000,
        "barrier 0": 12_000_000,
        "same host": 5_000_000,
        "right clock": 65_000_000,
    }
    assert told.hosts == 1
    assert trace.about["clocks"] == "corrected to the file server's, hosts: 1"
    unaligned, told = run(tmp_path, align_clocks=False)
    assert {event["name"]: event["ts"] - US for event in unaligned.spans()}["early"] == 60_000_000
    assert told.hosts == 0


def test_a_span_over_a_correction_keeps_what_was_measured(tmp_path: Path) -> None:
    """Both ends are put on the common axis; the duration that was measured is reported beside."""
    write(
        tmp_path,
        "a",
        opened(),
        {"kind": "clock", "t": T, "offset": 0.0, "err": 0.01},
        {"kind": "clock", "t": T + 5, "offset": 0.25, "err": 0.01},
        span("over it", 4, 2),
    )
    (event,) = run(tmp_path)[0].spans()
    assert (event["dur"], event["args"]["measured_us"]) == (1_750_000, 2_000_000)


def test_times_that_are_missing_are_those_of_the_line_before(tmp_path: Path) -> None:
    """Every record hands its time on, metrics and kinds that a trace does not show too."""
    write(
        tmp_path,
        "a",
        opened(),
        {"t": T + 3, "step": 0, "m": {"loss": 1}},
        {"kind": "event", "name": "after metrics"},
        {"kind": "beat", "t": T + 4},
        {"kind": "event", "name": "after a beat", "t": "soon"},
    )
    trace, _ = run(tmp_path)
    assert [event["ts"] - US for event in trace.of("i")] == [3_000_000, 4_000_000]


def test_ranges_of_steps(tmp_path: Path) -> None:
    """Steps are kept with both ends, and so is what went on meanwhile without one or on another axis."""
    lines = [
        line
        for step in range(10)
        for line in (span("fwd", step * 10, 8, step), {"kind": "barrier", "step": step, "t": T + step * 10 + 9})
    ]
    write(tmp_path, "a", opened(), *lines)
    write(tmp_path, "b", opened("gen"), *(span(f"request {n}", n * 10, 5) for n in range(10)))
    write(tmp_path, "c", opened("buffer", axis="batch"), *(span(f"batch {n}", n * 10, 5, n + 1000) for n in range(10)))
    trace, _ = run(tmp_path, steps="3:4")
    assert [event["args"]["step"] for event in trace.of("i")] == [3, 4]
    assert [event["name"] for event in trace.spans()] == [
        "batch 3",
        "batch 4",
        "request 3",
        "request 4",
        "fwd",
        "fwd",
    ]
    with pytest.raises(RlshipError, match="none of these steps: they have the steps 0 to 9"):
        run(tmp_path, steps="100:")


def test_counters(tmp_path: Path) -> None:
    """Chosen metrics are counters; several observations are their mean, what is not finite is left out."""
    write(
        tmp_path,
        "a",
        opened(),
        {"t": T + 1, "step": 0, "m": {"loss": 2, "lr": 0.1}},
        {"t": T + 2, "step": 1, "m": {"loss": {"v": [1, 4], "w": [2, 1]}}},
        {"t": T + 3, "step": 2, "m": {"loss": "NaN"}},
        {"t": T + 4, "step": 3, "m": {"loss": [1.0, "Infinity", 2.0]}},
        {"t": T + 5, "step": 4, "m": {"loss": {"n": 4, "sum": 10}}},
        {"t": T + 6, "m": {"trainer/loss": 9}},
    )
    write(tmp_path, "b", opened("critic"), {"t": T, "m": {"loss": 7, "lr": 1}})
    trace, told = run(tmp_path, counters=("trainer/loss", "lr"))
    assert [(trace.processes[event["pid"]], event["name"], event["args"]) for event in trace.of("C")] == [
        ("critic/0/r0", "lr", {"lr": 1.0}),
        ("trainer/0/r0", "loss", {"loss": 2.0}),
        ("trainer/0/r0", "lr", {"lr": 0.1}),
        ("trainer/0/r0", "loss", {"loss": 2.0}),
        ("trainer/0/r0", "loss", {"loss": 1.5}),
        ("trainer/0/r0", "loss", {"loss": 2.5}),
        ("trainer/0/r0", "trainer/loss", {"trainer/loss": 9.0}),
    ]
    assert (told.values, told.complete) == (7, True)


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    """Rubbish is passed over and counted by reason and file; a torn last line is not there yet."""
    path = write(
        tmp_path,
        "a",
        "before the open record",
        span("too early", 0, 1),
        opened(),
        "",
        "[1]",
        '{"kind":"span","name":"torn',
        opened(),
        {"kind": "span", "name": "no dur", "t": T},
        {"kind": "event", "name": ""},
        {"kind": "barrier", "step": -1},
        {"kind": "clock", "offset": "x"},
        {"m": 3},
        {"kind": "later version", "t": T},
        {"t": T, "m": {"loss": {}}},
        "x" * (1 << 20) + "y",
        span("good", 1, 1),
    )
    with path.open("a") as file:
        file.write(json.dumps(span("not there yet", 2, 1)))
    write(tmp_path, "future", opened(rlship=2), span("x", 0, 1))
    write(tmp_path, "headless", span("x", 0, 1))
    trace, told = run(tmp_path, counters=("loss",))
    assert [event["name"] for event in trace.spans()] == ["good"]
    assert told.unusable == {
        "a.jsonl": {
            "not JSON": 2,
            "no open record": 1,
            "not an object": 1,
            "second open record": 1,
            "bad span": 1,
            "bad event": 1,
            "bad step": 1,
            "bad clock": 1,
            "bad metrics": 1,
            "bad value": 1,
            "line too long": 1,
        },
        "future.jsonl": {"unsupported format version": 1, "no open record": 1},
        "headless.jsonl": {"no open record": 1},
    }
    assert not told.complete


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """A file that is gone when its turn comes is named, and the others are in the trace."""
    write(tmp_path, "a", opened(), span("here", 0, 1))
    gone = write(tmp_path, "b", opened(rank=1), span("gone", 0, 1))

    class Removing(io.BytesIO):
        """Takes the trace, and the file away at its beginning."""

        def write(self, data: Any, /) -> int:
            gone.unlink(missing_ok=True)
            return super().write(data)

    stream = Removing()
    told = export(tmp_path, stream, Selection(), align_clocks=False)
    assert [event["name"] for event in Trace(stream.getvalue()).spans()] == ["here"]
    assert told.unreadable == {"b.jsonl": os.strerror(2)}
    assert not told.complete


def test_names_of_any_kind(tmp_path: Path) -> None:
    """Names with quotes, control characters, colours and lone surrogates make JSON, and deep attributes are kept."""
    name = 'a "quoted"\n\x1b[31m\u2028é'
    write(tmp_path, "a", opened(actor=name), span(name, 0, 1, lane=name), span("x", 2, 1, err=name))
    deep = {"kind": "event", "t": T, "name": name, "attrs": {name: {"a": [1, None, {"b": 1e300}]}}}
    write(tmp_path, "b", opened(rank=1), deep)
    trace, told = run(tmp_path)
    assert trace.processes[1] == f"{name}/0/r0"
    assert trace.threads[3] == name
    assert trace.of("i")[0]["args"] == {name: {"a": [1, None, {"b": 1e300}]}}
    assert told.complete


def test_nothing_to_show(tmp_path: Path) -> None:
    """Files without anything for a trace make an empty one, without processes."""
    write(tmp_path, "a", opened(), {"t": T, "step": 0, "m": {"loss": 1}}, {"kind": "close", "t": T})
    write(tmp_path, "b")
    trace, told = run(tmp_path)
    assert trace.events == []
    assert told == ExportedTrace()


def test_many_spans_take_little_memory(tmp_path: Path) -> None:
    """A hundred thousand spans, one around all of them, take about as much memory as sixteen thousand."""

    def peak(steps: int) -> tuple[int, int]:
        experiment = tmp_path / str(steps)
        file = write(experiment, "a", opened())
        line = '{"kind":"span","t":%.6f,"dur":%.6f,"step":%d,"name":"%s","lane":"main"}\n'
        with file.open("a") as lines:
            for step in range(steps):
                lines.write(line % (T + step + 0.25, 0.5, step, "fwd"))
                lines.write(line % (T + step, 0.999999, step, "step"))
            lines.write(line % (T, steps, steps - 1, "whole job"))
        done = subprocess.run([sys.executable, "-c", PEAK, experiment], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        spans, threads, kib = map(int, done.stdout.split())
        assert (spans, threads) == (2 * steps + 1, 1)
        return kib, os.path.getsize(file)

    few, _ = peak(8_000)
    many, size = peak(50_000)
    assert size > 8_000_000
    assert many - few < 10_000


@settings(deadline=None, max_examples=few(60))
@given(data=st.data())
def test_any_experiment_makes_a_sound_trace(data: st.DataObject, tmp_path_factory: Any) -> None:
    """Whatever spans, events, clocks and rubbish the files hold, the trace keeps the format and loses no span."""
    experiment = tmp_path_factory.mktemp("any")
    seconds = st.floats(0, 100).map(lambda t: round(t, 3))
    record = st.one_of(
        st.builds(
            span,
            st.text(min_size=1, max_size=3).filter(_is_text),
            seconds,
            seconds,
            st.none() | st.integers(0, 9),
            lane=st.sampled_from(["main", "io", "Task-1", "Task-2", ""]),
        ),
        st.builds(lambda t: {"kind": "event", "t": T + t, "name": "e"}, seconds),
        st.builds(lambda t, step: {"kind": "barrier", "t": T + t, "step": step}, seconds, st.integers(0, 9)),
        st.builds(
            lambda t, offset: {"kind": "clock", "t": T + t, "offset": offset, "err": 0}, seconds, st.floats(-120, 120)
        ),
        st.sampled_from(["", "rubbish", "{}", '{"kind":"span"}', '{"kind":7}']),
    )
    written = []
    for rank in range(data.draw(st.integers(1, 3))):
        lines = data.draw(st.lists(record, max_size=25))
        written += lines
        write(experiment, f"w{rank}", opened(rank=rank, host=f"n{rank % 2}"), *lines)
    in_memory = data.draw(st.integers(1, 30))
    trace, told = run(experiment, in_memory=in_memory)
    spans = [line["name"] for line in written if isinstance(line, dict) and line["kind"] == "span"]
    random.Random(0).shuffle(spans)
    assert sorted(event["name"] for event in trace.spans()) == sorted(spans)
    assert told.spans == len(spans)
    assert told.barriers == sum(isinstance(line, dict) and line["kind"] == "barrier" for line in written)
    again, _ = run(experiment)
    assert again.events == trace.events


def _is_text(text: str) -> bool:
    return text.isprintable()
