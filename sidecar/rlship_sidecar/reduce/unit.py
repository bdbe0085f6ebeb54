"""The one reduce function: from a window of observations and a roster to the values and coverage of a row. Pure.

Live, replay and revisions all come here, so that equal lines give equal bits. `reduce_any` in `general` is the
definition. `reduce_blocks` reduces whole columns, and leaves only the metrics to `general` that it cannot reduce to the
same bits. A test compares the two, and both with `tests/reference/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlship_formats.clocks import HostClocks
from rlship_formats.histogram import histogram
from rlship_formats.quantiles import EXACT_UP_TO, quantile, row_quantiles
from rlship_formats.reading import TAGGED
from rlship_formats.values import QUANTILES, SUM_LAST, Histogram
from rlship_sidecar.align.lineage import Order, Segment, newest, order_of, rank_names
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.reduce.barriers import measured
from rlship_sidecar.reduce.columns import (
    COLUMN_REDUCTIONS,
    NOTHING,
    Doubles,
    Flags,
    Merged,
    ObservedParts,
    SummaryParts,
    of_observations,
    reduced,
)
from rlship_sidecar.reduce.general import Manner, reduce_any
from rlship_sidecar.reduce.naming import LEAD_STEPS, POLICY_VERSION, Naming
from rlship_sidecar.reduce.nonfinite import who_was_nonfinite
from rlship_sidecar.reduce.per_rank import NAMES, rank_name, scalars
from rlship_sidecar.reduce.rates import Seconds, between_barriers
from rlship_sidecar.reduce.returns import at_step
from rlship_sidecar.reduce.rules import Rules
from rlship_sidecar.reduce.sheets import Headings, Sheet, segments_of, sheets_of
from rlship_sidecar.reduce.values import UNDEFINED, PerRank, Reduced, ReducedValue, add_lag
from rlship_sidecar.rows import Coverage, Row, Unit, name_ranks

_NO_CLOCKS = HostClocks()
NO_ORDER = Order(None, (), (), (), True)
_NOTHING_SHORT: Mapping[str, tuple[str, ...]] = {}


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
    found = reduce_window(window, roster, Manner(Naming(unit.actor), rules, over, alone=alone))
    derived = measured(window.barriers, clocks, roster) | at_step(unit.index, found.order.segments, window, roster)
    for name, value in derived.items():
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
        lives=order.lives,
        lineage=order.lineage,
    )
    segments = order.segments or order_of(tuple(everyone(window))).segments
    axis = segments[0].writer.open.axis
    x: dict[str, int | float] = {axis: unit.index}
    if axis == lead_axis:
        add_lag(Naming(unit.actor), found, unit.index)
    tags: tuple[str, ...] = ()
    if window.tags:
        tagging = newest(window.owners(TAGGED))
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
        nonfinite=who_was_nonfinite(Naming(unit.actor), window, found.values),
    )


# In columns -----------------------------------------------------------------------------------------------------------


def everyone(window: UnitLines) -> list[Segment]:
    """The segment of each line."""
    found = [segment for segment, _ in window.sparse]
    for block in window.blocks.values():
        found.extend(block.owners)
    return found


def reduce_window(window: UnitLines, roster: Roster, how: Manner) -> Reduced:
    """The reduced window, in columns where that is right."""
    found = reduce_blocks(window, roster, how)
    return reduce_any(window, how) if found is None else found


def reduce_blocks(window: UnitLines, roster: Roster, how: Manner) -> Reduced | None:
    """The reduced window, or None if something in it can be superseded or collide: then only `general` is right.

    A metric that cannot be reduced in columns is reduced by `general` alone.
    """
    naming, rules, seconds, superseding, alone = how
    if superseding and roster.retold and any(segment.writer.retells for segment in everyone(window)):
        return None
    found = sheets_of(window, roster)
    if found is None or not (found.sheets or found.others):
        return None
    taken: set[str] = set()
    planned = []
    for sheet in found.sheets:
        if alone and sheet.ragged and len(sheet.order.segments) > 1:
            return None  # what holds for an only rank may hold for some metrics
        plan = _plan(naming, sheet, rules, alone=alone and len(sheet.order.segments) == 1)
        if not plan.clean or not taken.isdisjoint(plan.keys):
            return None
        taken |= plan.keys
        planned.append((plan, sheet))
    whole = found.sheets[0].order if found.sheets else NO_ORDER
    if len(found.sheets) > 1:
        everybody = segments_of(found.sheets)
        whole = roster.order(everybody) or order_of(everybody)
    lines = [
        [t for t, _, _ in block.lines]
        for schema, block in window.blocks.items()
        if not found.others.issuperset(schema.names)
    ]
    t = max(map(max, lines), default=0.0) if found.sheets else 0.0
    asked = {key for plan, _ in planned for key in plan.asked}
    lags = any(plan.lags for plan, _ in planned)
    made = Reduced({}, {}, {}, taken, whole, (), t, lags, tuple(sorted(asked)))
    if found.others or window.samples:
        others = reduce_any(window, how, only=found.others, beside=whole.segments)
        if not taken.isdisjoint(others.taken):
            return None
        taken |= set(others.taken)
        made = others._replace(
            taken=taken,
            t=max(t, others.t),
            lags=made.lags or others.lags,
            asked=tuple(sorted({*asked, *others.asked})),
        )
    underivable = [*made.underivable]
    with np.errstate(all="ignore"):
        for plan, sheet in planned:
            if not _SheetValues(plan, sheet, rules, seconds).add(made, taken, underivable):
                return None
    return made._replace(underivable=tuple(sorted(underivable))) if underivable else made


class _Ranked(NamedTuple):
    """A metric whose values per rank are kept: its column, key and first reduction.

    `scalars`: their greatest and least become values of the row, under the `NAMES` that no other metric has taken.
    """

    column: int
    key: str
    first: str
    scalars: tuple[str, ...]


class _Keys(NamedTuple):
    """The columns that a reduction is of, and the key of each one's value. `firsts`: it is the first reduction."""

    columns: list[int]
    keys: list[str]
    firsts: list[bool]


