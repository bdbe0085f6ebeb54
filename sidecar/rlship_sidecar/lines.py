"""What the lines of a file say, as plain data: what `decode` hands to `align` and `reduce`."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple

from rlship_formats.records import Gap, Open
from rlship_formats.values import Observations

NotDense = struct.error  # what packing anything but plain numbers raises

WIDE = 2000  # lines with more metrics are decoded as any other, but not remembered for the next

_EXCERPT_BYTES = 120


class Schema:
    """The metrics of a dense line, in its order, and the reductions in force for each; compared by identity."""

    __slots__ = ("asks", "names", "pack")

    def __init__(self, names: tuple[str, ...], asks: tuple[tuple[str, ...], ...]) -> None:
        self.names = names
        self.asks = asks
        # A nameless metric is a dead value, which only the sparse form can express.
        self.pack = _not_dense if "" in names else Struct(f"{len(names)}d").pack


def _not_dense(*values: Any) -> bytes:
    raise NotDense("not dense")


class Dense(NamedTuple):
    """A metrics line of plain numbers: `data` holds one native double per metric of `schema`."""

    step: int
    t: float
    offset: int
    segment: int
    schema: Schema
    data: bytes


class Value(NamedTuple):
    """One metric's observations on a line and the reductions in force there."""

    metric: str
    asks: tuple[str, ...]
    observations: Observations


class Sparse(NamedTuple):
    """A metrics line in any other form; `values` may be empty."""

    step: int
    t: float
    offset: int
    segment: int
    values: tuple[Value, ...]


class Mark(NamedTuple):
    """A line that says something about its writer rather than a metric: kind is barrier, rollback, close or gap."""

    kind: str
    segment: int
    step: int
    gap: Gap | None = None


class Dead(NamedTuple):
    """A line, or one metric's value on it (`metric` is then its name), that cannot be used."""

    offset: int
    reason: str
    excerpt: str
    metric: str | None = None


@dataclass(slots=True)
class Batch:
    """What consecutive lines of one file said. `consumed` lines were used; `begins` is the step of its first stepped
    line in segment 0.
    `lowest` and `highest` are the steps of its metrics records (-1: none); `inherited_t` counts lines that took their
    `t` from a line before.
    `kept` are the define and rollback lines that later lines depend on, with their offsets.
    """

    lines: list[Dense | Sparse] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    kept: list[tuple[int, bytes]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    opened: Open | None = None
    opened_at: int = 0
    begins: int | None = None
    lowest: int = -1
    highest: int = -1
    newest_t: float = 0.0
    inherited_t: int = 0
    consumed: int = 0


class Schemas:
    """Interned schemas: equal metrics and reductions give the same object, also across files."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, ...], tuple[tuple[str, ...], ...]], Schema] = {}

    def of(self, names: tuple[str, ...], asks: tuple[tuple[str, ...], ...]) -> Schema:
        """The schema of these metrics; forgets all where a job makes up ever new ones, which costs only speed."""
        schema = self._known.get((names, asks))
        if schema is None:
            schema = Schema(names, asks)
            if len(self._known) >= 1024:
                self._known.clear()
            if len(names) <= WIDE:
                self._known[names, asks] = schema
        return schema


def too_long(offset: int, excerpt: bytes) -> Dead:
    """The dead letter for a line that the tail did not even hand over."""
    return Dead(offset, "line too long", excerpt_of(excerpt))


def excerpt_of(data: bytes) -> str:
    """Text that is safe on any terminal: control characters as escapes."""
    text = data[:_EXCERPT_BYTES].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
