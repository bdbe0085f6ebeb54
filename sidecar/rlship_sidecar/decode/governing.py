"""What governs the lines of one file: its own `define`s, and the defaults that metrics have by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from rlship_formats.reading import SPAN_REDUCTIONS
from rlship_formats.records import Definition
from rlship_sidecar.decode import bundles
from rlship_sidecar.decode.lines import MAX_KNOWN, Schema
from rlship_sidecar.decode.schemas import Schemas
from rlship_sidecar.decode.shapes import Shape, order_of_shapes, wider

_MAX_SCHEMAS, _MAX_METRICS, _MAX_DERIVED = 64, 1 << 15, 256  # kept for a file
_NOT_SEEN: Any = object()
_MAX_SPAN_SETS = 64  # sets of spans that are laid together
_VARIED = 16  # of so many combinations of shapes in one file, further ones have room for the widest so far
# Once so many sets of metrics in a file overlap, each of so many, their lines have one loose schema. It may be so many
# times emptier than full, and takes in further metrics so often.
OVERLAPPING, LEAST = 4, 4
_SPARE, _MAX_GROWTHS = 4, 64


class ShapedSchema(NamedTuple):
    """The schema of a line, and where each of its metrics stands in the line; None: in the schema's order."""

    schema: Schema
    order: list[int] | None


class LaidSpans(NamedTuple):
    """The schema of some spans in one line, and what sorts their numbers as it needs them."""

    schema: Schema
    sort: Callable[[Sequence[Any]], tuple[Any, ...]]


