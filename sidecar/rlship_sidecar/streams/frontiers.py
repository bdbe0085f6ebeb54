"""How far an actor's stream units have become rows, and what else outlives the process of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlship_sidecar.store.ledger import Ledger


@dataclass(slots=True)
class Frontier:
    """All clock windows up to `clock` are closed (None: no window is), those `ahead` of it (where a clock was wrong, in
    the far future) one by one, and all steps of the timeline up to the place (`end`, `step`) in its order.
    """

    clock: int | None = None
    end: float = -math.inf
    step: int = -1
    ahead: set[int] = field(default_factory=set)

    def covers(self, index: int) -> bool:
        """Whether a clock window is closed."""
        return index in self.ahead or (self.clock is not None and index <= self.clock)

    def close(self, index: int, *, far: bool) -> None:
        """A clock window is closed; one that is `far` in the future alone, any other with all before it."""
        if far:
            self.ahead.add(index)
        elif self.clock is None or index > self.clock:
            self.clock = index
            self.ahead = {other for other in self.ahead if other > index}

    def reopen(self) -> None:
        """Nothing counts as closed."""
        self.clock, self.end, self.step = None, -math.inf, -1
        self.ahead.clear()

    @property
    def place(self) -> tuple[float, int]:
        """Of the last closed step."""
        return self.end, self.step


def load_frontier(ledger: Ledger, actor: str) -> Frontier:
    """An actor's frontier."""
    found = ledger.ask("select clock, until, step from frontiers where actor = ?", (actor,))
    frontier = Frontier(*found[0]) if found else Frontier()
    beyond = -1 if frontier.clock is None else frontier.clock
    rows = ledger.ask("select number from units where actor = ? and kind = 'clock' and number > ?", (actor, beyond))
    frontier.ahead.update(index for (index,) in rows)
    return frontier


def save_frontier(ledger: Ledger, actor: str, frontier: Frontier) -> None:
    """Remember it."""
    ledger.change(
        "insert or replace into frontiers values (?, ?, ?, ?)", (actor, frontier.clock, frontier.end, frontier.step)
    )


class Names:
    """The metrics of an actor that have been logged with a step, and those without."""

    def __init__(self, ledger: Ledger, actor: str) -> None:
        self._ledger = ledger
        self._actor = actor
        self.stepped: set[str] = set()
        self.streamed: set[str] = set()
        for name, stepped in ledger.ask("select name, stepped from names where actor = ?", (actor,)):
            (self.stepped if stepped else self.streamed).add(name)

    def note(self, names: Iterable[str], *, stepped: bool) -> bool:
        """Take in names. Returns whether one of them is new here and has been logged in the other way."""
        known, others = (self.stepped, self.streamed) if stepped else (self.streamed, self.stepped)
        both = False
        for name in names:
            if name not in known:
                known.add(name)
                both = both or name in others
                self._ledger.change("insert or ignore into names values (?, ?, ?)", (self._actor, name, stepped))
        return both


def note_gap(ledger: Ledger, actor: str, file: str, t: float, n: int) -> None:
    """A writer dropped `n` lines without a step at `t` of its clock."""
    ledger.change("insert into gaps values (?, ?, ?, ?)", (actor, file, t, n))


def gaps(ledger: Ledger, actor: str, low: float, high: float) -> list[tuple[str, float, int]]:
    """(file, t, n) of an actor's dropped lines from `low` to `high`."""
    return [
        (file, t, n)
        for file, t, n in ledger.ask(
            "select file, t, n from gaps where actor = ? and t between ? and ?", (actor, low, high)
        )
    ]
