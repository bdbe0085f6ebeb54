"""Columns of numbers in buckets of equal width, which double as the columns grow. Pure.

A bucket keeps the sum, the least, the greatest and the number of its values, so that extremes survive. While a bucket
covers one position only the value itself is kept, unless several values may have one position (`count`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_FIRST_ROOM = 64


class Binned:
    """`lines` of numbers over positions; slot `s` covers `stride` positions from `(first + s) * stride` on.

    At most `most` slots are in use. `total`, `low`, `high` and `n` are matrices of lines by slots; as long as a slot
    has one value, only `total` is there, NaN where a value lacks.
    """

    def __init__(self, dtype: Any, most: int, lines: int = 0) -> None:
        self.dtype = np.dtype(dtype)
        self.most = most
        self.lines = lines
        self.stride = 1
        self.first = 0
        self.used = 0
        self.total = self._empty(max(1, lines), _FIRST_ROOM)
        self.low: Array | None = None
        self.high: Array | None = None
        self.n: Array | None = None

    def _empty(self, lines: int, room: int) -> Array:
        return np.full((lines, room), np.nan, self.dtype)

    @property
    def nbytes(self) -> int:
        """The bytes of its matrices."""
        return sum(one.nbytes for one in self._matrices())

    def _matrices(self) -> list[Array]:
        return [one for one in (self.total, self.low, self.high, self.n) if one is not None]

    def need_lines(self, lines: int) -> None:
        """Make room for so many lines."""
        if lines > len(self.total):
            self._resize(max(lines, len(self.total) * 3 // 2), self.total.shape[1], 0)
        self.lines = max(self.lines, lines)

    def slot(self, position: int) -> int:
        """The slot of a position, which is made if it was not there."""
        at = position // self.stride
        if not self.used:
            self.first, self.used = at, 1
            return 0
        while max(at, self.first + self.used - 1) - min(at, self.first) >= self.most:
            self.fold()
            at = position // self.stride
        before = max(0, self.first - at)
        used = max(self.used, at - self.first + 1) + before
        room = self.total.shape[1]
        if before or used > room:
            self._resize(len(self.total), min(self.most, max(used * 3 // 2, room)), before)
            self.first -= before
        self.used = used
        return at - self.first

    def _resize(self, lines: int, room: int, before: int) -> None:
        """Matrices of another size, with `before` empty slots in front of the used ones."""

        def moved(old: Array) -> Array:
            new = np.zeros((lines, room), old.dtype) if old.dtype.kind != "f" else self._empty(lines, room)
            new[: len(old), before : before + self.used] = old[:, : self.used]
            return new

        self.total = moved(self.total)
        if self.low is not None and self.high is not None and self.n is not None:
            self.low, self.high, self.n = moved(self.low), moved(self.high), moved(self.n)

    @np.errstate(over="ignore", invalid="ignore")
    def put(self, slot: int, lines: Array, values: Array) -> None:
        """Add a value to each of these lines at a slot. What a narrower matrix cannot hold is infinite in it."""
        if self.low is None or self.high is None or self.n is None:
            self.total[lines, slot] = values
            return
        # A position may get a value for a line once more only after `wipe`.
        new = self.n[lines, slot] == 0
        self.total[lines, slot] = np.where(new, values, self.total[lines, slot] + values)
        self.low[lines, slot] = np.fmin(self.low[lines, slot], values)
        self.high[lines, slot] = np.fmax(self.high[lines, slot], values)
        self.n[lines, slot] += 1

    def count(self) -> None:
        """Keep more than one value of a position from now on; to be called while it is empty."""
        self.low, self.high = self.total.copy(), self.total.copy()
        self.n = np.zeros(self.total.shape, np.int32)

    def newest(self, line: int) -> int | None:
        """The first position of the newest bucket with a value of a line; None without any."""
        used = slice(0, self.used)
        there = np.flatnonzero(~np.isnan(self.total[line, used]) if self.n is None else self.n[line, used])
        return int(there[-1] + self.first) * self.stride if len(there) else None

    def has_values(self) -> Array:
        """Of each line whether it has any value."""
        there: Array = self.columns(0, self.used)[3][: self.lines] > 0
        return np.asarray(there.any(axis=1))

    def wipe(self, low: int, high: int) -> None:
        """Empty the buckets of the positions `low` to `high`, which are whole buckets."""
        a = max(0, low // self.stride - self.first)
        b = min(self.used, high // self.stride - self.first + 1)
        if a >= b:
            return
        for matrix in self._matrices():
            matrix[:, a:b] = np.nan if matrix.dtype.kind == "f" else 0

    @np.errstate(over="ignore", invalid="ignore")
    def fold(self) -> None:
        """Double the width of buckets."""
        odd = self.first & 1
        pairs = (self.used + odd + 1) // 2
        total, low, high, n = self.columns(0, self.used)

        def padded(old: Array, empty: float) -> Array:
            new = np.full((len(old), 2 * pairs), empty, old.dtype)
            new[:, odd : odd + self.used] = old
            return new.reshape(len(old), pairs, 2)

        n2 = padded(n, 0).sum(axis=2, dtype=np.int32)
        sums = np.nansum(padded(np.where(n > 0, total, 0), 0), axis=2).astype(self.dtype)
        sums[n2 == 0] = np.nan
        two_low, two_high = padded(low, np.nan), padded(high, np.nan)
        self.low = np.fmin(two_low[:, :, 0], two_low[:, :, 1])
        self.high = np.fmax(two_high[:, :, 0], two_high[:, :, 1])
        self.total, self.n = sums, n2.astype(np.uint16) if self.dtype == np.float32 else n2
        self.stride *= 2
        self.first >>= 1
        self.used = pairs

    def trim(self) -> None:
        """Give back the room that is not used."""
        self._resize(max(1, self.lines), max(1, self.used), 0)

    def columns(self, a: int, b: int) -> tuple[Array, Array, Array, Array]:
        """(sum, least, greatest, number) of the slots `a` to `b` - 1."""
        total = self.total[:, a:b]
        if self.low is None or self.high is None or self.n is None:
            return total, total, total, (~np.isnan(total)).astype(np.int32)
        return total, self.low[:, a:b], self.high[:, a:b], self.n[:, a:b]

    def slots(self, low: int | None, high: int | None) -> tuple[int, int]:
        """The slots whose buckets touch the positions `low` to `high`, as a half-open range."""
        a = 0 if low is None else low // self.stride - self.first
        b = self.used if high is None else high // self.stride - self.first + 1
        return max(0, min(a, self.used)), max(0, min(b, self.used))


class MergedSlots:
    """Some lines of a table over a range of slots, in at most `points` buckets of a power of two slots each.

    `edges` are the first slots of the buckets, and `width` is how many positions each covers.
    """

    def __init__(self, table: Binned, lines: Array, a: int, b: int, points: int) -> None:
        each = 1
        while (b - 1 + table.first) // each - (a + table.first) // each + 1 > max(1, points) and b > a:
            each *= 2
        offset = (a + table.first) % each
        self.edges = np.maximum(np.arange(-offset, b - a, each), 0) if b > a else np.zeros(0, np.int64)
        self.width = each * table.stride
        self.start = a
        total, low, high, n = (one[lines] for one in table.columns(a, b))
        if b > a and each > 1:
            self.n = np.add.reduceat(n.astype(np.int64), self.edges, axis=1)
            total = np.add.reduceat(np.where(n > 0, total, 0), self.edges, axis=1)
            self.low = np.fmin.reduceat(low, self.edges, axis=1)
            self.high = np.fmax.reduceat(high, self.edges, axis=1)
        else:
            self.n, self.low, self.high = n, low, high
        with np.errstate(invalid="ignore", divide="ignore"):
            self.mean = np.where(self.n > 1, total / np.maximum(self.n, 1), total)
            self.mean = np.where(self.n > 0, self.mean, np.nan)
        self.total = total
