"""Times, clocks, sorting and selection, each on its own."""

from __future__ import annotations

import os
import random
from decimal import Decimal
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_formats.clocks import KeptClocks
from rlship_formats.reading import Clock, DeadLetter, Event, FileReader, Span, read_clock, read_event, read_span
from rlship_formats.records import BadRecord, Open
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.export.clocks import aligned, microseconds
from rlship_sidecar.export.selection import Selection, Steps, parse_steps
from rlship_sidecar.export.sorting import FAN_IN, Sorted

T = 1763600000.0


@given(whole=st.integers(1_600_000_000, 2_000_000_000), micro=st.integers(0, 999_999))
def test_microseconds_are_exact(whole: int, micro: int) -> None:
    """A time that was written with six digits is that number of microseconds, after any number of seconds."""
    text = f"{whole}.{micro:06}"
    assert microseconds(float(text)) == int(Decimal(text) * 1_000_000)


def test_microseconds_do_not_drift() -> None:
    """A hundred thousand steps of a tenth of a second end where they should."""
    assert [microseconds(T + n / 10) for n in range(100_000)] == [
        1763600000000000 + n * 100_000 for n in range(100_000)
    ]


def test_the_last_known_offset_counts() -> None:
    """A time is corrected by the offset that was known at it, one before all others by the first."""
    clocks = KeptClocks()
    for record in (Clock(T + 20, 2.0, 0.0), Clock(T + 10, 1.0, 0.1)):
        clocks.add("n1", record)
    t = microseconds(T)
    assert aligned(clocks, "n1", t) == t - 1_000_000
    assert aligned(clocks, "n1", t + 10_000_000) == t + 9_000_000
    assert aligned(clocks, "n1", t + 19_999_999) == t + 18_999_999
    assert aligned(clocks, "n1", t + 20_000_000) == t + 18_000_000
    assert aligned(clocks, "n2", t) == t


def test_files_of_a_host_share_its_clock() -> None:
    """Clock records of several files of one host are taken together, in order of time."""
    clocks = KeptClocks()
    for record in (Clock(T + 30, 3.0, 0.0), Clock(T + 10, 1.0, 0.0), Clock(T + 50, -5.0, 0.0)):
        clocks.add("n1", record)
    t = microseconds(T)
    assert [aligned(clocks, "n1", t + at) - t - at for at in (20_000_000, 40_000_000, 60_000_000)] == [
        -1_000_000,
        -3_000_000,
        5_000_000,
    ]
    assert len(clocks) == 1


def test_of_several_records_of_one_time_the_most_exact_counts() -> None:
    """Of clock records of one host and time the one with the least `err` counts, then the one with the least offset, in
    whatever order they come; one with `client_time` proves nothing, and a host without a name has no clock.
    """
    records = [Clock(T, 3.0, 0.5), Clock(T, 2.0, 0.02), Clock(T, 1.0, 0.02), Clock(T, -2.0, 0.5)]
    for order in permutations([*records, Clock(T, 9.0, 0.0, client_time=True)]):
        clocks = KeptClocks()
        for record in order:
            clocks.add("n1", record)
            clocks.add("", record)
        assert clocks.offset("n1", T) == clocks.offset("n1", T - 5) == (1.0, 0.02)
        assert clocks.offset("", T) == (0.0, None)
        assert aligned(clocks, "n1", microseconds(T)) == microseconds(T - 1)


@given(items=st.lists(st.tuples(st.integers(), st.text(max_size=3))), in_memory=st.integers(1, 10))
def test_sorting(items: list[tuple[int, str]], in_memory: int) -> None:
    """What goes in comes out sorted, wherever it was kept meanwhile."""
    sorted_items: Sorted[tuple[int, str]] = Sorted(in_memory)
    for item in items:
        sorted_items.add(item)
    assert list(sorted_items) == sorted(items)


def test_sorting_many_runs() -> None:
    """Runs of several batches are merged too, over several levels, and no file stays open."""
    items = [(number,) for number in range(20_000)]
    random.Random(3).shuffle(items)
    before = os.listdir("/proc/self/fd")
    sorted_items: Sorted[tuple[int]] = Sorted(70)
    for item in items:
        sorted_items.add(item)
    assert len(os.listdir("/proc/self/fd")) - len(before) < 2 * FAN_IN
    assert list(sorted_items) == [(number,) for number in range(20_000)]
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("given_text", "steps"),
    [("3:7", Steps(3, 7)), ("3:", Steps(3)), (":7", Steps(0, 7)), ("7", Steps(7, 7)), ("7:7", Steps(7, 7))],
)
def test_ranges_of_steps(given_text: str, steps: Steps) -> None:
    """Both ends are included, either may be left out."""
    assert parse_steps(given_text) == steps


