"""The results of reductions: a value, a histogram, nothing, or something that cannot be derived."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, TypeAlias

from rlship_formats.values import Histogram
from rlship_sidecar.align.lineage import Order
from rlship_sidecar.reduce.naming import POLICY_LAG, POLICY_VERSION, Naming


class _Undefined(Enum):
    UNDEFINED = "no such value for these observations"


UNDEFINED = _Undefined.UNDEFINED
ReducedValue: TypeAlias = "float | Histogram | _Undefined | None"  # None: underivable
PerRank: TypeAlias = "dict[str, list[tuple[str, float]]]"  # by key: a rank's name and its value, in merge order


class Reduced(NamedTuple):
    """The result of a window; `order` is that of the counting segments.

    `taken` are the keys that have an owner, with or without a value. `asked` are the keys of further reductions that a
    `define` or the configuration asks for. `lags`: a policy version counts the lead's steps.
    """

    values: dict[str, float]
    hists: dict[str, Histogram]
    per_rank: PerRank
    taken: Collection[str]
    order: Order
    underivable: tuple[str, ...]
    t: float
    lags: bool = False
    asked: tuple[str, ...] = ()


def add_lag(naming: Naming, found: Reduced, lead_step: int | None) -> None:
    """Add how many of the lead's steps a policy is behind; None if the lead has no step."""
    version = found.values.get(naming.plain(POLICY_VERSION))
    key = naming.beside(POLICY_VERSION, POLICY_LAG)
    if found.lags and lead_step is not None and version is not None and key not in found.taken:
        found.values[key] = lead_step - version
