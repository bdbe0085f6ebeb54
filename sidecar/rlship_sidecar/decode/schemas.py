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
_MAX_BUNDLES, _MAX_CHAINS = 256, 64


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
        self._known: dict[tuple[tuple[str, ...], tuple[Definition, ...], tuple[Shape, ...] | None, bool], Schema] = {}
        self._bundles: dict[tuple[Schema, ...], Schema | None] = {}
        self._chains: dict[tuple[Schema, ...], LineChain | None] = {}
        self._metrics = 0
        self._defaults: dict[str, Defaults] = {}

    def of(
        self,
        names: tuple[str, ...],
        asks: tuple[Definition, ...],
        shapes: tuple[Shape, ...] | None = None,
        bundled: bool = False,
    ) -> Schema:
        """The schema of these metrics, in the order of their shapes; without shapes all are plain.

        The cache is emptied when a job keeps inventing metrics. That costs only speed.
        """
        shapes = shapes if shapes is not None and any(shapes) else None
        schema = self._known.get((names, asks, shapes, bundled))
        if schema is None:
            schema = Schema(names, asks, shapes, bundled=bundled)
            self._metrics += len(names)
            if len(self._known) >= _MAX_SCHEMAS or self._metrics > _MAX_METRICS:
                self._known.clear()
                self._metrics = len(names)
            self._known[names, asks, shapes, bundled] = schema
        return schema

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
        """What reads lines of single metrics that follow each other in this order; None if they share a metric."""
        if parts not in self._chains:
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
