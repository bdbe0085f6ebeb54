"""How rows get from the store to one sink: position, retries and flushes, as a state machine that never waits.

The position is the sink's own answer to `open`, if it gives one. The stored cursor decides only for a sink that cannot
be read back. There is one exception, for a sink whose `open` is expensive because it starts a client. It names its
destination without being opened, and the store remembers how many rows that very destination confirmed. While the store
has no other rows, the sink stays closed. As soon as there is another row it is opened, and its answer counts. From then
on the store remembers nothing until a flush has confirmed all that the sink was given.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.sinks.contract import Sink, SinkContext, SinkInterrupted, SinkRefused, SinkReopen, SinkUnavailable
from rlship_sidecar.sinks.gate import Gate
from rlship_sidecar.sinks.observed import ObservingSink
from rlship_sidecar.tally import Shipping

_Answer = TypeVar("_Answer")

BACKOFF_MIN_S = 0.5
BACKOFF_MAX_S = 15.0
FLUSH_IDLE_S = 2.0
FLUSH_MAX_S = 30.0
BATCH_ROWS = 500
ASK_AGAIN_S = 1.0
GATE_S = 0.1
MAX_STARTS = 2

# How many clients of a kind may start at once, over all experiments: each costs seconds of CPU.
STARTS = Gate(MAX_STARTS)


class RowSource(Protocol):
    """The part of the store that a delivery needs. Any thread may call every method; an exception is the store's fault,
    not the sink's.
    """

    def row_count(self) -> int:
        """How many rows are committed; they are numbered 0 to one less."""

    def read_rows(self, first: int, limit: int) -> list[Row]:
        """The rows first, first + 1, …, at most `limit`; fewer if there are no more."""

    def run_version(self) -> int:
        """The version of the run's data; it grows with each change, and 0 says that there are no such data."""

    def read_run(self) -> RunData:
        """The run's data."""

    def load_cursor(self, key: str) -> int:
        """The row number that was saved last under a key of `CursorKeys`, 0 without one."""

    def save_cursor(self, key: str, row_number: int) -> None:
        """Save it durably."""


class CursorKeys(NamedTuple):
    """The keys of the numbers that the store keeps for a sink: three of rows, and one of a version of run data."""

    sink: str

    @property
    def given(self) -> str:
        """The first row that the sink lacks, as far as this side knows: counts if the sink itself cannot say."""
        return self.sink

    @property
    def refused(self) -> str:
        """One more than the rows that the store had when the destination refused it; 0 if it did not."""
        return f"{self.sink} (refused at)"

    def confirmed(self, destination: str) -> str:
        """The first row that this destination has not confirmed."""
        return f"{self.sink} (confirmed by {destination})"

    def described(self, destination: str) -> str:
        """The version of the run's data that this destination shows."""
        return f"{self.sink} (run data of {destination})"


