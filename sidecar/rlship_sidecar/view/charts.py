"""Answers about metrics, out of a rollup. Pure, and to be called while nothing changes the rollup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.rows import ALERT, LEDGER, POINT
from rlship_sidecar.view.binned import Array, MergedSlots
from rlship_sidecar.view.contract import Axis, Curve, Grid, MetricEntry, Packed
from rlship_sidecar.view.lean import STEPPED
from rlship_sidecar.view.panels import MEMORY, RANKS, STABILITY, bare, beside, headline, known, panel_of
from rlship_sidecar.view.rollup import PARTIAL, REVISED, Family, FamilyName, Rollup, T, X
from rlship_sidecar.view.texts import number, text

MAX_PANEL = 24
JUDGED = (ALERT, LEDGER)  # kinds of rows that say what rlship makes of others: no curve of theirs is a result


class KeyPlace(NamedTuple):
    """Where the values of a metric are."""

    family: FamilyName
    key: str


def metric_id(actor: str, kind: str, key: str) -> str:
    """The id of a metric, the same in every run."""
    whole = "\0".join((actor, kind, key)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(whole, digest_size=6).hexdigest()


def places(rollup: Rollup) -> dict[str, KeyPlace]:
    """Every metric of the rollup by its id."""
    return {
        metric_id(*name, key): KeyPlace(name, key) for name, family in rollup.families.items() for key in family.metrics
    }


def metric_entry(place: KeyPlace, family: Family, headline_at: int | None) -> MetricEntry:
    """A metric as the page lists it."""
    (actor, kind), key = place
    entry = known(actor, kind, key)
    last = family.last.get(key)
    limit, in_use = (one if one in family.ranks else "" for one in beside(actor, kind, key))
    return {
        "id": metric_id(actor, kind, key),
        "key": text(key),
        "name": text(bare(actor, kind, key)),
        "actor": text(actor),
        "kind": kind,
        "unit": entry.unit if entry is not None else "",
        "about": entry.meaning if entry is not None else "",
        "headline": headline_at,
        "per_rank": key in family.ranks,
        "limit": metric_id(actor, kind, limit) if limit else None,
        "in_use": metric_id(actor, kind, in_use) if in_use else None,
        "last": None if last is None else number(last[1]),
    }


def metrics_of(rollup: Rollup, lead: str) -> list[MetricEntry]:
    """All metrics: headlines first, then by actor and name."""
    found = []
    for name, family in rollup.families.items():
        for key in family.metrics:
            top = headline(*name, key) if name[1] not in JUDGED else None
            order = (top is None, top or 0, name[0] != lead, _KINDS.get(name[1], 9), *name, key)
            found.append((order, KeyPlace(name, key), family))
    found.sort(key=lambda one: one[0])
    entries = []
    for nth, (order, place, family) in enumerate(found, 1):
        entries.append(metric_entry(place, family, None if order[0] else nth))
    return entries


_KINDS = {kind: place for place, kind in enumerate(STEPPED)}


def panels(rollup: Rollup, lead: str) -> dict[str, list[str]]:
    """The ids of the metrics of each panel, in order."""
    found: dict[str, list[tuple[tuple[object, ...], str]]] = {name: [] for name in (STABILITY, MEMORY, RANKS)}
    for (actor, kind), family in rollup.families.items():
        if kind in JUDGED:
            continue
        is_there = {*family.metrics}.__contains__
        for key in family.metrics:
            there = panel_of(actor, kind, key, lead, per_rank=key in family.ranks, is_there=is_there)
            if there is not None:
                panel, order = there
                found[panel].append(((kind not in STEPPED, *order, kind), metric_id(actor, kind, key)))
    return {panel: [one for _, one in sorted(ids)[:MAX_PANEL]] for panel, ids in found.items()}


def extent(rollup: Rollup) -> dict[str, tuple[float, float] | None]:
    """The range of both axes over all rows."""
    steps: list[float] = []
    times: list[float] = []
    for (_, kind), family in rollup.families.items():
        table = family.table
        if not table.used:
            continue
        _, low, high, n = table.columns(0, table.used)
        there = n[X] > 0
        if not there.any():
            continue
        times += [float(low[T][there].min()), float(high[T][there].max())]
        if kind in STEPPED:
            steps += [float(low[X][there].min()), float(high[X][there].max())]
    times = [t for t in times if t > 0]
    return {"step": _range(steps), "time": _range(times)}


def steps_of(rollup: Rollup, actor: str) -> int:
    """How many steps of an actor have a row."""
    family = rollup.families.get((actor, "step"))
    if family is None or not family.table.used:
        return 0
    _, _, _, n = family.table.columns(0, family.table.used)
    return int(n[X].sum())


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


# Series -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a chart that is asked for."""

    axis: Axis = "step"
    low: float | None = None
    high: float | None = None
    points: int = 600


