"""Records of the writers' files as records of tables, neither superseded nor reduced."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rlship_formats.reading import observations_of
from rlship_formats.records import CONFIG, MAX_STEP, Open
from rlship_formats.values import DeadValue
from rlship_sidecar.export.reading import Entry, WriterFile, entries, identify
from rlship_sidecar.export.tables import as_json
from rlship_sidecar.tabular.columns import WRITER
from rlship_sidecar.tabular.condition import EVERYTHING, NOTHING, Condition, constants, given, possible

Record = tuple[Any, ...]


def of_records(table: str, experiment: str, file: WriterFile, condition: Condition = EVERYTHING) -> Iterator[Record]:
    """The records of a table in one file, in file order, without those that cannot hold the condition; raises
    Unreadable.
    """
    if condition != EVERYTHING:
        identify(file)
        if file.open is None:
            return
        condition = given(condition, dict(zip(_WRITER_NAMES, _who(experiment, file))))
        if condition == NOTHING:
            file.on_read(file.size)
            return
    if table == "writers":
        yield from _writer(experiment, file)
        return
    if table == "config":
        yield from _config(experiment, file)
        return
    kind, fields = _FIELDS[table]
    wanted = Sought(condition, _NAMED_BY.get(table, ""))
    head: Record = ()
    for entry in entries(file, wanted.words or _words_of(table)):
        if entry.kind == kind and wanted.has_step(entry.step):
            head = head or _who(experiment, file)
            for found in fields(entry, _opened(file), wanted):
                yield (*head, entry.step, entry.t, *found)


class Sought:
    """Which records of a file can hold a condition, by their steps, and by their names in the column `named_by`.

    `words`: each line of such a record holds one of them; none if that is not known.
    """

    def __init__(self, condition: Condition, named_by: str) -> None:
        self._condition = condition
        self._named_by = named_by
        self._names: dict[str, bool] = {}
        names = constants(condition, named_by) or ()
        plain = all(isinstance(name, str) and _PLAIN.fullmatch(name) for name in names)
        self.words = [f'"{name}"'.encode() for name in names] if plain else []

    def has_step(self, step: int | None) -> bool:
        """Whether a record of this step can hold the condition."""
        return self._condition == EVERYTHING or possible(self._condition, {"step": step})

    def has_name(self, name: str) -> bool:
        """Whether a record of this name can hold the condition."""
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = possible(self._condition, {self._named_by: name})
        return found


# Printable ASCII, which JSON writes as it is or with a backslash: lines with one are read.
_PLAIN = re.compile(r"[ !#-\[\]-~]+")


def _words_of(table: str) -> list[bytes]:
    """A word that is on each line of a table's records; none for observations, whose records name no kind."""
    kind = _FIELDS[table][0]
    return [] if table == "observations" else [f'"{kind}"'.encode()]


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
        labels = as_json(file.labels).decode() if file.labels else None
        yield (*_who(experiment, file), *about, file.t, step, barrier, file.closed, file.size, labels, opened.job)


def _config(experiment: str, file: WriterFile) -> Iterator[Record]:
    """What a writer said of itself: its labels, then the attributes of its events named `config`, and the configuration
    in its records `run`.
    """
    labelled = False
    for entry in entries(file):
        if not labelled:
            yield from _labels(experiment, file)
            labelled = True
        given: dict[str, Any] = {}
        if entry.kind == "event" and entry.body.name == CONFIG:
            given = entry.body.attrs
        elif entry.kind == "run":
            given = entry.body.config
        for key, value in given.items():
            yield (*_who(experiment, file), entry.step, entry.t, entry.kind, key, as_json(value).decode())
    if not labelled and file.open is not None:
        yield from _labels(experiment, file)


def _labels(experiment: str, file: WriterFile) -> Iterator[Record]:
    for key, text in file.labels.items():
        yield (*_who(experiment, file), None, _opened(file).t, "label", key, as_json(text).decode())


def _observations(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    for metric, value in entry.body.items():
        if not wanted.has_name(metric):
            continue
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


def _span(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    if wanted.has_name(entry.body.name):
        yield entry.body.name, entry.body.lane, entry.body.dur, entry.body.err


def _event(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    if wanted.has_name(entry.body.name):
        yield entry.body.name, as_json(entry.body.attrs).decode()


def _sample(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    sample = entry.body
    if not wanted.has_name(sample.table):
        return
    cut = None if sample.cut is None else as_json(sample.cut).decode()
    yield sample.table, sample.score, sample.pri, as_json(sample.row).decode(), cut


def _barrier(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    yield ()


def _clock(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    yield opened.host, entry.body.offset, entry.body.err


def _ledger(entry: Entry, opened: Open, wanted: Sought) -> Iterator[Record]:
    found = entry.body
    if not wanted.has_name(found.key):
        return
    yield (
        *(found.hop, found.key, found.n, found.part, found.parts, found.retry, found.passes, found.why or None),
        *(found.version or (None, None)),
        *(found.reward[0] if found.reward else None, found.advantage[0] if found.advantage else None),
        *(found.mask or (None, None, None)),
        *(found.response, as_json(found.digests).decode(), found.fingerprint or None),
    )


_WRITER_NAMES = [column.name for column in WRITER]
_NAMED_BY = {"observations": "metric", "spans": "name", "events": "name", "samples": "name", "ledger": "key"}
_FIELDS: dict[str, tuple[str, Callable[[Entry, Open, Sought], Iterator[Record]]]] = {
    "observations": ("metrics", _observations),
    "spans": ("span", _span),
    "events": ("event", _event),
    "samples": ("sample", _sample),
    "barriers": ("barrier", _barrier),
    "clocks": ("clock", _clock),
    "ledger": ("ledger", _ledger),
}
