"""Rows with a column for each value, where the table `values` has a record for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rlship_sidecar.rows import ALERT, CLOCK, LEDGER, OWN_KINDS, POINT, Row
from rlship_sidecar.tabular.columns import COVERAGE, ROW, Column
from rlship_sidecar.tabular.from_store import Record, coverage, row_head

HEAD = (*ROW, *COVERAGE)
_MEANINGS = {
    "experiment": "the name of the folder",
    "row": "the number of the row",
    "index": "the number of the unit",
    "step": "the step of the row",
    "axis": "the name of the axis",
    "x": "the value of the axis",
    "t": "the time of the row",
    "revision": "the number of the revision",
}
_SUFFIXES = {"step": "steps", POINT: "points", LEDGER: "ledger_steps", ALERT: "alert_steps"}


def keys_of(rows: Iterable[Row]) -> list[str]:
    """Every key of a value, sorted."""
    keys: set[str] = set()
    for row in rows:
        keys.update(row.values)
    return sorted(keys)


def columns(keys: Iterable[str], name: Callable[[str], str] = str) -> tuple[Column, ...]:
    """The columns: the head of a row, then its values, null where the row has no value.

    `name` maps a key to the name of its column. If the name is taken, in upper or lower case, it gets a number.
    """
    names = UniqueNames(column.name for column in HEAD)
    return (*HEAD, *(Column(names.unlike(name(key)), "float") for key in keys))


class Shadowed(NamedTuple):
    """A metric that is called like a column of the head, so that the column of the metric has another name."""

    head: str
    key: str
    column: str

    @property
    def note(self) -> str:
        """What a query that names the column of the head gets, and what the metric is called there."""
        meaning = _MEANINGS.get(self.head, "a column of every row")
        return f"{self.head} is {meaning}; the metric {self.key} is {self.column}"


def shadowed(keys: Iterable[str], named: Iterable[Column], name: Callable[[str], str] = str) -> list[Shadowed]:
    """The metrics called like a column of the head; `named` are all columns."""
    heads = {column.name.lower(): column.name for column in HEAD}
    values = [column.name for column in named][len(HEAD) :]
    found = ((heads.get(name(key).lower()), key, column) for key, column in zip(keys, values))
    return [Shadowed(head, key, column) for head, key, column in found if head is not None]


def records(experiment: str, rows: Iterable[Row], keys: list[str]) -> Iterator[Record]:
    """The records of these columns."""
    for row in rows:
        yield (*row_head(experiment, row), *coverage(row), *map(row.values.get, keys))


class UniqueNames:
    """Names that are all different, ignoring case."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}
        self._last: dict[str, int] = {}  # the last number that a name got: all below it are taken

    def unlike(self, name: str) -> str:
        """The first of `name`, `name_2`, `name_3`, … that is free; it is taken from then on."""
        lower, found = name.lower(), name
        number = self._last.get(lower, 1)
        while found.lower() in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._last[lower] = number
        self._taken.add(found.lower())
        return found


def table_name(actor: str, kind: str) -> str:
    """The name of the table of an actor's rows of a kind: trainer_steps, generator_aligned, generator_clock,
    ledger_steps.
    """
    suffix = _SUFFIXES.get(kind, kind)
    return f"{actor}_{suffix}" if actor else suffix


def short(actor: str, kind: str) -> Callable[[str], str]:
    """The names of its columns: keys without their common prefix."""
    if kind in OWN_KINDS:
        return lambda key: key.rpartition(f"{kind}/")[2]
    family = f"clock/{actor}/" if kind == CLOCK else f"point/{actor}/" if kind == POINT else f"{actor}/"
    return lambda key: key.removeprefix(family)
