"""The writer's measurement of its host's clock, from syncs that happen anyway.

`Skew` is the arithmetic, without any clock or file. The server stamps a file with its own time when data arrive. If the
data left this host after `began` and arrived before `ended`, the stamp lies between the server's times of these two.
So it bounds the difference of the clocks from both sides. The intersection of several bounds is narrower than each of
them. Clocks drift, so old bounds are widened. The extreme bound on each side is left out, since it may be wrong: a
server that stalled for a moment stamps late.

`Probe` watches one file being written and synced, and makes `clock` records.
"""

from __future__ import annotations

import time

from .records import clock_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# The most seconds by which two clocks drift apart in one second: crystals stay below a fifth of it, a slewing daemon
# reaches it.
DRIFT = 5e-4
# A stamp shows the server's last tick (10 ms old at most; more where its processor was stalled), rounded to what its
# filesystem keeps.
_TICK_S = 0.020
_KEPT = 32
# How long one `clock` record holds, and the shortest time between two if the clock was set in between.
_EVERY_S = 30.0
_SOONEST_S = 5.0
# How many stamps are compared, and the fewest for a decision. Another host's clock never shows exactly the nanosecond
# of this kernel's last tick. A stamp between that tick and now may be chance, if the clocks agree.
_LOOKED = 16
_FEWEST = 3
_SAME_TICKS = 2
_MOSTLY = 0.9
_MOSTLY_STILL = 0.7
# The kernel's cheap clock, which stamps files: the time of its last tick. Linux only; Python has no name for it.
_COARSE = 5
# If a Logger's clock differs by more from the system's, the kernel's stamps cannot be compared with its times.
_SAME_S = 0.005


def coarseness_ns(mtime_ns: int) -> int:
    """The coarsest resolution, in ns, of a filesystem that can hold this time: 2 s, 1 s, 0.1 s … 1 ns."""
    if mtime_ns % 1_000_000_000 == 0:
        return 1_000_000_000 if mtime_ns % 2_000_000_000 else 2_000_000_000
    step = 100_000_000
    while mtime_ns % step:
        step //= 10
    return step


class Skew:
    """Estimates the server's clock minus this host's monotonic clock.

    Only the wall clock's value at the moment of a call matters, so setting that clock does no harm.
    """

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: list[tuple[float, float, float]] = []  # time, lower bound, upper bound

    def observe(self, began: float, ended: float, mtime_ns: int) -> None:
        """Take in that data sent after `began` and received by `ended` (monotonic seconds) got the stamp `mtime_ns`."""
        stamped = mtime_ns / 1e9
        late = max(_TICK_S, coarseness_ns(mtime_ns) / 1e9)
        meanwhile = DRIFT * (ended - began)  # between the stamp and `ended`
        newest = (ended, stamped - ended - meanwhile, stamped + late - began + meanwhile)
        self._bounds = [*self._bounds[1 - _KEPT :], newest]
        low, high = self._shared(ended)
        if low > high:  # a clock was set, or the host slept, so earlier bounds are void
            self._bounds = [newest]

    def offset(self, now: float, wall: float) -> tuple[float, float] | None:
        """This host's clock, which shows `wall` at `now`, minus the server's, and the error of this; both in seconds.

        None before the first observation.
        """
        if not self._bounds:
            return None
        low, high = self._shared(now)
        return wall - (now + (low + high) / 2), (high - low) / 2

    def _shared(self, now: float) -> tuple[float, float]:
        """The intersection of all bounds, without the tightest one on each side."""
        lows = sorted(low - DRIFT * (now - at) for at, low, _ in self._bounds)
        highs = sorted(high + DRIFT * (now - at) for at, _, high in self._bounds)
        spared = 1 if len(lows) > 2 else 0
        return lows[-1 - spared], highs[spared]


class Probe:
    """Watches one file being written and synced, all on the writing thread.

    `clock` is that of the records; `write(line)` takes a `clock` record. A filesystem may stamp files with the time of
    the host that writes. Then the stamps are exactly those of this host's kernel. The records are marked
    `"client_time":true`, because they prove nothing. (Newer kernels refine a tick if another file was just looked at.)
    """

    def __init__(self, clock: Callable[[], float], write: Callable[[str], object]) -> None:
        self._clock = clock
        self._write = write
        self._skew = Skew()
        self._now = self._began = self._ended = 0.0
        self._waiting = self._complete = False
        self._ticks = (0, 0, 0)  # the last tick before and after writing, and the time after it
        self._tick = 0
        self._stamp = 0
        self._alike: list[tuple[bool, bool]] = []
        self.client_time = False
        self._written_at = float("-inf")
        self._written: tuple[float, float] | None = None
        self._written_client_time = False

    def begin(self) -> None:
        """Note the time, before lines are written."""
        self._now = time.monotonic()
        self._tick = _tick_ns()

    def wrote(self) -> None:
        """Note that lines were written since `begin`. They may have reached the server at any time since."""
        self._began, self._ticks = self._now, (self._tick, _tick_ns(), time.time_ns())
        self._waiting, self._complete = True, False

    def synced(self) -> None:
        """Note that the server has all that was written."""
        self._ended, self._complete = time.monotonic(), self._waiting

    def failed(self) -> None:
        """Discard the measurement, because it is unknown what the server has."""
        self._waiting = self._complete = False

    def stamped(self, mtime_ns: int) -> None:
        """Take in the file's time, read before anything else was written; 0 if it was not read."""
        if not self._complete:
            return
        self._waiting = self._complete = False
        if mtime_ns <= 0 or mtime_ns == self._stamp:  # not read, or the stamp of an earlier write
            return
        self._stamp = mtime_ns
        self._skew.observe(self._began, self._ended, mtime_ns)
        self._compare_clocks(mtime_ns)
        self._write_record()

    def _compare_clocks(self, mtime_ns: int) -> None:
        coarse = coarseness_ns(mtime_ns)
        first, last, after = self._ticks
        first, last = first - first % coarse, last - last % coarse
        same_clock = abs(self._clock() - time.time()) < _SAME_S
        alike = (same_clock and mtime_ns in (first, last), same_clock and first <= mtime_ns <= after)
        self._alike = [*self._alike[1 - _LOOKED :], alike]
        ticks, possible = (sum(found) for found in zip(*self._alike))
        mostly = _MOSTLY_STILL if self.client_time else _MOSTLY
        self.client_time = ticks >= _SAME_TICKS and possible >= mostly * len(self._alike)

    def _write_record(self) -> None:
        before, wall, now = time.monotonic(), self._clock(), time.monotonic()
        found = self._skew.offset(now, wall)
        possible = all(own for _, own in self._alike)
        if found is None or len(self._alike) < (_LOOKED if possible and not self.client_time else _FEWEST):
            return  # it is not known yet which host makes the stamps
        if now - self._written_at < (_SOONEST_S if self._differs(found) else _EVERY_S):
            return
        offset, error = found[0], found[1] + (now - before) + 1e-6  # for reading two clocks, and for rounding
        self._write(clock_line(wall, offset, error, self.client_time))
        self._written_at, self._written, self._written_client_time = now, found, self.client_time

    def _differs(self, found: tuple[float, float]) -> bool:
        if self._written is None or self._written_client_time != self.client_time:
            return True
        return abs(found[0] - self._written[0]) > self._written[1]


def _tick_ns() -> int:
    try:
        return time.clock_gettime_ns(_COARSE)
    except (AttributeError, OSError):  # not Linux
        return 0
