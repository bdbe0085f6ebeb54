"""Tags and samples of a unit: docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.reference.order import Contribution, rank_name
from tests.reference.records import Measured, Sample

TAGS = "event/step_tag"


def tags_of(counting: Sequence[Contribution]) -> list[str]:
    return sorted(
        {
            line.tag
            for contribution in counting
            if contribution.metric == TAGS and not contribution.sampled
            for line in contribution.lines
            if line.tag is not None
        }
    )


def samples_of(counting: Sequence[Contribution], most: int, *, newest: bool = False) -> dict[str, list[dict[str, Any]]]:
    """The chosen samples of each table, in merge order and file order, each with why it was chosen.

    With `newest` these are the last ones by time; of one time those that come last in that order.
    """
    tables: dict[str, list[tuple[Contribution, Measured, Sample]]] = {}
    for contribution in counting:
        for line in contribution.lines:
            if contribution.sampled and line.sample is not None:
                tables.setdefault(contribution.metric, []).append((contribution, line, line.sample))
    return {table: chosen for table in sorted(tables) if (chosen := chosen_of(tables[table], most, newest=newest))}


def chosen_of(
    of_table: Sequence[tuple[Contribution, Measured, Sample]], most: int, *, newest: bool
) -> list[dict[str, Any]]:
    numbered = list(enumerate(sample for _, _, sample in of_table))
    if newest:
        by_time = sorted((line.t, i) for i, (_, line, _) in enumerate(of_table))
        reasons = {"newest": [i for _, i in by_time[::-1][:most]]}
    else:
        scored = [(sample.score, i) for i, sample in numbered if isinstance(sample.score, float)]
        reasons = {
            "top": [i for _, i in sorted(scored, key=lambda one: -one[0])[:most]],
            "bottom": [i for _, i in sorted(scored, key=lambda one: one[0])[:most]],
            "random": [i for i, _ in sorted(numbered, key=lambda one: one[1].pri)[:most]],
        }
    return [
        {
            "why": [why for why, places in reasons.items() if i in places],
            "rank": rank_name(contribution.root),
            "t": line.t,
            "score": sample.score,
            "row": sample.row,
            "cut": sample.cut,
        }
        for i, (contribution, line, sample) in enumerate(of_table)
        if any(i in places for places in reasons.values())
    ]
