"""How the observations of one metric stand in the packed doubles of its line. Pure.

A line with values of any usual form is packed like one of plain numbers, so that it is reduced in columns:

| shape | value on the line | doubles |
|---|---|---|
| `PLAIN` | a number, or the word of a non-finite one | x |
| n > 0 | an array with n observations | x_1 … x_n |
| -n < 0 | `v` and `w` with n observations | x_1 … x_n, w_1 … w_n |
| `SUMMARY` | a summary | n, w, sum, m2, min, max, first, last |

An x is finite, or NaN for a non-finite observation, or `NO_VALUE` in a place that is left over. A field of a summary
is NaN where it is unknown. A `w` of a summary that is `W_IS_N` stands for n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from rlship_formats.values import Moments, Observations

Shape: TypeAlias = int

PLAIN, SUMMARY = 0, 1 << 30
_SPARE = 64  # a value may have so many places that other values need
MAX_PLACES = 1024  # for observations in a value; those of a larger array are kept as they came
NO_VALUE, W_IS_N = math.inf, -1.0
_NAN = math.nan
_FIELDS = 8
_MAX_N = 1 << 32  # counts up to this are added exactly as doubles, in sums of 2^20 ranks too


class Stretch(NamedTuple):
    """Consecutive metrics of one shape: those from `first` up to `end`, whose doubles begin at `column`."""

    shape: Shape
    first: int
    end: int
    column: int

    @property
    def columns(self) -> slice:
        """The doubles of these metrics."""
        return slice(self.column, self.column + (self.end - self.first) * width(self.shape))


def width(shape: Shape) -> int:
    """How many doubles a value takes."""
    if shape == PLAIN:
        return 1
    if shape == SUMMARY:
        return _FIELDS
    return shape if shape > 0 else -2 * shape


def shape_of(value: Any, observations: Observations) -> Shape | None:
    """The shape of a value and its observations; None where no shape can hold them."""
    summary = observations.summary
    if summary is not None:
        return SUMMARY if summary.n <= _MAX_N and observations.bins is None else None
    if type(value) is not list and type(value) is not dict:
        return PLAIN
    places = len(observations.xs) + observations.nonfinite
    if places > MAX_PLACES:
        return None
    return places if observations.ws is None else -max(places, 1)


def wider(held: Shape, shape: Shape) -> Shape:
    """A shape with room for what one of `shape` has, and if that is not much more, for what one of `held` has.

    Of them there are few, however much lengths vary.
    """
    if shape in (PLAIN, SUMMARY):
        return shape
    places = abs(shape)
    if held != SUMMARY and (held > 0) == (shape > 0) and abs(held) <= _SPARE:
        places = max(places, abs(held))
    places = 1 << (places - 1).bit_length()
    return places if shape > 0 else -places


def flat(observations: Observations, shape: Shape) -> list[float]:
    """The doubles of a value."""
    if shape == SUMMARY:
        moments = observations.summary
        assert moments is not None
        fields = (moments.sum, moments.m2, moments.min, moments.max, moments.first, moments.last)
        return [float(moments.n), moments.w, *(_NAN if one is None else one for one in fields)]
    xs = [*observations.xs, *(_NAN for _ in range(observations.nonfinite))]
    if shape >= 0:
        return xs + [NO_VALUE] * (width(shape) - len(xs))
    ws = [*(observations.ws or ()), *(1.0 for _ in range(observations.nonfinite))]
    if not xs:  # only non-finite ones without weight: they count for nothing, but the metric is there
        xs, ws = [_NAN], [0.0]
    left = -shape - len(xs)
    return [*xs, *(NO_VALUE,) * left, *ws, *(0.0,) * left]


def observations_in(shape: Shape, doubles: Sequence[float]) -> Observations:
    """The inverse of `flat`."""
    if shape == SUMMARY:
        n, w, *fields = doubles
        total, m2, least, greatest, first, last = (None if one != one else one for one in fields)
        w = n if w == W_IS_N else w
        m2 = None if total is None else m2
        return Observations((), None, 0, Moments(int(n), w, total, m2, least, greatest, first, last, 0))
    if shape >= 0:
        return Observations(tuple(x for x in doubles if math.isfinite(x)), None, sum(x != x for x in doubles))
    pairs = [(x, w) for x, w in zip(doubles[:-shape], doubles[-shape:]) if x != NO_VALUE]
    finite = [(x, w) for x, w in pairs if x == x]
    return Observations(
        tuple(x for x, _ in finite), tuple(w for _, w in finite), sum(x != x and w != 0 for x, w in pairs)
    )


# Parsing ----------------------------------------------------------------------------------------------------------

_X = float | Literal["NaN", "Infinity", "-Infinity"]
_Weight = Annotated[float, msgspec.Meta(ge=0)]


class _Summary(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of a summary, in the order of the doubles."""

    n: Annotated[int, msgspec.Meta(ge=1, le=_MAX_N)]
    w: _Weight = W_IS_N
    sum: float = _NAN
    m2: _Weight = _NAN
    min: float = _NAN
    max: float = _NAN
    first: float = _NAN
    last: float = _NAN


