"""The one reduce function: from a window of observations and a roster to the values and coverage of a row. Pure.

Live, replay and revisions all come here, so that equal lines give equal bits. `reduce_any` in `general` is the
definition. `reduce_blocks` is the fast path for the common unit, one plain number per rank and metric: it reduces whole
columns, and takes only what comes to the same bits. A test compares the two, and both with `tests/reference/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlship_formats.clocks import HostClocks
from rlship_formats.histogram import histogram
from rlship_formats.quantiles import EXACT_UP_TO, row_quantiles
from rlship_formats.reading import TAGGED
from rlship_formats.values import QUANTILES, SUM_LAST, Histogram
from rlship_sidecar.align.lineage import Order, Segment, newest, order_of, rank_names
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import Block, UnitLines
from rlship_sidecar.decode.lines import WIDE, Schema
from rlship_sidecar.reduce.barriers import measured
from rlship_sidecar.reduce.general import reduce_any
from rlship_sidecar.reduce.naming import LEAD_STEPS, POLICY_VERSION, Naming
from rlship_sidecar.reduce.per_rank import NAMES, rank_name, scalars
from rlship_sidecar.reduce.rates import Seconds, between_barriers
from rlship_sidecar.reduce.rules import Rules, keys
from rlship_sidecar.reduce.values import PerRank, Reduced, ReducedValue, add_lag
from rlship_sidecar.rows import Coverage, Row, Unit, name_ranks

_NO_CLOCKS = HostClocks()
_NOTHING_SHORT: Mapping[str, tuple[str, ...]] = {}
Matrix = NDArray[np.float64]


def reduce_unit(
    unit: Unit,
    window: UnitLines,
    roster: Roster,
    rules: Rules,
    clocks: HostClocks = _NO_CLOCKS,
    lead_axis: str | None = None,
    short: Mapping[str, tuple[str, ...]] = _NOTHING_SHORT,
) -> Row:
    """The row of a step. `rules` are the configuration's. `lead_axis` names what the lead's steps count; None without a
    lead. `short` is what earlier steps say of the coverage.
    """
    over = between_barriers(window.barriers)
    expected, missing, absent = roster.coverage(unit.index)
    alone = expected + sum(last - first + 1 for _, first, last in absent) <= 1
    found = reduce_blocks(unit.actor, window, roster, rules, over, alone=alone)
    if found is None:
        found = reduce_any(Naming(unit.actor), window, rules, over, alone=alone)
    for name, value in measured(window.barriers, clocks, roster).items():
        key = f"{unit.actor}/{name}"
        if key not in found.taken:
            found.values[key] = value
    order = found.order
    coverage = Coverage(
        ranks=order.ranks,
        expected=expected,
        missing=rank_names(missing),
        absent=name_ranks(absent),
        attempts=order.attempts,
        gap=roster.gap(unit.index),
        underivable=found.underivable,
        short=short,
    )
    segments = order.segments or order_of(tuple(everyone(window))).segments
    axis = segments[0].writer.open.axis
    x: dict[str, int | float] = {axis: unit.index}
    if axis == lead_axis:
        add_lag(Naming(unit.actor), found, unit.index)
    tagging = newest(segment for segment, _ in window.tags)
    tags = tuple(sorted({line.tag for segment, line in window.tags if segment in tagging}))
    return Row(
        unit,
        found.t,
        x,
        found.values,
        coverage,
        hists=found.hists,
        per_rank=found.per_rank,
        tags=tags,
        samples=window.shown,
        asked=found.asked,
    )


# The fast path --------------------------------------------------------------------------------------------------------


def everyone(window: UnitLines) -> list[Segment]:
    """The segment of each line."""
    found = [segment for segment, _ in window.sparse]
    for block in window.blocks.values():
        found.extend(block.owners)
    return found


def reduce_blocks(
    actor: str, window: UnitLines, roster: Roster, rules: Rules, seconds: Seconds, *, alone: bool = False
) -> Reduced | None:
    """The reduced window, or None if something in it can be superseded or collide: then only `general` is right.

    `alone`: whether the actor has one rank.
    """
    orders = None if window.sparse else _orders(window, roster)
    if orders is None:
        return None
    plans = [_plan(actor, schema, rules, alone and len(block.lines) == 1) for schema, block in window.blocks.items()]
    taken = plans[0].keys
    if len(plans) > 1:
        taken = taken.union(*(plan.keys for plan in plans[1:]))
        if len(taken) != sum(len(plan.keys) for plan in plans):
            return None
    whole = orders[0] if len(orders) == 1 else order_of(tuple(everyone(window)))
    made = Reduced(
        {}, {}, {}, taken, whole, (), max(max([t for t, _, _ in block.lines]) for block in window.blocks.values())
    )
    asked = tuple(sorted(key for plan in plans for key in plan.asked))
    made = made._replace(lags=any(plan.lags for plan in plans), asked=asked)
    underivable: list[str] = []
    for plan, block, order in zip(plans, window.blocks.values(), orders):
        if not plan.clean or not _reduce_block(plan, block, order, made, underivable, rules, seconds):
            return None
    return made._replace(underivable=tuple(sorted(underivable))) if underivable else made


def _orders(window: UnitLines, roster: Roster) -> list[Order] | None:
    """The merge order of each block.

    None if a metric is in two blocks, if a rank is twice in one block, or if a rank has been dropped.
    """
    names: set[str] = set()
    orders = []
    for schema, block in window.blocks.items():
        if not schema.names or not names.isdisjoint(schema.names):
            return None
        names.update(schema.names)
        order = roster.order(tuple(block.owners))
        if order is None:
            return None
        orders.append(order)
    return orders or None


class _Ranked(NamedTuple):
    """A metric whose values per rank are kept: its column, key and first reduction.

    `scalars`: their greatest and least become values of the row, under the `NAMES` that no other metric has taken.
    """

    column: int
    key: str
    first: str
    scalars: tuple[str, ...]


class ColumnPlan:
    """For one actor and schema: the columns that each reduction needs, and the keys of its values.

    `extra` are the reductions that moments cannot give, with the column and key of each value. `asked` are the keys of
    further reductions that the job asks for. `alone`: there is one
    line, of the actor's only rank.
    """

    __slots__ = ("asked", "clean", "columns", "extra", "keys", "lags", "ranked")

    def __init__(self, actor: str, schema: Schema, rules: Rules, alone: bool) -> None:
        columns: dict[str, tuple[list[int], list[str]]] = {}
        self.extra: dict[str, list[tuple[int, str]]] = {}
        self.ranked: list[_Ranked] = []
        self.asked: list[str] = []
        taken: set[str] = set()
        count = 0
        firsts = []
        for index, (name, governs) in enumerate(zip(schema.names, schema.asks)):
            chosen = rules.chosen(actor, name)
            asks = chosen or governs.reduce
            firsts.append(asks[0])
            if name == TAGGED:
                continue
            flat = alone and governs.catalogued and not chosen
            for place, (reduction, key) in enumerate(keys(actor, name, asks)):
                if place and (chosen or governs.asked):
                    self.asked.append(key)
                if flat and place:
                    pass  # as in `general`, one number has no spread; the key is taken all the same
                elif reduction in COLUMN_REDUCTIONS:
                    into = columns.setdefault(reduction, ([], []))
                    into[0].append(index)
                    into[1].append(key)
                else:
                    self.extra.setdefault(reduction, []).append((index, key))
                taken.add(key)
                count += 1
        self.columns = {
            reduction: (slice(None) if len(chosen) == len(schema.names) else np.array(chosen), names)
            for reduction, (chosen, names) in columns.items()
        }
        self.clean = len(taken) == count
        for index, (name, governs, first) in enumerate(zip(schema.names, schema.asks, firsts)):
            if first != "hist" and name != TAGGED and (governs.per_rank or rules.per_rank):
                key = f"{actor}/{name}"
                compared = governs.per_rank and not (alone and governs.catalogued)
                free = tuple(what for what in NAMES if f"{key}/{what}" not in taken) if compared else ()
                self.ranked.append(_Ranked(index, key, first, free))
        taken.update(f"{key}/{what}" for _, key, _, free in self.ranked for what in free)
        self.keys = frozenset(taken)
        self.lags = any(
            name == POLICY_VERSION and governs.unit == LEAD_STEPS for name, governs in zip(schema.names, schema.asks)
        )


_PLANS: dict[tuple[str, Schema, Rules, bool], ColumnPlan] = {}


def _plan(actor: str, schema: Schema, rules: Rules, alone: bool) -> ColumnPlan:
    held = _PLANS.get((actor, schema, rules, alone))
    if held is None:
        held = ColumnPlan(actor, schema, rules, alone)
        if len(_PLANS) >= 256:
            _PLANS.clear()
        if len(schema.names) <= WIDE:
            _PLANS[actor, schema, rules, alone] = held
    return held


def _reduce_block(
    plan: ColumnPlan, block: Block, order: Order, made: Reduced, underivable: list[str], rules: Rules, seconds: Seconds
) -> bool:
    """Add the values of a block with one row per rank. False where only the general path is right (overflow)."""
    matrix = block.matrix()
    if order.places is not None:
        matrix = matrix[list(order.places)]
    made_values = made.values
    with np.errstate(all="ignore"):
        for reduction, (columns, names) in plan.columns.items():
            values = COLUMN_REDUCTIONS[reduction](matrix[:, columns])
            if not np.isfinite(values).all():
                return False
            made_values.update(zip(names, values.tolist()))
    if plan.extra or plan.ranked:
        return _Extras(matrix, order, rules, seconds).add(plan, made, underivable)
    return True


class _Extras:
    """Reductions of a block beyond sums and the like."""

    def __init__(self, matrix: Matrix, order: Order, rules: Rules, seconds: Seconds) -> None:
        self._matrix = matrix
        self._order = order
        self._rules = rules
        self._seconds = seconds

    def add(self, plan: ColumnPlan, made: Reduced, underivable: list[str]) -> bool:
        if len(self._matrix) > EXACT_UP_TO and any(ask in QUANTILES for ask in plan.extra):
            return False
        ordered = self._ordered(plan)
        for reduction, chosen in plan.extra.items():
            columns = [column for column, _ in chosen]
            for (_, key), value in zip(chosen, self._values(reduction, columns, ordered)):
                if isinstance(value, float):
                    made.values[key] = value
                elif isinstance(value, Histogram):
                    made.hists[key] = value
                elif value is None:
                    underivable.append(key)
        self._add_ranks(plan, made.values, made.per_rank, made.order)
        return True

    def _ordered(self, plan: ColumnPlan) -> dict[int, Matrix]:
        """The columns that quantiles and histograms need, each in ascending order: one sort serves them all."""
        asks = [ask for ask in plan.extra if ask in QUANTILES or ask == "hist"]
        wanted = sorted({column for ask in asks for column, _ in plan.extra[ask]})
        if not wanted:
            return {}
        return dict(zip(wanted, np.sort(self._matrix.T[wanted], axis=1)))

    def _values(self, reduction: str, columns: list[int], ordered: dict[int, Matrix]) -> Sequence[ReducedValue]:
        if reduction == "hist":
            return [histogram(ordered[column]) for column in columns]
        if reduction in QUANTILES:
            rows = np.stack([ordered[column] for column in columns])
            return row_quantiles(rows, QUANTILES[reduction]).tolist()  # type: ignore[no-any-return]
        if reduction == "rate":
            return self._rates(columns)
        customs = self._rules.customs
        parts = self._matrix.T[columns].tolist()
        return [customs.value_of(reduction, ([(x, 1.0)] for x in column)) for column in parts]

    def _rates(self, columns: list[int]) -> Sequence[ReducedValue]:
        matrix, seconds = self._matrix[:, columns], self._seconds
        with np.errstate(all="ignore"):
            if callable(seconds):
                lasted = [seconds(segment) for segment in self._order.segments]
                if None in lasted:
                    return [None] * len(columns)
                rates = _column_sum(matrix / np.array(lasted, dtype=np.float64)[:, np.newaxis])
            elif seconds is None or seconds <= 0:
                return [None] * len(columns)
            else:
                rates = _column_sum(matrix) / seconds
        return [rate if np.isfinite(rate) else None for rate in rates.tolist()]

    def _add_ranks(self, plan: ColumnPlan, made: dict[str, float], per_rank: PerRank, whole: Order) -> None:
        if not plan.ranked:
            return
        segments = self._order.segments
        ranks = [segment.writer.rank for segment in segments]
        names = [rank_name(rank) for rank in ranks]
        replicas = {segment.writer.rank.replica for segment in whole.segments}
        for column, key, first, free in plan.ranked:
            found = self._alone(first, self._matrix[:, column].tolist(), segments)
            kept = [(place, value) for place, value in enumerate(found) if isinstance(value, float)]
            if not kept:
                continue
            per_rank[key] = [(names[place], value) for place, value in kept]
            if free:
                of, values = [ranks[place] for place, _ in kept], [value for _, value in kept]
                made.update((f"{key}/{what}", x) for what, x in scalars(of, values, replicas) if what in free)

    def _alone(self, first: str, xs: list[float], segments: Sequence[Segment]) -> Sequence[ReducedValue]:
        """The first reduction of each rank's one observation."""
        if first in QUANTILES:
            return [x + 0.0 for x in xs]
        if first == "std":
            return [0.0] * len(xs)
        if first == "count":
            return [1.0] * len(xs)
        if first == "rate":
            return [_over(x, self._seconds, segment) for x, segment in zip(xs, segments)]
        if first in COLUMN_REDUCTIONS:
            return xs
        return [self._rules.customs.value_of(first, ([(x, 1.0)],)) for x in xs]


