"""What is known of a metric by its name alone: the catalogue, as the pipeline asks it."""

from __future__ import annotations

from rlship_formats.catalogue.metrics import lookup
from rlship_formats.records import Asks


def known(actor: str, metric: str) -> Asks | None:
    """What governs an actor's metric where no `define` names it; None: nothing is known of it."""
    found = lookup(actor, metric)
    return None if found is None else Asks(found.reduce, found.per_rank, False, found.unit or None)
