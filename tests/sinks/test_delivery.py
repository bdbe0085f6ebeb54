"""The state machine of one sink, driven by hand with a clock that stands still."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.delivery import BACKOFF_MAX_S, BACKOFF_MIN_S, Clocks, Delivery, Pace
from rlship_sidecar.sinks.gate import Gate
from rlship_sidecar.sinks.registry import with_defaults
from tests.kit.clocks import Clock
from tests.sinks.fakes import Destination, FakeSink, raising
from tests.sinks.rows import MemorySource, make_rows, make_run


def make_delivery(
    destination: Destination,
    source: MemorySource,
    clock: Clock,
    *,
    pace: Pace | None = None,
    jitter: float = 0.5,
    may_ship: Callable[[], bool] = lambda: True,
) -> Delivery:
    return Delivery(
        "fake",
        destination.sink,
        make_run(Path("/experiment")),
        source,
        pace=pace or Pace(),
        clocks=Clocks(clock, jitter=lambda: jitter),
        may_ship=may_ship,
    )


def settle(delivery: Delivery, *, drain: bool = False) -> float | None:
    """Advance until nothing is due now; returns how long."""
    for _ in range(1000):
        wait = delivery.advance(drain=drain)
        if wait != 0.0:
            return wait
    raise AssertionError("it never comes to rest")


def test_nothing_is_made_before_there_are_rows() -> None:
    """A sink's resources are first made when the store has its first row."""
    destination, source = Destination(), MemorySource()
    delivery = make_delivery(destination, source, Clock())

    assert settle(delivery) is None
    assert destination.made == 0

    source.append(make_rows(0, 1))
    settle(delivery)
    assert destination.made == 1
    assert destination.runs[0].rows == 1


def test_the_destination_decides_where_to_go_on() -> None:
    """A sink that tells what it holds is believed, whatever the stored cursor says."""
    destination, source = Destination(held=[0, 1]), MemorySource(make_rows(0, 5))
    source.save_cursor("fake", 4)
    settle(make_delivery(destination, source, Clock()), drain=True)

    assert destination.held == [0, 1, 2, 3, 4]
    assert source.cursors == {"fake": 5}


def test_the_cursor_decides_for_a_sink_that_cannot_tell() -> None:
    """Such a sink goes on at the stored cursor, which is saved after every batch."""
    destination, source = Destination(tells=False), MemorySource(make_rows(0, 5))
    source.save_cursor("fake", 2)
    delivery = make_delivery(destination, source, Clock(), pace=Pace(batch_rows=2))
    settle(delivery)

    assert destination.held == [2, 3, 4]
    assert destination.calls == ["open", "write", "flush", "write", "flush"]
    assert source.cursors == {"fake": 5}


def test_more_rows_than_the_store_are_refused() -> None:
    """A destination with more rows than the store has belongs to another one: refused, named, with the way out."""
    destination, source = Destination(held=[0, 1, 2]), MemorySource(make_rows(0, 2))
    delivery = make_delivery(destination, source, Clock())

    assert settle(delivery) is None
    assert isinstance(delivery.facts.refused, SinkRefused)
    assert "memory" in str(delivery.facts.refused) and "3 rows" in str(delivery.facts.refused)
    assert "only 2" in str(delivery.facts.refused) and "move" in str(delivery.facts.refused)
    assert destination.calls == ["open", "close"]


def test_a_refused_store_does_not_grow_into_acceptance() -> None:
    """A store that lacked rows of its destination once, as one restored from an older copy does, is refused as well
    when it has as many by another numbering; once the destination is moved away it is served from row 0.
    """
    destination, source = Destination(held=[0, 1, 2]), MemorySource(make_rows(0, 2))
    settle(make_delivery(destination, source, Clock()))
    source.append(make_rows(2, 9))
    again = make_delivery(destination, source, Clock())
    assert settle(again) is None and again.facts.refused is not None and destination.held == [0, 1, 2]

    destination.held.clear()
    moved = make_delivery(destination, source, Clock())
    settle(moved, drain=True)
    assert destination.held == list(range(9)) and moved.facts.refused is None
    settle(make_delivery(destination, source, Clock()), drain=True)
    assert destination.held == list(range(9))