def slots_of(family: Family, kind: str, span: Span) -> tuple[int, int]:
    """The slots of a family that a span touches: by steps, else by the times of its buckets."""
    table = family.table
    if span.axis == "step" and kind in STEPPED:
        low = None if span.low is None else int(span.low)
        return table.slots(low, None if span.high is None else int(span.high))
    if not table.used or (span.low is None and span.high is None):
        return 0, table.used
    _, least, greatest, n = table.columns(0, table.used)
    inside = n[X] > 0
    if span.low is not None:
        inside &= greatest[T] >= span.low
    if span.high is not None:
        inside &= least[T] <= span.high
    found = np.flatnonzero(inside)
    return (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)


def grid_of(
    name: FamilyName, family: Family, axis: Axis, a: int, b: int, points: int
) -> tuple[Grid, Array, MergedSlots]:
    """The buckets of a range of slots; which of them have rows; and the merged head."""
    merged = MergedSlots(family.table, np.arange(4), a, b, points)
    there = merged.n[X] > 0
    stepped = name[1] in STEPPED
    on: Axis = axis if stepped else "time"
    times = merged.low[T][there]
    width = merged.width if on == "step" else (merged.width if name[1] != POINT else merged.width / 1000)
    grid: Grid = {
        "actor": text(name[0]),
        "kind": name[1],
        "axis": on,
        "width": float(width),
        "x": (merged.low[X][there] if on == "step" else times).tolist(),
        "t": times.tolist(),
        "rows": merged.n[X][there].tolist(),
        "partial": np.nan_to_num(merged.total[PARTIAL][there]).astype(int).tolist(),
        "revised": np.nan_to_num(merged.total[REVISED][there]).astype(int).tolist(),
    }
    return grid, there, merged


def series_of(
    rollup: Rollup, wanted: Mapping[str, KeyPlace], span: Span, near: Callable[[FamilyName, Span], Family | None]
) -> tuple[list[Grid], dict[str, Curve]]:
    """Grids and curves of some metrics. `near` gives the rows of a narrow span one by one, if that is finer."""
    by_family: dict[FamilyName, list[tuple[str, str]]] = {}
    for one, place in wanted.items():
        by_family.setdefault(place.family, []).append((one, place.key))
    grids: list[Grid] = []
    curves: dict[str, Curve] = {}
    for name, keys in by_family.items():
        family = near(name, span) or rollup.families.get(name)
        if family is None:
            continue
        a, b = slots_of(family, name[1], span)
        grid, there, merged = grid_of(name, family, span.axis, a, b, span.points)
        found = [(one, family.keys[key]) for one, key in keys if key in family.keys]
        lines = np.array([line for _, line in found], np.int64)
        values = MergedSlots(family.table, lines, a, b, span.points)
        for nth, (one, _) in enumerate(found):
            curves[one] = _curve(values, nth, there, len(grids), merged.n[X][there])
        grids.append(grid)
    return grids, curves


def _curve(values: MergedSlots, nth: int, there: Array, grid: int, rows: Array) -> Curve:
    n = values.n[nth][there]
    single = bool((n <= 1).all())
    return {
        "grid": grid,
        "mean": values.mean[nth][there],
        "min": None if single else values.low[nth][there],
        "max": None if single else values.high[nth][there],
        "n": None if np.array_equal(n, rows) else n.tolist(),
    }


# Ranks ------------------------------------------------------------------------------------------------------------


def _packed(matrix: Array) -> Packed:
    data = np.ascontiguousarray(matrix, "<f4")
    return {"rows": data.shape[0], "columns": data.shape[1], "f32": base64.b64encode(data.data).decode()}