class ColumnPlan:
    """For the metrics of a sheet: the columns that each reduction needs, and the keys of its values.

    `extra` are the reductions that moments cannot give. `alone`: there is one segment, of the actor's only rank; then
    the metrics `flat` have one value if they are one number. `nonfinite` are keys, one for each metric.
    `asked` are the keys of further reductions that the job asks for.
    """

    __slots__ = ("asked", "clean", "columns", "extra", "flat", "indices", "keys", "lags", "nonfinite", "ranked")

    def __init__(self, naming: Naming, metrics: Headings, rules: Rules, alone: bool) -> None:
        self.columns: dict[str, _Keys] = {}
        self.extra: dict[str, _Keys] = {}
        self.ranked: list[_Ranked] = []
        self.asked: list[str] = []
        self.flat = np.zeros(len(metrics.names), np.bool_)
        self.nonfinite: list[str] = []
        taken: set[str] = set()
        count = 0
        firsts = []
        for index, (name, governs) in enumerate(zip(metrics.names, metrics.asks)):
            chosen = rules.chosen(naming.actor, name)
            asks = chosen or governs.reduce
            firsts.append(asks[0])
            silent = name == TAGGED or naming.first_only
            self.nonfinite.append("" if silent else f"{naming.plain(name)}/nonfinite")
            if name == TAGGED:
                continue
            self.flat[index] = alone and governs.catalogued and not chosen
            for place, (reduction, key) in enumerate(naming.keys(name, asks)):
                if place and (chosen or governs.asked):
                    self.asked.append(key)
                into = self.columns if reduction in COLUMN_REDUCTIONS else self.extra
                held = into.setdefault(reduction, _Keys([], [], []))
                held.columns.append(index)
                held.keys.append(key)
                held.firsts.append(not place)
                taken.add(key)
                count += 1
        self.clean = len(taken) == count
        self.indices = {
            reduction: slice(None) if len(held.columns) == len(metrics.names) else np.array(held.columns)
            for reduction, held in self.columns.items()
        }
        for index, (name, governs, first) in enumerate(zip(metrics.names, metrics.asks, firsts)):
            if first != "hist" and name != TAGGED and not naming.first_only and (governs.per_rank or rules.per_rank):
                key = naming.plain(name)
                compared = governs.per_rank and not (alone and governs.catalogued)
                free = tuple(what for what in NAMES if f"{key}/{what}" not in taken) if compared else ()
                self.ranked.append(_Ranked(index, key, first, free))
        taken.update(f"{key}/{what}" for _, key, _, free in self.ranked for what in free)
        self.keys = frozenset(taken)
        self.lags = any(
            name == POLICY_VERSION and governs.unit == LEAD_STEPS for name, governs in zip(metrics.names, metrics.asks)
        )


