"""What the configuration says of reductions, and the keys that figures go by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from rlship_sidecar.reduce.custom import Customs
from rlship_sidecar.reduce.samples import SampleChoice

ROW_FUNCTION = 3
"""The number of the row function: everything from a file's lines to a row's values, coverage, axes and tags.

Whoever changes what equal lines and an equal configuration come to adds one. The store knows the number that its rows
were made with, so that an upgrade makes them again (`pipeline/sweep.py`). What changed: docs/semantics.md, "The row
function has a number".
"""

Overrides = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """`reductions` win over what lines ask for, by `<actor>/<metric>` or `<metric>`. `per_rank`: every metric's values
    per rank are kept. `customs` are the reductions of other packages. `samples`: which of them rows show.
    """

    reductions: Overrides = field(default_factory=dict)
    per_rank: bool = False
    customs: Customs = field(default_factory=Customs)
    samples: SampleChoice = field(default_factory=SampleChoice)

    def chosen(self, actor: str, metric: str) -> tuple[str, ...] | None:
        """The configuration's reductions of a metric, or None: then the lines say."""
        chosen = self.reductions.get(f"{actor}/{metric}") or self.reductions.get(metric)
        return tuple(dict.fromkeys(chosen)) if chosen else None

    def signature(self) -> str:
        """What rows depend on besides `ROW_FUNCTION`: where it changes, they have to be made again."""
        more: dict[str, Any] = {}
        if self.per_rank:
            more["per_rank"] = True
        if self.samples != SampleChoice():
            more["samples"] = [self.samples.each, self.samples.every]
        if installed := self.customs.installed():
            more["custom"] = installed
        # No metric has an empty name.
        return orjson.dumps({**self.reductions, **({"": more} if more else {})}, option=orjson.OPT_SORT_KEYS).decode()


def keys(actor: str, metric: str, asks: Sequence[str]) -> list[tuple[str, str]]:
    """(reduction, key) pairs of a metric: the first reduction has the plain key."""
    plain = f"{actor}/{metric}"
    return [(ask, f"{plain}/{ask}" if position else plain) for position, ask in enumerate(asks)]
