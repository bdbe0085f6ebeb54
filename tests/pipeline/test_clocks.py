"""Clock offsets and the lead's timeline, against their definitions written down plainly."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship_formats.reading import Clock
from rlship_formats.records import Open
from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.decode.lines import BarrierLines, Sparse
from rlship_sidecar.store.schema import TABLES
from rlship_sidecar.streams import clocks as clocking
from rlship_sidecar.streams import timeline as timing
from rlship_sidecar.streams.clocks import Shift, StoredClocks
from rlship_sidecar.streams.recent import Recent
from rlship_sidecar.streams.timeline import Moved, Timeline
from tests.kit.cases import statistical

TIMES = st.integers(0, 40).map(float)
OFFSETS, ERRORS = st.sampled_from((0.0, -3.0, 7.5, 120.0)), st.sampled_from((0.1, 0.5))
PROOFS = st.sampled_from((False, False, False, True))
RECORDS = st.lists(st.builds(Clock, TIMES, OFFSETS, ERRORS, client_time=PROOFS), max_size=12)


class Memory:
    """A ledger in memory."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in TABLES:
            self._connection.execute(statement)

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def change(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, values)


def governing(records: Sequence[Clock], t: float) -> Clock | None:
    """The rule of docs/semantics.md."""
    records = [record for record in records if not record.client_time]
    before = [record for record in records if record.t <= t]
    if not records:
        return None
    at = max(record.t for record in before) if before else min(record.t for record in records)
    return min((record for record in records if record.t == at), key=lambda record: (record.err, record.offset))


@settings(deadline=None)
@given(records=RECORDS, again=st.booleans())
def test_the_offset_is_that_of_the_record_before(records: list[Clock], again: bool) -> None:
    """At every time, however the records came, with few of them in memory, and after a restart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clocking, "KEPT", 2)
        ledger = Memory()
        clocks = StoredClocks(ledger)
        for place, record in enumerate(records):
            clocks.note("n1", record)
            if again:
                clocks = StoredClocks(ledger)
            for t in range(-1, 43):
                known = governing(records[: place + 1], float(t))
                expected = (0.0, None) if known is None else (known.offset, known.err)
                assert clocks.offset("n1", float(t)) == expected
        assert clocks.offset("n2", 3.0) == clocks.offset("", 3.0) == (0.0, None)
        least, greatest = clocks.bounds(["n1"])
        assert all(least <= clocks.offset("n1", float(t)).offset <= greatest for t in range(-1, 43))


@settings(deadline=None)
@given(records=RECORDS)
def test_a_shift_names_the_times_that_change(records: list[Clock]) -> None:
    """Exactly at the times that a record concerns, the offset or its bound is another one, and the shift says which."""
    clocks = StoredClocks(Memory())
    for record in records:
        before = {t: clocks.offset("n1", float(t)) for t in range(-1, 43)}
        shift = clocks.note("n1", record)
        for t, old in before.items():
            new = clocks.offset("n1", float(t))
            assert (new != old) == (shift is not None and shift.concerns(float(t)))
            if shift is not None and shift.concerns(float(t)):
                assert (shift.before, shift.after) == (old.offset, new.offset)


def lead(rank: int, attempt: int) -> Writer:
    return Writer(
        f"r{rank}-{attempt}", Open(f"{rank}{attempt}", "trainer", rank=rank, attempt=attempt, host=f"n{rank}")
    )


WRITERS = [lead(0, 0), lead(0, 1), lead(1, 0)]
BARRIERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), TIMES), max_size=12)


def expected_timeline(noted: Sequence[tuple[int, int, float]], clocks: StoredClocks) -> list[timing.StepInterval]:
    """The rule of docs/semantics.md, on (writer, step, t)."""
    chosen: dict[int, tuple[Any, int, float, float]] = {}
    newest = [writer.open.t for writer in WRITERS]
    for place, step, t in noted:
        claim = (-WRITERS[place].open.rank, WRITERS[place].open.attempt)
        if step not in chosen or claim > chosen[step][0]:
            chosen[step] = claim, place, t, newest[place]
        newest[place] = t
    ends = []
    for step, (_, place, t, before_t) in chosen.items():
        host = WRITERS[place].open.host
        ends.append((clocks.corrected(host, t), step, place, clocks.corrected(host, before_t)))
    found: list[timing.StepInterval] = []
    before = (-math.inf, -10, -1)
    for end, step, place, begin in sorted(ends):
        start = before[0] if before[1:] == (step - 1, place) else max(before[0], begin)
        found.append(timing.StepInterval(step, start, end))
        before = end, step, place
    return found


@statistical(100)
@given(barriers=BARRIERS, records=RECORDS, kept=st.sampled_from((1, 4096)))
def test_the_timeline_is_that_of_the_lowest_rank(
    barriers: list[tuple[int, int, float]], records: list[Clock], kept: int
) -> None:
    """After every barrier and clock record, in any order; and every step whose times are others is named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "KEPT", kept)
        ledger = Memory()
        clocks = StoredClocks(ledger)
        timeline = Timeline(ledger, clocks)
        before: list[timing.StepInterval] = []
        noted: list[tuple[int, int, float]] = []
        for turn in range(max(len(barriers), len(records))):
            moved = Moved()
            if turn < len(records):
                shift = clocks.note("n0", records[turn])
                if isinstance(shift, Shift):
                    timeline.shift(shift, moved)
            if turn < len(barriers):
                place, step, t = barriers[turn]
                before_t = next((earlier for writer, _, earlier in reversed(noted) if writer == place), None)
                noted.append(barriers[turn])
                timeline.note(WRITERS[place].segments[0], BarrierLines(0, before_t, [step], [t], [turn]), moved)
            now = expected_timeline(noted, clocks)
            assert timeline.after((-math.inf, -1), 100) == now
            assert {s.step for s in set(now) ^ set(before)} <= moved.steps.keys()
            assert moved.steps.items() <= {s.step: s.place for s in now}.items()
            for t in [value / 2 for value in range(-260, 90)]:
                covering = [s for s in now if s.start < t <= s.end]
                assert timeline.covering(t) == (covering[0] if covering else None)
                ended = [s.step for s in now if s.end <= t]
                assert timeline.current(t) == (covering[0].step if covering else ended[-1] if ended else None)
            before = now


