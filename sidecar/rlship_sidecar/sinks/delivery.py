"""How rows get from the store to one sink: position, retries and flushes, as a state machine that waits for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, Sink, SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.tally import Shipping

_Answer = TypeVar("_Answer")

BACKOFF_MIN_S = 0.5
BACKOFF_MAX_S = 15.0
FLUSH_IDLE_S = 2.0
FLUSH_MAX_S = 30.0
BATCH_ROWS = 500
ASK_AGAIN_S = 1.0


class RowSource(Protocol):
    """What a shipper needs of the store. Every method may be called from any thread; what it raises is the store's
    trouble, not the sink's.
    """

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


class _StoreFailed(Exception):
    """The store could not be asked. The cause is what it raised."""


class _NotOurs(Exception):
    """Ownership is not certain now."""


class Delivery:
    """The state machine of one sink, without a thread: `advance` does what is due and says when something is due again.

    The position is the sink's own answer to `open` where it gives one. The stored cursor decides only for a sink that
    cannot tell. `may_ship` is asked before every open, write and flush; while it says no, the sink is closed and
    nothing is shipped.
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
        may_ship: Callable[[], bool] = lambda: True,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.shipping = Shipping()
        self.refused: SinkRefused | None = None
        self.error = ""
        self.store_error: Exception | None = None
        """What the store raised last, until it answers again."""
        self.where = ""
        self.note = ""
        """What the sink said last that a person should know, though it takes rows."""
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
        self._may_ship = may_ship
        self._sink: Sink | None = None
        self._asked = False
        self._refusal = f"{name} (refused at)"
        self._tells = False
        self._failures = 0
        self._retry_at = 0.0
        self._wrote_at = 0.0
        self._unflushed_since = 0.0
        self._wall = wall
        self._unconfirmed: list[float] = []  # times of the rows that were written and not flushed

    @property
    def waiting(self) -> bool:
        """Whether the last try failed and the next one is not due yet."""
        return self._failures > 0 and self._sink is None

    @property
    def failing(self) -> bool:
        """Whether the last try failed and no row was confirmed since, nor is any lacking."""
        return self._failures > 0

    def complaint(self) -> str:
        """What went wrong last and is not over, "" if nothing. The sink's own name in front is left out."""
        sink = self._sink
        return (self.error or (sink.trouble if sink is not None else "")).removeprefix(f"sink {self.name}: ")

    def interrupt(self) -> None:
        """From any thread: let a call of the sink that blocks end, if the sink knows how."""
        sink = self._sink
        if sink is not None:
            sink.interrupt()

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
        except _NotOurs:
            self.close(abandon=True)
            return ASK_AGAIN_S
        except _StoreFailed as problem:
            return self._failed(f"the store: {problem.__cause__}")
        except SinkRefused as refusal:
            self.refused, self.error = refusal, str(refusal)
            self.shipping.errors += 1
            self.close()
            return None
        except SinkReopen:
            self.close()
            return 0.0
        except SinkUnavailable as problem:
            return self._failed(str(problem))
        except Exception as problem:  # noqa: BLE001 - a sink may be anyone's code; the others must go on
            return self._failed(f"{type(problem).__name__}: {problem}")

    def close(self, *, abandon: bool = False) -> None:
        """Close the sink if it is open, or `abandon` it if it can be. What was not flushed counts as not delivered."""
        sink, self._sink = self._sink, None
        self.next_row = self.delivered_to
        self._unconfirmed.clear()
        if sink is None:
            return
        try:
            (sink.abandon if abandon else sink.close)()
        except Exception as problem:  # noqa: BLE001 - as above; it is shown in the status
            self.error = f"close: {type(problem).__name__}: {problem}"

    def _advance(self, now: float, drain: bool) -> float | None:
        count = self._source.row_count()
        if self._sink is None:
            if count == 0 or (self._asked and self.next_row >= count):
                self._is_well()
                return None
            self._make_sure()
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
            self._make_sure()
            self._flush()
            return 0.0
        if self._pace.idle_close_s is None:
            return None
        closes_at = self._wrote_at + self._pace.idle_close_s
        if now < closes_at:
            return closes_at - now
        self.close()
        return None

    def _make_sure(self) -> None:
        if not self._may_ship():
            raise _NotOurs

    def _ask(self, question: Callable[..., _Answer], *arguments: object) -> _Answer:
        try:
            answer = question(*arguments)
        except Exception as error:
            self.store_error = error
            raise _StoreFailed from error
        self.store_error = None
        return answer

    def _open(self, count: int) -> None:
        sink = self._make_sink()
        self._sink = sink
        # A store that was restored from an older copy makes the rows after it anew, perhaps numbered otherwise, and
        # soon has as many as the destination. It must not pass then for the one that delivered them.
        noted = 0 if self._asked else self._ask(self._source.load_cursor, self._refusal)
        limit = min(count, noted - 1) if noted else count
        try:
            position = self._ask_sink(sink, limit)
        except SinkRefused:
            self._ask(self._source.save_cursor, self._refusal, limit + 1)
            raise
        if noted:
            self._ask(self._source.save_cursor, self._refusal, 0)
        self._asked = True
        self.next_row = self.delivered_to = position
        self._wrote_at = self._clock()
        if position >= count:  # what failed had delivered all there is
            self._is_well()

    def _ask_sink(self, sink: Sink, limit: int) -> int:
        """Open the sink, which can have no more than `limit` of our rows; returns the number of the first it lacks."""
        answer = sink.open(replace(self._run, rows=limit))
        self.where = sink.where
        self._tells = answer is not None
        if answer is None:
            return self._ask(self._source.load_cursor, self.name)
        if answer > limit:
            raise self._not_ours(answer, f"has only {limit}")
        if answer and not sink.ends_with(self._row(answer - 1)):
            raise self._not_ours(answer, f"has another row {answer - 1}")
        return answer

    def _row(self, number: int) -> Row:
        rows = self._ask(self._source.read_rows, number, 1)
        if not rows:
            raise SinkUnavailable(f"the store counts row {number} but did not give it")
        return rows[0]

    def _not_ours(self, held: int, but: str) -> SinkRefused:
        return SinkRefused(
            f"sink {self.name}: {self.where or 'the destination'} holds {held} rows, but the store of "
            f"{self._run.experiment} {but}: they are not this store's rows. Point the sink to another "
            "place, or move what is there away; rows are then shipped again from row 0"
        )

    def _write(self, count: int) -> None:
        assert self._sink is not None
        rows = self._ask(self._source.read_rows, self.next_row, min(self._pace.batch_rows, count - self.next_row))
        if not rows:
            raise SinkUnavailable(f"the store counts {count} rows but gave none from row {self.next_row}")
        # Only now: rows that were committed before are the same in a successor's copy of the store. Asked first, they
        # might be rows that only this process believes in.
        self._make_sure()
        if self.next_row == self.delivered_to:
            self._unflushed_since = self._clock()
        self._sink.write(rows)
        self.note = self._sink.note
        self.next_row += len(rows)
        self._wrote_at = self._clock()
        wall = self._wall()
        for row in rows:
            if row.arrival.revision == 0:
                self._unconfirmed.append(row.t)
                self.shipping.written.add(wall - row.t)
        # A sink that cannot tell what it holds would be sent these rows again after a crash.
        if not self._tells:
            self._flush()

    def _flush(self) -> None:
        assert self._sink is not None
        self._sink.flush()
        self.where = self._sink.where
        self.delivered += self.next_row - self.delivered_to
        self.delivered_to = self.next_row
        wall = self._wall()
        for t in self._unconfirmed:
            self.shipping.confirmed.add(wall - t)
        self._unconfirmed.clear()
        self._is_well()
        with suppress(_StoreFailed):  # a note to a sink that tells; another one may show its last rows again
            self._ask(self._source.save_cursor, self.name, self.delivered_to)

    def _is_well(self) -> None:
        self._failures = 0
        self.error = ""

    def _failed(self, error: str) -> float:
        # Said before the close, which may take its time, and after it, for it may have a complaint of its own.
        self.error = error
        self.shipping.errors += 1
        self._failures += 1
        self.close()
        self.error = error
        wait = min(self._pace.backoff_max_s, self._pace.backoff_min_s * 2.0 ** min(self._failures - 1, 30))
        wait *= 0.75 + 0.5 * self._jitter()
        self._retry_at = self._clock() + wait
        return wait
