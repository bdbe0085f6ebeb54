"""Counters to rates: what was added since the last look, by the second."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

# Between two looks closer than this, clocks and counters are too coarse to divide by.
_LEAST_S = 0.05


class Rates:
    """Counters by name. A counter's first value gives no rate, nor does one that began again from a lower value."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, int]] = {}

    def of(self, name: Hashable, value: int, t: float, *, bits: int = 0, most: float = 0.0) -> float | None:
        """What a counter that stands at `value` grew by in a second since the last look, or None where that is not
        known.

        Args:
            name: of the counter.
            value: an integer >= 0.
            t: when it was read, in seconds of any clock that does not go back.
            bits: how wide the counter is. One that is lower than before has then begun again at 0 after its greatest
                value, if that makes a rate of at most `most`. Default: it was reset.
            most: the greatest rate that is possible.
        """
        before = self._last.get(name)
        if before is not None and 0 <= t - before[0] < _LEAST_S:
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
        """Let the next value be a first one."""
        self._last.pop(name, None)