@pytest.mark.parametrize("given_text", ["", ":", "a:b", "1:2:3", "-1:2", "7:3", "1-2"])
def test_no_ranges_of_steps(given_text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(UsageProblem, match="100:110"):
        parse_steps(given_text)


def test_what_is_kept() -> None:
    """By step on the common axis, by time without a step or on another axis."""
    selection = Selection(Steps(3, 4))
    trainer, buffer = Open(id="t", actor="trainer"), Open(id="b", actor="buffer", axis="batch")
    assert not selection.keeps(trainer, None, 0, 10)
    selection.window.widen(100, 200)
    selection.window.widen(150, 300)
    assert selection.keeps(trainer, 3, 0, 10)
    assert not selection.keeps(trainer, 5, 150, 160)
    assert [selection.keeps(buffer, 3, *span) for span in ((0, 99), (0, 100), (300, 400), (301, 400))] == [
        False,
        True,
        True,
        False,
    ]
    assert selection.keeps(trainer, None, 0, 500)
    assert Selection().keeps(trainer, 5, 0, 0)


def test_counters_are_named_with_or_without_the_actor() -> None:
    """`loss` is every actor's, `trainer/loss` that of one."""
    selection = Selection(None, ("loss", "trainer/lr"))
    assert selection.counts("trainer", "loss")
    assert selection.counts("critic", "loss")
    assert selection.counts("trainer", "lr")
    assert not selection.counts("critic", "lr")


def test_records_of_the_time_axis() -> None:
    """Spans, events and clocks are read field by field, with what may be left out."""
    assert read_span({"t": T, "dur": 2, "name": "fwd", "step": 3, "lane": "x", "err": "ValueError"}, 0, 3) == Span(
        "fwd", "x", T, 2.0, 3, "ValueError"
    )
    assert read_span({"dur": 0.5, "name": "fwd"}, T, None) == Span("fwd", "main", T, 0.5, None, None)
    assert read_event({"t": T, "name": "pushed", "attrs": {"bytes": 3}}, 0, None) == Event(
        "pushed", T, None, {"bytes": 3}
    )
    assert read_event({"t": T, "name": "pushed", "step": 0}, 0, 0) == Event("pushed", T, 0, {})
    assert read_clock({"t": T, "offset": -0.5, "err": 0.1}, 0, None) == Clock(T, -0.5, 0.1)
    assert read_clock({"offset": 1, "err": 0}, T, None) == Clock(T, 1.0, 0.0)


def test_what_only_a_trace_shows_does_not_make_a_record_unusable() -> None:
    """A span or event that counts in rows is in the trace, too; a lane, error or facts of a wrong type are left out."""
    assert read_span({"t": T, "dur": 2, "name": "fwd", "lane": 7, "err": {}}, 0, None) == Span(
        "fwd", "main", T, 2.0, None, None
    )
    assert read_event({"t": T, "name": "x", "attrs": [1]}, 0, None) == Event("x", T, None, {})


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "span", "name": "fwd"},
        {"kind": "span", "name": "fwd", "dur": -1},
        {"kind": "span", "name": "fwd", "dur": True},
        {"kind": "span", "name": "fwd", "dur": "1"},
        {"kind": "span", "name": "fwd", "dur": 10**400},
        {"kind": "span", "name": "", "dur": 1},
        {"kind": "span", "name": 3, "dur": 1},
        {"kind": "span", "name": "fwd", "dur": 2e9},
        {"kind": "event"},
        {"kind": "event", "name": "step_tag", "attrs": {"tag": ""}},
        {"kind": "clock"},
        {"kind": "clock", "offset": None},
        {"kind": "clock", "offset": 1, "err": -1},
        {"kind": "clock", "offset": 1},
    ],
)
def test_records_that_cannot_be_used(record: dict[str, object]) -> None:
    """A missing or impossible field makes the record a dead letter whose reason names the kind."""
    read = {"span": read_span, "event": read_event, "clock": read_clock}[str(record["kind"])]
    with pytest.raises(BadRecord, match=f"bad {record['kind']}"):
        read(record, T, None)


@pytest.mark.parametrize("step", [None, -1, 3.0, True, "3"])
def test_bad_steps(step: object) -> None:
    """An invalid step is reported as such, whatever else is wrong."""
    reader = FileReader(Open("a", "trainer"))
    for kind in ("span", "event", "clock"):
        for record in ({"dur": 1, "name": "fwd", "offset": 0, "err": 0}, {}):
            assert reader.read_body({**record, "kind": kind, "step": step}) == DeadLetter("bad step", "step")
