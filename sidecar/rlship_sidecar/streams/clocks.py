"""How far the hosts' clocks are from the file server's. The rules: docs/semantics.md, "Clock offsets".

The records are in the store, because a long job writes many; the recent ones of each host are kept here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rlship_sidecar.decode.lines import ClockRecord
from rlship_sidecar.store.ledger import Ledger

KEPT = 256  # newest records of a host that need no look into the store


class Offset(NamedTuple):
    """A host's clock minus the file server's, in seconds; `err` None: nobody knows how exact it is."""

    offset: float
    err: float | None


class Shift(NamedTuple):
    """The clock of `host` counts as another one for its times from `low` (inclusive) to `high` (exclusive): off by
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
    """The newest records of a host by time, whether these are `all`, and the bounds of its offsets."""

    records: list[ClockRecord] = field(default_factory=list)
    all: bool = True
    least: float = math.inf
    greatest: float = -math.inf


_UNKNOWN = Offset(0.0, None)


class Clocks:
    """The offsets of all hosts of an experiment."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._hosts: dict[str, _Host] = {}
        self._any: bool | None = None

    @property
    def known(self) -> bool:
        """Whether there is a record of any host; without one every offset is 0, its error unknown."""
        if self._any is None:
            self._any = bool(self._ledger.ask("select 1 from clocks limit 1"))
        return self._any

    def offset(self, host: str, t: float) -> Offset:
        """What the clock of `host` was off by when it said `t`."""
        if not host:
            return _UNKNOWN
        known = self._hosts.get(host) or self._load(host)
        records = known.records
        if not records:
            return _UNKNOWN
        place = bisect_right(records, (t, math.inf))
        if not place and not known.all:
            return Offset(*self._stored(host, t)[1:])
        found = records[max(place - 1, 0)]
        return Offset(found.offset, found.err)

    def corrected(self, host: str, t: float) -> float:
        """A time of a host's clock on the common one."""
        return t - self.offset(host, t).offset

    def bounds(self, hosts: Iterable[str]) -> tuple[float, float]:
        """The least and the greatest offset that a clock of these hosts ever had."""
        least, greatest = math.inf, -math.inf
        for host in hosts:
            known = (self._hosts.get(host) or self._load(host)) if host else None
            if known is None or not known.records:
                least, greatest = min(least, 0.0), max(greatest, 0.0)
            else:
                least, greatest = min(least, known.least), max(greatest, known.greatest)
        return (least, greatest) if least <= greatest else (0.0, 0.0)

    def newest(self) -> dict[str, ClockRecord]:
        """The newest record of each host that has one."""
        hosts = self._ledger.ask("select distinct host from clocks order by host")
        found = {host: (self._hosts.get(host) or self._load(host)).records for (host,) in hosts}
        return {host: records[-1] for host, records in found.items() if records}

    def note(self, host: str, record: ClockRecord) -> Shift | None:
        """Take in a record. None if no time changes by it."""
        if not host:
            return None
        known = self._hosts.get(host) or self._load(host)
        t, offset, err = record
        before = self.offset(host, t)
        same = self._ledger.ask("select err, offset from clocks where host = ? and t = ?", (host, t))
        if same and same[0] <= (err, offset):
            return None
        below = self._ledger.ask("select 1 from clocks where host = ? and t < ? limit 1", (host, t))
        above = self._ledger.ask("select min(t) from clocks where host = ? and t > ?", (host, t))[0][0]
        self._ledger.change("insert or replace into clocks values (?, ?, ?, ?)", (host, t, offset, err))
        self._keep(known, record)
        self._any = True
        if before == (offset, err):
            return None
        return Shift(host, t if below else -math.inf, math.inf if above is None else above, before.offset, offset)

    def forget_cache(self) -> None:
        """What is in the store may be another now."""
        self._hosts.clear()
        self._any = None

    def _keep(self, known: _Host, record: ClockRecord) -> None:
        known.least, known.greatest = min(known.least, record.offset), max(known.greatest, record.offset)
        records = known.records
        place = bisect_right(records, (record.t, math.inf))
        if place and records[place - 1].t == record.t:
            records[place - 1] = record
        elif place or known.all:
            records.insert(place, record)
        if len(records) > 2 * KEPT:
            del records[:-KEPT]
            known.all = False

    def _load(self, host: str) -> _Host:
        found = self._ledger.ask(
            "select t, offset, err from clocks where host = ? order by t desc limit ?", (host, KEPT)
        )
        known = self._hosts[host] = _Host([ClockRecord(*record) for record in reversed(found)], len(found) < KEPT)
        if found:
            known.least, known.greatest = self._ledger.ask(
                "select min(offset), max(offset) from clocks where host = ?", (host,)
            )[0]
        return known

    def _stored(self, host: str, t: float) -> ClockRecord:
        """Of all records of a host that has some, the one that governs a time."""
        columns = "select t, offset, err from clocks where host = ?"
        found = self._ledger.ask(f"{columns} and t <= ? order by t desc limit 1", (host, t))
        return ClockRecord(*(found or self._ledger.ask(f"{columns} order by t limit 1", (host,)))[0])
