"""Turns counters into rates: the growth since the last look, per second."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

# If two looks are closer than this, clocks and counters are too coarse for a rate.
_MIN_S = 0.05


class Rates:
    """Counters by name. A counter's first value yields no rate, nor does one that restarted from a lower value."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, int]] = {}

    def of(self, name: Hashable, value: int, t: float, *, bits: int = 0, most: float = 0.0) -> float | None:
        """The growth per second of a counter since the last look, or None if it is unknown.

        Args:
            name: of the counter.
            value: its current value, an integer >= 0.
            t: when it was read, in seconds of any clock that does not go back.
            bits: the counter's width. A lower value than before then counts as an overflow, if the rate is at most
                `most`. Default: it was reset.
            most: the greatest possible rate.
        """
        before = self._last.get(name)
        if before is not None and 0 <= t - before[0] < _MIN_S:
            return None
        self._last[name] = (t, value)
        if before is None or t <= before[0]:
            return None
        grown, seconds = value - before[1], t - before[0]
        if grown < 0:
            grown += 1 << bits if bits else 0
            if grown < 0 or not bits or grown / seconds > most:
                return None
        return grown / seconds

    def forget(self, name: Hashable) -> None:
        """Treat the next value as a first one."""
        self._last.pop(name, None)
