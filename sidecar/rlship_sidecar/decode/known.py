"""Defaults that the catalogue gives a metric by its name alone."""

from __future__ import annotations

from rlship_formats.catalogue.metrics import lookup
from rlship_formats.records import Definition


def known(actor: str, metric: str) -> Definition | None:
    """The entry for an actor's metric that no `define` names; None if the catalogue does not know the metric."""
    found = lookup(actor, metric)
    if found is None:
        return None
    return Definition(found.reduce, found.per_rank, unit=found.unit or None, catalogued=True)
