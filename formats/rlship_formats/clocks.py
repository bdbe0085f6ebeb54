"""How far the hosts' clocks are off. The rule: docs/semantics.md, "Clock offsets". Pure.

Rows and traces put times on the file server's clock by the same rule: `streams/clocks.py` keeps the records in the
store, `export/` keeps them in memory, and both ask a `ClockSeries` what counts.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from rlship_formats.reading import Clock


class Offset(NamedTuple):
    """A host's clock minus the file server's, in seconds; `err` is None where it is unknown how exact that is."""

    offset: float
    err: float | None


UNKNOWN = Offset(0.0, None)


def counts_over(record: Clock, other: Clock) -> bool:
    """Whether a record counts rather than another one of the same host and time: by the least `err`, then `offset`."""
    return (record.err, record.offset) < (other.err, other.offset)


class ClockSeries:
    """The clock records of one host, one for each time. In arrays, because a long job writes very many."""

    __slots__ = ("_errs", "_offsets", "_times")

    def __init__(self) -> None:
        self._times = array("d")
        self._offsets = array("d")
        self._errs = array("d")

    def add(self, record: Clock) -> bool:
        """Take in a record that proves something. False if a better one of its time is known."""
        place = bisect_left(self._times, record.t)
        if place < len(self) and self._times[place] == record.t:
            if not counts_over(record, self[place]):
                return False
            self._offsets[place], self._errs[place] = record.offset, record.err
            return True
        for column, value in ((self._times, record.t), (self._offsets, record.offset), (self._errs, record.err)):
            column.insert(place, value)
        return True

    def offset(self, t: float) -> Offset:
        """What the clock was off by when it said `t`: by the last record up to then. Before the first record that one
        counts, as a clock is off before anyone measures it.
        """
        if not self._times:
            return UNKNOWN
        place = max(bisect_right(self._times, t) - 1, 0)
        return Offset(self._offsets[place], self._errs[place])

    def forget_all_but(self, newest: int) -> None:
        """Keep only that many of the newest records."""
        for column in (self._times, self._offsets, self._errs):
            del column[:-newest]

    @property
    def since(self) -> float:
        """The time of the first record; infinity without records."""
        return self._times[0] if self._times else math.inf

    def __getitem__(self, place: int) -> Clock:
        return Clock(self._times[place], self._offsets[place], self._errs[place])

    def __len__(self) -> int:
        return len(self._times)


class HostClocks:
    """The clocks of all hosts, as rows and traces ask for them. This one knows none: each is taken to be right."""

    @property
    def known(self) -> bool:
        """Whether there is a record of any host. Without one every offset is 0 and its error unknown."""
        return False

    def offset(self, host: str, t: float) -> Offset:
        """What the clock of `host` was off by when it said `t`. A host without a name has no record."""
        return UNKNOWN

    def corrected(self, host: str, t: float) -> float:
        """A time of a host's clock on the file server's."""
        return t - self.offset(host, t).offset


class KeptClocks(HostClocks):
    """The clocks of all hosts, with their records in memory."""

    def __init__(self) -> None:
        self._series: dict[str, ClockSeries] = {}

    def add(self, host: str, record: Clock) -> None:
        """Take in a record of a file that was written on `host`."""
        if host and not record.client_time:
            self._series.setdefault(host, ClockSeries()).add(record)

    @property
    def known(self) -> bool:
        """Whether there is a record of any host."""
        return bool(self._series)

    def offset(self, host: str, t: float) -> Offset:
        """What the clock of `host` was off by when it said `t`."""
        series = self._series.get(host)
        return UNKNOWN if series is None else series.offset(t)

    def __len__(self) -> int:
        """How many hosts have a record."""
        return len(self._series)
