"""Ships the store's rows to one sink: a cursor, a backoff and a thread of its own, so that a sink that is down holds
back no other.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, Sink, SinkRefused, SinkUnavailable
from rlship_sidecar.status import SinkStatus

BACKOFF_MIN_S = 0.5
BACKOFF_MAX_S = 30.0
FLUSH_IDLE_S = 2.0
FLUSH_MAX_S = 30.0
BATCH_ROWS = 500


class RowSource(Protocol):
    """What a shipper needs of the store. Every method may be called from any thread."""

    def row_count(self) -> int:
        """How many rows are committed; they are numbered 0 to one less."""

    def read_rows(self, first: int, limit: int) -> list[Row]:
        """The rows first, first + 1, …, at most `limit`; fewer where there are no more."""

    def load_cursor(self, sink: str) -> int:
        """The number saved last for this sink, 0 if none was."""

    def save_cursor(self, sink: str, next_row: int) -> None:
        """Remember durably that the sink has every row below `next_row`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a delivery waits, in seconds.

    Rows are flushed `flush_idle_s` after the last write, under a steady stream every `flush_max_s`. A sink that has had
    everything for `idle_close_s` is closed until there are more rows; None keeps it open.
    """

    backoff_min_s: float = BACKOFF_MIN_S
    backoff_max_s: float = BACKOFF_MAX_S
    flush_idle_s: float = FLUSH_IDLE_S
    flush_max_s: float = FLUSH_MAX_S
    idle_close_s: float | None = None
    batch_rows: int = BATCH_ROWS


class Delivery:
    """The state machine of one sink, without a thread: `advance` does what is due and says when something is due again.

    The position is the sink's own answer to `open` where it gives one. The stored cursor decides only for a sink that
    cannot tell.
    """

    def __init__(
        self,
        name: str,
        make_sink: Callable[[], Sink],
        run: Run,
        source: RowSource,
        *,
        pace: Pace,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self.name = name
        self.refused: SinkRefused | None = None
        self.error = ""
        self.where = ""
        self.next_row = 0
        """The first row not handed to the sink yet."""
        self.delivered_to = 0
        """Every row below was flushed, or the sink said that it has it."""
        self.delivered = 0
        """Rows flushed by this process."""
        self._make_sink = make_sink
        self._run = run
        self._source = source
        self._pace = pace
        self._clock = clock
        self._jitter = jitter
        self._sink: Sink | None = None
        self._asked = False
        self._tells = False
        self._failures = 0
        self._retry_at = 0.0
        self._wrote_at = 0.0
        self._unflushed_since = 0.0

    @property
    def waiting(self) -> bool:
        """Whether the last try failed and the next one is not due yet."""
        return self._failures > 0 and self._sink is None

    def complaint(self) -> str:
        """What went wrong last and is not over, "" if nothing."""
        return self.error or str(getattr(self._sink, "trouble", ""))

    def retry_now(self) -> None:
        """Let the next `advance` try at once, whatever the backoff says."""
        self._retry_at = self._clock()

    def advance(self, *, drain: bool = False) -> float | None:
        """Do one thing that is due: open, write a batch or flush. With `drain` a flush is due once all is written.

        Returns the seconds until something is due (0.0: call again at once), or None if nothing is until rows come or
        ever.
        """
        if self.refused is not None:
            return None
        now = self._clock()
        if self.waiting and now < self._retry_at:
            return self._retry_at - now
        try:
            return self._advance(now, drain)
        except SinkRefused as refusal:
            self.refused, self.error = refusal, str(refusal)
            self.close()
            return None
        except SinkUnavailable as problem:
            return self._failed(str(problem))
        except Exception as problem:  # noqa: BLE001 - a sink may be anyone's code; the others must go on
            return self._failed(f"{type(problem).__name__}: {problem}")

    def close(self) -> None:
        """Close the sink if it is open. What was not flushed counts as not delivered."""
        sink, self._sink = self._sink, None
        self.next_row = self.delivered_to
        if sink is None:
            return
        try:
            sink.close()
        except Exception as problem:  # noqa: BLE001 - as above; it is shown in the status
            self.error = f"close: {type(problem).__name__}: {problem}"

    def _advance(self, now: float, drain: bool) -> float | None:
        count = self._source.row_count()
        if self._sink is None:
            if count == 0 or (self._asked and self.next_row >= count):
                return None
            self._open(count)
            return 0.0
        unflushed = self.next_row > self.delivered_to
        must_flush_at = self._unflushed_since + self._pace.flush_max_s
        if self.next_row < count and not (unflushed and now >= must_flush_at):
            self._write(count)
            return 0.0
        if unflushed:
            due = min(self._wrote_at + self._pace.flush_idle_s, must_flush_at)
            if not drain and now < due:
                return due - now
            self._flush()
            return 0.0
        if self._pace.idle_close_s is None:
            return None
        closes_at = self._wrote_at + self._pace.idle_close_s
        if now < closes_at:
            return closes_at - now
        self.close()
        return None

    def _open(self, count: int) -> None:
        sink = self._make_sink()
        self._sink = sink
        answer = sink.open(replace(self._run, rows=count))
        self.where = str(getattr(sink, "where", ""))
        self._tells = answer is not None
        position = self._source.load_cursor(self.name) if answer is None else answer
        if position > count:
            raise SinkRefused(
                f"sink {self.name} ({self.where or 'no place named'}) holds {position} rows, but the store of "
                f"{self._run.experiment} has only {count}: they are not this store's rows. Point the sink to another "
                "place, or move what is there away; rows are then shipped again from row 0"
            )
        self._asked = True
        self.next_row = self.delivered_to = position
        self._wrote_at = self._clock()

    def _write(self, count: int) -> None:
        assert self._sink is not None
        rows = self._source.read_rows(self.next_row, min(self._pace.batch_rows, count - self.next_row))
        if not rows:
            raise SinkUnavailable(f"the store counts {count} rows but gave none from row {self.next_row}")
        if self.next_row == self.delivered_to:
            self._unflushed_since = self._clock()
        self._sink.write(rows)
        self.next_row += len(rows)
        self._wrote_at = self._clock()
        # A sink that cannot tell what it holds would be sent these rows again after a crash.
        if not self._tells:
            self._flush()

    def _flush(self) -> None:
        assert self._sink is not None
        self._sink.flush()
        self.where = str(getattr(self._sink, "where", ""))
        self.delivered += self.next_row - self.delivered_to
        self.delivered_to = self.next_row
        self._failures = 0
        self.error = ""
        self._source.save_cursor(self.name, self.delivered_to)

    def _failed(self, error: str) -> float:
        self.close()
        self.error = error
        self._failures += 1
        wait = min(self._pace.backoff_max_s, self._pace.backoff_min_s * 2.0 ** min(self._failures - 1, 30))
        wait *= 0.75 + 0.5 * self._jitter()
        self._retry_at = self._clock() + wait
        return wait


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
        and flush: once it says no (the lease was lost), the shipper closes the sink and ends.
        """
        self.name = sink_name
        self._delivery = Delivery(sink_name, make_sink, run, source, pace=pace or Pace(), clock=clock, jitter=jitter)
        self._source = source
        self._clock = clock
        self._may_ship = may_ship
        self._change = threading.Condition()
        self._woken = False
        self._stopping = False
        self._ended = False
        self._draining = 0
        self._thread = threading.Thread(target=self._ship, name=f"rlship-{sink_name}", daemon=True)

    @property
    def refused(self) -> SinkRefused | None:
        """The sink's refusal, which is final, or None."""
        return self._delivery.refused

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

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Close the sink and end the thread, without shipping more. Returns False if a call of the sink still blocks
        after `timeout_s`.
        """
        with self._change:
            self._stopping = True
            self._change.notify_all()
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def status(self) -> SinkStatus:
        """The facts, at any time and from any thread."""
        delivery = self._delivery
        if delivery.refused is not None:
            state = "refused"
        elif self._stopping or self._ended:
            state = "closed"
        elif delivery.waiting:
            state = "waiting"
        elif delivery.delivered_to < self._source.row_count():
            state = "shipping"
        else:
            state = "idle"
        error = delivery.complaint()
        return SinkStatus(self.name, state, delivery.delivered_to, delivery.delivered, delivery.where, error)

    def _ship(self) -> None:
        try:
            while True:
                with self._change:
                    if self._stopping:
                        return
                    self._woken = False
                    drain = self._draining > 0
                if not self._may_ship():
                    return
                wait = self._delivery.advance(drain=drain)
                with self._change:
                    self._change.notify_all()
                    if wait != 0.0 and not self._woken and not self._stopping:
                        self._change.wait(wait)
        finally:
            self._delivery.close()
            with self._change:
                self._ended = True
                self._change.notify_all()
