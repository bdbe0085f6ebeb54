"""The store of a daemon, which counts the rows that it made durable."""

from __future__ import annotations

from pathlib import Path

from rlship_sidecar.store.changes import Changes
from rlship_sidecar.store.store import Store


class CountingStore(Store):
    """A store with `made`: rows committed by this process, by actor and by why they appeared (`Arrival.closed`)."""

    def __init__(self, path: Path, *, local: bool) -> None:
        super().__init__(path, local=local)
        self.made: dict[tuple[str, str], int] = {}

    def commit(self, changes: Changes) -> None:
        """See `Store.commit`."""
        super().commit(changes)
        for row in changes.rows:
            key = row.unit.actor, row.arrival.closed
            self.made[key] = self.made.get(key, 0) + 1
