"""The one reduce function: a window of values and a roster to the figures and coverage of a row. Pure.

Live, replay and revisions all come here, so that equal lines give equal bits. `_reduce_block` is the fast path for the
common unit
(one plain number per rank and metric); `_reduce_any` is the definition. A test holds them against each other and both
against the
reference in `tests/reference/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlship_formats.values import EMPTY, Observations, Partial, defined, figure, fold, merge
from rlship_sidecar.barriers import Clocks, NoClocks, measured
from rlship_sidecar.lineage import Order, Segment, counting, order_of, rank_names, replica_key
from rlship_sidecar.lines import WIDE, Schema
from rlship_sidecar.roster import Roster
from rlship_sidecar.rows import Coverage, RankName, Row, Unit, name_ranks
from rlship_sidecar.window import Block, Window

Matrix = NDArray[np.float64]
Overrides = Mapping[str, Sequence[str]]
_NOT_SEEN = Order(None, (), (), ())
_NO_CLOCKS = NoClocks()


def reduce_unit(unit: Unit, window: Window, roster: Roster, overrides: Overrides, clocks: Clocks = _NO_CLOCKS) -> Row:
    """The row of a unit. `overrides` are the configuration's reductions, by `<actor>/<metric>` or `<metric>`."""
    figures, order, underivable, t = _reduce_blocks(unit.actor, window, roster, overrides) or _reduce_any(
        unit.actor, window, overrides
    )
    for name, value in measured(window.barriers, clocks).items():
        figures.setdefault(f"{unit.actor}/{name}", value)
    expected, missing, absent = roster.coverage(unit.index)
    coverage = Coverage(
        ranks=order.ranks,
        expected=expected,
        missing=rank_names(missing),
        absent=name_ranks(absent),
        attempts=order.attempts,
        gap=roster.gap(unit.index),
        underivable=underivable,
    )
    segments = order.segments or order_of(tuple(_everyone(window))).segments
    return Row(unit, t, {segments[0].writer.open.axis: unit.index}, figures, coverage)


def _everyone(window: Window) -> list[Segment]:
    found = [segment for segment, _ in window.sparse]
    for block in window.blocks.values():
        found.extend(block.owners)
    return found


# The fast path: blocks of plain numbers ----------------------------------------------------------------------------


def _reduce_blocks(actor: str, window: Window, roster: Roster, overrides: Overrides) -> _Reduced | None:
    """The reduced window if nothing in it can be superseded or collide, else None: only `_reduce_any` is right then."""
    orders = None if window.sparse else _orders(window, roster)
    if orders is None:
        return None
    figures: dict[str, float] = {}
    for (schema, block), order in zip(window.blocks.items(), orders):
        part = _reduce_block(actor, schema, block, order, overrides)
        if part is None or not figures.keys().isdisjoint(part):
            return None
        figures.update(part)
    whole = orders[0] if len(orders) == 1 else order_of(tuple(_everyone(window)))
    return _Reduced(figures, whole, (), max(max(block.ts) for block in window.blocks.values()))


def _orders(window: Window, roster: Roster) -> list[Order] | None:
    """Per block its merge order, if no metric is in two blocks and no rank twice in one."""
    names: set[str] = set()
    orders = []
    for schema, block in window.blocks.items():
        if not schema.names or not names.isdisjoint(schema.names):
            return None
        names.update(schema.names)
        owners = tuple(block.owners)
        order = roster.orders.get(owners, _NOT_SEEN)
        if order is _NOT_SEEN:
            if len(roster.orders) >= 256:
                roster.orders.clear()
            # A child merges at its own place but counts for its root's rank, which `first` and `last` go by.
            ranks = {owner.writer.rank for owner in owners if owner.writer.at_home}
            order = roster.orders[owners] = order_of(owners) if len(ranks) == len(owners) else None
        if order is None:
            return None
        orders.append(order)
    return orders or None


class _Reduced(NamedTuple):
    """What a window comes to; `order` is that of the counting segments."""

    figures: dict[str, float]
    order: Order
    underivable: tuple[str, ...]
    t: float


class _Undefined(Enum):
    UNDEFINED = "no such figure for these observations"


UNDEFINED = _Undefined.UNDEFINED
_Figure: TypeAlias = "float | _Undefined | None"  # None: underivable


