"""A metric's value on a line, and the moments that values merge into.

The arithmetic here is the definition that every faster path must equal bit for bit: docs/semantics.md, "Moments".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

# Reductions that need only the moments; the others need the observations, or times.
MOMENT_REDUCTIONS = ("mean", "sum", "min", "max", "first", "last", "std", "count")
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
SUM_LAST = "sum_last"  # of a level: the sum over writers of what each saw last
REDUCTIONS = (*MOMENT_REDUCTIONS, *QUANTILES, "hist", "rate", SUM_LAST)
DEFAULT_REDUCTION = "mean"
MAX_CUSTOM_NAME = 100

NONFINITE = frozenset(("NaN", "Infinity", "-Infinity"))
_SUMMARY_FIELDS = ("w", "sum", "min", "max", "first", "last", "m2")


def is_custom(reduction: str) -> bool:
    """True for a custom reduction: its name has a dot in it."""
    return "." in reduction


def is_reduction(name: object) -> bool:
    """True if a `define` or the configuration may ask for it: one of `REDUCTIONS`, or the name of a custom one."""
    return isinstance(name, str) and (name in REDUCTIONS or (is_custom(name) and len(name) <= MAX_CUSTOM_NAME))


class DeadValue(ValueError):
    """One metric's value cannot be used; the rest of its line can."""


class Moments(NamedTuple):
    """Merged observations. `None` in a field means unknown: a summary left it out. n = 0 is neutral."""

    n: int
    w: float
    sum: float | None
    m2: float | None
    min: float | None
    max: float | None
    first: float | None
    last: float | None
    nonfinite: int


