"""Times as whole microseconds, and what the clocks of hosts are off by. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from rlship_formats.timeline import Clock


def microseconds(seconds: float) -> int:
    """`seconds` in the nearest whole microsecond. A Unix time in a double is right to a quarter of one."""
    return round(seconds * 1e6)


class Clocks:
    """What each host's clock is ahead of the file server's, by its own time."""

    def __init__(self) -> None:
        self._times: dict[str, array[int]] = {}
        self._offsets: dict[str, array[int]] = {}

    def add(self, host: str, clocks: Iterable[Clock]) -> None:
        """Take the clock records of one file that was written on `host`."""
        known = zip(self._times.get(host, ()), self._offsets.get(host, ()))
        new = ((microseconds(clock.t), microseconds(clock.offset)) for clock in clocks)
        pairs = sorted([*known, *new])
        if pairs:
            self._times[host] = array("q", [at for at, _ in pairs])
            self._offsets[host] = array("q", [offset for _, offset in pairs])

    def aligned(self, host: str, t: int) -> int:
        """A host's time as the file server's, both in microseconds.

        The offset is the last one known at that time; before the first one it is the first, as a clock is off before
        somebody finds out. A host that never said is taken to be right.
        """
        times = self._times.get(host)
        if not times:
            return t
        return t - self._offsets[host][max(0, bisect_right(times, t) - 1)]

    def __len__(self) -> int:
        """How many hosts are known."""
        return len(self._times)
