"""What a delivery counts of itself: how long rows took, and how often it failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlship_sidecar.rows import Arrival
from rlship_sidecar.sinks.contract import SinkRefused, SinkUnavailable
from rlship_sidecar.sinks.delivery import Clocks, Delivery, Pace
from rlship_sidecar.tally import LAG_ENDS_S, Lags
from tests.kit.clocks import Clock
from tests.sinks.fakes import Destination, raising
from tests.sinks.rows import MemorySource, make_rows, make_run


class Wall:
    """The time of day, as it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_delivery(destination: Destination, source: MemorySource, wall: Wall) -> Delivery:
    run = make_run(Path("/experiment"))
    return Delivery("fake", destination.sink, run, source, pace=Pace(), clocks=Clocks(Clock(), wall, lambda: 0.5))


def settle(delivery: Delivery, *, drain: bool = False) -> None:
    while delivery.advance(drain=drain) == 0.0:
        pass


def test_lags_are_from_a_rows_own_time_on() -> None:
    """Rows count once when the sink has them and once when it confirmed them, each from its own time on; revisions,
    which have the time of what they revise, do not count.
    """
    rows = [replace(row, t=1000.0 + row.row_number) for row in make_rows(0, 3)]
    rows[2] = replace(rows[2], arrival=Arrival(2, 1, rows[2].keys(), "revision"))
    wall = Wall()
    delivery = make_delivery(Destination(), MemorySource(rows), wall)
    wall.now = 1001.5
    settle(delivery)
    assert delivery.shipping.written.take_new() == [1.5, 0.5]
    assert delivery.shipping.confirmed.take_new() == []
    wall.now = 1010.0
    settle(delivery, drain=True)
    assert delivery.shipping.confirmed.take_new() == [10.0, 9.0]
    assert delivery.shipping.confirmed.total_s == 19.0
    assert sum(delivery.shipping.written.counts) == sum(delivery.shipping.confirmed.counts) == 2


def test_failures_are_counted() -> None:
    """Each attempt that failed is one, a refusal too; what was written and not flushed then is not confirmed later."""
    destination, wall = Destination(), Wall()
    source = MemorySource(make_rows(0, 2))
    delivery = make_delivery(destination, source, wall)
    settle(delivery)
    destination.fail = raising(SinkUnavailable("away"), on="flush")
    delivery.advance(drain=True)
    assert delivery.shipping.errors == 1
    delivery.retry_now()
    destination.fail = raising(SinkRefused("no"))
    delivery.advance()
    assert delivery.shipping.errors == 2
    assert sum(delivery.shipping.confirmed.counts) == 0


def test_the_latest_lags_are_kept_for_a_while() -> None:
    """A taker that never comes costs no memory; every lag stands in its place between the ends."""
    lags = Lags()
    for _ in range(5000):
        lags.add(0.3)
    lags.add(LAG_ENDS_S[-1] + 1)
    assert len(lags.take_new()) == 1000
    assert lags.take_new() == []
    assert lags.counts[LAG_ENDS_S.index(0.5)] == 5000 and lags.counts[-1] == 1
