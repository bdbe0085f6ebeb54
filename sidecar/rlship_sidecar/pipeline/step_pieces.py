"""What rows say of the lead's steps, as rules ask for it, a piece of steps at a time.

The store has it in few bytes beside the rows, so that a late line has no rows of the steps after it read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlship_sidecar.alerts.frames import FrameNames, Place, RankValues, StepParts, belongs
from rlship_sidecar.alerts.kept_steps import PartOf, pack_steps, unpack_steps
from rlship_sidecar.alerts.verdicts import PIECE
from rlship_sidecar.rows import STEP, Row, lineage_of
from rlship_sidecar.store.alerts import AlertTables
from rlship_sidecar.store.past_rows import PastRowTable
from rlship_sidecar.store.store import Store

MAX_PIECES = 8  # in memory between two looks


class StepPieces:
    """`axis` is the lead's: what the row of its `lowest` step counts. `places` are the actors and kinds of units that
    have rows.
    """

    def __init__(self, store: Store, names: FrameNames, lead: str) -> None:
        self.axis = ""
        self.lowest: int | None = None
        self.places: set[Place] = set()
        self._tables = AlertTables(store)
        self._past = PastRowTable(store)
        self._names = names
        self._lead = lead
        self._held: dict[int, dict[int, StepParts]] = {}
        self._changed: set[int] = set()  # pieces that the store has in rows only
        self._now: set[int] = set()  # those that changed in this look

    def learn_axis(self, rows: Iterable[Row]) -> bool:
        """Rows of the lead name its axis. Steps of others that came before the first one join frames from now on.

        Returns whether it was another one: then all frames are to be made again.
        """
        lowest = min(rows, key=lambda row: row.unit.index, default=None)
        if lowest is None or (self.lowest is not None and lowest.unit.index > self.lowest):
            return False
        self.lowest = lowest.unit.index
        before, axis = self.axis, next(iter(lowest.x), "")
        if not axis or axis == before:
            return False
        self.axis = axis
        self._tables.forget_frames()
        self.clear()
        return before != ""

    def piece(self, number: int) -> dict[int, StepParts]:
        """The steps of a piece."""
        found = self._held.get(number)
        if found is None:
            kept = self._tables.frames(number)
            found = self._held[number] = self._read(number) if kept is None else unpack_steps(kept, self._ranks)
        return found

    def changing(self, step: int) -> StepParts:
        """What rows say of a step, to be changed."""
        number = step // PIECE
        steps = self.piece(number)
        self._now.add(number)
        if number not in self._changed:
            self._changed.add(number)
            self._tables.keep_frames(number, None)
        return steps.setdefault(step, StepParts())

    def end_look(self) -> None:
        """Keep the pieces that changed, but for the one that grows with each look, and only the newest in memory."""
        growing = max(self._now, default=None)
        for number in self._changed - {growing}:
            self._keep(number)
        self._now.clear()
        if len(self._held) > MAX_PIECES:
            left = {*sorted(self._held)[-MAX_PIECES:], *self._changed}
            self._held = {number: steps for number, steps in self._held.items() if number in left}

    def forget(self) -> None:
        """Keep all that changed, and none of it in memory: rows that were not taken in may be in the store."""
        for number in list(self._changed):
            self._keep(number)
        self._held.clear()

    def clear(self) -> None:
        """The store has rows only."""
        self._held.clear()
        self._changed.clear()
        self._now.clear()

    def _keep(self, number: int) -> None:
        self._tables.keep_frames(number, pack_steps(self.piece(number)))
        self._changed.discard(number)

    # From the store ------------------------------------------------------------------------------------------------

    def _read(self, number: int) -> dict[int, StepParts]:
        first, last = number * PIECE, (number + 1) * PIECE - 1
        found: dict[int, StepParts] = {}
        for actor, kind in sorted(self.places):
            for body in self._tables.bodies(actor, kind, first, last):
                row = Row.figures_from_json(body)
                if (actor, kind) == (self._lead, STEP):
                    found.setdefault(row.unit.index, StepParts()).lead[lineage_of(row)] = self._names.part(row)
                elif belongs(row, self.axis):
                    found.setdefault(row.unit.index, StepParts()).others[actor, kind] = self._names.part(row)
        for step, lineage, body in self._past.between(self._lead, first, last):
            if step in found:
                found[step].lead[lineage] = self._names.part(Row.figures_from_json(body), past=True)
        return found

    def _ranks(self, of: PartOf) -> Mapping[str, RankValues]:
        if of.former is not None:
            bodies = [body for lineage, body in self._past.at(self._lead, of.step).items() if lineage == of.former]
        else:
            bodies = self._tables.bodies(*(of.place or (self._lead, STEP)), of.step, of.step)
        return Row.figures_from_json(bodies[0]).per_rank if bodies else {}
