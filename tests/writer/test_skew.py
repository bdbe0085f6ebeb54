"""The difference of two clocks, from what one of them stamps: never outside the bound that is given."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship.clock import DRIFT, Skew, coarseness_ns

EPOCH = 1763600000.0


@dataclass
class World:
    """True time, and clocks that are off and drift: the host's wall clock and monotonic clock run alike."""

    apart: float
    host_rate: float
    server_rate: float
    tick: float
    resolution_ns: int
    true: float = 0.0
    set_by: float = 0.0  # how far the host's wall clock was set since
    random: random.Random = field(default_factory=random.Random)

    def mono(self) -> float:
        return 5000.0 + self.true * (1 + self.host_rate)

    def wall(self) -> float:
        return EPOCH + self.apart + self.set_by + self.true * (1 + self.host_rate)

    def server(self) -> float:
        return EPOCH + self.true * (1 + self.server_rate)

    def sync(self, skew: Skew, out: float, back: float) -> None:
        """One write and sync: the server stamps `out` seconds after it began, and the answer takes `back` more."""
        began = self.mono()
        self.true += out
        stamp = int((self.server() // self.tick) * self.tick * 1e9) if self.tick else int(self.server() * 1e9)
        self.true += back
        skew.observe(began, self.mono(), stamp - stamp % self.resolution_ns)

    def error(self, skew: Skew) -> tuple[float, float]:
        """How far the estimate is from the truth, and the bound it gives."""
        found = skew.offset(self.mono(), self.wall())
        assert found is not None
        return abs(found[0] - (self.wall() - self.server())), found[1]


delays = st.floats(0, 0.8)
worlds = st.builds(
    World,
    apart=st.floats(-120, 120),
    host_rate=st.floats(-DRIFT / 2.1, DRIFT / 2.1),
    server_rate=st.floats(-DRIFT / 2.1, DRIFT / 2.1),
    tick=st.sampled_from((0.0, 0.001, 0.004, 0.01)),
    resolution_ns=st.sampled_from((1, 100, 1000, 10**6, 10**9, 2 * 10**9)),
)


@given(worlds, st.lists(st.tuples(st.floats(0, 600), delays, delays, st.floats(-5, 5)), min_size=1, max_size=30))
def test_the_true_offset_is_always_inside(world: World, syncs: list[tuple[float, float, float, float]]) -> None:
    """Clocks 0 to 120 s apart that drift, any delays and pauses, coarse stamps, a wall clock that is set in between."""
    skew = Skew()
    assert skew.offset(world.mono(), world.wall()) is None
    for pause, out, back, jump in syncs:
        world.true += pause
        world.set_by += jump
        world.sync(skew, out, back)
        for wait in (0.0, pause):
            world.true += wait
            off, bound = world.error(skew)
            assert off <= bound + 1e-5


def test_the_bound_gets_narrower_than_any_single_answer() -> None:
    """Answers of 40 ms, each stamped at another moment, leave less than one of them does (30 ms, with the tick)."""
    world = World(31.0, 1e-4, -1e-4, 0.004, 1)
    skew = Skew()
    chance = random.Random(1)
    for _ in range(120):
        world.true += 0.5
        out = chance.uniform(0.0, 0.04)
        world.sync(skew, out, 0.04 - out)
    off, bound = world.error(skew)
    assert off <= bound < 0.02


def test_the_bound_grows_with_age() -> None:
    """What was known a minute ago is known less well now."""
    world = World(0.0, 0.0, 0.0, 0.0, 1)
    skew = Skew()
    world.sync(skew, 0.001, 0.001)
    before = world.error(skew)[1]
    world.true += 60
    assert world.error(skew)[1] == pytest.approx(before + 60 * DRIFT)


def test_a_server_whose_clock_is_set_is_believed_soon() -> None:
    """The second answer that contradicts all before makes them void."""
    world = World(10.0, 0.0, 0.0, 0.004, 1)
    skew = Skew()
    for _ in range(10):
        world.true += 0.5
        world.sync(skew, 0.001, 0.001)
    step = World(-50.0, 0.0, 0.0, 0.004, 1, true=world.true)
    for _ in range(2):
        step.sync(skew, 0.001, 0.001)
    off, bound = step.error(skew)
    assert off <= bound < 0.02


@given(st.integers(3, 60), st.integers(0, 59), st.floats(-0.5, 0.5))
def test_one_wrong_stamp_makes_no_wrong_bound(count: int, wrong: int, by: float) -> None:
    """A server that stood still, or a stale time, harms nothing among true ones."""
    world = World(1.0, 0.0, 0.0, 0.0, 1)
    skew = Skew()
    for i in range(count):
        world.true += 0.5
        if i == wrong:
            skew.observe(world.mono(), world.mono() + 0.001, int((world.server() + by) * 1e9))
        else:
            world.sync(skew, 0.001, 0.001)
    off, bound = world.error(skew)
    if count > max(wrong + 1, 3):  # a wrong one may be the newest of three, and then stand against one other
        assert off <= bound + 1e-5


@pytest.mark.parametrize(
    ("mtime_ns", "expected"),
    [
        (1763600000_123456789, 1),
        (1763600000_123456700, 100),
        (1763600000_123000000, 10**6),
        (1763600000_100000000, 10**8),
        (1763600001_000000000, 10**9),
        (1763600000_000000000, 2 * 10**9),
        (0, 2 * 10**9),
    ],
)
def test_the_resolution_of_a_filesystem_is_never_taken_for_finer(mtime_ns: int, expected: int) -> None:
    """A time that ends in zeros may come from a filesystem that keeps no more digits."""
    assert coarseness_ns(mtime_ns) == expected