class Plan:
    """For one actor and schema: which columns each reduction needs, and under which keys its figures go."""

    __slots__ = ("clean", "columns")

    def __init__(self, actor: str, schema: Schema, overrides: Overrides) -> None:
        columns: dict[str, tuple[list[int], list[str]]] = {}
        keys: set[str] = set()
        count = 0
        for index, (name, asks) in enumerate(zip(schema.names, schema.asks)):
            for reduction, key in _keys(actor, name, override(actor, name, overrides) or asks):
                into = columns.setdefault(reduction, ([], []))
                into[0].append(index)
                into[1].append(key)
                keys.add(key)
                count += 1
        self.columns = {
            reduction: (slice(None) if len(chosen) == len(schema.names) else np.array(chosen), names)
            for reduction, (chosen, names) in columns.items()
        }
        self.clean = len(keys) == count


_PLANS: dict[tuple[str, Schema, int], tuple[Overrides, Plan]] = {}


def _plan(actor: str, schema: Schema, overrides: Overrides) -> Plan:
    held = _PLANS.get((actor, schema, id(overrides)))
    if held is None or held[0] is not overrides:
        held = (overrides, Plan(actor, schema, overrides))
        if len(_PLANS) >= 256:
            _PLANS.clear()
        if len(schema.names) <= WIDE:
            _PLANS[actor, schema, id(overrides)] = held
    return held[1]


def _reduce_block(
    actor: str, schema: Schema, block: Block, order: Order, overrides: Overrides
) -> dict[str, float] | None:
    """Figures of a block with one row per rank, or None where only the general path gets it right (colliding keys,
    overflow).
    """
    plan = _plan(actor, schema, overrides)
    if not plan.clean:
        return None
    matrix = np.frombuffer(block.data, np.float64).reshape(len(block.owners), len(schema.names))
    if order.places is not None:
        matrix = matrix[list(order.places)]
    figures: dict[str, float] = {}
    with np.errstate(all="ignore"):
        for reduction, (columns, keys) in plan.columns.items():
            values = _COLUMN_REDUCTIONS[reduction](matrix[:, columns])
            if not np.isfinite(values).all():
                return None
            figures.update(zip(keys, values.tolist()))
    return figures


def _column_sum(matrix: Matrix) -> Matrix:
    # Row by row, as partials merge: numpy's own sum adds in another order, and so gives other bits.
    if matrix.shape[1] <= 256:  # a wider one gains nothing from keeping the sums on the way
        total: Matrix = np.add.accumulate(matrix, axis=0)[-1]
        return total
    total = matrix[0].copy()
    for row in matrix[1:]:
        total += row
    return total


def _column_mean(matrix: Matrix) -> Matrix:
    return _column_sum(matrix) / float(len(matrix))


def _column_std(matrix: Matrix) -> Matrix:
    total = matrix[0].copy()
    m2 = np.zeros_like(total)
    for count, row in enumerate(matrix[1:], start=1):
        w = float(count)
        d = row - total / w
        m2 = m2 + 0.0 + d * d * (w * 1.0 / (w + 1.0))
        total += row
    result: Matrix = np.sqrt(m2 / float(len(matrix)))
    return result


def _column_min(matrix: Matrix) -> Matrix:
    return _first_zero(matrix, matrix.min(axis=0))


def _column_max(matrix: Matrix) -> Matrix:
    return _first_zero(matrix, matrix.max(axis=0))


def _first_zero(matrix: Matrix, extreme: Matrix) -> Matrix:
    """Among equal extremes the first one's bits count, which 0.0 and -0.0 alone can tell."""
    zero = extreme == 0.0
    if zero.any():
        chosen = matrix[:, zero]
        extreme[zero] = chosen[(chosen == 0.0).argmax(axis=0), np.arange(chosen.shape[1])]
    return extreme


def _column_lowest(matrix: Matrix) -> Matrix:
    lowest: Matrix = matrix[0]
    return lowest


def _column_count(matrix: Matrix) -> Matrix:
    return np.full(matrix.shape[1], float(len(matrix)))


_COLUMN_REDUCTIONS: dict[str, Any] = {
    "mean": _column_mean,
    "sum": _column_sum,
    "min": _column_min,
    "max": _column_max,
    "first": _column_lowest,
    "last": _column_lowest,
    "std": _column_std,
    "count": _column_count,
}


class _Item(NamedTuple):
    """One metric on one line, as the general path sees it."""

    segment: Segment
    offset: int
    t: float
    asks: tuple[str, ...]
    observations: Observations