def test_backoff_doubles_to_its_maximum() -> None:
    """An unavailable sink is tried again after 0.5 s, 1 s, 2 s … 15 s, and the next success starts that over."""
    destination, source, clock = Destination(), MemorySource(make_rows(0, 1)), Clock()
    delivery = make_delivery(destination, source, clock)
    destination.fail = raising(SinkUnavailable("no route"), times=9)
    waits = []
    while (wait := settle(delivery, drain=True)) is not None:
        assert delivery.waiting and delivery.facts.error == "no route"
        waits.append(wait)
        assert delivery.advance() == wait, "not due yet"
        clock.sleep(wait)

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0]
    assert destination.held == [0]
    assert delivery.facts.error == "" and not delivery.waiting

    source.append(make_rows(1, 2))
    destination.fail = raising(SinkUnavailable("again"), on="write", times=1)
    assert settle(delivery) == 0.5


def test_a_sink_that_opens_but_never_delivers_backs_off_too() -> None:
    """Only a flush counts as success: a sink that opens and writes, but fails to deliver, is tried ever more seldom."""
    destination, source, clock = Destination(), MemorySource(make_rows(0, 1)), Clock()
    delivery = make_delivery(destination, source, clock)
    destination.fail = raising(SinkUnavailable("lost"), on="flush")
    waits = []
    for _ in range(4):
        wait = settle(delivery, drain=True)
        assert wait is not None
        waits.append(wait)
        clock.sleep(wait)

    assert waits == [0.5, 1.0, 2.0, 4.0]
    assert destination.held == []


@given(jitter=st.floats(0, 1), failures=st.integers(1, 2000))
def test_jitter_stays_within_a_quarter(jitter: float, failures: int) -> None:
    """A wait is never off by more than a quarter, however many failures there were."""
    destination, clock = Destination(fail=raising(SinkUnavailable("x"))), Clock()
    delivery = make_delivery(destination, MemorySource(make_rows(0, 1)), clock, jitter=jitter)
    wait = 0.0
    for _ in range(min(failures, 40)):
        wait = settle(delivery) or 0.0
        clock.sleep(wait)

    plain = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2 ** (min(failures, 40) - 1))
    assert 0.75 * plain <= wait <= 1.25 * plain


def test_a_refusal_is_final() -> None:
    """After SinkRefused the sink is closed and never touched again."""
    destination, source, clock = Destination(), MemorySource(make_rows(0, 1)), Clock()
    destination.fail = raising(SinkRefused("not yours"), on="write")
    delivery = make_delivery(destination, source, clock)
    settle(delivery)
    before = list(destination.calls)
    clock.sleep(1e6)

    assert settle(delivery) is None
    assert destination.calls == before == ["open", "write", "close"]
    assert str(delivery.facts.refused) == delivery.facts.error == "not yours"


def test_a_bug_in_a_sink_is_an_outage_with_its_name() -> None:
    """Any other exception of a sink is retried like an outage and shown with its type."""
    destination, clock = Destination(fail=raising(ZeroDivisionError("oops"), on="write", times=1)), Clock()
    delivery = make_delivery(destination, MemorySource(make_rows(0, 2)), clock)

    wait = settle(delivery)
    assert wait == 0.5
    assert delivery.facts.error == "ZeroDivisionError: oops"
    clock.sleep(wait)
    settle(delivery, drain=True)
    assert destination.held == [0, 1]


def test_an_error_in_close_harms_nobody() -> None:
    """A sink that cannot even be closed is left behind; a new one delivers."""
    destination, clock = Destination(), Clock()
    failing = {"write": SinkUnavailable("down"), "close": OSError("still down")}

    def fail(call: str) -> None:
        if call in failing:
            raise failing.pop(call)

    destination.fail = fail
    delivery = make_delivery(destination, MemorySource(make_rows(0, 1)), clock)
    clock.sleep(settle(delivery) or 0.0)
    settle(delivery, drain=True)

    assert destination.held == [0]


