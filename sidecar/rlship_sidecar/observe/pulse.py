"""Health of the daemon's loop, readable from any thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlship_sidecar.observe.notify import Notifier, send_nothing
from rlship_sidecar.report.headline import headline
from rlship_sidecar.report.status import Status
from rlship_sidecar.tally import Tally

# Longer than any single look at files on a slow filesystem: a probe must not kill a sidecar that is at work.
STALLED_S = 120.0

OnReport = Callable[["Pulse", bool], None]


@dataclass(frozen=True, slots=True)
class LoopSnapshot:
    """The loop's last report: the status and the counts of each open experiment, and the reason for each suspended
    one.
    """

    statuses: Sequence[Status] = ()
    tallies: Sequence[Tally] = ()
    suspended: Sequence[str] = ()


@dataclass(slots=True)
class Pulse:
    """Health of the daemon's loop.

    The daemon calls the methods in its own thread; any thread may read the rest. Each function in `on_report` is called
    after every report, with a flag that marks the last one.
    """

    notifier: Notifier = field(default_factory=lambda: Notifier(send_nothing))
    on_report: Sequence[OnReport] = ()
    clock: Callable[[], float] = time.monotonic
    snapshot: LoopSnapshot = field(default_factory=LoopSnapshot)
    is_ready: bool = False
    is_stopping: bool = False
    beat_at: float | None = None

    def beat(self) -> None:
        """Note that the loop completed a round."""
        self.beat_at = self.clock()
        self.notifier.alive(self.beat_at)
        if not self.is_ready:
            self.is_ready = True
            self.notifier.ready()

    def stopping(self) -> None:
        """Note that the loop ended, and only delivery is left."""
        if not self.is_stopping:
            self.is_stopping = True
            self.notifier.stopping()

    def report(self, snapshot: LoopSnapshot, *, last: bool = False) -> None:
        """Take a snapshot as the current state and pass it on."""
        self.snapshot = snapshot
        line = headline(snapshot.statuses, len(snapshot.suspended))
        self.notifier.status(f"stopping: {line}" if self.is_stopping else line)
        for listener in self.on_report:
            listener(self, last)

    @property
    def age_s(self) -> float | None:
        """Seconds since the loop last completed a round; None before the first."""
        return None if self.beat_at is None else max(0.0, self.clock() - self.beat_at)

    def unhealthy(self) -> str:
        """Why the loop counts as dead; "" if it is alive. Before its first round it is starting, and counts as
        alive.
        """
        age_s = self.age_s
        if age_s is None or age_s <= STALLED_S:
            return ""
        return f"the loop last completed a round {age_s:.0f} s ago; {STALLED_S:.0f} s are allowed"

    def unready(self) -> str:
        """Why the sidecar does not do all of its work; "" if it does.

        A sink that cannot be reached is no reason, because its rows wait in the store. A folder without experiments is
        no reason either, because the job may wait until this sidecar is ready.
        """
        if self.is_stopping:
            return "stopping"
        if not self.is_ready:
            return "starting"
        return "; ".join(self.snapshot.suspended)
