"""Ships the store's rows to one sink, as a task of the shared pool. So a sink that is down delays no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rlship_sidecar.report.status import SinkStatus
from rlship_sidecar.sinks.contract import Sink, SinkContext, SinkRefused
from rlship_sidecar.sinks.delivery import Clocks, Delivery, Pace, RowSource
from rlship_sidecar.sinks.pool import POOL, Pool
from rlship_sidecar.tally import Shipping

__all__ = ["Clocks", "Pace", "RowSource", "Shipper"]

logger = logging.getLogger("rlship.sinks")

INTERRUPT_AFTER_S = 1.0
STUCK_S = 10.0


class TroubleWatch:
    """Since when a sink has been in trouble without confirming a row."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._confirmed = 0

    def look(self, complaint: str, confirmed: int, now: float, named_after_s: float = 0.0) -> float:
        """Note the complaint at `now`, and how long its cause was there before; returns for how many seconds the sink
        has been in trouble, 0.0 if it is not.
        """
        if not complaint:
            self.since = None
        elif self.since is None or confirmed > self._confirmed:
            self.since = now - named_after_s
        self._confirmed = confirmed
        return 0.0 if self.since is None else now - self.since


class Shipper:
    """One sink of one experiment. The process may end at any moment: the next one asks the sink which rows it lacks."""

    def __init__(
        self,
        sink_name: str,
        make_sink: Callable[[], Sink],
        run: SinkContext,
        source: RowSource,
        *,
        pace: Pace | None = None,
        clocks: Clocks | None = None,
        may_ship: Callable[[], bool] = lambda: True,
        pool: Pool = POOL,
    ) -> None:
        """Makes and starts nothing yet; the sink is opened when the store has its first row.

        `may_ship` is called before every batch and flush. While it returns false (the lease is lost), the sink is
        closed and nothing is shipped.
        """
        self.name = sink_name
        self._clocks = clocks or Clocks()
        self._delivery = Delivery(
            sink_name, make_sink, run, source, pace=pace or Pace(), clocks=self._clocks, may_ship=may_ship
        )
        self._source = source
        self._may_ship = may_ship
        self._lane = pool.lane(sink_name)
        self._change = threading.Condition()
        self._started = False
        self._stopping = False
        self._ended = False
        self._draining = 0
        self._flushes_at_once = False
        self._trouble = TroubleWatch()

    @property
    def refused(self) -> SinkRefused | None:
        """The sink's refusal, which is final, or None."""
        return self._delivery.facts.refused

    @property
    def store_error(self) -> Exception | None:
        """The store's exception when it was last asked for rows, or None."""
        return self._delivery.facts.store_error

    @property
    def shipping(self) -> Shipping:
        """How long rows took to be delivered, and how often the sink failed."""
        return self._delivery.shipping

    @property
    def at_rest(self) -> bool:
        """Whether the sink confirmed every committed row, or refused for good."""
        return self._delivery.at_rest

    @property
    def failing(self) -> bool:
        """Whether the last try failed, so that the sink waits for its next one."""
        return self._delivery.failing

    @property
    def ended(self) -> bool:
        """Whether the sink is closed for good."""
        return self._ended or not self._started

    def recall(self, where: str) -> None:
        """Show the destination from an earlier status: with nothing to ship, the sink is not opened to find it."""
        self._delivery.facts.where = self._delivery.facts.where or where

    def start(self) -> None:
        """Begin to ship."""
        self._started = True
        self._lane.schedule(self)

    def wake(self) -> None:
        """Report that rows or data of the run were committed. Cheap; never waits for the sink."""
        if self._started:
            self._lane.schedule(self)

    def drain(self, timeout_s: float) -> bool:
        """Ship every row that is committed now and flush; a waiting sink tries again at once.

        Returns whether the sink has them all. False after `timeout_s` seconds, and at once if it refused or the shipper
        was stopped.
        """
        target = self._source.row_count()
        deadline = time.monotonic() + timeout_s
        with self._change:
            self._draining += 1
            self._delivery.retry_now()
        self.wake()
        with self._change:
            try:
                while self._delivery.lacks(target):
                    left = deadline - time.monotonic()
                    if left <= 0 or self._ended or self.refused is not None:
                        return False
                    self._change.wait(left)
                return self.refused is None
            finally:
                self._draining -= 1

    def begin_drain(self) -> None:
        """Flush at once everything that is written from now on; does not wait."""
        if not self._flushes_at_once:
            self._flushes_at_once = True
            self.wake()

    def begin_stop(self) -> None:
        """End the shipper as soon as its sink allows it."""
        with self._change:
            self._stopping = True
        if self._started and not self._ended:
            self._lane.schedule(self)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Close the sink without shipping more.

        A blocking call of the sink is interrupted after a second, if the sink supports it. Returns False if the call
        still blocks after `timeout_s`.
        """
        self.begin_stop()
        if not self._started or self._wait_end(min(INTERRUPT_AFTER_S, timeout_s)):
            return True
        if self._lane.withdraw(self):  # no thread has begun its task, and no thread will
            self._end()
            return True
        self._delivery.interrupt()
        return self._wait_end(timeout_s)

    def _wait_end(self, timeout_s: float) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._ended, timeout_s)

    def status(self) -> SinkStatus:
        """The facts, at any time and from any thread."""
        delivery, progress, facts = self._delivery, self._delivery.progress, self._delivery.facts
        complaint = delivery.complaint()
        lacks = delivery.lacks(self._source.row_count())
        if lacks and not complaint and self._lane.shortage:
            complaint = self._lane.shortage
            self.wake()
        now, before_s = self._clocks.clock(), delivery.named_after_s
        trouble_s = self._trouble.look(complaint, progress.confirmed_below, now, before_s)
        if facts.refused is not None:
            state = "refused"
        elif self._stopping or self._ended:
            state = "closed"
        elif delivery.failing or trouble_s > STUCK_S:
            state = "waiting"
        elif lacks:
            state = "shipping"
        else:
            state = "idle"
        return SinkStatus(
            self.name,
            state,
            progress.confirmed_below,
            progress.given_below,
            facts.where,
            complaint,
            trouble_s,
            facts.note,
            facts.advice,
        )

    def step(self) -> float | None:
        """Take one due step, for the pool."""
        with self._change:
            stopping, drain = self._stopping, self._flushes_at_once or self._draining > 0
        if stopping:
            self._end()
            return None
        wait = self._delivery.advance(drain=drain)
        with self._change:
            self._change.notify_all()
        return wait

    def _end(self) -> None:
        if self._ended:
            return
        try:
            # No later step and no status would show what failed here.
            if problem := self._delivery.close(abandon=not self._may_ship()):
                logger.warning("%s", problem)
        finally:
            with self._change:
                self._ended = True
                self._change.notify_all()