def ranks_of(
    place: KeyPlace, family: Family, span: Span, stats: Collection[str], hosts: Mapping[str, str], one: str = ""
) -> dict[str, Any]:
    """The matrix of a metric by rank and bucket, without `store` and `row`; of `one` rank alone if it names one."""
    of_ranks = family.ranks[place.key]
    table = of_ranks.table
    there = table.has_values()  # a revision may have taken all values of a rank away
    names = sorted((name for name, line in of_ranks.lines.items() if there[line]), key=_rank_key)
    lines = np.array([of_ranks.lines[name] for name in names], np.int64)
    low, high = _positions(family, place.family[1], span)
    a, b = table.slots(low, high)
    merged = MergedSlots(table, lines, a, b, span.points)
    starts = (merged.edges + a + table.first) // (merged.width // table.stride) * merged.width
    grid, kept = _rank_grid(place.family, family, span.axis, starts, merged.width)
    mean = merged.mean[:, kept]
    matrices = {"mean": mean, "min": merged.low[:, kept], "max": merged.high[:, kept]}
    bands = _bands(mean)
    missing = _missing(family, starts[kept], merged.width)
    only = -1 if not one else names.index(one) if one in names else _worst(bands)
    if only >= 0:
        matrices = {stat: matrix[only : only + 1] for stat, matrix in matrices.items()}
    return {
        "metric": metric_id(*place.family, place.key),
        "grid": grid,
        "ranks": [text(name) for name in names],
        "hosts": [text(hosts.get(name, "")) for name in names],
        **{stat: _packed(matrix) if stat in stats else None for stat, matrix in matrices.items()},
        **bands,
        "only": only,
        "missing": missing,
    }


def _rank_key(name: str) -> tuple[Any, ...]:
    replica, _, rank = name.rpartition(".")
    return (*replica_key(replica), int(rank) if rank.isdecimal() else -1, name)


def _positions(family: Family, kind: str, span: Span) -> tuple[int | None, int | None]:
    """The positions that a span covers."""
    if span.low is None and span.high is None:
        return None, None
    a, b = slots_of(family, kind, span)
    if span.axis == "step" and kind in STEPPED:
        return (
            None if span.low is None else int(span.low),
            None if span.high is None else int(span.high),
        )
    table = family.table
    return (a + table.first) * table.stride, (b + table.first) * table.stride - 1


def _rank_grid(name: FamilyName, family: Family, axis: Axis, starts: Array, width: int) -> tuple[Grid, Array]:
    """The grid of buckets that begin at `starts`, and which of them have rows."""
    head = family.table
    total, low, _, n = (one[:4] for one in head.columns(0, head.used))
    found: dict[str, list[float]] = {"x": [], "t": [], "rows": [], "partial": [], "revised": []}
    kept = []
    for nth, start in enumerate(starts.tolist()):
        a, b = head.slots(start, start + width - 1)
        there = n[X][a:b] > 0
        if not there.any():
            continue
        kept.append(nth)
        found["t"].append(float(low[T][a:b][there].min()))
        found["x"].append(float(max(start, low[X][a:b][there].min())) if name[1] in STEPPED else found["t"][-1])
        found["rows"].append(int(n[X][a:b].sum()))
        found["partial"].append(int(np.nansum(total[PARTIAL][a:b])))
        found["revised"].append(int(np.nansum(total[REVISED][a:b])))
    on: Axis = axis if name[1] in STEPPED else "time"
    grid: Any = {"actor": text(name[0]), "kind": name[1], "axis": on, "width": float(width), **found}
    if on == "time":
        grid["x"] = found["t"]
    return grid, np.array(kept, np.int64)


def _bands(mean: Array) -> dict[str, Any]:
    there = ~np.isnan(mean)
    some = there.any(axis=0) if mean.size else np.zeros(mean.shape[1], bool)

    def over(of: Callable[..., Any]) -> list[float | None]:
        found = np.full(mean.shape[1], np.nan)
        found[some] = of(mean[:, some], axis=0)
        return [None if np.isnan(one) else float(one) for one in found]

    def where(of: Callable[..., Any]) -> list[int]:
        found = np.full(mean.shape[1], -1, np.int64)
        found[some] = of(mean[:, some], axis=0)
        return list(found.tolist())

    return {
        "low": over(np.nanmin),
        "median": over(np.nanmedian),
        "high": over(np.nanmax),
        "low_rank": where(np.nanargmin),
        "high_rank": where(np.nanargmax),
    }


def _worst(bands: Mapping[str, Any]) -> int:
    """The rank that has the greatest value of all; -1 without any value."""
    found = [(value, rank) for value, rank in zip(bands["high"], bands["high_rank"]) if value is not None]
    return max(found, key=lambda one: one[0], default=(0.0, -1))[1]


def _missing(family: Family, starts: Array, width: int) -> list[list[str]]:
    by_bucket: dict[int, dict[str, None]] = {}
    for position, names in family.lacking.items():
        by_bucket.setdefault(position // width * width, {}).update(dict.fromkeys(names))
    return [[text(name) for name in by_bucket.get(int(start), ())] for start in starts]


def totals_of(family: Family) -> dict[str, float]:
    """The sum of each metric over all rows."""
    total, _, _, n = family.table.columns(0, family.table.used)
    sums = np.where(n > 0, total, 0).sum(axis=1)
    return {key: float(sums[line]) for key, line in family.keys.items() if key in family.last}