@dataclass(frozen=True, slots=True)
class Pace:
    """The waiting times of a delivery, in seconds.

    Rows are flushed `flush_idle_s` after the last write, and under a steady stream every `flush_max_s`. A sink that has
    had all rows for `idle_close_s` is closed until more rows come; None keeps it open.
    """

    backoff_min_s: float = BACKOFF_MIN_S
    backoff_max_s: float = BACKOFF_MAX_S
    flush_idle_s: float = FLUSH_IDLE_S
    flush_max_s: float = FLUSH_MAX_S
    idle_close_s: float | None = None
    batch_rows: int = BATCH_ROWS


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time sources of a delivery: `clock` for waiting, `wall` in Unix seconds; `jitter` in 0..1 spreads retries."""

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class DeliveryProgress:
    """How far a sink is: the first row that it was not given, and the row below which all are flushed or known to be
    there.

    `known`: the position was found since this process owns the experiment. `ceiling`: how many rows the destination can
    hold when it is opened for the first time, if that was put off; None stands for as many as the store has then.
    `owes`: the destination had rows when it was opened, and no flush has made sure of what belongs to them since.
    """

    given_below: int = 0
    confirmed_below: int = 0
    delivered: int = 0
    known: bool = False
    ceiling: int | None = None
    owes: bool = False

    def found(self, row: int) -> None:
        """The destination has every row below `row`."""
        self.given_below = self.confirmed_below = row
        self.known = True

    def flushed(self) -> None:
        """All rows that the sink was given are delivered."""
        self.delivered += self.given_below - self.confirmed_below
        self.confirmed_below = self.given_below
        self.owes = False


@dataclass(slots=True)
class Description:
    """Which version of the run's data a sink has: `given` is that of the open sink, `shown` is delivered.

    `takes`: the sink takes such data; known once a sink was made. `data` are those of version `read`.
    """

    takes: bool = False
    given: int = 0
    shown: int = 0
    read: int = 0
    data: RunData = field(default_factory=RunData)

    @property
    def is_unflushed(self) -> bool:
        """Whether the sink was given more than it delivered."""
        return self.given > self.shown


@dataclass(slots=True)
class Backoff:
    """Failures in a row, and when the next try is due."""

    failures: int = 0
    retry_at: float = 0.0

    def put_off(self, pace: Pace, clocks: Clocks) -> float:
        """Decide when the next try is due; returns the seconds until then."""
        wait = min(pace.backoff_max_s, pace.backoff_min_s * 2.0 ** min(self.failures - 1, 30))
        wait *= 0.75 + 0.5 * clocks.jitter()
        self.retry_at = clocks.clock() + wait
        return wait


@dataclass(slots=True)
class Unflushed:
    """When rows were last written, since when some are not flushed, and the records' times of those rows."""

    wrote_at: float = 0.0
    since: float = 0.0
    times: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Facts:
    """The part of a status that a delivery knows. `note`: a notice for people although rows are taken. `advice`: the
    sink's advice for all experiments alike.

    `store_error`: the store's last exception, until the store answers again.
    """

    error: str = ""
    where: str = ""
    note: str = ""
    advice: str = ""
    refused: SinkRefused | None = None
    store_error: Exception | None = None


class _StoreFailed(Exception):
    """The store raised the cause of this."""


class _NotOurs(Exception):
    """Ownership is not certain now."""


