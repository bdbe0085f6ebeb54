"""A row whose former lines are gone because a framework cut or removed their file, and that has new lines. Pure."""

from __future__ import annotations

from dataclasses import replace

from rlship_formats.values import REDUCTIONS
from rlship_sidecar.rows import Row, count_ranks

_AFTER = ("", *(f"/{name}" for name in (*REDUCTIONS, "nonfinite")))


def with_former(row: Row, before: Row, lives: int) -> Row | None:
    """`row`, made of the new lines alone, completed with the values of `before` that no new line supersedes.

    None if the result would be uncertain: it is known only if both rows are of the same single rank and nothing was
    merged. `lives`: how many former files had the name of one that `row` is made of; their attempts come first.
    """
    if row.coverage.ranks != before.coverage.ranks or count_ranks(row.coverage.ranks) != 1:
        return None
    made = {**row.values, **row.hists, **row.per_rank}.keys()
    own = {key + after for key in made for after in _AFTER} | set(row.coverage.underivable)
    attempts = sorted({*(attempt + lives for attempt in row.coverage.attempts), *before.coverage.attempts})
    left = {key for key in before.keys() if key not in own}  # noqa: SIM118 - a row is not a dict
    return replace(
        row,
        values={**{key: value for key, value in before.values.items() if key in left}, **row.values},
        hists={**{key: hist for key, hist in before.hists.items() if key in left}, **row.hists},
        per_rank={**{key: found for key, found in before.per_rank.items() if key in left}, **row.per_rank},
        tags=tuple(sorted({*row.tags, *before.tags})),
        samples={**before.samples, **row.samples},
        t=max(row.t, before.t),
        coverage=replace(row.coverage, attempts=tuple(attempts)) if left else row.coverage,
    )
