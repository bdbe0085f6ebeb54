"""How far a host's clock is from the file server's: the arithmetic, without any clock or file.

The server stamps a file with its own time when data arrive. If they left this host after `began` and had arrived by
`ended`, the stamp lies between the server's times at these moments, which bounds the difference of the clocks from both
sides. What several such bounds have in common is narrower than each of them; as clocks drift, old ones are widened.
One bound on each side may be wrong, as a server that stood still for a moment stamps late, and is left out.
"""

from __future__ import annotations

# Seconds that two clocks drift apart in a second at most: crystals stay below a fifth of it, a slewing daemon reaches
# it.
DRIFT = 5e-4
# A stamp is the server's last tick (10 ms at most; more where its processor stood still), and as coarse as its
# filesystem keeps it.
_TICK_S = 0.020
_KEPT = 32


def coarseness_ns(mtime_ns: int) -> int:
    """The coarsest resolution, in ns, of a filesystem that keeps this time: 2 s, 1 s, 0.1 s … 1 ns."""
    if mtime_ns % 1_000_000_000 == 0:
        return 1_000_000_000 if mtime_ns % 2_000_000_000 else 2_000_000_000
    step = 100_000_000
    while mtime_ns % step:
        step //= 10
    return step


class Skew:
    """What is known of the server's clock minus this host's monotonic clock.

    Of the host's wall clock only the value at the moment of asking matters, so that setting it does no harm.
    """

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: list[tuple[float, float, float]] = []  # when, and the least and the most that it was then

    def observe(self, began: float, ended: float, mtime_ns: int) -> None:
        """Data that left after `began` and had arrived by `ended` (monotonic seconds) were stamped with `mtime_ns`."""
        stamped = mtime_ns / 1e9
        late = max(_TICK_S, coarseness_ns(mtime_ns) / 1e9)
        meanwhile = DRIFT * (ended - began)  # between the stamp and `ended`
        newest = (ended, stamped - ended - meanwhile, stamped + late - began + meanwhile)
        self._bounds = [*self._bounds[1 - _KEPT :], newest]
        low, high = self._shared(ended)
        if low > high:  # a clock was set, or the host slept, so that what was known before is void
            self._bounds = [newest]

    def offset(self, now: float, wall: float) -> tuple[float, float] | None:
        """This host's clock, which shows `wall` at `now`, minus the server's, and the error of that; both seconds.

        None before the first observation.
        """
        if not self._bounds:
            return None
        low, high = self._shared(now)
        return wall - (now + (low + high) / 2), (high - low) / 2

    def _shared(self, now: float) -> tuple[float, float]:
        """What all bounds have in common, but for the one that says most on each side."""
        lows = sorted(low - DRIFT * (now - at) for at, low, _ in self._bounds)
        highs = sorted(high + DRIFT * (now - at) for at, _, high in self._bounds)
        spared = 1 if len(lows) > 2 else 0
        return lows[-1 - spared], highs[spared]
