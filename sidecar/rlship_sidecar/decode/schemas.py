"""All schemas, each interned once, and the defaults of metrics that no `define` names. Pure."""

from __future__ import annotations

from collections.abc import Callable

from rlship_formats.records import Definition
from rlship_sidecar.decode.lines import WIDE, Schema

Lookup = Callable[[str, str], Definition | None]  # returns the defaults of an actor's metric by its name
_DEFAULT = Definition()
_MAX_NAMES = 10_000


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


class Schemas:
    """Interned schemas: equal metrics under equal rules give the same object, also across files.

    `lookup` gives the defaults of metrics that no `define` names.
    """

    def __init__(self, lookup: Lookup = nothing_known) -> None:
        self._lookup = lookup
        self._known: dict[tuple[tuple[str, ...], tuple[Definition, ...]], Schema] = {}
        self._defaults: dict[str, Defaults] = {}

    def of(self, names: tuple[str, ...], asks: tuple[Definition, ...]) -> Schema:
        """The schema of these metrics.

        The cache is emptied when a job keeps inventing metrics. That costs only speed.
        """
        schema = self._known.get((names, asks))
        if schema is None:
            schema = Schema(names, asks)
            if len(self._known) >= 1024:
                self._known.clear()
            if len(names) <= WIDE:
                self._known[names, asks] = schema
        return schema

    def defaults(self, actor: str) -> Defaults:
        """The defaults of the actor's metrics."""
        found = self._defaults.get(actor)
        if found is None:
            found = self._defaults[actor] = Defaults(actor, self._lookup)
        return found
