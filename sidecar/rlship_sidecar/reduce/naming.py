"""The keys of a row's values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

POLICY_VERSION = "policy_version"
POLICY_LAG = "policy_lag"
LEAD_STEPS = "global_step"  # the unit of the versions for which rows have a policy lag


@dataclass(frozen=True, slots=True)
class Naming:
    """How the keys of an actor's values are made: `<prefix><actor>/<metric>`, and `…/aligned` for some metrics.

    `first_only`: a metric has only its first reduction.
    """

    actor: str
    prefix: str = ""
    aligned: Collection[str] = ()
    first_only: bool = False

    def plain(self, metric: str) -> str:
        """The key of a metric's first reduction."""
        return self.beside(metric, metric)

    def beside(self, metric: str, name: str) -> str:
        """The key of a value `name` that is derived from a metric."""
        key = f"{self.prefix}{self.actor}/{name}"
        return f"{key}/aligned" if metric in self.aligned else key

    def keys(self, metric: str, asks: Sequence[str]) -> list[tuple[str, str]]:
        """(reduction, key) pairs of a metric: the first reduction has the plain key."""
        plain = self.plain(metric)
        asks = asks[:1] if self.first_only else asks
        return [(ask, f"{plain}/{ask}" if position else plain) for position, ask in enumerate(asks)]
