"""Tables of an actor's streams: its frontier, the names of its metrics, and what its writers dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlship_sidecar.rows import CLOCK
from rlship_sidecar.store.tables import StoreTables


@dataclass(frozen=True, slots=True)
class StreamState:
    """What outlives the process of one actor's streams."""

    ledger: StoreTables
    actor: str

    def frontier(self) -> tuple[int | None, float, int] | None:
        """The last closed window of time, if any, and the end and number of the last closed step."""
        found = self.ledger.ask("select clock, until, step from frontiers where actor = ?", (self.actor,))
        return (found[0][0], found[0][1], found[0][2]) if found else None

    def save_frontier(self, clock: int | None, end: float, step: int) -> None:
        """Keep it."""
        self.ledger.change("insert or replace into frontiers values (?, ?, ?, ?)", (self.actor, clock, end, step))

    def windows_beyond(self, index: int) -> set[int]:
        """The windows of time after one that have rows."""
        found = self.ledger.ask(
            "select number from units where actor = ? and kind = ? and number > ?", (self.actor, CLOCK, index)
        )
        return {index for (index,) in found}

    def names(self, *, stepped: bool) -> set[str]:
        """The metrics that were logged with a step, or those without."""
        found = self.ledger.ask("select name from names where actor = ? and stepped = ?", (self.actor, stepped))
        return {name for (name,) in found}

    def add_names(self, names: Iterable[str], *, stepped: bool) -> None:
        """More of them."""
        for name in names:
            self.ledger.change("insert or ignore into names values (?, ?, ?)", (self.actor, name, stepped))

    def add_gap(self, file: str, t: float, n: int) -> None:
        """A writer dropped `n` lines without a step at `t` of its clock."""
        self.ledger.change("insert into gaps values (?, ?, ?, ?)", (self.actor, file, t, n))

    def gaps(self, low: float, high: float) -> list[tuple[str, float, int]]:
        """(file, t, n) of the dropped lines from `low` to `high`."""
        found = self.ledger.ask(
            "select file, t, n from gaps where actor = ? and t between ? and ?", (self.actor, low, high)
        )
        return [(file, t, n) for file, t, n in found]
