"""The notifiers of one experiment together: what they are to send, and the threads that send it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from rlship_sidecar.notifiers.outbox import Outbox
from rlship_sidecar.notifiers.posting import Posting
from rlship_sidecar.notifiers.registry import Tables, make, wanted_of
from rlship_sidecar.store.outbox import OutboxTable
from rlship_sidecar.store.store import Store


class Mail(Outbox):
    """`tables` are `[notify.*]` by name. `may_send`: whether this process still owns the experiment."""

    def __init__(
        self,
        store: Store,
        experiment: str,
        tables: Tables,
        max_age_s: float,
        *,
        may_send: Callable[[], bool],
        wall: Callable[[], float] = time.time,
    ) -> None:
        table = OutboxTable(store)
        super().__init__(table, experiment, wanted_of(tables), max_age_s, wall)
        self.postings: Sequence[Posting] = [
            Posting(name, partial(make, name, options), table, max_age_s=max_age_s, may_send=may_send, wall=wall)
            for name, options in tables.items()
        ]
        self.added = table.has_any()  # what another sidecar left

    def wake(self) -> None:
        """Send what is new, once it is durable."""
        if self.added:
            self.added = False
            for posting in self.postings:
                posting.wake()

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self.added and all(posting.at_rest for posting in self.postings)

    def problems(self) -> list[str]:
        """Why messages are not sent, for people."""
        return [f"notify {one.name}: {one.error}" for one in self.postings if one.error]

    def drain(self, timeout_s: float) -> bool:
        """Wait until every message is sent; returns whether they are."""
        self.wake()
        deadline = time.monotonic() + timeout_s
        return all(one.drain(max(0.0, deadline - time.monotonic())) for one in self.postings)

    def stop(self, timeout_s: float) -> bool:
        """End the threads. False if one still waits for its receiver."""
        deadline = time.monotonic() + timeout_s
        stopped = [one.stop(max(0.0, deadline - time.monotonic())) for one in self.postings]
        return all(stopped)