def test_rows_are_flushed_when_the_stream_pauses_and_at_the_latest_after_a_while() -> None:
    """Two seconds after the last row, under a steady stream every 30: a flush may wait for a server's answer."""
    destination, source, clock = Destination(), MemorySource(make_rows(0, 1)), Clock()
    delivery = make_delivery(destination, source, clock)

    assert settle(delivery) == 2.0
    clock.sleep(2.0)
    settle(delivery)
    assert destination.held == [0]

    begin = clock.now
    for no in range(1, 100):
        source.append(make_rows(no, no + 1))
        settle(delivery)
        if len(destination.held) > 1:
            break
        clock.sleep(1.0)
    assert clock.now - begin == 30.0


def test_an_idle_sink_is_closed_and_opened_again() -> None:
    """With `idle_close_s` a sink that has everything is closed after that time, and opened again for new rows."""
    destination, source, clock = Destination(), MemorySource(make_rows(0, 1)), Clock()
    delivery = make_delivery(destination, source, clock, pace=Pace(idle_close_s=60.0))
    settle(delivery, drain=True)
    wait = settle(delivery)
    assert wait == 60.0
    clock.sleep(wait)
    assert settle(delivery) is None
    assert destination.calls[-1] == "close"

    source.append(make_rows(1, 2))
    settle(delivery, drain=True)
    assert destination.held == [0, 1] and destination.made == 2


def test_a_store_that_gives_fewer_rows_than_it_counts_is_an_outage() -> None:
    """An empty answer of the store is reported instead of being asked for in a loop."""

    class Empty(MemorySource):
        def row_count(self) -> int:
            return 3

    delivery = make_delivery(Destination(), Empty(), Clock())
    assert settle(delivery) == 0.5
    assert delivery.facts.error == "the store counts 3 rows but gave none from row 0"


@given(
    failures=st.lists(st.tuples(st.sampled_from(["open", "write", "flush"]), st.booleans()), max_size=12),
    batch=st.integers(1, 4),
    rows=st.integers(1, 12),
)
def test_whatever_fails_every_row_arrives_once_and_in_order(
    failures: list[tuple[str, bool]], batch: int, rows: int
) -> None:
    """For a sink that can tell, any series of failures, outages or bugs, ends with every row there once."""
    destination, source, clock = Destination(), MemorySource(), Clock()
    plan = list(failures)

    def fail(call: str) -> None:
        if plan and plan[0][0] == call:
            _, bug = plan.pop(0)
            raise RuntimeError("bug") if bug else SinkUnavailable("outage")

    destination.fail = fail
    delivery = make_delivery(destination, source, clock, pace=Pace(batch_rows=batch))
    for no in range(rows):
        source.append(make_rows(no, no + 1))
        clock.sleep(settle(delivery) or 0.0)
    for _ in range(len(failures) + 1):
        clock.sleep(settle(delivery, drain=True) or 0.0)

    assert destination.held == list(range(rows))
    assert delivery.progress.confirmed_below == rows == source.cursors["fake"]


def test_a_plugin_without_a_place_is_fine() -> None:
    """`where` is optional: a sink without it shows an empty place."""

    class Bare:
        def open(self, run: object) -> int | None:
            return 0

        def write(self, rows: object) -> None:
            return

        flush = close = lambda self: None

    delivery = Delivery(
        "bare",
        with_defaults(Bare),
        make_run(Path("/x")),
        MemorySource(make_rows(0, 1)),
        pace=Pace(),
        clocks=Clocks(Clock(), jitter=lambda: 0.0),
    )
    settle(delivery, drain=True)

    assert (delivery.progress.delivered, delivery.facts.where, delivery.complaint()) == (1, "", "")


def test_rows_are_read_before_it_is_made_sure_that_they_may_go() -> None:
    """A process that is frozen after the look at its lease and goes on later hands over no row that it committed since:
    a successor's row of that number may be another.
    """
    calls: list[str] = []

    class Watched(MemorySource):
        def read_rows(self, first: int, limit: int) -> list[Row]:
            calls.append("read")
            return super().read_rows(first, limit)

    def asked() -> bool:
        calls.append("asked")
        return True

    destination, source = Destination(fail=calls.append), Watched(make_rows(0, 4))
    settle(make_delivery(destination, source, Clock(), pace=Pace(batch_rows=2), may_ship=asked), drain=True)
    assert calls == ["asked", "open", *["read", "asked", "write"] * 2, "asked", "flush"]


