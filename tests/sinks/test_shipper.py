"""The thread around a delivery: isolation, draining, stopping, status."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.ship import Clocks, Pace, Shipper, TroubleWatch
from tests.kit.clocks import Clock
from tests.kit.waiting import wait_until
from tests.sinks.fakes import Destination, FakeSink, raising
from tests.sinks.rows import MemorySource, make_rows, make_run

MakeShipper = Callable[..., Shipper]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[MakeShipper]:
    """Starts shippers that are stopped at the end."""
    started: list[Shipper] = []

    def make(destination: Destination, source: MemorySource, *, name: str = "fake", **options: object) -> Shipper:
        shipper = Shipper(name, destination.sink, make_run(tmp_path), source, **options)  # type: ignore[arg-type]
        shipper.start()
        started.append(shipper)
        return shipper

    yield make
    for shipper in started:
        assert shipper.stop()


def test_rows_are_shipped_when_woken(start: MakeShipper) -> None:
    """`wake` after a commit is enough; the rows need no drain to be written."""
    destination, source = Destination(), MemorySource()
    shipper = start(destination, source, pace=Pace(flush_idle_s=0.01))
    assert shipper.status().state == "idle"

    source.append(make_rows(0, 3))
    shipper.wake()
    wait_until(lambda: destination.held == [0, 1, 2])
    wait_until(lambda: shipper.status().state == "idle")
    status = shipper.status()
    assert (status.name, status.next_row, status.sent, status.where) == ("fake", 3, 3, "memory")


def test_drain_delivers_everything_committed_so_far(start: MakeShipper) -> None:
    """`drain` flushes without waiting for the pause that a flush usually waits for."""
    destination, source = Destination(), MemorySource(make_rows(0, 2000))
    shipper = start(destination, source)

    begin = time.monotonic()
    assert shipper.drain(10.0)
    assert destination.held == list(range(2000))
    assert time.monotonic() - begin < 2.0


def test_drain_of_nothing_is_done_at_once(start: MakeShipper) -> None:
    """A store without rows is drained, and no sink was made for it."""
    destination = Destination()

    assert start(destination, MemorySource()).drain(0.0)
    assert destination.made == 0


def test_drain_does_not_wait_out_a_backoff(start: MakeShipper) -> None:
    """A sink that is waiting is tried again at once when draining begins."""
    destination, source = Destination(fail=raising(SinkUnavailable("down"), times=1)), MemorySource(make_rows(0, 1))
    shipper = start(destination, source, pace=Pace(backoff_min_s=600.0, backoff_max_s=600.0))
    wait_until(lambda: shipper.status().state == "waiting")
    assert shipper.status().error == "down"

    assert shipper.drain(5.0)
    assert destination.held == [0]


def test_drain_gives_up_in_time(start: MakeShipper) -> None:
    """A sink that stays down makes `drain` return False when its time is over."""
    shipper = start(Destination(fail=raising(SinkUnavailable("down"))), MemorySource(make_rows(0, 1)))

    begin = time.monotonic()
    assert not shipper.drain(0.2)
    assert time.monotonic() - begin < 5.0


def test_drain_returns_at_once_when_refused(start: MakeShipper) -> None:
    """Nothing is waited for that cannot come; the refusal is at hand for the exit code."""
    shipper = start(Destination(fail=raising(SinkRefused("not yours"))), MemorySource(make_rows(0, 1)))

    begin = time.monotonic()
    assert not shipper.drain(60.0)
    assert time.monotonic() - begin < 5.0
    assert str(shipper.refused) == "not yours"
    assert shipper.status().state == "refused"


def test_a_sink_that_blocks_holds_back_no_other(start: MakeShipper) -> None:
    """One sink hangs in `write`, one is down, one has a bug: the fourth delivers everything meanwhile."""
    source = MemorySource(make_rows(0, 100))
    release = threading.Event()

    def block(call: str) -> None:
        if call == "write":
            release.wait(30.0)

    hanging = start(Destination(fail=block), source, name="hanging")
    start(Destination(fail=raising(SinkUnavailable("down"))), source, name="down")
    start(Destination(fail=raising(KeyError("bug"))), source, name="bug")
    healthy = Destination()
    shipper = start(healthy, source, name="healthy")
    try:
        assert shipper.drain(10.0)
        assert healthy.held == list(range(100))
        assert hanging.status().state == "shipping"
    finally:
        release.set()


def test_stop_closes_the_sink_and_ends_the_thread(start: MakeShipper) -> None:
    """After `stop` the sink is closed, nothing more is shipped, and draining says so at once."""
    destination, source = Destination(), MemorySource(make_rows(0, 1))
    shipper = start(destination, source)
    assert shipper.drain(5.0)

    assert shipper.stop()
    assert destination.calls[-1] == "close"
    source.append(make_rows(1, 2))
    shipper.wake()
    assert not shipper.drain(5.0)
    assert destination.held == [0]
    assert shipper.status().state == "closed"


def test_stop_before_start_is_harmless(tmp_path: Path) -> None:
    """A shipper that was never started stops at once."""
    assert Shipper("fake", Destination().sink, make_run(tmp_path), MemorySource()).stop()


def test_a_sidecar_that_lost_its_lease_ships_no_more(start: MakeShipper) -> None:
    """`may_ship` is asked before every batch: while it says no, the sink is closed and nothing is shipped."""
    destination, source, owner = Destination(), MemorySource(make_rows(0, 1)), [True]
    shipper = start(destination, source, may_ship=lambda: owner[0])
    assert shipper.drain(5.0)

    owner[0] = False
    source.append(make_rows(1, 2))
    assert not shipper.drain(0.3)
    assert destination.held == [0]
    assert destination.calls[-1] == "close"
    owner[0] = True
    assert shipper.drain(5.0)
    assert destination.held == [0, 1]


def test_many_drains_and_wakes_at_once(start: MakeShipper) -> None:
    """Rows committed by one thread while others drain and wake arrive once each and in order."""
    destination, source = Destination(), MemorySource()
    shipper = start(destination, source, pace=Pace(batch_rows=7))
    results: list[bool] = []

    def commit() -> None:
        for no in range(300):
            source.append(make_rows(no, no + 1))
            shipper.wake()

    def drain() -> None:
        results.extend(shipper.drain(20.0) for _ in range(20))

    threads = [threading.Thread(target=target) for target in (commit, drain, drain)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert shipper.drain(20.0)
    assert all(results) and len(results) == 40
    assert destination.held == list(range(300))


def test_a_damaged_store_is_shown_to_its_owner(start: MakeShipper) -> None:
    """What the store raised in the shipper's thread can be asked for from another."""

    class Damaged(MemorySource):
        def read_rows(self, first: int, limit: int) -> list[Row]:
            raise sqlite3.DatabaseError("malformed")

    shipper = start(Destination(), Damaged(make_rows(0, 1)))
    wait_until(lambda: shipper.store_error is not None)
    assert str(shipper.store_error) == "malformed"
    assert shipper.status().error == "the store: malformed"


