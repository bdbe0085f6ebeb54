"""A row as one flat record of keys and values, the form that W&B and TensorBoard take."""

from __future__ import annotations

from rlship_sidecar.rows import Row, count_ranks

Flat = dict[str, float | int | str]


def flatten(row: Row) -> Flat:
    """The keys of one point: x, coverage, revision and the shipped figures.

    A user's figure of the same key as a derived one wins. An x key wins over both, for without it the point would stand
    elsewhere. `<actor>/missing_ranks` ("0.3 0.5-7") is there only when ranks are missing, `<actor>/revision` only from
    the first revision on.
    """
    actor, coverage = row.unit.actor, row.coverage
    flat: Flat = {
        f"{actor}/ranks/in": count_ranks(coverage.ranks),
        f"{actor}/ranks/expected": coverage.expected,
        f"{actor}/ranks/missing": count_ranks(coverage.missing),
    }
    if coverage.missing:
        flat[f"{actor}/missing_ranks"] = " ".join(coverage.missing)
    if row.arrival.revision > 0:
        flat[f"{actor}/revision"] = row.arrival.revision
    flat.update(row.shipped)
    flat.update(row.x)
    return flat


def axis(row: Row) -> tuple[str, float | int]:
    """The row's own axis and where it stands on it: the first of `row.x`, or the unit's index under the name of its
    kind.
    """
    for name, value in row.x.items():
        return name, value
    return row.unit.kind, row.unit.index
