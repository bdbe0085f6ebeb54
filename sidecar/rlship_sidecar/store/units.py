"""Which units of an actor have rows: the questions that the stages ask before they mark one dirty."""

from __future__ import annotations

from dataclasses import dataclass

from rlship_sidecar.rows import ALIGNED, CLOCK, POINT, STEP, Unit
from rlship_sidecar.store.tables import StoreTables

# A step that was done again may lack ranks in what it was before.
_PAST_LACKS = (
    "exists (select 1 from past_rows past where past.actor = units.actor and past.step = units.number and past.lacks)"
)


@dataclass(frozen=True, slots=True)
class ActorUnits:
    """The units of one actor that have rows."""

    ledger: StoreTables
    actor: str

    def lacks_ranks(self, step: int) -> bool | None:
        """None if the step has no row, else whether that row lacks ranks."""
        found = self.ledger.ask(
            f"select partial or {_PAST_LACKS} from units where actor = ? and kind = ? and number = ?",
            (self.actor, STEP, step),
        )
        return bool(found[0][0]) if found else None

    def rows_between(self, first: int, last: int, *, partial: bool) -> list[tuple[int, bool]]:
        """(step, lacks ranks) of the rows of steps from `first` to `last`, or of those that lack ranks."""
        return [(step, bool(lacks)) for step, lacks in self._between(STEP, first, last, partial)]

    def highest_step(self) -> int:
        """The highest step that has a row, or -1."""
        found = self.ledger.ask("select max(number) from units where actor = ? and kind = ?", (self.actor, STEP))
        return -1 if found[0][0] is None else int(found[0][0])

    def lowest(self, kind: str) -> int:
        """The lowest index of a kind of unit that has a row, or -1."""
        found = self.ledger.ask("select min(number) from units where actor = ? and kind = ?", (self.actor, kind))
        return -1 if found[0][0] is None else int(found[0][0])

    def windows_between(self, first: float, last: float, *, partial: bool) -> list[int]:
        """The windows of time from `first` to `last` that have rows, or of those that lack ranks."""
        return [index for index, _ in self._between(CLOCK, first, last, partial)]

    def steps_ending(self, low: float, high: float, *, partial: bool) -> list[int]:
        """The aligned steps that have rows, or of those that lack ranks, and that end from `low` to `high`."""
        found = self.ledger.ask(
            "select number from timeline join units on number = timeline.step and actor = ? and kind = ? "
            "where until between ? and ? and partial >= ?",
            (self.actor, ALIGNED, low, high, partial),
        )
        return [step for (step,) in found]

    def points(self, writer: str) -> list[Unit]:
        """The points of a writer."""
        kind = Unit(self.actor, POINT, 0, writer).kind_on_disk
        found = self.ledger.ask("select number from units where actor = ? and kind = ?", (self.actor, kind))
        return [Unit(self.actor, POINT, offset, writer) for (offset,) in found]

    def all(self) -> list[Unit]:
        """Every unit that has a row."""
        found = self.ledger.ask("select kind, number from units where actor = ?", (self.actor,))
        return [Unit.from_disk(self.actor, kind, index) for kind, index in found]

    def _between(self, kind: str, first: float, last: float, partial: bool) -> list[tuple[int, bool]]:
        lacks = f"(partial or {_PAST_LACKS})" if kind == STEP else "partial"
        return [
            (index, bool(lacking))
            for index, lacking in self.ledger.ask(
                f"select number, {lacks} from units "
                f"where actor = ? and kind = ? and number between ? and ? and {lacks} >= ?",
                (self.actor, kind, first, last, partial),
            )
        ]
