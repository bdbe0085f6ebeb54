"""Which reductions of a metric are asked for, and under which keys they stand: docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.reference.order import Contribution
from tests.reference.records import Entry, Measured
from tests.reference.settings import Reductions, Settings

Item = TypeVar("Item")
Metrics = Mapping[str, Sequence[Contribution]]
"""The counting contributions of each metric of a unit, in merge order."""


@dataclass(frozen=True)
class Keys:
    """How the keys of one kind of unit are made. `suffixed`: the metrics whose keys say that they are not of steps."""

    actor: str
    prefix: str = ""
    suffixed: frozenset[str] = frozenset()

    def of(self, metric: str, like: str | None = None) -> str:
        """The key of a metric's first reduction, or of one formed like that of another metric."""
        suffix = "/aligned" if (like or metric) in self.suffixed else ""
        return f"{self.prefix}{self.actor}/{metric}{suffix}"


def governing(actor: str, metric: str, line: Measured, settings: Settings) -> Entry:
    """What governs the line: its file's `define`, else the catalogue; with the reductions that it comes to."""
    known = settings.catalogue(actor, metric)
    default = tuple(known.reduce) if known and known.reduce else ("mean",)
    entry = line.defined.get(metric)
    if entry is None:
        catalogued = known is not None and not line.reduce
        entry = Entry(None, known.per_rank, False, known.unit, catalogued) if known else Entry()
    elif entry.unit is None and known:
        entry = Entry(entry.reduce, entry.per_rank, entry.stream, known.unit)
    return replace(entry, reduce=entry.reduce or line.reduce or default, asked=bool(entry.reduce))


def entries(contributions: Sequence[Contribution], settings: Settings) -> list[Entry]:
    """What governs each of the lines, in merge order and file order."""
    return [
        governing(contribution.writer.actor, contribution.metric, line, settings)
        for contribution in contributions
        for line in contribution.lines
    ]


def asked_for(contributions: Sequence[Contribution], overrides: Reductions, settings: Settings) -> list[str]:
    """The reductions of one metric, the first one first."""
    actor, metric = contributions[0].writer.actor, contributions[0].metric
    for name in (f"{actor}/{metric}", metric):
        if name in overrides:
            return without_repeats(overrides[name])
    return without_repeats(reduction for entry in entries(contributions, settings) for reduction in entry.reduce or ())


def is_configured(contributions: Sequence[Contribution], overrides: Reductions) -> bool:
    """Whether the configuration names the metric."""
    actor, metric = contributions[0].writer.actor, contributions[0].metric
    return f"{actor}/{metric}" in overrides or metric in overrides


def asked_keys(metrics: Metrics, keys: Keys, overrides: Reductions, settings: Settings) -> tuple[str, ...]:
    """The keys of the further reductions that a define or the configuration names, sorted."""
    found = set()
    for metric, contributions in metrics.items():
        named = {name for entry in entries(contributions, settings) if entry.asked for name in entry.reduce or ()}
        configured = is_configured(contributions, overrides)
        for reduction in asked_for(contributions, overrides, settings)[1:]:
            if configured or reduction in named:
                found.add(f"{keys.of(metric)}/{reduction}")
    return tuple(sorted(found))


def without_repeats(names: Iterable[Item]) -> list[Item]:
    return list(dict.fromkeys(names))


def owners(metrics: Metrics, keys: Keys, overrides: Reductions, settings: Settings) -> dict[str, tuple[str, str]]:
    """Which metric's which reduction each key stands for: first reductions before all others, then by name."""
    firsts: dict[str, tuple[str, str]] = {}
    others: dict[str, tuple[str, str]] = {}
    for metric in sorted(metrics):
        first, *more = asked_for(metrics[metric], overrides, settings)
        firsts.setdefault(keys.of(metric), (metric, first))
        for reduction in more:
            others.setdefault(f"{keys.of(metric)}/{reduction}", (metric, reduction))
        if any(contribution.moments.nonfinite for contribution in metrics[metric]):
            others.setdefault(f"{keys.of(metric)}/nonfinite", (metric, "nonfinite"))
    return {**others, **firsts}
