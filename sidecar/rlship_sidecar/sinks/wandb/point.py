"""A row as W&B takes it: one flat record under 1 MB, with the time of the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from rlship_sidecar.rows import Row, axis, family, flatten
from rlship_sidecar.sinks.tables import shown

MAX_POINT_BYTES = 1_000_000
DROPPED_KEYS = "rlship/dropped_keys"
_NO_RANKS: Mapping[str, float] = {}
RESERVED = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})


class Point(NamedTuple):
    """One history line to be: `row_number` is its `_step`, `axis` the x key of the charts of keys that
    begin with `actor`, `data` the values in
    JSON. `hists` are the keys of those that are histograms, with `values` (counts) and `bins` (edges). `tables` are
    tables of samples by key, with `columns` and `data`, in JSON: they are files of their own and do not fill the line.
    """

    row_number: int
    actor: str
    axis: str
    data: bytes
    hists: tuple[str, ...] = ()
    tables: bytes = b"{}"


def point(row: Row, ranks: Mapping[str, float] = _NO_RANKS) -> Point:
    """The row's point, with the values of single ranks in `ranks`. A key that W&B keeps for itself is written as
    `rlship/<key>`.

    A larger point would vanish without a word, and with it the rule that line number and row number are the same. So
    keys are dropped, those with the longest names first (of equal length the last by name), and `rlship/dropped_keys`
    says how many. The x keys and those about the row's ranks stay.
    """
    values: dict[str, Any] = {_allowed(key): value for key, value in flatten(row, ranks).items()}
    hists = row.shipped_hists
    for key, hist in hists.items():
        if key not in row.x:
            values[_allowed(key)] = {"values": hist.counts, "bins": hist.edges}
    if row.t:  # else nothing in it has a time, and W&B takes that of its arrival
        values["_timestamp"] = row.t
    data = orjson.dumps(values)
    if len(data) > MAX_POINT_BYTES:
        data = _fit(values, (row.shipped.keys() | hists.keys() | ranks.keys()) - row.x.keys())
    left = tuple(_allowed(key) for key in hists if key not in row.x and _allowed(key) in values)
    tables = orjson.dumps({key: found._asdict() for key, found in shown(row)})
    return Point(row.row_number, family(row), _allowed(axis(row)[0]), data, left, tables)


def _fit(values: dict[str, Any], keys: Iterable[str]) -> bytes:
    droppable = sorted(keys, key=lambda key: (len(key), key))
    size = len(orjson.dumps(values)) + len(DROPPED_KEYS) + 16
    dropped = 0
    while size > MAX_POINT_BYTES and droppable:
        key = _allowed(droppable.pop())
        size -= len(orjson.dumps({key: values.pop(key)})) - 1
        dropped += 1
    values[DROPPED_KEYS] = dropped
    return orjson.dumps(values)


def _allowed(key: str) -> str:
    return f"rlship/{key}" if key in RESERVED else key
