"""Ships the store's rows to one sink in a thread of its own, so that a sink that is down holds back no other."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from rlship_sidecar.report.status import SinkStatus
from rlship_sidecar.sinks.contract import Run, Sink, SinkRefused
from rlship_sidecar.sinks.delivery import Delivery, Pace, RowSource
from rlship_sidecar.tally import Shipping

__all__ = ["Pace", "RowSource", "Shipper"]

INTERRUPT_AFTER_S = 1.0
STUCK_S = 10.0


class Trouble:
    """Since when a sink has complained while it confirmed nothing."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._confirmed = 0

    def look(self, complaint: str, confirmed: int, now: float) -> float:
        """Take what is so at `now`; returns for how many seconds it has been in trouble, 0.0 if it is not."""
        if not complaint:
            self.since = None
        elif self.since is None or confirmed > self._confirmed:
            self.since = now
        self._confirmed = confirmed
        return 0.0 if self.since is None else now - self.since


class Shipper:
    """One sink's thread. Ending the process at any moment is safe: the next one asks the sink what it lacks."""

    def __init__(
        self,
        sink_name: str,
        make_sink: Callable[[], Sink],
        run: Run,
        source: RowSource,
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        may_ship: Callable[[], bool] = lambda: True,
    ) -> None:
        """Nothing is made or started yet; the sink is opened when the store has its first row.

        `clock` gives seconds, `jitter` a number in 0..1 that spreads retries. `may_ship` is asked before every batch
        and flush: while it says no (the lease is lost), the sink is closed and nothing is shipped.
        """
        self.name = sink_name
        self._delivery = Delivery(
            sink_name, make_sink, run, source, pace=pace or Pace(), clock=clock, jitter=jitter, may_ship=may_ship
        )
        self._source = source
        self._clock = clock
        self._may_ship = may_ship
        self._change = threading.Condition()
        self._woken = False
        self._stopping = False
        self._ended = False
        self._draining = 0
        self._trouble = Trouble()
        self._thread = threading.Thread(target=self._ship, name=f"rlship-{sink_name}", daemon=True)

    @property
    def refused(self) -> SinkRefused | None:
        """The sink's refusal, which is final, or None."""
        return self._delivery.refused

    @property
    def store_error(self) -> Exception | None:
        """What the store raised when it was last asked for rows, or None."""
        return self._delivery.store_error

    @property
    def shipping(self) -> Shipping:
        """How long rows took to get there, and how often it failed."""
        return self._delivery.shipping

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that rows were committed. Cheap; never waits for the sink."""
        with self._change:
            self._woken = True
            self._change.notify_all()

    def drain(self, timeout_s: float) -> bool:
        """Ship every row that is committed now and flush, trying again at once if the sink was waiting.

        Returns whether the sink has them all; False after `timeout_s` seconds, and at once if it refused or the shipper
        was stopped.
        """
        target = self._source.row_count()
        deadline = time.monotonic() + timeout_s
        with self._change:
            self._draining += 1
            self._woken = True
            self._delivery.retry_now()
            self._change.notify_all()
            try:
                while self._delivery.delivered_to < target:
                    left = deadline - time.monotonic()
                    if left <= 0 or self._ended or self.refused is not None:
                        return False
                    self._change.wait(left)
                return self.refused is None
            finally:
                self._draining -= 1

    def begin_stop(self) -> None:
        """Ship no more from now on, without waiting for anything."""
        with self._change:
            self._stopping = True
            self._change.notify_all()

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Close the sink and end the thread, without shipping more. A call of the sink that blocks is interrupted after
        a second, if the sink lets itself be. Returns False if it still blocks after `timeout_s`.
        """
        self.begin_stop()
        if self._thread.ident is None:
            return True
        self._thread.join(min(INTERRUPT_AFTER_S, timeout_s))
        if self._thread.is_alive():
            self._delivery.interrupt()
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> SinkStatus:
        """The facts, at any time and from any thread."""
        delivery = self._delivery
        error = delivery.complaint()
        trouble_s = self._trouble.look(error, delivery.delivered_to, self._clock())
        if delivery.refused is not None:
            state = "refused"
        elif self._stopping or self._ended:
            state = "closed"
        elif delivery.failing or trouble_s > STUCK_S:
            state = "waiting"
        elif delivery.delivered_to < self._source.row_count():
            state = "shipping"
        else:
            state = "idle"
        return SinkStatus(
            self.name,
            state,
            delivery.delivered_to,
            delivery.next_row,
            delivery.where,
            error,
            trouble_s,
            delivery.note,
        )

    def _ship(self) -> None:
        try:
            while True:
                with self._change:
                    if self._stopping:
                        return
                    self._woken = False
                    drain = self._draining > 0
                wait = self._delivery.advance(drain=drain)
                with self._change:
                    self._change.notify_all()
                    if wait != 0.0 and not self._woken and not self._stopping:
                        self._change.wait(wait)
        finally:
            self._delivery.close(abandon=not self._may_ship())
            with self._change:
                self._ended = True
                self._change.notify_all()