class Histogram(NamedTuple):
    """`counts[j]` observations lie from `edges[j]` to below `edges[j + 1]`, in the last bin also at its upper edge.
    Edges never descend.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class Observations(NamedTuple):
    """The observations in one value: finite `xs` with weights `ws` (None: all 1) and a count of non-finite ones, or a
    summary, which may say how many of them lie in which bins.
    """

    xs: tuple[float, ...] | list[float]
    ws: tuple[float, ...] | list[float] | None
    nonfinite: int
    summary: Moments | None = None
    bins: Histogram | None = None


EMPTY = Moments(0, 0.0, 0.0, 0.0, None, None, None, None, 0)


def observe(value: Any) -> Observations | None:
    """The observations in a JSON value, or None if it holds none; raises DeadValue."""
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        return Observations((float(value),), None, 0)
    if value is None:
        return None
    if kind is str:
        if value in NONFINITE:
            return Observations((), None, 1)
        raise DeadValue("bad value")
    if kind is list:
        return _array(value)
    if kind is dict:
        if "v" in value:
            return _weighted(value)
        return _summary(value)
    raise DeadValue("bad value")


def _number(value: Any) -> float | None:
    """A finite float, or None for a non-finite observation; raises DeadValue."""
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        return float(value)
    if kind is str and value in NONFINITE:
        return None
    raise DeadValue("bad value")


def _array(values: list[Any]) -> Observations | None:
    xs: list[float] = []
    nonfinite = 0
    for value in values:
        if value is None:
            continue
        x = _number(value)
        if x is None:
            nonfinite += 1
        else:
            xs.append(x)
    return Observations(xs, None, nonfinite) if xs or nonfinite else None


def _weighted(value: dict[str, Any]) -> Observations | None:
    values, weights = value["v"], value.get("w")
    if type(values) is not list or type(weights) is not list or len(values) != len(weights):
        raise DeadValue("bad value")
    xs: list[float] = []
    ws: list[float] = []
    nonfinite = seen = 0
    for item, weight in zip(values, weights):
        if type(weight) not in (float, int) or weight < 0:
            raise DeadValue("bad value")
        if item is None:
            continue
        seen += 1
        x = _number(item)
        if x is None:
            nonfinite += weight != 0
        else:
            xs.append(x)
            ws.append(float(weight))
    return Observations(xs, ws, nonfinite) if seen else None


def _summary(value: dict[str, Any]) -> Observations | None:
    n = value.get("n")
    if type(n) is not int or n < 0:
        raise DeadValue("bad value")
    fields: dict[str, float] = {}
    for name in _SUMMARY_FIELDS:
        if name in value:
            item = value[name]
            if type(item) not in (float, int):
                raise DeadValue("bad value")
            fields[name] = float(item)
    if fields.get("w", 0.0) < 0 or fields.get("m2", 0.0) < 0:
        raise DeadValue("bad value")
    if n == 0:
        return None
    total = fields.get("sum")
    summary = Moments(
        n,
        fields.get("w", float(n)),
        total,
        None if total is None else fields.get("m2"),
        fields.get("min"),
        fields.get("max"),
        fields.get("first"),
        fields.get("last"),
        0,
    )
    return Observations((), None, 0, summary, _bins(value, n))


def _bins(value: dict[str, Any], n: int) -> Histogram | None:
    """The bins of a summary of `n` observations; None if it has none that can be used."""
    edges, counts = value.get("edges"), value.get("counts")
    if type(edges) is not list or type(counts) is not list or len(edges) != len(counts) + 1:
        return None
    if not all(type(edge) in (float, int) for edge in edges) or not all(type(count) is int for count in counts):
        return None
    exact = tuple(float(edge) + 0.0 for edge in edges)
    ascends = all(map(operator.le, exact, exact[1:]))
    return Histogram(exact, tuple(counts)) if ascends and min(counts, default=-1) >= 0 and sum(counts) == n else None


def fold(items: Sequence[Observations], *, with_m2: bool = True) -> Moments:
    """Merge the observations of one writer, in order, into their moments; equal to merging them one by one.

    `with_m2=False` leaves m2 at 0 for callers that do not need std (the squares cost more than everything else).
    """
    if not with_m2 and all(item.ws is None and item.summary is None and not item.nonfinite for item in items):
        xs = [x for item in items for x in item.xs]
        if xs:
            # One after the other, as merging adds them: the built-in sum may round differently.
            return Moments(len(xs), float(len(xs)), reduce(operator.add, xs), 0.0, min(xs), max(xs), xs[0], xs[-1], 0)
    total: Moments | None = None
    for item in items:
        if item.summary is not None:
            part = item.summary
            total = part if total is None else merge(total, part)
            continue
        for index, x in enumerate(item.xs):
            w = 1.0 if item.ws is None else item.ws[index]
            part = Moments(1, w, w * x, 0.0, x, x, x, x, 0)
            total = part if total is None else merge(total, part, with_m2=with_m2)
        if item.nonfinite:
            part = EMPTY._replace(nonfinite=item.nonfinite)
            total = part if total is None else merge(total, part)
    return EMPTY if total is None else total


def merge(a: Moments, b: Moments, *, with_m2: bool = True) -> Moments:
    """The moments of `a`'s observations, then `b`'s. m2: Chan, Golub and LeVeque (1979), weighted equation 2.1b."""
    nonfinite = a.nonfinite + b.nonfinite
    if a.n == 0:
        return b._replace(nonfinite=nonfinite)
    if b.n == 0:
        return a._replace(nonfinite=nonfinite)
    total = None if a.sum is None or b.sum is None else a.sum + b.sum
    return Moments(
        a.n + b.n,
        a.w + b.w,
        total,
        _merge_m2(a, b) if with_m2 else 0.0,
        None if a.min is None or b.min is None else (b.min if b.min < a.min else a.min),
        None if a.max is None or b.max is None else (b.max if b.max > a.max else a.max),
        a.first,
        b.last,
        nonfinite,
    )


def _merge_m2(a: Moments, b: Moments) -> float | None:
    if a.m2 is None or b.m2 is None or a.sum is None or b.sum is None:
        return None
    if a.w == 0.0 or b.w == 0.0:
        return a.m2 + b.m2
    d = b.sum / b.w - a.sum / a.w
    return a.m2 + b.m2 + d * d * (a.w * b.w / (a.w + b.w))


def reduce_moments(moments: Moments, reduction: str) -> float | None:
    """The value of one of `MOMENT_REDUCTIONS`; first and last are those of the lowest rank's moments. None if it is
    unknown or does not exist; `defined` tells these two apart.
    """
    value: float | None
    if reduction == "count":
        return float(moments.n)
    if reduction == "mean":
        value = None if moments.sum is None else moments.sum / moments.w
    elif reduction == "std":
        value = None if moments.m2 is None else _std(moments, moments.m2)
    else:
        value = getattr(moments, reduction)
    return value if value is not None and math.isfinite(value) else None


def _std(moments: Moments, m2: float) -> float:
    """The weighted population standard deviation; 0 for equal observations, whose m2 may differ from 0 by rounding."""
    if moments.min is not None and moments.min == moments.max:
        return 0.0
    variance = m2 / moments.w
    return math.sqrt(variance) if variance >= 0 else math.nan


def defined(moments: Moments, reduction: str) -> bool:
    """True if a value exists for these observations. The mean of observations without weight, for one, does not."""
    if reduction == "count":
        return True
    if moments.n == 0:
        return False
    return moments.w > 0 or reduction not in ("mean", "std")
