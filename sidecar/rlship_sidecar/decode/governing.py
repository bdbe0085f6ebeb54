"""What governs the lines of one file: its own `define`s, and the defaults that metrics have by name."""

from __future__ import annotations

from collections.abc import Mapping

from rlship_formats.records import Definition
from rlship_sidecar.decode.lines import WIDE, Schema
from rlship_sidecar.decode.schemas import Schemas

_MAX_SCHEMAS, _MAX_DERIVED = 64, 256


class Governing:
    """The entries of a file's defines up to some line, and the schemas that they give to its later lines.

    `by_names` holds schemas of stepped lines, `by_stream` those of lines without a step. The dicts stay the same
    objects.
    """

    __slots__ = ("_actor", "_asks", "_by_derived", "_by_metric", "_schemas", "by_names", "by_stream")

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._actor = ""
        self._asks: dict[str, Definition] = {}
        self._by_metric: dict[str, Definition] = {}
        self._by_derived: dict[tuple[str, tuple[str, ...]], Schema] = {}
        self.by_names: dict[tuple[str, ...], Schema] = {}
        self.by_stream: dict[tuple[str, ...], Schema] = {}

    def begin(self, actor: str) -> None:
        """Start with an actor's lines; nothing is defined yet."""
        self._actor = actor
        self._asks = {}
        self._forget()

    def define(self, entries: Mapping[str, Definition]) -> bool:
        """Apply a define's entries; returns whether they change anything."""
        if all(self._asks.get(name) == asks for name, asks in entries.items()):
            return False
        self._asks.update(entries)
        self._forget()
        return True

    def schema(self, names: tuple[str, ...]) -> Schema:
        """The schema of a stepped line with these metrics."""
        return self._remembered(self.by_names, names)

    def stream_schema(self, names: tuple[str, ...]) -> Schema:
        """The schema of a line without a step with these metrics."""
        return self._remembered(self.by_stream, names)

    def derived_schema(self, metric: str, reduce: tuple[str, ...]) -> Schema:
        """The schema of the line that a record of another kind implies. Its kind asks for `reduce`. With an empty
        metric the line has no metrics.
        """
        schema = self._by_derived.get((metric, reduce))
        if schema is None:
            names = (metric,) if metric else ()
            schema = self._schemas.of(names, tuple(self._asked(name, reduce) for name in names))
            if len(self._by_derived) >= _MAX_DERIVED:
                self._by_derived.clear()
            self._by_derived[metric, reduce] = schema
        return schema

    def of(self, metric: str) -> Definition:
        """The entry that governs a metric from here on."""
        asks = self._by_metric.get(metric)
        if asks is None:
            asks = self._asked(metric)
            if len(self._by_metric) < WIDE:
                self._by_metric[metric] = asks
        return asks

    def _asked(self, metric: str, reduce: tuple[str, ...] = ()) -> Definition:
        defined, known = self._asks.get(metric), self._schemas.defaults(self._actor)[metric]
        if defined is None:
            return known._replace(reduce=reduce, catalogued=False) if reduce else known
        return defined._replace(
            reduce=defined.reduce or reduce or known.reduce,
            unit=known.unit if defined.unit is None else defined.unit,
            asked=bool(defined.reduce),
        )

    def _remembered(self, known: dict[tuple[str, ...], Schema], names: tuple[str, ...]) -> Schema:
        schema = self._schemas.of(names, tuple(self.of(name) for name in names))
        if len(known) >= _MAX_SCHEMAS:
            known.clear()
        if len(names) <= WIDE:
            known[names] = schema
        return schema

    def _forget(self) -> None:
        for held in (self._by_metric, self._by_derived, self.by_names, self.by_stream):
            held.clear()