@pytest.mark.parametrize("lost_at", range(6))
def test_a_lost_lease_stops_a_delivery_before_any_call(lost_at: int) -> None:
    """Whenever the answer turns to no, nothing more reaches the sink but its end; once it is yes again, all goes on."""
    destination, source, clock = Destination(), MemorySource(make_rows(0, 6)), Clock()
    answers = iter([True] * lost_at + [False])
    delivery = make_delivery(
        destination, source, clock, pace=Pace(batch_rows=2), may_ship=lambda: next(answers, regained[0])
    )
    regained = [False]
    wait = settle(delivery, drain=True)
    if lost_at < 5:
        assert wait == 1.0
        calls = ["open", "write", "write", "write", "flush"][:lost_at]
        assert destination.calls == [*calls, *["close"] * bool(calls)]
        assert settle(delivery, drain=True) == 1.0
        assert destination.calls == [*calls, *["close"] * bool(calls)]
    regained[0] = True
    settle(delivery, drain=True)
    assert destination.held == list(range(6))
    assert delivery.facts.error == "" and not delivery.waiting


def test_a_sink_that_can_be_abandoned_is_when_ownership_is_lost() -> None:
    """`abandon` takes the place of `close`: the end that a sink gives its destination is the new owner's to give."""
    calls: list[str] = []

    class Leaving(FakeSink):
        def abandon(self) -> None:
            calls.append("abandon")

    destination, owner = Destination(), [True]
    delivery = make_delivery(destination, MemorySource(make_rows(0, 2)), Clock(), may_ship=lambda: owner[0])
    delivery._make_sink = lambda: Leaving(destination)
    delivery.advance()
    owner[0] = False
    settle(delivery, drain=True)
    assert calls == ["abandon"] and destination.calls == ["open"]


class BadStore(MemorySource):
    """A store of which one call fails as often as `left` says."""

    def __init__(self, rows: list[Row], call: str, left: int) -> None:
        super().__init__(rows)
        self.call = call
        self.left = left

    def _fail(self, call: str) -> None:
        if call == self.call and self.left:
            self.left -= 1
            raise sqlite3.DatabaseError("database disk image is malformed")

    def read_rows(self, first: int, limit: int) -> list[Row]:
        self._fail("read_rows")
        return super().read_rows(first, limit)

    def load_cursor(self, sink: str) -> int:
        self._fail("load_cursor")
        return super().load_cursor(sink)

    def save_cursor(self, sink: str, next_row: int) -> None:
        self._fail("save_cursor")
        super().save_cursor(sink, next_row)


@pytest.mark.parametrize("call", ["read_rows", "load_cursor"])
def test_what_the_store_raises_is_not_the_sinks_fault(call: str) -> None:
    """It is kept as it is for the owner of the store, told as the store's, and tried again; then it is forgotten."""
    destination, clock = Destination(tells=False), Clock()
    delivery = make_delivery(destination, BadStore(make_rows(0, 2), call, 1), clock)
    wait = settle(delivery, drain=True)
    assert wait == 0.5
    assert isinstance(delivery.facts.store_error, sqlite3.DatabaseError)
    assert delivery.complaint() == "the store: database disk image is malformed"
    clock.sleep(wait)
    settle(delivery, drain=True)
    assert delivery.facts.store_error is None and delivery.complaint() == ""
    assert delivery.progress.confirmed_below == 2


