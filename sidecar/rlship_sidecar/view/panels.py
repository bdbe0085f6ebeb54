"""Which metrics stand in which panel of the page: those of the same sections as in the view at W&B. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rlship_formats.catalogue.metrics import Metric as CatalogueMetric
from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.panels import placing
from rlship_sidecar.rows import ALIGNED, CLOCK, POINT
from rlship_sidecar.tally import OWN_ACTOR

STABILITY, MEMORY, RANKS = "stability", "memory", "ranks"
_SECTIONS = {placing.STABILITY: STABILITY, placing.MEMORY: MEMORY, placing.LOAD: RANKS}


def bare(actor: str, kind: str, key: str) -> str:
    """A key without its actor, and without what only says of which kind its rows are."""
    name = key.removeprefix("clock/" if kind == CLOCK else f"{POINT}/" if kind == POINT else "")
    name = name.removeprefix(f"{actor}/")
    return name.removesuffix("/aligned") if kind == ALIGNED else name


@lru_cache(maxsize=20_000)
def known(actor: str, kind: str, key: str) -> CatalogueMetric | None:
    """The catalogue's entry of a key, also of a further reduction."""
    name = bare(actor, kind, key)
    return lookup(actor, name) or lookup(actor, name.rpartition("/")[0])


def headline(actor: str, kind: str, key: str) -> int | None:
    """The place of a key among those that a person looks at first; None for others. Less is earlier."""
    return placing.first_place(actor, bare(actor, kind, key))


def panel_of(
    actor: str, kind: str, key: str, lead: str, *, per_rank: bool, is_there: Callable[[str], bool]
) -> tuple[str, tuple[object, ...]] | None:
    """The panel that shows a key, and where in it; None if it is on no panel of its own. `is_there`: see `parts`."""
    if actor == OWN_ACTOR or placing.parts(key, is_there)[1]:
        return None
    name = bare(actor, kind, key)
    found = placing.placed(actor, name, lead, by_rank=per_rank)
    panel = _SECTIONS.get(found.section)
    if panel is None or (panel == RANKS and not per_rank):
        return None
    return panel, placing.order(found, actor, name, lead)


def beside(actor: str, kind: str, key: str) -> tuple[str, str]:
    """The keys of what a metric of memory can have at most, and of the part of it that is in use; "" without one."""
    name = bare(actor, kind, key)
    found = placing.LIMITS.get(name), placing.IN_USE.get(name)
    limit, in_use = (f"{key.removesuffix(name)}{other}" if other else "" for other in found)
    return limit, in_use
