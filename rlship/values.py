"""Values that may be metrics: as plain numbers, one or many, and as JSON."""

from __future__ import annotations

from .guard import raised_by_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    Scalar: TypeAlias = float | int | bool | None

GREATEST = 1.7976931348623157e308  # of all doubles
INT64 = 1 << 63
_BINS = frozenset(("edges", "counts"))
SUMMARY = frozenset(("n", "w", "sum", "min", "max", "first", "last", "m2", *_BINS))
_SCALARS = frozenset((float, int, bool, type(None)))

ALLOWED = "a number, an array or list of numbers, {'v': [...], 'w': [...]} or a summary {'n': ..., 'sum': ..., ...}"
# The most elements of one value. More would hardly fit in the buffer, and encoding them takes most of a second.
MAX_ELEMENTS = 1 << 18


READING = "reading its value raised"


class UnusableError(ValueError):
    """A value that cannot be a metric; the text gives the reason, or is empty for a wrong type."""


def why_unusable(error: Exception) -> str:
    """The reason why a value that raised this error cannot be used. Raises the error if it is not the value's fault."""
    if isinstance(error, UnusableError):
        return str(error)
    if isinstance(error, RecursionError) or raised_by_signal(error):
        raise error
    return f"{READING} {type(error).__name__}"


def scalar(value: Any) -> Scalar:
    """`value` as a plain number or None. Raises UnusableError."""
    if type(value) in _SCALARS:
        return value  # type: ignore[no-any-return]
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, (str, bytes, bytearray)):
        raise UnusableError
    item = getattr(value, "item", None)
    if callable(item):  # a scalar or one-element array of numpy, torch or jax
        try:
            found = item()
        except (TypeError, ValueError, RuntimeError) as error:
            if raised_by_signal(error):
                raise
            raise UnusableError from None
        if type(found) in _SCALARS:
            return found  # type: ignore[no-any-return]
        if isinstance(found, complex):
            raise UnusableError
    for convert in (int, float):
        if not hasattr(value, "__index__" if convert is int else "__float__"):
            continue
        try:
            return convert(value.__index__()) if convert is int else convert(value)
        except (TypeError, ValueError, OverflowError):
            continue
    raise UnusableError