def type_of(shape: Shape) -> Any:
    """The type by which msgspec reads a value of this shape; it declines values of others."""
    if shape == PLAIN:
        return _X
    if shape == SUMMARY:
        return _Summary
    if shape > 0:
        return tuple[(_X,) * shape]  # type: ignore[misc]
    found = _WEIGHTED.get(shape)
    if found is None:
        fields = [("v", tuple[(_X,) * -shape]), ("w", tuple[(_Weight,) * -shape])]  # type: ignore[misc]
        found = _WEIGHTED[shape] = msgspec.defstruct("weighted", fields, forbid_unknown_fields=True, gc=False)
    return found


_WEIGHTED: dict[Shape, Any] = {}

_each: Callable[[Any], Any] = chain.from_iterable
_fields: Callable[[Any], tuple[Any, ...]] = msgspec.structs.astuple


def flattener(stretches: Sequence[Stretch]) -> Callable[[Any], Sequence[Any]]:
    """Makes the doubles of a line from the struct of its parsed values. A non-finite one is still a word."""
    if all(stretch.shape == PLAIN for stretch in stretches):
        return _fields
    plain = sum(stretch.end - stretch.first for stretch in stretches if stretch.shape == PLAIN)
    arrays = [stretch for stretch in stretches if 0 < stretch.shape < SUMMARY]
    weighted = [stretch for stretch in stretches if stretch.shape < 0]
    after_arrays = plain + sum(stretch.end - stretch.first for stretch in arrays)
    after_weighted = after_arrays + sum(stretch.end - stretch.first for stretch in weighted)

    def flatten(found: Any) -> Sequence[Any]:
        values = _fields(found)
        doubles = [*values[:plain], *_each(values[plain:after_arrays])]
        doubles += _each(_each(map(_fields, values[after_arrays:after_weighted])))
        doubles += _each(map(_fields, values[after_weighted:]))
        return doubles

    return flatten


def order_of_shapes(shapes: Sequence[Shape]) -> list[int]:
    """The places of metrics with these shapes, sorted so that each shape stands together: plain ones first, then
    arrays, weighted values and summaries.
    """
    return sorted(range(len(shapes)), key=lambda place: _sort_key(shapes[place]))


def _sort_key(shape: Shape) -> tuple[int, int]:
    if shape == PLAIN:
        return 0, 0
    return (3, 0) if shape == SUMMARY else (1, shape) if shape > 0 else (2, -shape)


def stretches_of(shapes: Sequence[Shape]) -> tuple[Stretch, ...]:
    """The stretches of metrics that stand in the order of their shapes."""
    if not any(shapes):  # PLAIN, all of them
        return (Stretch(PLAIN, 0, len(shapes), 0),) if shapes else ()
    found: list[Stretch] = []
    column = 0
    for place, shape in enumerate(shapes):
        if found and found[-1].shape == shape:
            found[-1] = found[-1]._replace(end=place + 1)
        else:
            found.append(Stretch(shape, place, place + 1, column))
        column += width(shape)
    return tuple(found)
