"""Rows and dead letters as records of tables: tuples in the order of the tables' columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from rlship_formats.reading import RUN_TEXTS
from rlship_formats.records import MAX_STEP
from rlship_sidecar.alerts.verdict_rows import TABLE as EPISODES
from rlship_sidecar.rows import ALERT, ALIGNED, OWN_KINDS, STEP, Row, count_ranks
from rlship_sidecar.run_data.trees import leaves
from rlship_sidecar.tabular.columns import OF_ALERTS
from rlship_sidecar.tabular.condition import EVERYTHING, Condition, possible
from rlship_sidecar.tabular.snapshot import Snapshot

Record = tuple[Any, ...]
HasKey = Callable[[str], bool]


def row_head(experiment: str, row: Row) -> Record:
    """The first columns of every table of rows (`columns.ROW`)."""
    unit = row.unit
    axis, x = next(iter(row.x.items()), (None, None))
    return (
        experiment,
        row.arrival.row_number,
        unit.actor,
        unit.kind_on_disk,
        unit.index,
        unit.index if unit.kind in (STEP, ALIGNED, *OWN_KINDS) else None,
        axis,
        None if x is None else float(x),
        row.t or None,  # rows of some foreign formats have no axis
        row.arrival.revision,
    )


def coverage(row: Row) -> Record:
    """The coverage of a row (`columns.COVERAGE`)."""
    found = row.coverage
    return (
        found.ranks,
        count_ranks(found.ranks),
        found.expected,
        found.missing,
        found.absent,
        found.attempts,
        min(found.gap, MAX_STEP),
        found.underivable,
        row.tags,
    )


def _rows(experiment: str, row: Row, wanted: HasKey) -> Iterator[Record]:
    short = orjson.dumps(row.coverage.short).decode() if row.coverage.short else None
    yield (
        *row_head(experiment, row),
        *coverage(row),
        row.arrival.closed,
        row.arrival.changed,
        short,
        row.coverage.lives,
    )


def _figures(experiment: str, row: Row, wanted: HasKey) -> Iterator[Record]:
    head, changed = row_head(experiment, row), _changed(row)
    for key, value in row.values.items():
        if wanted(key):
            yield (*head, key, value, changed(key))


def _per_rank(experiment: str, row: Row, wanted: HasKey) -> Iterator[Record]:
    head, changed = row_head(experiment, row), _changed(row)
    for key, values in row.per_rank.items():
        if not wanted(key):
            continue
        for name, value in values:
            replica, _, rank = name.rpartition(".")
            yield (*head, key, replica, int(rank), value, changed(key))


def _hists(experiment: str, row: Row, wanted: HasKey) -> Iterator[Record]:
    head, changed = row_head(experiment, row), _changed(row)
    for key, hist in row.hists.items():
        if wanted(key):
            yield (*head, key, hist.edges, hist.counts, changed(key))


_EPISODE = tuple(column.name for column in OF_ALERTS if column.name not in ("lineage", "evidence"))


def _alerts(experiment: str, row: Row, wanted: HasKey) -> Iterator[Record]:
    if row.unit.kind == ALERT:
        head = row_head(experiment, row)
        for sample in row.samples.get(EPISODES, ()):
            one = sample.row
            lineage, evidence = (orjson.dumps(one.get(name)).decode() for name in ("lineage", "evidence"))
            yield (*head, *map(one.get, _EPISODE), lineage, evidence)


def _changed(row: Row) -> Callable[[str], bool]:
    """Whether a key is new or changed in this revision."""
    if row.arrival.revision == 0:
        return lambda key: True
    return frozenset(row.arrival.changed).__contains__


OF_ROWS: dict[str, Callable[[str, Row, HasKey], Iterator[Record]]] = {
    "rows": _rows,
    "figures": _figures,
    "per_rank": _per_rank,
    "hists": _hists,
    "alerts": _alerts,
}


def of_rows(table: str, experiment: str, rows: Iterable[Row], condition: Condition = EVERYTHING) -> Iterator[Record]:
    """The records of a table of rows, without those whose key cannot hold the condition."""
    known: dict[str, bool] = {}

    def wanted(key: str) -> bool:
        if key not in known:
            known[key] = possible(condition, {"key": key})
        return known[key]

    for row in rows:
        yield from OF_ROWS[table](experiment, row, wanted)


def of_dead(table: str, experiment: str, snapshot: Snapshot) -> Iterator[Record]:
    """The records of `dead_letters` or `dead_counts`."""
    if table == "dead_letters":
        for file, letter in snapshot.dead():
            yield experiment, file, letter.offset, letter.metric, letter.reason, letter.excerpt
    else:
        for file, reason, is_value, count, offset, excerpt in snapshot.dead_counts():
            yield experiment, file, reason, "value" if is_value else "line", count, offset, excerpt


def of_run_data(experiment: str, snapshot: Snapshot) -> Iterator[Record]:
    """The records of `run`: each key of config, summary, facts and labels, then all else that was said."""
    data = snapshot.run_data()
    labels = {actor: found for actor, found in data.labels.items() if found}
    for part, tree in (("config", data.config), ("summary", data.summary), ("facts", data.facts), ("labels", labels)):
        for key, value in leaves(tree):
            yield experiment, part, ".".join(key), _as_json(value)
    for name in (*RUN_TEXTS, "tags", "outcome", "dropped", "left_out"):
        if value := getattr(data, name):
            yield experiment, "run", name, _as_json(value)


def of_run_changes(experiment: str, snapshot: Snapshot) -> Iterator[Record]:
    """The records of `run_changes`."""
    for one in snapshot.run_changes():
        who = (experiment, one.file, one.actor, one.replica, one.rank, one.attempt)
        before, after = (None if value is None else _as_json(value) for value in (one.before, one.after))
        yield (*who, one.t, one.part, ".".join(one.key), before, after)


def _as_json(value: Any) -> str:
    return orjson.dumps(value).decode()
