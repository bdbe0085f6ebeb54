"""What the rows of a store were made with: reductions, row function, lead and clock window; and the sweep that makes
them again where one of these changed.

Every change here belongs to the transaction that the next `Store.commit` ends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from rlship_sidecar.rows import Unit
from rlship_sidecar.store.tables import StoreTables


@dataclass(frozen=True, slots=True)
class SweepState:
    """A sweep makes every row again with the row function of this number; it has got to this unit, in order."""

    function: int
    actor: str
    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class MadeWith:
    """The part of the table `meta` that says it."""

    ledger: StoreTables

    def adopt(self, reductions: str, function: int) -> None:
        """Note what rows are made with from now on: the configuration's reductions and the number of the row function.

        A sweep over every row begins where the reductions are not those of before. One that is under way begins again
        where it was made with other reductions or another function. `begin_sweep` is the caller's where the number
        alone is another: a finished experiment keeps its rows.
        """
        before, under_way = self._get("reductions") or "{}", self.sweep()
        if not self.ledger.ask("select 1 from units limit 1"):
            if (before, self.row_function(), under_way) != (reductions, function, None):
                self._put("reductions", reductions)
                self._end_sweep(function)
        elif before != reductions or (under_way is not None and under_way.function != function):
            self._put("reductions", reductions)
            self.begin_sweep(function)

    def adopt_streams(self, lead: str, window_s: float) -> tuple[str, float] | None:
        """Note the configuration's lead and clock window. Returns those that rows were made with, if others."""
        settings, before = json.dumps([lead, window_s]), self._get("streams")
        if before == settings:
            return None
        self._put("streams", settings)
        if before is None:
            return None
        lead, window_s = json.loads(before)
        return lead, window_s

    def row_function(self) -> int:
        """The number of the row function that every row was made with. A store without one counts as 1."""
        return int(self._get("row_function") or 1)

    def sweep(self) -> SweepState | None:
        """The sweep that is under way."""
        found = self._get("sweep")
        return None if found is None else SweepState(*json.loads(found))

    def begin_sweep(self, function: int) -> None:
        """Begin to make every row again with a row function."""
        self._put("sweep", json.dumps([function, "", "", 0]))

    def advance_sweep(self, limit: int) -> list[tuple[Unit, bool]]:
        """The next units of the sweep, and whether their rows lack ranks. Fewer than `limit`: the sweep is over, for
        units that come meanwhile are made with its function.
        """
        state = self.sweep()
        assert state is not None
        found = self.ledger.ask(
            "select actor, kind, number, partial from units where (actor, kind, number) > (?, ?, ?) "
            "order by actor, kind, number limit ?",
            (state.actor, state.kind, state.index, limit),
        )
        if len(found) == limit:
            self._put("sweep", json.dumps([state.function, *found[-1][:3]]))
        else:
            self._end_sweep(state.function)
        return [(Unit.from_disk(actor, kind, index), bool(partial)) for actor, kind, index, partial in found]

    def _end_sweep(self, function: int) -> None:
        self._put("row_function", str(function))
        self.ledger.change("delete from meta where key = 'sweep'")

    def _get(self, key: str) -> str | None:
        found = self.ledger.ask("select value from meta where key = ?", (key,))
        return str(found[0][0]) if found else None

    def _put(self, key: str, value: str) -> None:
        self.ledger.change("insert or replace into meta values (?, ?)", (key, value))
