"""Values per rank, and the values of a row that follow from them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rlship_sidecar.rows import RankName

NAMES = ("max", "min", "argmax_rank", "argmax_replica")


def scalars(ranks: Sequence[RankName], values: Sequence[float], replicas: Iterable[str]) -> list[tuple[str, float]]:
    """(name, value) of the greatest and least of the values of these ranks.

    There is at least one value; of equal ones the first counts. `replicas` are those with a part in the row.
    """
    most = values.index(max(values))
    found = [("max", values[most]), ("min", min(values)), ("argmax_rank", float(ranks[most].rank))]
    names = set(replicas)
    if len(names) > 1 and all(name.isascii() and name.isdigit() for name in names):
        number = float(ranks[most].replica)
        if math.isfinite(number):
            found.append(("argmax_replica", number))
    return found


def rank_name(rank: RankName) -> str:
    """The name of a rank on its own."""
    return f"{rank.replica}.{rank.rank}"