class Governing:
    """The entries of a file's defines up to some line, and the schemas that they give to its later lines.

    `by_names` holds the schemas of lines of plain numbers. The dict stays the same object. `schemas` are those of all
    files. `loose` is the schema of lines with a step whose metrics vary.
    """

    __slots__ = (
        "_actor",
        "_asks",
        "_by_derived",
        "_by_metric",
        "_by_shapes",
        "_by_spans",
        "_growths",
        "_in_loose",
        "_widest",
        "by_names",
        "loose",
        "schemas",
    )

    def __init__(self, schemas: Schemas) -> None:
        self.schemas = schemas
        self._actor = ""
        self._asks: dict[str, Definition] = {}
        self._by_metric: dict[str, Definition] = {}
        self._by_derived: dict[tuple[str, tuple[str, ...]], Schema] = {}
        self.by_names: dict[tuple[str, ...], Schema] = {}
        self._by_spans: dict[tuple[str, ...], LaidSpans | None] = {}
        self._widest: dict[tuple[str, ...], tuple[Shape, ...]] = {}
        self._by_shapes: dict[tuple[tuple[str, ...], tuple[Shape, ...]], ShapedSchema] = {}
        self.loose: Schema | None = None
        self._in_loose: frozenset[str] = frozenset()
        self._growths = 0

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
        """The schema of a line with plain numbers for these metrics."""
        schema = self.schemas.of(names, tuple([self.of(name) for name in names]))
        _make_room(self.by_names, names)
        self.by_names[schema.names] = schema
        return schema

    def stepped(self, names: tuple[str, ...]) -> Schema:
        """The same for a line with a step: a loose one where the metrics of such lines vary."""
        if self.loose is not None and len(names) * _SPARE >= len(self._in_loose) and self._in_loose.issuperset(names):
            return self.loose
        return self.by_names.get(names) or self._loosened(names) or self.schema(names)

    def _loosened(self, names: tuple[str, ...]) -> Schema | None:
        """A loose schema that takes in these metrics; None if they vary too little or too much for one."""
        if len(names) < LEAST or self._growths >= _MAX_GROWTHS:
            return None
        ours = frozenset(names)
        known = self.by_names if self.loose is None else [self.loose.names]
        alike = [held for held in known if _SPARE * len(ours.intersection(held)) >= max(len(ours), len(held))]
        if len(alike) < (OVERLAPPING - 1 if self.loose is None else 1):
            return None
        together, most = tuple(dict.fromkeys(chain(*alike, names))), min(_SPARE * len(names), MAX_KNOWN)
        if len(together) > most or "" in together:
            return None
        self.loose = self.schemas.loose(self._actor, together, self.of, most)
        self._in_loose = frozenset(self.loose.names)
        self._growths += 1
        return self.loose

    def shaped(self, names: tuple[str, ...], shapes: tuple[Shape, ...]) -> ShapedSchema:
        """A schema with room for values of these shapes for these metrics: exactly, unless shapes vary much."""
        placed = self._by_shapes.get((names, shapes))
        if placed is None and len(self._by_shapes) >= _VARIED:
            held = self._widest.get(names, shapes)
            _make_room(self._widest, names)
            shapes = self._widest[names] = tuple(map(wider, held, shapes))
            placed = self._by_shapes.get((names, shapes))
        if placed is None:
            order = order_of_shapes(shapes)
            sorted_names = tuple([names[at] for at in order])
            asks = tuple([self.of(name) for name in sorted_names])
            schema = self.schemas.of(sorted_names, asks, tuple([shapes[at] for at in order]))
            placed = ShapedSchema(schema, None if order == [*range(len(order))] else order)
            _make_room(self._by_shapes, names)
            self._by_shapes[names, shapes] = placed
        return placed

    def derived_schema(self, metric: str, reduce: tuple[str, ...]) -> Schema:
        """The schema of the line that a record of another kind implies. Its kind asks for `reduce`. With an empty
        metric the line has no metrics.
        """
        schema = self._by_derived.get((metric, reduce))
        if schema is None:
            names = (metric,) if metric else ()
            schema = self.schemas.of(names, tuple(self._asked(name, reduce) for name in names))
            if len(self._by_derived) >= _MAX_DERIVED:
                self._by_derived.clear()
            self._by_derived[metric, reduce] = schema
        return schema

    def spans_together(self, names: tuple[str, ...]) -> LaidSpans | None:
        """The schema of spans of these names, laid together; None if they are too few, or repeat, or vary too much."""
        # One look, as hashing many names costs more than the rest.
        held: LaidSpans | None = self._by_spans.get(names, _NOT_SEEN)
        if held is not _NOT_SEEN:
            return held
        if len(self._by_spans) >= _MAX_SPAN_SETS:
            return None
        found = None
        if len(names) >= bundles.FEWEST and len(set(names)) == len(names):
            parts = [self.derived_schema(f"{name}_s", SPAN_REDUCTIONS) for name in names]
            order = sorted(range(len(names)), key=lambda place: names[place])
            schema = self.schemas.bundle(tuple([parts[place] for place in order]))
            found = None if schema is None else LaidSpans(schema, itemgetter(*order))
        self._by_spans[names] = found
        return found

    def of(self, metric: str) -> Definition:
        """The entry that governs a metric from here on."""
        asks = self._by_metric.get(metric)
        if asks is None:
            asks = self._asked(metric)
            if len(self._by_metric) < _MAX_METRICS:
                self._by_metric[metric] = asks
        return asks

    def _asked(self, metric: str, reduce: tuple[str, ...] = ()) -> Definition:
        defined, known = self._asks.get(metric), self.schemas.defaults(self._actor)[metric]
        if defined is None:
            return known._replace(reduce=reduce, catalogued=False) if reduce else known
        return defined._replace(
            reduce=defined.reduce or reduce or known.reduce,
            unit=known.unit if defined.unit is None else defined.unit,
            asked=bool(defined.reduce),
        )

    def _forget(self) -> None:
        for held in (self._by_metric, self._by_derived, self._by_shapes, self._by_spans, self._widest, self.by_names):
            held.clear()
        self.loose, self._in_loose, self._growths = None, frozenset(), 0


def _make_room(known: dict[Any, Any], names: tuple[str, ...]) -> None:
    """Empty a cache of schemas where one with these metrics would be too many."""
    if len(known) >= min(_MAX_SCHEMAS, max(2, _MAX_METRICS // (len(names) + 1))):
        known.clear()
