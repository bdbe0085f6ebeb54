"""How far a host's clock is from the file server's: the arithmetic, without any clock or file.

The server stamps a file with its own time when data arrive. If they left this host after `began` and had arrived by
`ended`, the stamp lies between the server's times at these moments, which bounds the difference of the clocks from both
sides. What several such bounds have in common is narrower than each of them; as clocks drift, old ones are widened.
"""

from __future__ import annotations

# Seconds that two clocks drift apart in a second at most: crystals stay below a fifth of it, a slewing daemon reaches
# it.
DRIFT = 5e-4
# A stamp is the server's last tick, and as coarse as its filesystem keeps it.
_TICK_S = 0.010


def coarseness_ns(mtime_ns: int) -> int:
    """The coarsest resolution, in ns, of a filesystem that keeps this time: 2 s, 1 s, 0.1 s … 1 ns."""
    if mtime_ns % 1_000_000_000 == 0:
        return 1_000_000_000 if mtime_ns % 2_000_000_000 else 2_000_000_000
    step = 100_000_000
    while mtime_ns % step:
        step //= 10
    return step


class Skew:
    """What is known of the server's clock minus this host's monotonic clock: an interval, which holds at `at`.

    Of the host's wall clock only the value at the moment of asking matters, so that setting it does no harm.
    """

    __slots__ = ("at", "high", "low")

    def __init__(self) -> None:
        self.at = 0.0
        self.low = float("-inf")
        self.high = float("inf")

    def observe(self, began: float, ended: float, mtime_ns: int) -> None:
        """Data that left after `began` and had arrived by `ended` (monotonic seconds) were stamped with `mtime_ns`."""
        stamped = mtime_ns / 1e9
        late = max(_TICK_S, coarseness_ns(mtime_ns) / 1e9)
        meanwhile = DRIFT * (ended - began)  # between the stamp and `ended`
        low, high = stamped - ended - meanwhile, stamped + late - began + meanwhile
        aged = DRIFT * max(0.0, ended - self.at)
        shared_low, shared_high = max(low, self.low - aged), min(high, self.high + aged)
        # Nothing in common: a clock was set, or the host slept, so that what was known before is void.
        self.low, self.high = (low, high) if shared_low > shared_high else (shared_low, shared_high)
        self.at = ended

    def offset(self, now: float, wall: float) -> tuple[float, float] | None:
        """This host's clock, which shows `wall` at `now`, minus the server's, and the error of that; both seconds.

        None before the first observation.
        """
        if self.high == float("inf"):
            return None
        aged = DRIFT * max(0.0, now - self.at)
        server = now + (self.low + self.high) / 2
        return wall - server, (self.high - self.low) / 2 + aged