def test_memory_of_recent_lines_is_bounded() -> None:
    """The oldest go first, and it is known from when on the list is whole."""
    recent = Recent(most=100)
    segment = WRITERS[0].segments[0]
    for number in range(1000):
        recent.add(segment, Sparse(-1, number / 10, number, 0, ()))
        assert recent.count <= 100
        held = {line.t for _, line in recent.within([(0.0, 200.0)])}
        assert held >= {t / 10 for t in range(number + 1) if t / 10 >= recent.whole_from}
    assert recent.holds(95.0) and not recent.holds(50.0)
    recent.add(segment, Sparse(-1, 3.0, 1000, 0, ()))
    assert not [line for _, line in recent.within([(0.0, 10.0)])], "a late one is not kept: its like are gone"


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 16)), min_size=1))))
def test_barriers_at_once_are_as_one_by_one(runs: list[tuple[int, list[tuple[int, int]]]]) -> None:
    """A batch of barriers leaves the same timeline, and concerns the same of it, as they do one after the other."""
    together, single = Memory(), Memory()
    at_once, one_by_one = Timeline(together, StoredClocks(together)), Timeline(single, StoredClocks(single))
    for place, run in runs:
        segment, moved, expected = WRITERS[place % len(WRITERS)].segments[0], Moved(), Moved()
        steps, ts = [step for step, _ in run], [float(t) for _, t in run]
        barriers = BarrierLines(0, None, steps, ts, list(range(len(run))))
        at_once.note(segment, barriers, moved)
        for step, t, _, before_t in barriers.each():
            one_by_one.note(segment, BarrierLines(0, before_t, [step], [t], [0]), expected)
        assert together.ask("select * from timeline order by step") == single.ask(
            "select * from timeline order by step"
        )
        assert moved == expected