def _over(x: float, seconds: Seconds, segment: Segment) -> float | None:
    lasted = seconds(segment) if callable(seconds) else seconds
    if lasted is None or lasted <= 0:
        return None
    found = x / lasted
    return found if abs(found) != float("inf") else None


def _column_sum(matrix: Matrix) -> Matrix:
    # Row by row, as moments merge: numpy's own sum adds in another order, and so gives other bits.
    if matrix.shape[1] <= 256:  # a wider one gains nothing from adding column by column
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
    result[matrix.min(axis=0) == matrix.max(axis=0)] = 0.0  # rounding may make m2 of equal values differ from 0
    return result


def _column_min(matrix: Matrix) -> Matrix:
    return _first_zero(matrix, matrix.min(axis=0))


def _column_max(matrix: Matrix) -> Matrix:
    return _first_zero(matrix, matrix.max(axis=0))


def _first_zero(matrix: Matrix, extreme: Matrix) -> Matrix:
    """Among equal extremes the first one's bits count. Only 0.0 and -0.0 are equal with different bits."""
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


COLUMN_REDUCTIONS: dict[str, Any] = {
    "mean": _column_mean,
    "sum": _column_sum,
    "min": _column_min,
    "max": _column_max,
    "first": _column_lowest,
    "last": _column_lowest,
    "std": _column_std,
    "count": _column_count,
    SUM_LAST: _column_sum,  # a block has one line of each rank, which is its last
}