_PLANS: dict[tuple[Any, ...], ColumnPlan] = {}
_MAX_PLANS, _MAX_PLANNED = 256, 1 << 17  # kept plans, and metrics in all of them


def _plan(naming: Naming, sheet: Sheet, rules: Rules, *, alone: bool) -> ColumnPlan:
    metrics = sheet.metrics
    aligned = frozenset(naming.aligned).intersection(metrics.names) if naming.aligned else None
    key = naming.actor, naming.prefix, naming.first_only, aligned, metrics, rules, alone
    held = _PLANS.get(key)
    if held is None:
        held = ColumnPlan(naming, metrics, rules, alone)
        if len(_PLANS) >= min(_MAX_PLANS, _MAX_PLANNED // len(metrics.names)):
            _PLANS.clear()
        _PLANS[key] = held
    return held


class _SheetValues:
    """The values of a sheet by its plan."""

    def __init__(self, plan: ColumnPlan, sheet: Sheet, rules: Rules, seconds: Seconds) -> None:
        self._plan = plan
        self._order = sheet.order
        self._parts = sheet.parts
        self._plain = sheet.plain
        self._rules = rules
        self._seconds = seconds
        self._merged = Merged(sheet.parts)
        self._dirty: Flags | None = None  # the columns that are not of one finite number for each segment
        if sheet.plain is not None and not np.isfinite(sheet.plain).all():
            assert isinstance(sheet.parts, ObservedParts)
            dirty: Flags = np.logical_not(np.isfinite(sheet.plain).all(axis=0))
            self._dirty, self._merged = dirty, Merged(ObservedParts(sheet.parts.xs[:, dirty], None))

    def add(self, made: Reduced, taken: set[str], underivable: list[str]) -> bool:
        """Add the values to a row's. False where only the general way is right."""
        if not self._add_nonfinite(made.values, taken):
            return False
        flat = self._flat()
        for reduction, held in self._plan.columns.items():
            values, exists = self._column_values(reduction)
            if flat is not None:
                shown: Flags = np.array(held.firsts) | ~flat[held.columns]
                exists = shown if exists is None else np.logical_and(exists, shown)
            _add(values, exists, held.keys, made.values, underivable)
        if self._plan.extra:
            self._add_extra(made, flat, underivable)
        if self._plan.ranked:
            self._add_ranks(made.values, made.per_rank, made.order)
        return True

    @property
    def _clean(self) -> Doubles | None:
        """The values, if each is one finite number."""
        return self._plain if self._dirty is None else None

    def _add_nonfinite(self, values: dict[str, float], taken: set[str]) -> bool:
        """Add the counts of non-finite observations. False if a key of theirs is another metric's too."""
        if self._clean is not None or (self._plain is not None and not np.isnan(self._plain).any()):
            return True
        counts = self._over_dirty(self._merged.nonfinite)
        for column in np.flatnonzero(counts > 0).tolist():
            key = self._plan.nonfinite[column]
            if not key:
                continue
            if key in taken:
                return False
            taken.add(key)
            values[key] = float(counts[column])
        return True

    def _over_dirty(self, found: Doubles) -> Doubles:
        """One number for each column; 0 for columns that `_merged` does not have."""
        if self._dirty is None:
            return found
        counts = np.zeros(len(self._dirty))
        counts[self._dirty] = found
        return counts

    def _flat(self) -> Flags | None:
        """The columns that are one number of the only rank, for which the catalogue alone asks."""
        if not self._plan.flat.any():
            return None
        if self._clean is not None:
            return self._plan.flat
        if isinstance(self._parts, SummaryParts):
            return None
        single = (Merged(self._parts).n == 1) & (self._over_dirty(self._merged.nonfinite) == 0)
        flat: Flags = self._plan.flat & single
        return flat

    def _column_values(self, reduction: str) -> tuple[Doubles, Flags | None]:
        """The values of a reduction, and where there are any (None: everywhere)."""
        indices = self._plan.indices[reduction]
        if self._plain is None:
            values, exists = reduced(self._merged, reduction)
            return values[indices], exists[indices]
        values = PLAIN_REDUCTIONS[reduction](self._plain[:, indices])
        if self._dirty is None:
            return values, None
        all_values, exists = np.empty(len(self._dirty)), np.ones(len(self._dirty), np.bool_)
        all_values[indices] = values
        all_values[self._dirty], exists[self._dirty] = reduced(self._merged, reduction)
        return all_values[indices], exists[indices]

    # Reductions of the observations themselves ---------------------------------------------------------------------

    def _add_extra(self, made: Reduced, flat: Flags | None, underivable: list[str]) -> None:
        ordered = self._ordered()
        for reduction, held in self._plan.extra.items():
            values = self._extra_values(reduction, held.columns, ordered)
            for column, key, first, value in zip(held.columns, held.keys, held.firsts, values):
                if flat is not None and flat[column] and not first:
                    continue
                if isinstance(value, float):
                    made.values[key] = value
                elif isinstance(value, Histogram):
                    made.hists[key] = value
                elif value is None:
                    underivable.append(key)

    def _ordered(self) -> dict[int, Doubles]:
        """Of clean sheets, the columns that quantiles and histograms need, each in ascending order: one sort serves
        them all.
        """
        clean = self._clean
        asks = [ask for ask in self._plan.extra if ask in QUANTILES or ask == "hist"]
        if clean is None or not asks:
            return {}
        wanted = sorted({column for ask in asks for column in self._plan.extra[ask].columns})
        return dict(zip(wanted, np.sort(clean.T[wanted], axis=1)))

    def _extra_values(self, reduction: str, columns: list[int], ordered: dict[int, Doubles]) -> Sequence[ReducedValue]:
        if reduction == "rate":
            return self._rates(columns)
        if isinstance(self._parts, SummaryParts):
            # Without the observations nothing can be derived.
            n = self._merged.n
            return [None if n[column] else UNDEFINED for column in columns]
        clean = self._clean
        if clean is None:
            return [of_observations(self._parts, column, reduction, self._rules.customs) for column in columns]
        if reduction == "hist":
            return [histogram(ordered[column]) for column in columns]
        if reduction in QUANTILES:
            if len(clean) > EXACT_UP_TO:
                return [quantile(ordered[column], QUANTILES[reduction]) for column in columns]
            rows = np.stack([ordered[column] for column in columns])
            return row_quantiles(rows, QUANTILES[reduction]).tolist()  # type: ignore[no-any-return]
        customs = self._rules.customs
        parts = clean.T[columns].tolist()
        return [customs.value_of(reduction, ([(x, 1.0)] for x in column)) for column in parts]

    def _rates(self, columns: list[int]) -> Sequence[ReducedValue]:
        seconds, merged = self._seconds, Merged(self._parts)
        present = merged.present[:, columns]
        if callable(seconds):
            lasted = [seconds(segment) for segment in self._order.segments]
            known = np.array([one is not None for one in lasted])
            each = self._parts.sum[:, columns] / np.array([one or 1.0 for one in lasted])[:, np.newaxis]
            rates = np.add.accumulate(np.where(present, each, NOTHING), axis=0)[-1]
            rates[(present & ~known[:, np.newaxis]).any(axis=0)] = np.nan
        elif seconds is None or seconds <= 0:
            rates = np.full(len(columns), np.nan)
        else:
            rates = merged.sum[columns] / seconds
        return [
            UNDEFINED if not there else rate if math.isfinite(rate) else None
            for there, rate in zip(np.any(present, axis=0).tolist(), rates.tolist())
        ]

    # Values of ranks -------------------------------------------------------------------------------------------------

    def _add_ranks(self, made: dict[str, float], per_rank: PerRank, whole: Order) -> None:
        segments = self._order.segments
        ranks = [segment.writer.rank for segment in segments]
        names = [rank_name(rank) for rank in ranks]
        replicas = {segment.writer.rank.replica for segment in whole.segments}
        for column, key, first, free in self._plan.ranked:
            found = self._of_ranks(first, column)
            kept = [(place, value) for place, value in enumerate(found) if isinstance(value, float)]
            if not kept:
                continue
            per_rank[key] = [(names[place], value) for place, value in kept]
            if free:
                of, values = [ranks[place] for place, _ in kept], [value for _, value in kept]
                made.update((f"{key}/{what}", x) for what, x in scalars(of, values, replicas) if what in free)

    def _of_ranks(self, first: str, column: int) -> Sequence[ReducedValue]:
        """The first reduction of each rank's observations alone."""
        segments = self._order.segments
        if self._plain is not None and (self._dirty is None or not self._dirty[column]):
            return self._of_plain(first, self._plain[:, column].tolist(), segments)
        if isinstance(self._parts, SummaryParts):
            parts: ObservedParts | SummaryParts = SummaryParts(self._parts.fields[:, [column]])
        else:
            parts = self._parts.only([column])
        if first in COLUMN_REDUCTIONS:
            values, exists = reduced(parts, first)
            return [
                value if there and math.isfinite(value) else None
                for value, there in zip(values[:, 0].tolist(), exists[:, 0].tolist())
            ]
        if first == "rate":
            sums, counts = parts.sum[:, 0].tolist(), parts.n[:, 0].tolist()
            each = zip(sums, counts, segments)
            return [_over(total, self._seconds, segment) if n else None for total, n, segment in each]
        if isinstance(parts, SummaryParts):
            return [None] * len(segments)
        return [of_observations(parts.of_row(row), 0, first, self._rules.customs) for row in range(len(segments))]

    def _of_plain(self, first: str, xs: list[float], segments: Sequence[Segment]) -> Sequence[ReducedValue]:
        """The first reduction of each rank's one observation."""
        if first in QUANTILES:
            return [x + 0.0 for x in xs]
        if first == "std":
            return [0.0] * len(xs)
        if first == "count":
            return [1.0] * len(xs)
        if first == "rate":
            return [_over(x, self._seconds, segment) for x, segment in zip(xs, segments)]
        if first in PLAIN_REDUCTIONS:
            return xs
        return [self._rules.customs.value_of(first, ([(x, 1.0)],)) for x in xs]


def _add(
    values: Doubles, exists: Flags | None, keys: list[str], made: dict[str, float], underivable: list[str]
) -> None:
    """Add the values of a reduction; those that are not finite are underivable."""
    finite = np.isfinite(values)
    if finite.all() and (exists is None or exists.all()):
        made.update(zip(keys, values.tolist()))
        return
    there = np.ones(len(keys), np.bool_) if exists is None else exists
    for key, value, is_there, is_finite in zip(keys, values.tolist(), there.tolist(), finite.tolist()):
        if is_there and is_finite:
            made[key] = value
        elif is_there:
            underivable.append(key)


def _over(x: float, seconds: Seconds, segment: Segment) -> float | None:
    lasted = seconds(segment) if callable(seconds) else seconds
    if lasted is None or lasted <= 0:
        return None
    found = x / lasted
    return found if math.isfinite(found) else None


def _column_sum(matrix: Doubles) -> Doubles:
    # Row by row, as moments merge: numpy's own sum adds in another order, and so gives other bits.
    if matrix.shape[1] <= 256:  # a wider one gains nothing from adding column by column
        total: Doubles = np.add.accumulate(matrix, axis=0)[-1]
        return total
    total = matrix[0].copy()
    for row in matrix[1:]:
        total += row
    return total


def _column_mean(matrix: Doubles) -> Doubles:
    return _column_sum(matrix) / float(len(matrix))


def _column_std(matrix: Doubles) -> Doubles:
    total = matrix[0].copy()
    m2 = np.zeros_like(total)
    for count, row in enumerate(matrix[1:], start=1):
        w = float(count)
        d = row - total / w
        m2 = m2 + 0.0 + d * d * (w * 1.0 / (w + 1.0))
        total += row
    result: Doubles = np.sqrt(m2 / float(len(matrix)))
    result[matrix.min(axis=0) == matrix.max(axis=0)] = 0.0  # rounding may make m2 of equal values differ from 0
    return result


def _column_min(matrix: Doubles) -> Doubles:
    return _first_zero(matrix, matrix.min(axis=0))


def _column_max(matrix: Doubles) -> Doubles:
    return _first_zero(matrix, matrix.max(axis=0))


def _first_zero(matrix: Doubles, extreme: Doubles) -> Doubles:
    """Among equal extremes the first one's bits count. Only 0.0 and -0.0 are equal with different bits."""
    zero = extreme == 0.0
    if zero.any():
        chosen = matrix[:, zero]
        extreme[zero] = chosen[(chosen == 0.0).argmax(axis=0), np.arange(chosen.shape[1])]
    return extreme


def _column_lowest(matrix: Doubles) -> Doubles:
    lowest: Doubles = matrix[0]
    return lowest


def _column_count(matrix: Doubles) -> Doubles:
    return np.full(matrix.shape[1], float(len(matrix)))


PLAIN_REDUCTIONS: dict[str, Any] = {
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
