"""Keeps in the store which metrics had observations that were not finite, from whom, and in which rows."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rlship_sidecar.align.lineage import rank_names
from rlship_sidecar.reduce.nonfinite import COUNTED
from rlship_sidecar.rows import Row, each_rank
from rlship_sidecar.store.nonfinite import NonFiniteMetric, NonFiniteMetrics
from rlship_sidecar.store.store import Store


def keep_nonfinite(store: Store, rows: Sequence[Row]) -> None:
    """Note rows that are about to be committed, in the same transaction.

    A revision without such an observation takes its row back out of the count, so that a step which was made again
    after a rollback leaves no trace.
    """
    families: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.nonfinite or row.arrival.revision:
            families.setdefault((row.unit.actor, row.unit.kind), []).append(row)
    for (actor, kind), of_family in families.items():
        table = NonFiniteMetrics(store, actor, kind)
        known = {metric.key: metric for metric in table.all()}
        before = dict(known)
        for row in of_family:
            if known or row.nonfinite:
                _note(known, row, store.newest(row.unit) if row.arrival.revision else None)
        for key, metric in known.items():
            if metric != before.get(key):
                table.put(metric)
        for key in before.keys() - known.keys():
            table.remove(key)


def _note(known: dict[str, NonFiniteMetric], row: Row, before: Row | None) -> None:
    index = row.unit.index
    for key in {*known, *row.nonfinite}:
        counted = f"{key}{COUNTED}"
        has, had = counted in row.values, before is not None and counted in before.values
        metric = known.get(key)
        if metric is None:
            known[key] = NonFiniteMetric(key, 1, index, index, orjson.dumps(row.nonfinite[key]).decode())
        elif has:
            ranks = _both(metric.ranks, row.nonfinite.get(key, ()))
            known[key] = NonFiniteMetric(
                key, metric.rows + (not had), min(metric.first, index), max(metric.last, index), ranks
            )
        elif had and metric.rows == 1:
            del known[key]
        elif had:
            known[key] = metric._replace(rows=metric.rows - 1)


def _both(known: str, names: Sequence[str]) -> str:
    text = orjson.dumps(names).decode()
    if not names or text == known:  # as in nearly all rows: what is not finite is so of the same ranks
        return known
    return orjson.dumps(rank_names({*each_rank(orjson.loads(known)), *each_rank(names)})).decode()