def plain(value: Any) -> Scalar | list[Scalar]:
    """`value` as a plain number, None, or a flat list of those. Raises UnusableError.

    Values on a device are read back here, on the caller's thread.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value  # type: ignore[no-any-return]
    if (count := count_of(value)) > MAX_ELEMENTS:
        raise UnusableError(f"it has {count} elements, {MAX_ELEMENTS} are allowed: log a summary of them")
    if kind is list or kind is tuple:
        if kind is list and _SCALARS.issuperset(map(type, value)):
            return value  # type: ignore[no-any-return]
        return [scalar(item) for item in value]
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        raise UnusableError
    tolist = getattr(value, "tolist", None)
    if not callable(tolist):
        return [scalar(item) for item in value] if isinstance(value, (list, tuple)) else scalar(value)
    found = (value.reshape(-1) if getattr(value, "ndim", 0) > 1 else value).tolist()
    if isinstance(found, list):
        return found if _SCALARS.issuperset(map(type, found)) else [scalar(item) for item in found]
    return found if type(found) in _SCALARS else scalar(value)


def number(value: Scalar) -> str:
    """One observation as JSON. Raises UnusableError for an integer that no double can hold."""
    if value is None:
        return "null"
    if isinstance(value, float):
        if value - value == 0.0:
            return float.__repr__(value)
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    if not -INT64 <= value < INT64:
        try:
            float(value)
        except OverflowError:
            raise UnusableError("the integer is too large for a double") from None
    return int.__repr__(value)


def plain_weights(weight: Any) -> Scalar | list[Scalar]:
    """Like `plain` for weights, with an error message about weights."""
    try:
        return plain(weight)
    except UnusableError:
        kind = type(weight).__name__
        raise UnusableError(f"the weight of type {kind} is not a number or a list of numbers") from None


def weight_number(value: Any) -> str:
    """One weight as JSON. Raises UnusableError unless it is finite and not negative."""
    weight = scalar(value)
    if weight is None or not 0 <= weight <= GREATEST:
        raise UnusableError(f"the weight {value!r:.40} is not a finite number >= 0")
    return number(weight)


def observed(value: Scalar | list[Scalar], weight: Any = None) -> str | Observations:
    """Encode plain observations; `weight` is one number for all of them, or a sequence with one for each."""
    several = isinstance(value, list)
    values: list[Scalar] = value if isinstance(value, list) else [value]
    texts = [*map(number, values)]
    if weight is None:
        return Observations(texts, None) if several else texts[0]
    weights = plain_weights(weight)
    if isinstance(weights, list):
        if len(weights) != len(texts):
            raise UnusableError(f"{len(texts)} values have {len(weights)} weights")
        return Observations(texts, [*map(weight_number, weights)])
    return Observations(texts, [weight_number(weights)] * len(texts))


def summary(value: Mapping[Any, Any]) -> str:
    """Encode a summary object. Raises UnusableError if it is not one."""
    parts = []
    for name, given in value.items():
        if name in _BINS:
            continue
        item = scalar(given)
        if item is None or item - item != 0:
            raise UnusableError(f"the summary's {name} is {given!r}, not a finite number")
        if name in ("n", "w", "m2") and item < 0:
            raise UnusableError(f"the summary's {name} is {given!r}, below 0")
        if name == "n" and (isinstance(item, float) and not item.is_integer()):
            raise UnusableError(f"the summary's n is {given!r}, not an integer")
        parts.append(f'"{name}":{number(int(item) if name == "n" else item)}')
    if not _BINS.isdisjoint(value):
        parts.append(_bins(value))
    return "{" + ",".join(parts) + "}"


def _bins(value: Mapping[Any, Any]) -> str:
    """Encode edges and counts of a summary. Raises UnusableError unless they are a histogram of its n observations."""
    edges, counts = _finite("edges", value.get("edges")), _finite("counts", value.get("counts"))
    if not len(edges) == len(counts) + 1 > 1:
        raise UnusableError(f"the summary has {len(edges)} edges and {len(counts)} counts, not one edge more")
    if edges != sorted(edges):
        raise UnusableError("the summary's edges descend in places")
    whole = [int(count) for count in counts]
    if whole != counts or min(whole) < 0 or sum(whole) != value["n"]:
        raise UnusableError(f"the summary's counts are not integers >= 0 that add up to its n, {value['n']!r:.40}")
    return f'"edges":[{",".join(map(number, edges))}],"counts":[{",".join(map(number, whole))}]'


def _finite(what: str, value: Any) -> list[float]:
    """Several finite numbers. Raises UnusableError."""
    found = plain(value)
    numbers = [item for item in found if item is not None and item - item == 0] if isinstance(found, list) else []
    if not isinstance(found, list) or len(numbers) < len(found):
        raise UnusableError(f"the summary's {what} are no list of finite numbers")
    return numbers


def count_of(value: Any) -> int:
    """The number of elements of a list, an array or a tensor, without reading any; 1 for anything else."""
    if isinstance(value, (list, tuple)):
        return len(value)
    shape = getattr(value, "shape", ())
    count = 1
    for length in shape if isinstance(shape, tuple) else ():
        count *= length
    return count


class Observations:
    """Several observations of one metric, each already encoded; `w` holds their weights, or is None."""

    __slots__ = ("v", "w")

    def __init__(self, v: list[str], w: list[str] | None) -> None:
        self.v = v
        self.w = w

    def __str__(self) -> str:
        if self.w is None:
            return f"[{','.join(self.v)}]"
        return f'{{"v":[{",".join(self.v)}],"w":[{",".join(self.w)}]}}'

    def __len__(self) -> int:
        """Bytes of the encoded value (numbers are ASCII)."""
        size = sum(map(len, self.v)) + len(self.v) + 1
        return size if self.w is None else size + sum(map(len, self.w)) + len(self.w) + 12

    def cut(self, most: int) -> list[Observations]:
        """The same observations in parts of at most `most` bytes each."""
        parts, start, size = [], 0, 0
        for i, text in enumerate(self.v):
            cost = len(text) + 1 + (0 if self.w is None else len(self.w[i]) + 1)
            if size and size + cost > most - 14:
                parts.append(Observations(self.v[start:i], None if self.w is None else self.w[start:i]))
                start, size = i, 0
            size += cost
        parts.append(Observations(self.v[start:], None if self.w is None else self.w[start:]))
        return parts
