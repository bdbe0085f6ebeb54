"""How the daemon's loop is, for who asks from other threads and for who is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlship_sidecar.observe.notify import Notifier, nobody
from rlship_sidecar.report.headline import headline
from rlship_sidecar.report.status import Status
from rlship_sidecar.tally import Tally

# Longer than any one look at files takes on a slow filesystem: a probe must not end a sidecar that is at work.
STALLED_S = 120.0

OnReport = Callable[["Pulse", bool], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the loop told last: the experiments that it works on, what it counted of each, and of those that it cannot
    work on now why.
    """

    statuses: Sequence[Status] = ()
    tallies: Sequence[Tally] = ()
    suspended: Sequence[str] = ()


@dataclass(slots=True)
class Pulse:
    """The daemon calls the methods, in its own thread; the rest may be read by any. `told` is called after each telling
    with whether it was the last.
    """

    notifier: Notifier = field(default_factory=lambda: Notifier(nobody))
    on_report: Sequence[OnReport] = ()
    clock: Callable[[], float] = time.monotonic
    snapshot: Snapshot = field(default_factory=Snapshot)
    is_ready: bool = False
    is_stopping: bool = False
    beat_at: float | None = None

    def beat(self) -> None:
        """The loop went round."""
        self.beat_at = self.clock()
        self.notifier.alive(self.beat_at)
        if not self.is_ready:
            self.is_ready = True
            self.notifier.ready()

    def stopping(self) -> None:
        """The loop ended; what is left is to deliver."""
        if not self.is_stopping:
            self.is_stopping = True
            self.notifier.stopping()

    def report(self, snapshot: Snapshot, *, last: bool = False) -> None:
        """The facts, as of now."""
        self.snapshot = snapshot
        line = headline(snapshot.statuses, len(snapshot.suspended))
        self.notifier.status(f"stopping: {line}" if self.is_stopping else line)
        for listener in self.on_report:
            listener(self, last)

    @property
    def age_s(self) -> float | None:
        """Seconds since the loop last went round; None: it never did."""
        return None if self.beat_at is None else max(0.0, self.clock() - self.beat_at)

    def unhealthy(self) -> str:
        """Why the loop counts as dead, "" if it is alive. Before its first round it is alive: it is starting."""
        age_s = self.age_s
        if age_s is None or age_s <= STALLED_S:
            return ""
        return f"the loop went round {age_s:.0f} s ago, and is given {STALLED_S:.0f} s"

    def unready(self) -> str:
        """Why it does no work yet or not all of it, "" if it does. A sink that cannot be reached is no reason: its rows
        wait in the store. Nor is a folder without experiments: the job may wait for this to be ready.
        """
        if self.is_stopping:
            return "stopping"
        if not self.is_ready:
            return "starting"
        return "; ".join(self.snapshot.suspended)
