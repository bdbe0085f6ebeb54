"""A row as one line of W&B's history, and the numbers of it that the run's summary shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from rlship_sidecar.rows import Row, axis
from rlship_sidecar.sinks.names import (
    DEFAULT_NAMES,
    EXTRAS,
    SinkNames,
    about,
    family,
    flatten,
    named,
    names_withdrawn,
    own_name,
)
from rlship_sidecar.sinks.tables import safe_name, table, tables

MAX_POINT_BYTES = 1_000_000
DROPPED_KEYS = f"{EXTRAS}/dropped_keys"
_NO_RANKS: Mapping[str, float] = {}
RESERVED = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})


class Point(NamedTuple):
    """One history line to be. `row_number` is its `_step`. Keys that begin with `actor` are charted over `axis`.

    `data` are the values in JSON. `hists` are the keys of those that are histograms, with `values` (counts) and `bins`
    (edges). `tables` are tables of samples by key, in JSON, with `columns` and `data`. They are files of their own and
    do not fill the line. `names` are the names of metrics without an actor. `numbers` are those of the line that the
    run's summary shows, by key. `withdrawn` are keys that the line has as NaN.
    """

    row_number: int
    actor: str
    axis: str
    data: bytes
    hists: tuple[str, ...] = ()
    tables: bytes = b"{}"
    names: tuple[str, ...] = ()
    numbers: Mapping[str, float] = _NO_RANKS
    withdrawn: tuple[str, ...] = ()


def point(row: Row, shown: SinkNames = DEFAULT_NAMES, ranks: Mapping[str, float] = _NO_RANKS) -> Point:
    """The row's point, with the values of single ranks in `ranks`. A name that W&B reserves is written as
    `zz_rlship/<name>`.

    A larger point would vanish without an error, and with it the rule that line number and row number are the same. So
    keys are dropped: extras first, then those with the longest names (of equal length the last by name).
    `zz_rlship/dropped_keys` counts them. The x keys and those about the row's ranks stay.
    """
    x = {_allowed(key): value for key, value in row.x.items()}
    values: dict[str, Any] = {_allowed(name): value for name, value in flatten(row, shown, ranks).items()}
    hists = {_allowed(name): hist for name, hist in named(row, row.shipped_hists, shown).items()}
    values.update((name, {"values": hist.counts, "bins": hist.edges}) for name, hist in hists.items())
    values.update(x)  # an x key wins over all others, because without it the point would be in the wrong place
    if row.t:  # otherwise no record has a time, and W&B uses that of the arrival
        values["_timestamp"] = row.t
    data = orjson.dumps(values)
    if len(data) > MAX_POINT_BYTES:
        data = _fit(values, values.keys() - x.keys() - {"_timestamp", *(f"{EXTRAS}/{key}" for key in about(row))})
    left = tuple(name for name in hists if name not in x and name in values)
    made = {safe_name(name): table(samples)._asdict() for name, samples in named(row, tables(row), shown).items()}
    bare = _bare(row, shown) & values.keys() - x.keys() if shown.own else ()
    return Point(
        row.row_number,
        family(row),
        axis_name(row),
        data,
        left,
        orjson.dumps(made),
        tuple(sorted(bare)),
        _numbers(values),
    )


def axis_name(row: Row) -> str:
    """The name at W&B of the row's own axis."""
    return _allowed(axis(row)[0])


def charted_names(row: Row, shown: SinkNames) -> dict[str, str]:
    """The names at W&B of the numbers of a row, by the keys that they have in it: its values, and under `about` of it
    the counts of its ranks.
    """
    found = {key: _allowed(name) for key in row.values if (name := shown.of(row, key)) is not None}
    counts = about(row) if shown.extras else {}
    return {**{key: f"{EXTRAS}/{key}" for key, value in counts.items() if not isinstance(value, str)}, **found}


def has_axis(names: str) -> bool:
    """Whether W&B charts a metric of these names over an axis of its own.

    Those with `*` or a backslash, which W&B reads as patterns and escapes, stay on its own step: an axis that is a lone
    backslash makes wandb-core crash.
    """
    return not set(names) & set("*\\")


def whole(row: Row) -> Row:
    """The row as if it were the first of its unit, so that a sink ships all of it."""
    return replace(row, arrival=replace(row.arrival, revision=0)) if row.arrival.revision else row


def numbers(row: Row, shown: SinkNames, ranks: Mapping[str, float]) -> dict[str, float]:
    """The numbers of the row's point by key, without those of a line that is too large."""
    return _numbers({_allowed(name): value for name, value in flatten(row, shown, ranks).items()})


def withdrawn(made: Point, keys: Iterable[str]) -> Point:
    """The point that also takes away what charts show under these keys: as NaN, of which W&B makes a gap. Those for
    which the line has no room stay.
    """
    room = MAX_POINT_BYTES - len(made.data)
    found = []
    for key in sorted(keys):
        room -= len(orjson.dumps(key)) + len(":NaN,")
        if room < 0:
            break
        found.append(key)
    return made._replace(withdrawn=tuple(found))


def names_gone(row: Row, shown: SinkNames, ranks: Iterable[str]) -> set[str]:
    """The names under which charts may show what the row takes away; `ranks` are keys of single ranks."""
    x = {_allowed(key) for key in row.x}
    return {_allowed(name) for name in names_withdrawn(row, shown, ranks)} - x


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in values.items() if type(value) in (int, float) and name != "_timestamp"}


def _bare(row: Row, shown: SinkNames) -> set[str]:
    """The names in the row's point that begin with no actor."""
    found = ((own_name(row, key, shown.own), shown.of(row, key)) for key in (*row.shipped, *row.shipped_hists))
    return {name for name, at_sink in found if name == at_sink} - RESERVED


def _fit(values: dict[str, Any], names: Iterable[str]) -> bytes:
    droppable = sorted(names, key=lambda name: (name.startswith(f"{EXTRAS}/"), len(name), name))
    size = len(orjson.dumps(values)) + len(DROPPED_KEYS) + 16
    dropped = 0
    while size > MAX_POINT_BYTES and droppable:
        name = droppable.pop()
        size -= len(orjson.dumps({name: values.pop(name)})) - 1
        dropped += 1
    values[DROPPED_KEYS] = dropped
    return orjson.dumps(values)


def _allowed(key: str) -> str:
    return f"{EXTRAS}/{key}" if key in RESERVED else key
