"""The result of a replay, for people and programs: rows, steps, keys, coverage, dead letters."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from rlship_sidecar.report.status import (
    DeadLetterStatus,
    LackingStatus,
    NonFiniteStatus,
    ShortStatus,
    SinkStatus,
    Status,
)
from rlship_sidecar.store.store import Store

_AT_ONCE = 512
MAX_KEYS = 10_000


@dataclass(slots=True)
class RowsFound:
    """The rows of an actor's units of one kind: step, aligned, clock or point.

    `first` and `last` are the least and greatest index of the units. (For points these are byte offsets, of no use to
    people.) `lacking` counts rows that lack ranks.
    """

    actor: str
    kind: str
    rows: int
    first: int
    last: int
    lacking: int


@dataclass(slots=True)
class Replayed:
    """The result for one experiment.

    `bytes` and `lines` were read this time: after an interruption the rest. `rows` counts all rows, revisions included.
    `read_s` are the seconds that reading and reducing took. `finished`: everything is read, and every sink of the
    replay has all rows. `keys` are the charts by actor, at most MAX_KEYS, and only for a dry run. `state_dir` is "" for
    a dry run, which keeps nothing. `logged` are the least and the greatest step that any writer logged.
    """

    experiment: str
    state_dir: str
    finished: bool
    complete: bool
    files: int
    bytes: int
    lines: int
    read_s: float
    rows: int
    units: list[RowsFound] = field(default_factory=list)
    keys: dict[str, list[str]] = field(default_factory=dict)
    lacking: list[LackingStatus] = field(default_factory=list)
    dead_letters: list[DeadLetterStatus] = field(default_factory=list)
    dead_letter_count: int = 0
    dead_value_count: int = 0
    claims: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sinks: list[SinkStatus] = field(default_factory=list)
    short: list[ShortStatus] = field(default_factory=list)
    nonfinite: list[NonFiniteStatus] = field(default_factory=list)
    logged: tuple[int, int] | None = None


def replayed(
    store: Store, status: Status, *, state_dir: str, finished: bool, volume: tuple[int, int, int], read_s: float
) -> Replayed:
    """The facts so far; `volume` are the files, bytes and lines that were read."""
    return Replayed(
        experiment=status.experiment,
        state_dir=os.fsencode(state_dir).decode("utf-8", "replace"),
        finished=finished,
        complete=status.complete,
        files=volume[0],
        bytes=volume[1],
        lines=volume[2],
        read_s=round(read_s, 3),
        rows=status.rows,
        units=_units(store),
        lacking=status.lacking,
        short=status.short,
        nonfinite=status.nonfinite,
        dead_letters=status.dead_letters,
        dead_letter_count=status.dead_letter_count,
        dead_value_count=status.dead_value_count,
        claims=status.claims,
        notes=status.notes,
        sinks=status.sinks,
    )


def _units(store: Store) -> list[RowsFound]:
    return [RowsFound(*counts) for counts in store.unit_counts()]


def keys_of(store: Store) -> dict[str, list[str]]:
    """The keys of all rows' values, by actor and sorted; only a few rows are in memory at a time."""
    found: dict[str, set[str]] = {}
    total = 0
    for first in range(0, store.row_count(), _AT_ONCE):
        for row in store.read_rows(first, _AT_ONCE):
            keys = found.setdefault(row.unit.actor, set())
            before = len(keys)
            keys.update(row.keys())
            total += len(keys) - before
        if total > MAX_KEYS:
            break
    return {actor: sorted(keys) for actor, keys in sorted(found.items())}
