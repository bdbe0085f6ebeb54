"""The bounded buffer: it never grows beyond its size, and says what it had to drop."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.buffer import Buffer, Tally


def buffer(capacity: int, reserve: int = 0) -> Buffer:
    return Buffer(lambda: 5.0, capacity, reserve)


def test_drops_are_told_before_the_next_line_that_fits() -> None:
    """A gap record with the number and the range of steps stands where the lines are missing."""
    full = buffer(200)
    line = "x" * 99 + "\n"
    assert full.append(line, 100, 3)
    assert full.append(line, 100, 4)
    assert not full.append(line, 100, 9)
    assert not full.append(line, 100, 5)
    assert not full.append(line, 100, None)
    taken, steps = full.take()
    assert (taken, steps) == ([line, line], [3, 4])
    full.release(200)
    assert full.append("y\n", 2, 10)
    taken, steps = full.take()
    assert taken == [
        '{"kind":"gap","n":2,"from":5,"to":9,"t":5.000}\n',
        '{"kind":"gap","n":1,"t":5.000}\n',
        "y\n",
    ]
    assert steps == [None, None, 10]
    assert full.dropped == 3


def test_drops_are_told_without_another_line() -> None:
    """The writing thread gets the gap record as soon as there is room, even if nothing is logged any more."""
    full = buffer(100)
    full.append("x" * 100, 100, 1)
    full.append("y", 1, 2)
    full.take()
    full.release(100)
    assert full.take() == (['{"kind":"gap","n":1,"from":2,"to":2,"t":5.000}\n'], [None])
    assert full.empty


def test_taken_lines_count_until_they_are_released() -> None:
    """What the disk has not taken yet is part of the bound."""
    full = buffer(100)
    full.append("x" * 100, 100, 1)
    full.take()
    assert not full.append("y", 1, 2)
    assert full.size == 100


def test_a_control_line_fits_when_values_do_not() -> None:
    """A barrier is kept in the reserve, behind the gap record of the values dropped before it."""
    full = buffer(100, reserve=200)
    full.append("x" * 100, 100, 1)
    assert not full.append("y" * 10, 10, 1)
    assert full.append_control("barrier\n", 8, 1)
    taken, _ = full.take()
    assert taken[1:] == ['{"kind":"gap","n":1,"from":1,"to":1,"t":5.000}\n', "barrier\n"]


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 60), st.none() | st.integers(0, 50)),
            st.tuples(st.just("control"), st.integers(1, 60), st.integers(0, 50)),
            st.tuples(st.just("take"), st.just(0), st.none()),
            st.tuples(st.just("release"), st.just(0), st.none()),
        ),
        max_size=60,
    )
)
def test_every_line_is_either_taken_or_counted_in_a_gap(actions: list[tuple[str, int, int | None]]) -> None:
    """Whatever is done in whatever order, kept and dropped lines add up and the size keeps within its bound."""
    capacity, reserve = 200, 300
    one = buffer(capacity, reserve)
    kept, dropped, out, in_flight = 0, 0, [], 0
    for action, size, step in actions:
        if action in ("append", "control"):
            put = one.append if action == "append" else one.append_control
            if put("x" * (size - 1) + "\n", size, step):
                kept += 1
            else:
                dropped += 1
        elif action == "take":
            taken, steps = one.take()
            assert len(taken) == len(steps)
            out += taken
            in_flight += sum(map(len, taken))
        else:
            one.release(in_flight)
            in_flight = 0
        assert 0 <= one.size <= capacity + reserve
    for _ in range(2):
        taken, _ = one.take()
        out += taken
        in_flight += sum(map(len, taken))
        one.release(in_flight)
        in_flight = 0
    gaps = [line for line in out if line.startswith("{")]
    assert len(out) - len(gaps) == kept
    assert sum(int(line.split('"n":')[1].split(",")[0]) for line in gaps) == dropped == one.dropped
    assert one.size == 0


def test_threads_lose_nothing() -> None:
    """Lines appended by several threads while another takes them all come out once."""
    one = Buffer(lambda: 5.0)
    out: list[str] = []
    done = threading.Event()

    def drain() -> None:
        while not done.is_set() or not one.empty:
            taken, _ = one.take()
            out.extend(taken)
            one.release(sum(map(len, taken)))

    def fill(name: int) -> None:
        for i in range(2000):
            one.append(f"{name}/{i}\n", len(f"{name}/{i}\n"), i)

    drainer = threading.Thread(target=drain)
    fillers = [threading.Thread(target=fill, args=(name,)) for name in range(4)]
    drainer.start()
    for thread in fillers:
        thread.start()
    for thread in fillers:
        thread.join()
    done.set()
    drainer.join()
    assert sorted(out) == sorted(f"{name}/{i}\n" for name in range(4) for i in range(2000))
    assert one.size == 0


def test_a_tally_keeps_the_range_of_steps_and_counts_the_rest_apart() -> None:
    """Lines without a step do not widen the range of those that have one."""
    tally = Tally()
    assert not tally
    for step in (5, None, 3, 9):
        tally.add(step)
    assert tally
    assert (tally.stepped, tally.first, tally.last, tally.unstepped) == (3, 3, 9, 1)