def test_a_call_that_blocks_is_interrupted_when_it_has_to_end(tmp_path: Path) -> None:
    """`stop` ends a sink's wait for its destination and closes it, so it takes little time."""
    told = threading.Event()

    class Waiting(FakeSink):
        def flush(self) -> None:
            assert told.wait(30.0)
            raise SinkUnavailable("interrupted")

        def interrupt(self) -> None:
            told.set()

    destination = Destination()
    shipper = Shipper("fake", lambda: Waiting(destination), make_run(tmp_path), MemorySource(make_rows(0, 1)))
    shipper.start()
    assert not shipper.drain(0.2)
    began = time.monotonic()
    assert shipper.stop()
    assert time.monotonic() - began < 5.0
    assert destination.calls[-1] == "close"


def test_trouble_lasts_while_nothing_is_confirmed() -> None:
    """It begins with the complaint, anew with every row that is confirmed all the same, and ends with the complaint."""
    trouble = TroubleWatch()
    assert trouble.look("", 5, 100.0) == 0.0
    assert (trouble.look("down", 5, 101.0), trouble.look("down still", 5, 109.0)) == (0.0, 8.0)
    assert (trouble.look("slow", 6, 110.0), trouble.look("slow", 6, 113.0)) == (0.0, 3.0)
    assert (trouble.look("", 6, 114.0), trouble.look("down", 6, 120.0)) == (0.0, 0.0)


def test_a_sink_that_complains_and_confirms_nothing_waits(start: MakeShipper) -> None:
    """A sink that holds its rows back, as a client does whose server is away, is `waiting` after a while, though no
    call has failed; the error leaves out the name that stands before it anyway.
    """
    clock = Clock()
    destination, source = Destination(), MemorySource(make_rows(0, 2))
    away = threading.Event()

    class Holding(FakeSink):
        trouble = "sink fake: no answer"

        def flush(self) -> None:
            away.wait(30.0)
            self.trouble = ""
            super().flush()

    shipper = Shipper("fake", lambda: Holding(destination), make_run(Path("/")), source, clocks=Clocks(clock))
    shipper.start()
    try:
        wait_until(lambda: shipper.status().sent == 2)
        assert (shipper.status().state, shipper.status().error) == ("shipping", "no answer")
        clock.sleep(11.0)
        assert (shipper.status().state, shipper.status().trouble_s) == ("waiting", 11.0)
        away.set()
        assert shipper.drain(10.0)
        assert (shipper.status().state, shipper.status().error, shipper.status().trouble_s) == ("idle", "", 0.0)
    finally:
        away.set()
        assert shipper.stop()


def test_the_error_goes_where_nothing_is_left_to_deliver(start: MakeShipper) -> None:
    """A sink that had everything when it failed is well once it says so: no row has to come for that."""
    destination, source = Destination(), MemorySource(make_rows(0, 1))

    def die_with_the_row(call: str) -> None:
        if call == "flush" and not destination.held:
            destination.held.append(0)
            raise SinkUnavailable("its process ended with status -9")

    destination.fail = die_with_the_row
    shipper = start(destination, source, pace=Pace(flush_idle_s=0.0, backoff_min_s=0.01))
    wait_until(lambda: destination.made == 2)
    wait_until(lambda: shipper.status().state == "idle")
    assert shipper.status().error == ""
    assert destination.held == [0]
