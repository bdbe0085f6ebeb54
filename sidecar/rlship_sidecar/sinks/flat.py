"""A row as one flat record of keys and values, the form that W&B and TensorBoard take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlship_sidecar.rows import ALIGNED, CLOCK, POINT, Row, count_ranks

Flat = dict[str, float | int | str]
_NO_RANKS: Mapping[str, float] = {}


def flatten(row: Row, ranks: Mapping[str, float] = _NO_RANKS) -> Flat:
    """The keys of one point: x, coverage, revision, the shipped values, and `ranks`, values of single ranks. Keys about
    the row itself begin with `<actor>/`, for streams with `<actor>/aligned/` or `clock/<actor>/`.

    A user's value of the same key as a derived one wins. An x key wins over both, for without it the point would stand
    elsewhere. `<actor>/missing_ranks` ("0.3 0.5-7") is there only when ranks are missing, `<actor>/tags` only where
    there are any, `<actor>/revision` only from the first revision on.
    """
    coverage = row.coverage
    prefix = f"{row.unit.actor}/aligned" if row.unit.kind == ALIGNED else family(row)
    flat: Flat = {}
    if row.unit.kind != POINT:
        flat[f"{prefix}/ranks/in"] = count_ranks(coverage.ranks)
        flat[f"{prefix}/ranks/expected"] = coverage.expected
        flat[f"{prefix}/ranks/missing"] = count_ranks(coverage.missing)
    if coverage.missing:
        flat[f"{prefix}/missing_ranks"] = " ".join(coverage.missing)
    if row.tags:
        flat[f"{prefix}/tags"] = " ".join(row.tags)
    if row.arrival.revision > 0:
        flat[f"{prefix}/revision"] = row.arrival.revision
    flat.update(ranks)
    flat.update(row.shipped)
    flat.update(row.x)
    return flat


def family(row: Row) -> str:
    """What the keys of a row's values begin with, for they share an axis."""
    kind, actor = row.unit.kind, row.unit.actor
    if kind == CLOCK:
        return f"clock/{actor}"
    return f"point/{actor}" if kind == POINT else actor


def rank_keys(row: Row) -> Iterator[tuple[str, float]]:
    """The shipped values of single ranks under keys of their own: `<actor>/<metric>/r<replica>.<rank>`. A value or
    histogram of the row with such a key wins.
    """
    for metric, values in row.shipped_per_rank.items():
        for rank, value in values:
            key = f"{metric}/r{rank}"
            if key not in row.figures and key not in row.hists:
                yield key, value


def axis(row: Row) -> tuple[str, float | int]:
    """The row's own axis and where it stands on it: the first of `row.x`, or the unit's index under the name of its
    kind.
    """
    for name, value in row.x.items():
        return name, value
    return row.unit.kind_on_disk, row.unit.index
