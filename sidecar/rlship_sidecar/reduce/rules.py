"""The configuration's reductions, and the keys of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from rlship_sidecar.reduce.custom import Customs
from rlship_sidecar.reduce.samples import SampleChoice

ROW_FUNCTION = 10
"""The number of the row function: everything from a file's lines to a row's values, coverage, axes and tags.

Add one when you change the row that equal lines and an equal configuration give. The store keeps the number that its
rows were made with, so that an upgrade makes them again (`pipeline/sweep.py`). docs/semantics.md, "The row function has
a number", lists the changes.
"""

# The configuration's defaults.
SHORT_WINDOW = 20
LEDGER_WAIT_S = 3600.0

Overrides = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """`reductions` override what lines ask for, by `<actor>/<metric>` or `<metric>`.

    `per_rank`: keep every metric's values per rank. `customs` are the reductions of other packages. `samples` decides
    which samples rows show. `short_window`: a rank is short of a metric only if it logged it at one of the last so many
    steps that have it; 0: no rank ever is. `ledger_wait_s`: an entry of the ledger is late so long after its group's
    first.
    """

    reductions: Overrides = field(default_factory=dict)
    per_rank: bool = False
    customs: Customs = field(default_factory=Customs)
    samples: SampleChoice = field(default_factory=SampleChoice)
    short_window: int = SHORT_WINDOW
    ledger_wait_s: float = LEDGER_WAIT_S

    def chosen(self, actor: str, metric: str) -> tuple[str, ...] | None:
        """The configuration's reductions of a metric; None leaves the choice to the lines."""
        chosen = self.reductions.get(f"{actor}/{metric}") or self.reductions.get(metric)
        return tuple(dict.fromkeys(chosen)) if chosen else None

    def signature(self) -> str:
        """The settings that rows depend on besides `ROW_FUNCTION`. After a change the rows have to be made again."""
        more: dict[str, Any] = {}
        if self.per_rank:
            more["per_rank"] = True
        if self.samples != SampleChoice():
            more["samples"] = [self.samples.each, self.samples.every]
        if self.short_window != SHORT_WINDOW:
            more["short_window"] = self.short_window
        if self.ledger_wait_s != LEDGER_WAIT_S:
            more["ledger_wait_s"] = self.ledger_wait_s
        if installed := self.customs.installed():
            more["custom"] = installed
        # The key "" is free, because no metric has an empty name.
        return orjson.dumps({**self.reductions, **({"": more} if more else {})}, option=orjson.OPT_SORT_KEYS).decode()


def keys(actor: str, metric: str, asks: Sequence[str]) -> list[tuple[str, str]]:
    """(reduction, key) pairs of a metric: the first reduction has the plain key."""
    plain = f"{actor}/{metric}"
    return [(ask, f"{plain}/{ask}" if position else plain) for position, ask in enumerate(asks)]
