"""The table of the lead's steps that ended: when, and by whose barrier. Their order is by end, then by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rlship_sidecar.store.tables import StoreTables

Place = tuple[float, int]  # of a step in the order of steps: when it ended, and its number


class EndedStep(NamedTuple):
    """A step, and the barrier record that ended it. `until` and `since` are on the common clock, `until_t` and
    `since_t` the same times by the clock of `host`: the barrier's, and that of the barrier record before it in its
    segment, or of the segment's first line. The rest says whose segment it is. The fields are the table's columns.
    """

    step: int
    until: float
    since: float
    until_t: float
    since_t: float
    file: str
    host: str
    replica: str
    rank: int
    attempt: int
    open_t: float
    id: str
    segment: int

    @property
    def place(self) -> Place:
        """Where it stands in the order of steps."""
        return self.until, self.step


@dataclass(frozen=True, slots=True)
class EndedSteps:
    """The steps of the lead, of which a long job has many."""

    ledger: StoreTables

    def put(self, step: EndedStep) -> None:
        """Keep a step, in place of the same one."""
        self.ledger.change("insert or replace into timeline values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", step)

    def clear(self) -> None:
        """Forget every step."""
        self.ledger.change("delete from timeline")

    def get(self, step: int) -> EndedStep | None:
        """A step by its number."""
        return self._first("where step = ?", (step,))

    def first_ending(self, t: float) -> EndedStep | None:
        """The first step that ends at a time or after it."""
        return self._first("where until >= ? order by until, step", (t,))

    def last_ended(self, t: float) -> EndedStep | None:
        """The last step that ends at a time or before it."""
        return self._first("where until <= ? order by until desc, step desc", (t,))

    def before(self, place: Place) -> EndedStep | None:
        """The step right before a place."""
        return self._first("where (until, step) < (?, ?) order by until desc, step desc", place)

    def after(self, place: Place, limit: int) -> list[EndedStep]:
        """The next steps behind a place, in order."""
        found = self.ledger.ask(
            "select * from timeline where (until, step) > (?, ?) order by until, step limit ?", (*place, limit)
        )
        return [EndedStep(*one) for one in found]

    def last(self) -> EndedStep | None:
        """The last step in the order."""
        return self._first("order by until desc, step desc", ())

    def highest(self) -> int:
        """The highest number of a step, or -1."""
        found = self.ledger.ask("select max(step) from timeline")[0][0]
        return -1 if found is None else int(found)

    def numbers(self) -> list[int]:
        """The numbers of all steps."""
        return [step for (step,) in self.ledger.ask("select step from timeline")]

    def files(self) -> set[str]:
        """The files whose barriers count."""
        return {file for (file,) in self.ledger.ask("select distinct file from timeline")}

    def timed_between(self, host: str, low: float, high: float) -> list[EndedStep]:
        """The steps with a time by a host's clock from `low` to `high` (exclusive)."""
        found = self.ledger.ask(
            "select * from timeline where host = ? "
            "and ((until_t >= ? and until_t < ?) or (since_t >= ? and since_t < ?))",
            (host, low, high, low, high),
        )
        return [EndedStep(*one) for one in found]

    def _first(self, which: str, values: tuple[object, ...]) -> EndedStep | None:
        found = self.ledger.ask(f"select * from timeline {which} limit 1", values)
        return EndedStep(*found[0]) if found else None
