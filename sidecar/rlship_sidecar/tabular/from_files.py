"""Records of the writers' files as records of tables, neither superseded nor reduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rlship_formats.reading import observations_of
from rlship_formats.records import MAX_STEP, Open
from rlship_formats.values import DeadValue
from rlship_sidecar.export.reading import Entry, WriterFile, entries
from rlship_sidecar.export.tables import as_json

Record = tuple[Any, ...]


def of_records(table: str, experiment: str, file: WriterFile) -> Iterator[Record]:
    """The records of a table in one file, in file order; raises Unreadable."""
    if table == "writers":
        yield from _writer(experiment, file)
        return
    kind, fields = _FIELDS[table]
    head: Record = ()
    for entry in entries(file):
        if entry.kind == kind:
            head = head or _who(experiment, file)
            for found in fields(entry, _opened(file)):
                yield (*head, entry.step, entry.t, *found)


def _opened(file: WriterFile) -> Open:
    assert file.open is not None  # `identify` ran first, so no entry precedes it
    return file.open


def _who(experiment: str, file: WriterFile) -> Record:
    opened = _opened(file)
    return (experiment, file.name, opened.actor, opened.replica, opened.rank, opened.attempt)


def _writer(experiment: str, file: WriterFile) -> Iterator[Record]:
    step: int | None = None
    barrier: int | None = None
    for entry in entries(file):
        if entry.step is not None:
            step = max(entry.step, step or 0)
            barrier = max(entry.step, barrier or 0) if entry.kind == "barrier" else barrier
    if file.open is not None:
        opened = file.open
        pid = opened.pid if abs(opened.pid) <= MAX_STEP else None  # JSON allows any integer, but a column holds 64 bits
        about = (opened.id, opened.world, opened.axis, opened.host, pid, opened.parent, opened.t)
        yield (*_who(experiment, file), *about, file.t, step, barrier, file.closed, file.size)


def _observations(entry: Entry, opened: Open) -> Iterator[Record]:
    for metric, value in entry.body.items():
        try:
            if observations_of(metric, value) is None:
                continue
        except DeadValue:
            continue
        if isinstance(value, dict) and "v" not in value:
            yield metric, None, None, as_json(value).decode()
            continue
        pairs: list[tuple[Any, float | None]]
        if isinstance(value, dict):
            pairs = list(zip(value["v"], map(float, value["w"])))
        else:
            pairs = [(one, None) for one in (value if isinstance(value, list) else [value])]
        for one, weight in pairs:
            if one is not None:  # float() reads the words for numbers that are not finite
                yield metric, float(one), weight, None


def _span(entry: Entry, opened: Open) -> Iterator[Record]:
    yield entry.body.name, entry.body.lane, entry.body.dur, entry.body.err


def _event(entry: Entry, opened: Open) -> Iterator[Record]:
    yield entry.body.name, as_json(entry.body.attrs).decode()


def _sample(entry: Entry, opened: Open) -> Iterator[Record]:
    sample = entry.body
    cut = None if sample.cut is None else as_json(sample.cut).decode()
    yield sample.table, sample.score, sample.pri, as_json(sample.row).decode(), cut


def _barrier(entry: Entry, opened: Open) -> Iterator[Record]:
    yield ()


def _clock(entry: Entry, opened: Open) -> Iterator[Record]:
    yield opened.host, entry.body.offset, entry.body.err


_FIELDS: dict[str, tuple[str, Callable[[Entry, Open], Iterator[Record]]]] = {
    "observations": ("metrics", _observations),
    "spans": ("span", _span),
    "events": ("event", _event),
    "samples": ("sample", _sample),
    "barriers": ("barrier", _barrier),
    "clocks": ("clock", _clock),
}
