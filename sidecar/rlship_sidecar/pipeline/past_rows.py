"""Keeps what steps of the lead were before they were done again: a row for each earlier lineage of a step.

No sink shows these rows. Rules of alerts look at them, so that a fault stays known that a rollback took back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.past import Past, past_lineages
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.rows import Lineage, Row, lineage_of
from rlship_sidecar.store.past_rows import PastRowTable
from rlship_sidecar.store.store import Store

Reduce = Callable[[UnitLines, Roster], Row]


class PastRows:
    """The past rows of the actor `lead`. `touched` are steps whose past rows changed in this look."""

    def __init__(self, store: Store, lead: str) -> None:
        self.lead = lead
        self.touched: set[int] = set()
        self._table = PastRowTable(store)
        self._known: dict[Lineage, Past] = {}  # of this look

    def note(self, final: Row, window: UnitLines, actor: Actor, reduce: Reduce) -> None:
        """A step becomes the row `final`, or is revised, with these lines."""
        if actor.name != self.lead or not actor.roster.layered:
            return
        step = final.unit.index
        made: dict[Lineage, tuple[bytes, bool]] = {}
        for lineage in past_lineages(window):
            past = self._known.get(lineage)
            if past is None:
                past = self._known[lineage] = Past(actor.roster.writers.values(), lineage)
            row = reduce(past.window(window), past.roster)
            bare = replace(row, hists={}, samples={}, asked=())
            if lineage_of(row) < lineage_of(final):  # as the newest of its lines says, which others may be behind
                made[lineage_of(row)] = bare.to_json(), bool(row.coverage.missing)
        if {lineage: body for lineage, (body, _) in made.items()} != self._table.at(actor.name, step):
            self._table.put(actor.name, step, made)
            self.touched.add(step)

    def begin(self) -> None:
        """A look begins: what writers were is found out anew."""
        self._known.clear()
        self.touched.clear()
