"""What one look at the streams came to: rows, each as the next revision of its unit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rlship_sidecar.rows import ALIGNED, Arrival, Row, Unit
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.store import Store


@dataclass(slots=True)
class StreamResult:
    """`rows` have no number yet, and with `steps` are of these alone; `revised` are units that are not dirty any more;
    `more`: there may be more to do at once.
    """

    store: Store
    steps: Steps | None = None
    rows: list[Row] = field(default_factory=list)
    revised: list[Unit] = field(default_factory=list)
    more: bool = False
    _newest: dict[Unit, Row] = field(default_factory=dict)

    def add(self, row: Row, how: str) -> None:
        """A unit's row as it is now. It came about by `how`, unless there is one already: then it is a revision, or
        nothing if nothing in it changed.
        """
        if self.steps is not None and not (row.unit.kind == ALIGNED and row.unit.index in self.steps):
            return
        before = self._newest.get(row.unit) or self.store.newest(row.unit)
        if before is None:
            row = replace(row, arrival=Arrival(0, 0, row.keys(), how))
        else:
            changed = row.differing(before)
            if row == before and not changed:
                return
            row = replace(row, arrival=Arrival(0, before.arrival.revision + 1, changed, "revision"))
        self._newest[row.unit] = row
        self.rows.append(row)
