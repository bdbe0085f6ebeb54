"""The configuration, as far as it enters a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from rlship.metrics import lookup

Reductions = Mapping[str, Sequence[str]]
NO_OVERRIDES: Reductions = MappingProxyType({})


class Known(Protocol):
    """What the catalogue knows of a metric."""

    @property
    def reduce(self) -> Sequence[str] | None: ...
    @property
    def per_rank(self) -> bool: ...
    @property
    def unit(self) -> str | None: ...
    @property
    def reduced(self) -> bool: ...


class Accumulator(Protocol):
    """A custom reduction: one is made for each segment; `merge` takes in that of a later one."""

    def add(self, x: float, w: float) -> None: ...
    def merge(self, other: Any) -> None: ...
    def value(self) -> Any: ...


def nothing_known(actor: str, metric: str) -> Known | None:
    """A catalogue of nothing."""
    return None


@dataclass(frozen=True)
class Settings:
    """What a user can configure, and what is installed. `samples`: how many of a table are the top ones, as many the
    bottom ones, and as many chosen by chance, in units whose index `samples_every` divides; `window`: seconds of a
    clock unit; `short_window`: at how many steps a rank may have logged a metric last; `custom` makes accumulators by
    the names of reductions.
    """

    per_rank: bool = False
    samples: int = 4
    samples_every: int = 10
    short_window: int = 20
    lead: str = "trainer"
    window: float = 10.0
    catalogue: Callable[[str, str], Known | None] = lookup
    custom: Mapping[str, Callable[[], Accumulator]] = field(default_factory=dict)


DEFAULTS = Settings()
