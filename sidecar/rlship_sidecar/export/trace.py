"""An experiment's files as one trace: a process for each writer, all on one time axis.

It handles one writer's file after the other: it reads the file to its end, sorts the entries by time and writes them. A
first pass runs only where it is needed: for the clocks of hosts, and for the time of a range of steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlship import _version
from rlship_formats.clocks import HostClocks, KeptClocks
from rlship_formats.reading import observations_of
from rlship_formats.records import Open
from rlship_formats.values import DeadValue, fold
from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.export.chrome import ChromeTrace, Writes, counter_body, instant_body, span_body
from rlship_sidecar.export.clocks import aligned, microseconds
from rlship_sidecar.export.lanes import Lanes, Line
from rlship_sidecar.export.reading import Entry, Unreadable, WriterFile, clocks, entries, files_of, identify
from rlship_sidecar.export.selection import STEP_AXIS, Selection
from rlship_sidecar.export.sorting import IN_MEMORY, Sorted

EVENTS, BARRIERS = "events", "barriers"  # the lines for items without a lane, below all lanes
_BELOW = 1 << 30

_SPAN, _INSTANT, _COUNTER = range(3)
# Start and negative end, so that an outer span comes first; then the later one in the file, as an outer span is;
# then the kind, the lane, and the rest of the event.
_Item = tuple[int, int, int, int, str, bytes]


@dataclass(slots=True)
class ExportedTrace:
    """The content of a trace, and what could not be read or used."""

    writers: int = 0
    spans: int = 0
    events: int = 0
    barriers: int = 0
    values: int = 0
    hosts: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)  # file -> why
    unusable: dict[str, dict[str, int]] = field(default_factory=dict)  # file -> reason -> how many

    @property
    def complete(self) -> bool:
        """Whether the whole content of the files could be used."""
        return not (self.unreadable or self.unusable)


def export(
    experiment: Path, stream: Writes, selection: Selection, *, align_clocks: bool, in_memory: int = IN_MEMORY
) -> ExportedTrace:
    """Write the trace of an experiment, with at most `in_memory` events in memory.

    A file that cannot be read is left out and named in the result. Raises OSError if the folder or the stream fails.
    Raises RlshipError, before it writes anything, if the files have none of the selected steps.
    """
    with files_of(experiment) as files:
        return _export(experiment, files, stream, selection, align_clocks=align_clocks, in_memory=in_memory)


def _export(
    experiment: Path,
    files: list[WriterFile],
    stream: Writes,
    selection: Selection,
    *,
    align_clocks: bool,
    in_memory: int,
) -> ExportedTrace:
    result = ExportedTrace()
    known = KeptClocks()
    for file in files:
        with _reading(file, result):
            if not align_clocks:
                identify(file)
            else:
                for record in clocks(file):
                    known.add(_opened(file).host, record)
    result.hosts = len(known)
    if selection.steps is not None:
        for file in files:
            with _reading(file, result):
                _widen(selection, file, known)
        _require_steps(selection)
    about = {
        "made by": f"rlship {_version.__version__}",
        "experiment": experiment.resolve().name,
        "clocks": f"corrected to the file server's, hosts: {result.hosts}" if result.hosts else "as each host has it",
    }
    trace = ChromeTrace(stream, about)
    writers = sorted((file for file in files if file.open is not None), key=_order)
    tids = iter(range(len(writers) + 1, 1 << 31))  # viewers want them unique over all processes
    for pid, file in enumerate(writers, 1):
        items: Sorted[_Item] = Sorted(in_memory)
        with _reading(file, result):
            for number, entry in enumerate(entries(file)):
                for item in _items(file, entry, number, known, selection):
                    items.add(item)
        _Process(trace, pid, _opened(file), tids, result).write(items)
    for file in files:
        if file.open is None:  # such a file shows nothing, but its unusable lines are reported
            with _reading(file, result):
                for _ in entries(file):
                    continue
    trace.close()
    result.unusable = {file.name: file.unusable for file in files if file.unusable}
    return result


@contextmanager
def _reading(file: WriterFile, result: ExportedTrace) -> Iterator[None]:
    """Continue without the rest of a file that cannot be read."""
    try:
        yield
    except Unreadable as problem:
        result.unreadable[file.name] = str(problem)


def _opened(file: WriterFile) -> Open:
    assert file.open is not None  # the caller chose files that have one
    return file.open


def _order(file: WriterFile) -> tuple[object, ...]:
    opened = _opened(file)
    return (
        opened.actor,
        replica_key(opened.replica),
        opened.rank,
        opened.attempt,
        opened.t,
        opened.id,
        file.name,
    )


def _times(opened: Open, entry: Entry, known: HostClocks) -> tuple[int, int]:
    """The beginning and end of an entry, in µs of the common clock."""
    begins = microseconds(entry.t)
    start = aligned(known, opened.host, begins)
    if entry.kind != "span":
        return start, start
    return start, max(start, aligned(known, opened.host, begins + microseconds(entry.body.dur)))


def _widen(selection: Selection, file: WriterFile, known: HostClocks) -> None:
    """Extend the window by the kept steps of one file."""
    if file.open is None or file.open.axis != STEP_AXIS or selection.steps is None:
        return
    for entry in entries(WriterFile(file.name, file.tail, file.size)):  # unusable lines are counted in the second pass
        if entry.kind != "sample" and entry.step is not None:
            selection.window.there_is(entry.step)
            if entry.step in selection.steps:
                selection.window.widen(*_times(file.open, entry, known))


def _require_steps(selection: Selection) -> None:
    """Raise if the files have none of the selected steps."""
    window = selection.window
    if window.start is None:
        there = "no step at all" if window.lowest is None else f"the steps {window.lowest} to {window.highest}"
        raise RlshipError(
            f"the files hold none of these steps: they have {there}", "choose others, or leave --step out"
        )


def _items(file: WriterFile, entry: Entry, number: int, known: HostClocks, selection: Selection) -> Iterator[_Item]:
    """The trace items that an entry gives."""
    opened = _opened(file)
    if entry.kind in ("clock", "sample", "run", "ledger") or (entry.kind == "metrics" and not selection.counters):
        return
    start, end = _times(opened, entry, known)
    if not selection.keeps(opened, entry.step, start, end):
        return
    body = entry.body
    if entry.kind == "span":
        measured = microseconds(body.dur)
        yield start, -end, -number, _SPAN, body.lane, span_body(body.name, entry.step, body.err, measured)
    elif entry.kind == "event":
        yield start, -end, -number, _INSTANT, EVENTS, instant_body("event", body.name, entry.step, body.attrs)
    elif entry.kind == "barrier":
        yield start, -end, -number, _INSTANT, BARRIERS, instant_body("barrier", f"barrier {entry.step}", entry.step, {})
    else:
        for name, value in body.items():
            if selection.counts(opened.actor, name):
                mean = _mean(file, name, value)
                if mean is not None:
                    yield start, -end, -number, _COUNTER, name, counter_body(name, mean)


def _mean(file: WriterFile, name: str, value: object) -> float | None:
    """The mean of a line's observations; None if it has no finite one."""
    try:
        observations = observations_of(name, value)
    except DeadValue as dead:
        file.refuse(str(dead))
        return None
    if observations is None:
        return None
    moments = fold([observations], with_m2=False)
    mean = moments.sum / moments.w if moments.sum is not None and moments.w else math.nan
    return mean if math.isfinite(mean) else None