class Delivery:
    """The state machine of one sink, without a thread: `advance` takes one due step and returns when the next one is
    due.

    `may_ship` is called before every open, write and flush. While it returns false, the sink is closed and nothing is
    shipped.
    """

    def __init__(
        self,
        name: str,
        make_sink: Callable[[], Sink],
        run: SinkContext,
        source: RowSource,
        *,
        pace: Pace,
        clocks: Clocks | None = None,
        may_ship: Callable[[], bool] = lambda: True,
        starts: Gate = STARTS,
    ) -> None:
        self.name = name
        self._keys = CursorKeys(name)
        self.shipping = Shipping()
        self.facts = Facts()
        self.progress = DeliveryProgress()
        self._make_sink = make_sink
        self._run = run
        self._source = source
        self._pace = pace
        self._clocks = clocks or Clocks()
        self._may_ship = may_ship
        self._starts = starts
        self._sink: Sink | None = None
        self._description = Description()
        self._tells = False
        self._backoff = Backoff()
        self._unflushed = Unflushed()

    @property
    def waiting(self) -> bool:
        """Whether the last try failed and the next one is not due yet."""
        return self.failing and self._sink is None

    @property
    def failing(self) -> bool:
        """Whether the last try failed, no row was confirmed since, and rows are still lacking."""
        return self._backoff.failures > 0

    @property
    def at_rest(self) -> bool:
        """Whether every committed row is confirmed, or the sink refused for good."""
        if self.facts.refused is not None:
            return True
        count, progress = self._source.row_count(), self.progress
        return not self.failing and (count == 0 or (progress.known and not self.lacks(count)))

    def lacks(self, count: int) -> bool:
        """Whether the destination lacks any of the first `count` rows, or what belongs beside a row."""
        progress = self.progress
        return progress.confirmed_below < count or (count > 0 and (progress.owes or self._lacks_description))

    @property
    def _lacks_description(self) -> bool:
        return self._description.takes and self._description.shown < self._source.run_version()

    def complaint(self) -> str:
        """The last error that is not over, or "". It leaves out the sink's own name at the beginning."""
        sink = self._sink
        return (self.facts.error or (sink.trouble if sink is not None else "")).removeprefix(f"sink {self.name}: ")

    @property
    def named_after_s(self) -> float:
        """For how many seconds rows had not been delivered when the sink named its trouble."""
        sink = self._sink
        return 0.0 if sink is None else sink.named_after_s

    def interrupt(self) -> None:
        """From any thread: end a blocking call of the sink, if the sink supports it."""
        sink = self._sink
        if sink is not None:
            sink.interrupt()

    def retry_now(self) -> None:
        """Let the next `advance` try at once, in spite of the backoff."""
        self._backoff.retry_at = self._clocks.clock()

    def advance(self, *, drain: bool = False) -> float | None:
        """Take one due step: open, write a batch or flush. With `drain` a flush is due once all rows are written.

        Returns the seconds until the next step (0.0: call again at once). None means that nothing is due until rows
        come, or ever.
        """
        if self.facts.refused is not None:
            return None
        now = self._clocks.clock()
        if self.waiting and now < self._backoff.retry_at:
            return self._backoff.retry_at - now
        try:
            return self._advance(now, drain)
        except _NotOurs:
            self.close(abandon=True)
            return ASK_AGAIN_S
        except _StoreFailed as problem:
            return self._failed(f"the store: {problem.__cause__}")
        except SinkRefused as refusal:
            self.facts.refused, self.facts.error = refusal, str(refusal)
            self.shipping.errors += 1
            self.close()
            return None
        except SinkReopen:
            self.close()
            return 0.0
        except SinkInterrupted as problem:
            return self._failed(self.facts.error or str(problem))
        except SinkUnavailable as problem:
            return self._failed(str(problem))
        except Exception as problem:  # noqa: BLE001 - a sink may be third-party code; the other sinks must go on
            return self._failed(f"{type(problem).__name__}: {problem}")

    def close(self, *, abandon: bool = False) -> str:
        """Close the sink if it is open, or `abandon` it if that is possible. Unflushed rows count as not delivered.

        Returns what failed, or "".
        """
        sink, self._sink = self._sink, None
        self.progress.given_below = self.progress.confirmed_below
        self._description.given = 0
        self._unflushed.times.clear()
        if sink is None:
            return ""
        try:
            (sink.abandon if abandon else sink.close)()
        except (SinkUnavailable, SinkRefused) as problem:
            self.facts.error = str(problem)
        except Exception as problem:  # noqa: BLE001 - as above; it is shown in the status
            self.facts.error = f"sink {self.name}: close: {type(problem).__name__}: {problem}"
        else:
            return ""
        return self.facts.error

    def _advance(self, now: float, drain: bool) -> float | None:
        count, progress = self._source.row_count(), self.progress
        if self._sink is None:
            return self._begin(count)
        if self._description.takes and self._description.given != self._source.run_version():
            self._describe(self._sink)
            return 0.0
        has_unflushed = self._has_unflushed
        must_flush_at = self._unflushed.since + self._pace.flush_max_s
        if progress.given_below < count and not (has_unflushed and now >= must_flush_at):
            self._write(self._sink, count)
            return 0.0
        if has_unflushed:
            due = min(self._unflushed.wrote_at + self._pace.flush_idle_s, must_flush_at)
            if not drain and now < due:
                return due - now
            self._make_sure()
            self._flush(self._sink)
            return 0.0
        return self._rest(self._sink, now, drain)

    def _rest(self, sink: Sink, now: float, drain: bool) -> float | None:
        """Nothing is to be delivered: flush if the sink wants it, close it once it was idle for long."""
        wanted = None if drain else sink.flush_due_s  # with `drain` it is about to be closed
        if wanted is not None and wanted <= 0.0:
            self._make_sure()
            self._flush(sink)
            return 0.0
        if self._pace.idle_close_s is None:
            return wanted
        closes_at = self._unflushed.wrote_at + self._pace.idle_close_s
        if now < closes_at:
            return min(closes_at - now, math.inf if wanted is None else wanted)
        self.close()
        return None

    @property
    def _has_unflushed(self) -> bool:
        progress = self.progress
        return progress.given_below > progress.confirmed_below or progress.owes or self._description.is_unflushed

    def _make_sure(self) -> None:
        if not self._may_ship():
            raise _NotOurs

    def _ask(self, question: Callable[..., _Answer], *arguments: object) -> _Answer:
        try:
            answer = question(*arguments)
        except Exception as error:
            self.facts.store_error = error
            raise _StoreFailed from error
        self.facts.store_error = None
        return answer

    # Opening -------------------------------------------------------------------------------------------------------

    def _begin(self, count: int) -> float | None:
        """Open the sink if it may lack rows."""
        progress = self.progress
        has_all = progress.given_below >= count and not progress.owes and not self._lacks_description
        if count == 0 or (progress.known and has_all):
            self._is_well()
            return None
        self._make_sure()
        sink = self._make_sink()
        self._description.takes = _describes(sink)
        expensive = bool(sink.destination(self._context(count)))
        if expensive and not progress.known and self._is_confirmed(sink, count):
            # How many of these rows the destination can hold is known now. Rows that are made later, before it is
            # opened, must not be mistaken for rows that it holds.
            progress.found(count)
            progress.ceiling = count
            self._is_well()
            return None
        if expensive and not self._starts.enter(id(self)):
            return GATE_S
        try:
            self._open(sink, count)
        finally:
            if expensive:
                self._starts.leave(id(self))
        return 0.0

    def _context(self, rows: int) -> SinkContext:
        """The facts for the sink, as they are now."""
        described, version = self._description, self._source.run_version()
        if described.takes and described.read != version:
            described.data, described.read = self._ask(self._source.read_run), version
        return replace(self._run, rows=rows, run_data=described.data, stored=self._stored)

    def _stored(self, first: int, limit: int) -> list[Row]:
        return self._ask(self._source.read_rows, first, limit)

    def _is_confirmed(self, sink: Sink, count: int) -> bool:
        """Whether the destination confirmed every row and shows the run's data, and never refused them."""
        destination, load = sink.destination(self._context(count)), self._source.load_cursor
        if self._ask(load, self._keys.refused) or self._ask(load, self._keys.confirmed(destination)) != count:
            return False
        shown = self._ask(load, self._keys.described(destination))
        if self._description.takes and shown < self._source.run_version():
            return False
        self._description.shown = shown
        return True

    def _open(self, sink: Sink, count: int) -> None:
        self._sink = sink
        progress = self.progress
        # A store that was restored from an older copy makes the later rows again, perhaps with other numbers, and
        # soon has as many as the destination. It must not be mistaken then for the store that delivered them.
        noted = 0 if progress.known else self._ask(self._source.load_cursor, self._keys.refused)
        limit = min(count, noted - 1) if noted else count
        if progress.ceiling is not None:
            limit = min(limit, progress.ceiling)
        try:
            answer = self._ask_sink(sink, limit)
        except SinkRefused:
            self._ask(self._source.save_cursor, self._keys.refused, limit + 1)
            raise
        if noted:
            self._ask(self._source.save_cursor, self._keys.refused, 0)
        progress.found(answer)
        progress.ceiling = None
        # The process before may have ended between the last rows and what belongs to them, such as the summary of the
        # run. Until a flush has made sure of that, the next start must open the destination again.
        progress.owes = answer > 0 and bool(sink.destination(self._context(count)))
        self._remember(sink)
        self._unflushed.wrote_at = self._unflushed.since = self._clocks.clock()
        if answer >= count and not progress.owes:  # the failed try had delivered every row
            self._is_well()

    def _ask_sink(self, sink: Sink, limit: int) -> int:
        """Open the sink, which can have at most `limit` of our rows; returns the first row number that it lacks."""
        answer = sink.open(self._context(limit))
        self.facts.where, self.facts.advice = sink.where, sink.advice
        self._tells = answer is not None
        if answer is None:
            return self._ask(self._source.load_cursor, self._keys.given)
        if answer > limit:
            raise self._not_ours(answer, f"can have delivered only {limit}")
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
            f"sink {self.name}: {self.facts.where or 'the destination'} holds {held} rows, but the store of "
            f"{self._run.experiment} {but}: they are not this store's rows. Point the sink to another "
            "place, or move what is there away; rows are then shipped again from row 0"
        )

    # Rows ----------------------------------------------------------------------------------------------------------

    def _write(self, sink: Sink, count: int) -> None:
        progress, unflushed = self.progress, self._unflushed
        limit = min(self._pace.batch_rows, count - progress.given_below)
        rows = self._ask(self._source.read_rows, progress.given_below, limit)
        if not rows:
            raise SinkUnavailable(f"the store counts {count} rows but gave none from row {progress.given_below}")
        # Checked after reading: rows committed before the check are the same in a successor's copy. Checked first, they
        # might be rows that exist only in this process's store.
        self._make_sure()
        if not self._has_unflushed:
            unflushed.since = self._clocks.clock()
        sink.write(rows)
        self.facts.note = sink.note
        progress.given_below += len(rows)
        unflushed.wrote_at = self._clocks.clock()
        wall = self._clocks.wall()
        for row in rows:
            if row.arrival.revision == 0:
                unflushed.times.append(row.t)
                self.shipping.written.add(wall - row.t)
        # After a crash a sink that cannot be read back would get these rows again.
        if not self._tells:
            self._flush(sink)

    def _describe(self, sink: Sink) -> None:
        """Give the sink the run's data."""
        run_data = self._context(0).run_data
        self._make_sure()  # after reading, as for rows
        if not self._has_unflushed:
            self._unflushed.since = self._clocks.clock()
        sink.describe(run_data)
        self._unflushed.wrote_at = self._clocks.clock()
        self._description.given = self._description.read

    def _flush(self, sink: Sink) -> None:
        sink.flush()
        self.facts.where = sink.where
        self.progress.flushed()
        self._description.shown = max(self._description.shown, self._description.given)
        wall = self._clocks.wall()
        for t in self._unflushed.times:
            self.shipping.confirmed.add(wall - t)
        self._unflushed.times.clear()
        self._is_well()
        with suppress(
            _StoreFailed
        ):  # only a hint for a sink that can be read back; another one may show its last rows again
            self._ask(self._source.save_cursor, self._keys.given, self.progress.confirmed_below)
        self._remember(sink)

    def _remember(self, sink: Sink) -> None:
        """Save what the destination has, if it has a name."""
        if destination := sink.destination(self._context(0)):
            save, keys = self._source.save_cursor, self._keys
            with suppress(_StoreFailed):  # then the next sidecar opens the sink
                self._ask(save, keys.confirmed(destination), 0 if self.progress.owes else self.progress.confirmed_below)
                if self._description.shown:
                    self._ask(save, keys.described(destination), self._description.shown)

    def _is_well(self) -> None:
        self._backoff.failures = 0
        self.facts.error = ""

    def _failed(self, error: str) -> float:
        # Recorded before the close, which may take long, and after it, because closing may fail too.
        self.facts.error = error
        self.shipping.errors += 1
        self._backoff.failures += 1
        self.close()
        self.facts.error = error
        return self._backoff.put_off(self._pace, self._clocks)


def _describes(sink: Sink) -> bool:
    """Whether a sink takes the run's data."""
    taker = sink.inner if isinstance(sink, ObservingSink) else sink
    return type(taker).describe is not Sink.describe
