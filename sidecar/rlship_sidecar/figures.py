"""What reductions come to: a figure, a histogram, nothing, or something that cannot be derived."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, TypeAlias

from rlship_formats.histogram import Histogram
from rlship_sidecar.lineage import Order


class _Undefined(Enum):
    UNDEFINED = "no such figure for these observations"


UNDEFINED = _Undefined.UNDEFINED
Figure: TypeAlias = "float | Histogram | _Undefined | None"  # None: underivable
PerRank: TypeAlias = "dict[str, list[tuple[str, float]]]"  # by key: a rank's name and its value, in merge order


class Reduced(NamedTuple):
    """What a window comes to; `order` is that of the counting segments. `taken` are the keys that have an owner,
    whether or not there is a figure under them.
    """

    figures: dict[str, float]
    hists: dict[str, Histogram]
    per_rank: PerRank
    taken: Collection[str]
    order: Order
    underivable: tuple[str, ...]
    t: float