class _Process:
    """One writer in the trace. The writer and its lines get their names with their first item."""

    def __init__(self, trace: ChromeTrace, pid: int, opened: Open, tids: Iterator[int], result: ExportedTrace) -> None:
        self._trace = trace
        self._pid = pid
        self._open = opened
        self._tids = tids
        self._result = result
        self._lanes = Lanes()
        self._drawn: dict[Line | str, int] = {}  # the tid of a line, or of the one for events or barriers
        self._named = False

    def write(self, items: Sorted[_Item]) -> None:
        """Write all items of the writer, in order of time."""
        result = self._result
        for start, negative_end, _, kind, lane, body in items:
            self._name()
            if kind == _SPAN:
                placed = self._lanes.place(lane, start, -negative_end)
                line = placed.line
                tid = self._tid(line, line.name, (line.family << 12) + line.number)
                self._trace.span(self._pid, tid, placed.start, placed.end, body)
                result.spans += 1
            elif kind == _INSTANT:
                tid = self._tid(lane, lane, _BELOW + (lane == BARRIERS))
                self._trace.instant(self._pid, tid, start, body)
                result.events += lane == EVENTS
                result.barriers += lane == BARRIERS
            else:
                self._trace.counter(self._pid, start, body)
                result.values += 1

    def _name(self) -> None:
        if self._named:
            return
        self._named = True
        self._result.writers += 1
        opened = self._open
        name = f"{opened.actor}/{opened.replica}/r{opened.rank}"
        name += f" attempt {opened.attempt}" if opened.attempt else ""
        name += " child" if opened.parent else ""
        self._trace.process(self._pid, name, f"host {opened.host or 'unknown'},pid {opened.pid}")

    def _tid(self, key: Line | str, name: str, order: int) -> int:
        tid = self._drawn.get(key)
        if tid is None:
            tid = self._drawn[key] = next(self._tids)
            self._trace.thread(self._pid, tid, name, order)
        return tid