@pytest.mark.parametrize("tells", [True, False])
def test_a_cursor_that_cannot_be_saved_disturbs_no_sink(tells: bool) -> None:
    """A full disk under the store does not close the sinks: a later cursor is as good, and most need none."""
    destination, source, clock = Destination(tells=tells), BadStore(make_rows(0, 2), "save_cursor", 3), Clock()
    delivery = make_delivery(destination, source, clock)
    for no in range(2, 6):
        settle(delivery, drain=True)
        source.append(make_rows(no, no + 1))
    settle(delivery, drain=True)
    assert destination.held == list(range(6))
    assert destination.made == 1 and "close" not in destination.calls
    assert source.cursors == {"fake": 6} and delivery.facts.store_error is None


class Expensive(FakeSink):
    """A sink that names its destination."""

    place = "here"

    def destination(self, run: Run) -> str:
        return self.place


def expensive(destination: Destination, source: MemorySource, **options: Any) -> Delivery:
    return Delivery(
        "fake",
        lambda: Expensive(destination),
        make_run(Path("/experiment")),
        source,
        pace=Pace(),
        clocks=Clocks(Clock(), jitter=lambda: 0.5),
        **options,
    )


def test_an_expensive_sink_is_opened_for_unconfirmed_rows_only() -> None:
    """After a restart with nothing to ship it stays closed; one more row opens it, and its own answer counts."""
    destination, source = Destination(), MemorySource(make_rows(0, 3))
    settle(expensive(destination, source), drain=True)
    assert destination.calls.count("open") == 1

    again = expensive(destination, source)
    assert settle(again) is None and again.at_rest
    assert destination.calls.count("open") == 1 and again.progress.given_below == 3

    destination.held.pop()  # the destination lost a row meanwhile
    source.append(make_rows(3, 4))
    settle(again, drain=True)
    assert destination.held == [0, 1, 2, 3]


@pytest.mark.parametrize("killed", [False, True], ids=["fails", "killed"])
def test_a_destination_that_was_opened_with_rows_is_flushed_once(killed: bool) -> None:
    """It may lack what belongs to the rows, such as the summary of a run. Until one flush has worked it is tried again
    without a new row, ever more seldom, and after kill -9 by the next start. From then on it stays closed.
    """
    destination, source = Destination(held=[0, 1, 2]), MemorySource(make_rows(0, 3))
    destination.fail = raising(SinkUnavailable("not shown yet"), on="flush")
    first = expensive(destination, source)
    assert settle(first, drain=True) is not None and not first.at_rest
    first.retry_now()
    assert settle(first, drain=True) == 2 * Pace().backoff_min_s
    destination.fail = lambda call: None
    again = first
    if killed:
        again = expensive(destination, source)
    again.retry_now()
    settle(again, drain=True)
    assert again.at_rest and destination.calls.count("open") == 3
    settle(expensive(destination, source), drain=True)
    assert destination.calls.count("open") == 3 and "write" not in destination.calls


def test_another_destination_confirmed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one place confirmed says nothing of another: all rows are shipped there."""
    source = MemorySource(make_rows(0, 3))
    settle(expensive(Destination(), source), drain=True)
    monkeypatch.setattr(Expensive, "place", "there")
    other = Destination()
    settle(expensive(other, source), drain=True)
    assert other.held == [0, 1, 2]


def test_rows_of_a_store_restored_from_a_copy_pass_for_no_others() -> None:
    """The destination holds more than the store had when the sidecar started: it is refused, however many rows the
    store has by the time that the sink is opened.
    """
    destination, source = Destination(), MemorySource(make_rows(0, 3))
    settle(expensive(destination, source), drain=True)
    destination.held = [0, 1, 2, 3, 4]

    again = expensive(destination, source)
    assert settle(again) is None
    source.append(make_rows(3, 9))
    settle(again, drain=True)
    assert again.facts.refused is not None and destination.held == [0, 1, 2, 3, 4]


def test_few_expensive_sinks_start_at_once() -> None:
    """While others start it waits, and asks again soon."""
    gate = Gate(1)
    assert gate.enter(0)
    destination, source = Destination(), MemorySource(make_rows(0, 1))
    delivery = expensive(destination, source, starts=gate)
    wait = delivery.advance()
    assert wait is not None and 0 < wait < 1 and destination.calls == []
    gate.leave(0)
    settle(delivery, drain=True)
    assert destination.held == [0] and gate.enter(0)
