"""The hosts' clocks, with their records in the store, because a long job writes very many.

Which record counts at which time is said once, in `rlship_formats.clocks`; here the newest records of each host are
kept, older ones are asked for, and a new record says which times change by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rlship_formats.clocks import UNKNOWN, ClockSeries, HostClocks, Offset, counts_over
from rlship_formats.reading import Clock
from rlship_sidecar.store.clock_records import ClockTable
from rlship_sidecar.store.tables import StoreTables

KEPT = 256  # newest records of a host that need no look into the store


class Shift(NamedTuple):
    """The offset of the clock of `host` changed for its times from `low` (inclusive) to `high` (exclusive): off by
    `after` instead of `before` seconds.
    """

    host: str
    low: float
    high: float
    before: float
    after: float

    def concerns(self, t: float) -> bool:
        """Whether a time of the host's clock is among them."""
        return self.low <= t < self.high


@dataclass(slots=True)
class _Host:
    """The newest records of a host, whether these are `all`, and the bounds of its offsets."""

    series: ClockSeries = field(default_factory=ClockSeries)
    all: bool = True
    least: float = math.inf
    greatest: float = -math.inf


class StoredClocks(HostClocks):
    """The clocks of all hosts of an experiment."""

    def __init__(self, ledger: StoreTables) -> None:
        self._table = ClockTable(ledger)
        self._hosts: dict[str, _Host] = {}
        self._any: bool | None = None

    @property
    def known(self) -> bool:
        """Whether there is a record of any host."""
        if self._any is None:
            self._any = self._table.any()
        return self._any

    def offset(self, host: str, t: float) -> Offset:
        """What the clock of `host` was off by when it said `t`."""
        if not host:
            return UNKNOWN
        known = self._hosts.get(host) or self._load(host)
        if t < known.series.since and not known.all:
            return self._stored(host, t)
        return known.series.offset(t)

    def bounds(self, hosts: Iterable[str]) -> tuple[float, float]:
        """The least and the greatest offset that a clock of these hosts ever had."""
        least, greatest = math.inf, -math.inf
        for host in hosts:
            known = (self._hosts.get(host) or self._load(host)) if host else None
            if known is None or not known.series:
                least, greatest = min(least, 0.0), max(greatest, 0.0)
            else:
                least, greatest = min(least, known.least), max(greatest, known.greatest)
        return (least, greatest) if least <= greatest else (0.0, 0.0)

    def newest(self) -> dict[str, Clock]:
        """The newest record of each host that has one."""
        found = {host: (self._hosts.get(host) or self._load(host)).series for host in self._table.hosts()}
        return {host: series[-1] for host, series in found.items() if series}

    def note(self, host: str, record: Clock) -> Shift | None:
        """Take in a record. None if no time changes by it."""
        if not host or record.client_time:
            return None
        known = self._hosts.get(host) or self._load(host)
        t = record.t
        before = self.offset(host, t)
        same = self._table.at(host, t)
        if same is not None and not counts_over(record, same):
            return None
        below, above = self._table.any_before(host, t), self._table.next_t(host, t)
        self._table.put(host, record)
        self._keep(known, record)
        self._any = True
        if before == (record.offset, record.err):
            return None
        low, high = t if below else -math.inf, math.inf if above is None else above
        return Shift(host, low, high, before.offset, record.offset)

    def _keep(self, known: _Host, record: Clock) -> None:
        known.least, known.greatest = min(known.least, record.offset), max(known.greatest, record.offset)
        if known.all or record.t >= known.series.since:
            known.series.add(record)
        if len(known.series) > 2 * KEPT:
            known.series.forget_all_but(KEPT)
            known.all = False

    def _load(self, host: str) -> _Host:
        found = self._table.newest(host, KEPT)
        known = self._hosts[host] = _Host(all=len(found) < KEPT)
        for record in found:
            known.series.add(record)
        if found:
            known.least, known.greatest = self._table.offsets(host)
        return known

    def _stored(self, host: str, t: float) -> Offset:
        """The offset at a time before the records that are kept. The store orders them as a `ClockSeries` does."""
        found = self._table.up_to(host, t) or self._table.first(host)
        assert found is not None
        return Offset(found.offset, found.err)