def _items(window: Window) -> dict[str, list[_Item]]:
    """Every observation of the window by metric, in merge order and file order."""
    found: dict[str, list[_Item]] = {}
    for schema, block in window.blocks.items():
        width = len(schema.names)
        values = np.frombuffer(block.data, np.float64).tolist() if width else []
        for index, (owner, offset, t) in enumerate(zip(block.owners, block.offsets, block.ts)):
            row = values[index * width : (index + 1) * width]
            for name, asks, x in zip(schema.names, schema.asks, row):
                found.setdefault(name, []).append(_Item(owner, offset, t, asks, Observations((x,), None, 0)))
    for segment, line in window.sparse:
        for name, asks, observations in line.values:
            found.setdefault(name, []).append(_Item(segment, line.offset, line.t, asks, observations))
    for items in found.values():
        items.sort(key=lambda item: (item.segment.merge_key, item.offset))
    return found


def _counted(items: list[_Item]) -> list[_Item]:
    """The items that no newer segment of their rank supersedes."""
    by_rank: dict[RankName, dict[Segment, None]] = {}
    for item in items:
        by_rank.setdefault(item.segment.writer.rank, {})[item.segment] = None
    if all(len(segments) == 1 for segments in by_rank.values()):
        return items
    kept = {segment for segments in by_rank.values() for segment in counting(segments)}
    return [item for item in items if item.segment in kept]


def _partials(items: list[_Item], *, with_m2: bool) -> list[tuple[RankName, Partial]]:
    """One partial per segment, in merge order."""
    by_segment: dict[Segment, list[Observations]] = {}
    for item in items:
        by_segment.setdefault(item.segment, []).append(item.observations)
    return [(segment.writer.rank, fold(observations, with_m2=with_m2)) for segment, observations in by_segment.items()]


def _lowest(partials: list[tuple[RankName, Partial]]) -> Partial:
    """The merged partial of the lowest rank that has a finite observation."""
    ranks = {rank for rank, partial in partials if partial.n}
    if not ranks:
        return EMPTY
    lowest = min(ranks, key=lambda rank: (replica_key(rank.replica), rank.rank))
    return _merged([partial for rank, partial in partials if rank == lowest], with_m2=False)


def _merged(partials: list[Partial], *, with_m2: bool) -> Partial:
    total = partials[0]
    for partial in partials[1:]:
        total = merge(total, partial, with_m2=with_m2)
    return total


def _metric(actor: str, name: str, items: list[_Item], overrides: Overrides) -> list[tuple[str, _Figure]]:
    """Keys and figures of one metric, its first reduction first."""
    asks = override(actor, name, overrides) or tuple(dict.fromkeys(ask for item in items for ask in item.asks))
    with_m2 = "std" in asks
    partials = _partials(items, with_m2=with_m2)
    total = _merged([partial for _, partial in partials], with_m2=with_m2)
    figures: list[tuple[str, _Figure]] = []
    for reduction, key in _keys(actor, name, asks):
        source = _lowest(partials) if reduction in ("first", "last") else total
        figures.append((key, figure(source, reduction) if defined(source, reduction) else UNDEFINED))
    if total.nonfinite:
        figures.append((f"{actor}/{name}/nonfinite", float(total.nonfinite)))
    return figures


def _reduce_any(actor: str, window: Window, overrides: Overrides) -> _Reduced:
    """The definition: any mixture of values, segments and reductions."""
    primary: dict[str, _Figure] = {}
    derived: dict[str, _Figure] = {}
    used: set[Segment] = set()
    ts: list[float] = []
    for name, items in sorted(_items(window).items()):
        counted = _counted(items)
        used.update(item.segment for item in counted)
        ts.extend(item.t for item in counted)
        for key, value in _metric(actor, name, counted, overrides):
            # A key means one thing in every row: who owns it does not depend on whether there is a figure in this one.
            (primary if key == f"{actor}/{name}" else derived).setdefault(key, value)
    merged = {**derived, **primary}
    figures = {key: value for key, value in merged.items() if isinstance(value, float)}
    underivable = tuple(sorted(key for key, value in merged.items() if value is None))
    if not used:
        ts = [line.t for _, line in window.sparse] + [t for block in window.blocks.values() for t in block.ts]
    return _Reduced(figures, order_of(tuple(used)), underivable, max(ts))


def override(actor: str, metric: str, overrides: Overrides) -> tuple[str, ...] | None:
    """The configuration's reductions of a metric, or None: then the lines say."""
    chosen = overrides.get(f"{actor}/{metric}") or overrides.get(metric)
    return tuple(dict.fromkeys(chosen)) if chosen else None


def _keys(actor: str, metric: str, asks: tuple[str, ...]) -> list[tuple[str, str]]:
    """(reduction, key) pairs of a metric: the first reduction has the plain key."""
    plain = f"{actor}/{metric}"
    return [(ask, f"{plain}/{ask}" if position else plain) for position, ask in enumerate(asks)]
