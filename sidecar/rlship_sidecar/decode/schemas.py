"""All schemas, each interned once, and the defaults of metrics that no `define` names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from rlship_formats.records import Definition
from rlship_sidecar.decode.lines import Schema, chain_parser
from rlship_sidecar.decode.shapes import Shape

Lookup = Callable[[str, str], Definition | None]  # returns the defaults of an actor's metric by its name
_DEFAULT = Definition()
_MAX_NAMES = 10_000
_MAX_SCHEMAS, _MAX_METRICS = 1024, 1 << 18  # kept schemas, and metrics in all of them
_MAX_BUNDLES, _MAX_CHAINS, _MAX_LOOSE = 256, 64, 64
OFTEN = 3  # times that an order of single metrics comes before it has a chain


class Defaults(dict[str, Definition]):
    """What governs an actor's metrics that no `define` names. Each name is looked up once."""

    def __init__(self, actor: str, lookup: Lookup) -> None:
        super().__init__()
        self._actor = actor
        self._lookup = lookup

    def __missing__(self, metric: str) -> Definition:
        asks = self._lookup(self._actor, metric) or _DEFAULT
        if len(self) < _MAX_NAMES:
            self[metric] = asks
        return asks


def nothing_known(actor: str, metric: str) -> None:
    """A lookup that knows no metric: the default reduction is the mean for all."""


class LineChain(NamedTuple):
    """Lines of single metrics that follow each other: their schemas, and the one of them all laid together.

    `sort` puts what each line has into the order of the latter. `parse` reads an array of the lines.
    """

    parts: tuple[Schema, ...]
    schema: Schema
    sort: Callable[[Sequence[Any]], tuple[Any, ...]]
    parse: Callable[[bytes], Any]


class Schemas:
    """Interned schemas: equal metrics under equal rules give the same object, also across files.

    `lookup` gives the defaults of metrics that no `define` names.
    """

    def __init__(self, lookup: Lookup = nothing_known) -> None:
        self._lookup = lookup
        self._known: dict[tuple[Any, ...], Schema] = {}
        self._bundles: dict[tuple[Schema, ...], Schema | None] = {}
        self._chains: dict[tuple[Schema, ...], LineChain | None] = {}
        self._asked: dict[tuple[Schema, ...], int] = {}  # how often for a chain that is not there
        self._loose: dict[str, Schema] = {}  # by actor, the newest
        self._metrics = 0
        self._defaults: dict[str, Defaults] = {}

    def of(
        self,
        names: tuple[str, ...],
        asks: tuple[Definition, ...],
        shapes: tuple[Shape, ...] | None = None,
        bundled: bool = False,
        loose: bool = False,
    ) -> Schema:
        """The schema of these metrics, in the order of their shapes; without shapes all are plain.

        The cache is emptied when a job keeps inventing metrics. That costs only speed.
        """
        shapes = shapes if shapes is not None and any(shapes) else None
        key = names, asks, shapes, bundled, loose
        schema = self._known.get(key)
        if schema is None:
            schema = Schema(names, asks, shapes, bundled=bundled, loose=loose)
            self._metrics += len(names)
            if len(self._known) >= _MAX_SCHEMAS or self._metrics > _MAX_METRICS:
                self._known.clear()
                self._metrics = len(names)
            self._known[key] = schema
        return schema

    def loose(self, actor: str, names: Sequence[str], asks_of: Callable[[str], Definition], most: int) -> Schema:
        """A loose schema for lines with some of these metrics.

        Files of an actor share it where it can be, with the metrics of all of them: then their lines stand in one block
        of a step. It has at most `most` metrics, or just these.
        """
        held = self._loose.get(actor)
        if held is not None and tuple(map(asks_of, held.names)) == held.asks:
            together = tuple(dict.fromkeys((*held.names, *names)))
            if len(together) == len(held.names) <= most:
                return held
            if len(together) <= most:
                names = together
        found = self.of(tuple(names), tuple(map(asks_of, names)), loose=True)
        if len(self._loose) >= _MAX_LOOSE:
            self._loose.clear()
        self._loose[actor] = found
        return found

    def bundle(self, parts: tuple[Schema, ...]) -> Schema | None:
        """The schema of lines of these schemas laid together; None if they share a metric."""
        if parts not in self._bundles:
            names = tuple([name for part in parts for name in part.names])
            asks = tuple([one for part in parts for one in part.asks])
            if len(self._bundles) >= _MAX_BUNDLES:
                self._bundles.clear()
            self._bundles[parts] = self.of(names, asks, bundled=True) if len(set(names)) == len(names) else None
        return self._bundles[parts]

    def chain(self, parts: tuple[Schema, ...]) -> LineChain | None:
        """What reads lines of single metrics that follow each other in this order; None if they share a metric, and
        for an order that was rarely asked for: to make a parser takes as long as to read thousands of lines.
        """
        if parts not in self._chains:
            if len(self._asked) >= _MAX_CHAINS:
                self._asked.clear()
            self._asked[parts] = self._asked.get(parts, 0) + 1
            if self._asked[parts] < OFTEN:
                return None
            order = sorted(range(len(parts)), key=lambda place: parts[place].names)
            schema = self.bundle(tuple([parts[place] for place in order]))
            if len(self._chains) >= _MAX_CHAINS:
                self._chains.clear()
            chain = None if schema is None else LineChain(parts, schema, itemgetter(*order), chain_parser(parts))
            self._chains[parts] = chain
        return self._chains[parts]

    def defaults(self, actor: str) -> Defaults:
        """The defaults of the actor's metrics."""
        found = self._defaults.get(actor)
        if found is None:
            found = self._defaults[actor] = Defaults(actor, self._lookup)
        return found
