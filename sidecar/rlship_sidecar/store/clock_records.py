"""The table of clock records: how far each host's clock was off, and when."""

from __future__ import annotations

from dataclasses import dataclass

from rlship_formats.reading import Clock
from rlship_sidecar.store.tables import StoreTables


@dataclass(frozen=True, slots=True)
class ClockTable:
    """The clock records of all hosts. Times are those of the host's own clock."""

    ledger: StoreTables

    def put(self, host: str, record: Clock) -> None:
        """Keep a record, in place of one of the same time."""
        self.ledger.change(
            "insert or replace into clocks values (?, ?, ?, ?)", (host, record.t, record.offset, record.err)
        )

    def any(self) -> bool:
        """Whether there is a record at all."""
        return bool(self.ledger.ask("select 1 from clocks limit 1"))

    def hosts(self) -> list[str]:
        """Every host that has a record."""
        return [host for (host,) in self.ledger.ask("select distinct host from clocks order by host")]

    def at(self, host: str, t: float) -> Clock | None:
        """The record of exactly this time."""
        return self._first("host = ? and t = ?", (host, t))

    def up_to(self, host: str, t: float) -> Clock | None:
        """The last record that is not after a time."""
        return self._first("host = ? and t <= ? order by t desc", (host, t))

    def first(self, host: str) -> Clock | None:
        """The first record of a host."""
        return self._first("host = ? order by t", (host,))

    def any_before(self, host: str, t: float) -> bool:
        """Whether there is a record before a time."""
        return bool(self.ledger.ask("select 1 from clocks where host = ? and t < ? limit 1", (host, t)))

    def next_t(self, host: str, t: float) -> float | None:
        """The time of the first record after a time."""
        found: float | None = self.ledger.ask("select min(t) from clocks where host = ? and t > ?", (host, t))[0][0]
        return found

    def newest(self, host: str, limit: int) -> list[Clock]:
        """The newest records of a host, in order of time."""
        found = self.ledger.ask(
            "select t, offset, err from clocks where host = ? order by t desc limit ?", (host, limit)
        )
        return [Clock(*record) for record in reversed(found)]

    def offsets(self, host: str) -> tuple[float, float]:
        """The least and the greatest offset of a host that has a record."""
        least, greatest = self.ledger.ask("select min(offset), max(offset) from clocks where host = ?", (host,))[0]
        return least, greatest

    def _first(self, where: str, values: tuple[object, ...]) -> Clock | None:
        found = self.ledger.ask(f"select t, offset, err from clocks where {where} limit 1", values)
        return Clock(*found[0]) if found else None
