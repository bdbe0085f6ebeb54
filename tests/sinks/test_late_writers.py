"""A sidecar that is frozen anywhere in a file sink, followed by another, and thawed: each row once, with its value.

Every moment between two operations on files is tried, not a sample of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped, unused-ignore]
    EventAccumulator,
)

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Sink
from rlship_sidecar.sinks.delivery import Clocks, Delivery, Pace
from rlship_sidecar.sinks.jsonl import JsonlSink
from rlship_sidecar.sinks.tensorboard import events as tfevents
from rlship_sidecar.sinks.tensorboard import parts as tfparts
from rlship_sidecar.sinks.tensorboard import sink as tensorboard
from rlship_sidecar.sinks.tensorboard.sink import TensorBoardSink, event
from tests.kit.board import default_charts, other_charts
from tests.kit.cases import some, statistical
from tests.kit.clocks import Clock
from tests.pipeline.simulated import scratch
from tests.sinks.frozen import Freezer
from tests.sinks.readback import run_folder, tensorboard_events
from tests.sinks.rows import MemorySource, make_row, make_run
from tests.sinks.test_tensorboard_charts import newest

BEFORE, COMMITTED, LATE, END = 3, 7, 10, 12
SINKS: dict[str, Callable[[], Sink]] = {"jsonl": JsonlSink, "tensorboard": TensorBoardSink}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts in a life of a sink."""
    monkeypatch.setattr(tensorboard, "PART_BYTES", 400)


def rows_of(whose: float, first: int, end: int) -> list[Row]:
    """Rows that differ from those that another sidecar would make under these numbers, in value and in length; every
    third one revises the step two rows before it.
    """
    steps = [no - 2 if no % 3 == 2 else no for no in range(first, end)]
    return [make_row(no, step=step, values={"trainer/loss": no + whose}) for no, step in enumerate(steps, start=first)]


class Sidecar:
    """One generation's delivery over its own copy of the store."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        generation: int,
        rows: list[Row],
        *,
        suspect: int = -1,
        may_ship: Callable[[], bool] = lambda: True,
    ) -> None:
        self.source = MemorySource(rows)
        self.source.say(config={"generation": generation})
        self.clock = Clock()
        run = make_run(folder)
        run = type(run)(run.name, run.experiment, run.state_dir, run.store_id, 0, {}, generation, suspect)
        self.delivery = Delivery(
            kind,
            SINKS[kind],
            run,
            self.source,
            pace=Pace(batch_rows=2),
            clocks=Clocks(self.clock, jitter=lambda: 0.5),
            may_ship=may_ship,
        )

    def ship(self) -> None:
        """Deliver all there is, or find out that it must not."""
        for _ in range(40):
            wait = self.delivery.advance(drain=True)
            if wait is None:
                return
            self.clock.sleep(wait)


def held(kind: str, folder: Path) -> list[object]:
    """What the destination holds, row by row."""
    state = folder / "rlship" / "state"
    if kind == "jsonl":
        return list((state / "rows.jsonl").read_bytes().splitlines(keepends=True))
    return list(tensorboard_events(state / "tensorboard"))


def check_charts(kind: str, folder: Path, rows: list[Row]) -> None:
    """TensorBoard's charts show the newest value of each step, by either of its readers."""
    if kind == "tensorboard":
        found = run_folder(folder / "rlship" / "state" / "tensorboard")
        assert default_charts(found) == other_charts(found) == newest(rows)


def said(kind: str, folder: Path) -> float:
    """Whose data of the run the destination shows; of TensorBoard what its reader comes to last."""
    state = folder / "rlship" / "state"
    if kind == "jsonl":
        return float(json.loads((state / "run.json").read_bytes())["config"]["generation"])
    found = EventAccumulator(str(run_folder(state / "tensorboard")), size_guidance={"tensors": 0})
    found.Reload()
    text = found.Tensors("config")[-1].tensor_proto.string_val[0].decode()
    return float(text.rpartition("generation | ")[2].rstrip(" |"))


def shown(kind: str, rows: list[Row]) -> list[object]:
    """What it should hold."""
    return [row.to_json() + b"\n" if kind == "jsonl" else event(row) for row in rows]


def nothing(kind: str, folder: Path) -> None:
    """The destination is not there yet."""


def some_rows(kind: str, folder: Path) -> None:
    """An earlier sidecar left rows, and a torn one."""
    sidecar = Sidecar(kind, folder, 0, rows_of(0.0, 0, BEFORE))
    sidecar.ship()
    sidecar.delivery.close()
    state = folder / "rlship" / "state"
    newest = state / "rows.jsonl" if kind == "jsonl" else max((state / "tensorboard").rglob("events*"))
    with open(newest, "ab") as file:
        file.write(b'{"row":3,')


def damaged_rows(kind: str, folder: Path) -> None:
    """What an earlier sidecar left has to be written again from the middle on."""
    some_rows(kind, folder)
    state = folder / "rlship" / "state"
    if kind == "jsonl":
        damaged = state / "rows.jsonl"
        at = len(damaged.read_bytes()) // 2
    else:  # the length of the second row; the sink does not check the rows of earlier parts byte by byte
        damaged = min((state / "tensorboard").rglob("events*"))
        at = list(tfevents.frames(damaged))[1].end
    data = damaged.read_bytes()
    assert data[at : at + 1] != b"\n"
    damaged.write_bytes(data[:at] + b"\n" + data[at + 1 :])


def empty_part(kind: str, folder: Path) -> None:
    """What an earlier sidecar began holds no row, where there can be such a thing."""
    some_rows(kind, folder)
    if kind == "tensorboard":
        state = run_folder(folder / "rlship" / "state" / "tensorboard")
        (state / tfparts.part_name(BEFORE, "store1", 0)).write_bytes(b"\x18")


def play(kind: str, prepare: Callable[[str, Path], None], at: int, *, believes: bool, done_before: bool) -> int:
    """One freeze before operation `at`; returns how many operations there were.

    `believes`: the frozen one never learns that it was followed. `done_before`: the successor has ended by the time
    that the other one wakes up; otherwise it is in the midst of its work.
    """
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        prepare(kind, folder)
        followed = [False]
        frozen = Sidecar(
            kind, folder, 1, rows_of(0.0, 0, COMMITTED), suspect=0, may_ship=lambda: believes or not followed[0]
        )

        def act() -> None:
            frozen.ship()
            frozen.source.say(config={"generation": 1.5})
            frozen.ship()
            # Committed by the frozen one alone, if it was frozen before.
            frozen.source.append(rows_of(0.25, len(frozen.source.rows), LATE))
            frozen.ship()
            frozen.delivery.close()

        freezer = Freezer((at,), act)
        freezer.install(patch)
        if freezer.start():
            followed[0] = True
            successor = Sidecar(kind, folder, 2, list(frozen.source.rows), suspect=1)
            successor.ship()
            if done_before:
                successor.source.append(rows_of(0.5, len(successor.source.rows), END))
                successor.ship()
                successor.delivery.close()
                freezer.thaw()
            else:
                freezer.thaw()
                successor.source.append(rows_of(0.5, len(successor.source.rows), END))
                successor.ship()
                successor.delivery.close()
            assert successor.delivery.facts.refused is None and successor.delivery.progress.confirmed_below == END
            assert held(kind, folder) == shown(kind, successor.source.rows), at
            assert said(kind, folder) == 2, at
            check_charts(kind, folder, successor.source.rows)
        else:
            freezer.thaw()
            assert held(kind, folder) == shown(kind, frozen.source.rows)
            assert said(kind, folder) == 1.5
            check_charts(kind, folder, frozen.source.rows)
        return freezer.moments


@pytest.mark.statistical
@pytest.mark.parametrize("done_before", [True, False], ids=["successor done", "successor at work"])
@pytest.mark.parametrize("believes", [True, False], ids=["believes", "learns"])
@pytest.mark.parametrize("prepare", [nothing, some_rows, damaged_rows, empty_part])
@pytest.mark.parametrize("kind", SINKS)
def test_a_freeze_at_any_moment_harms_nothing(
    kind: str, prepare: Callable[[str, Path], None], believes: bool, done_before: bool
) -> None:
    """Wherever it was frozen, and whether or not it ever learns that another took over: after the thaw each row of the
    successor is there once, with the successor's value, without anybody looking again.
    """
    moments = play(kind, prepare, 0, believes=believes, done_before=done_before)
    assert moments > 30
    for at in some(range(1, moments + 1)):
        play(kind, prepare, at, believes=believes, done_before=done_before)


def play_both(kind: str, first: int, second: int) -> tuple[bool, bool]:
    """Freeze one sidecar before an operation and its successor before another, then let the first go on, never knowing,
    then the second. Returns whether each stood still.
    """
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        some_rows(kind, folder)
        claimed = [False]
        frozen = Sidecar(kind, folder, 1, rows_of(0.0, 0, COMMITTED), suspect=0)
        successor = Sidecar(kind, folder, 2, rows_of(0.0, 0, COMMITTED), suspect=1)

        def act() -> None:
            frozen.ship()
            if claimed[0]:
                frozen.source.append(rows_of(0.25, COMMITTED, LATE))
            frozen.ship()
            frozen.delivery.close()

        def follow() -> None:
            successor.ship()
            successor.source.append(rows_of(0.5, COMMITTED, END))
            successor.ship()
            successor.delivery.close()

        one, two = Freezer((first,), act), Freezer((second,), follow)
        one.install(patch)
        two.install(patch)
        stood = one.start()
        stood_too = two.start()
        claimed[0] = any(folder.rglob("*.2.claim")) or any(folder.rglob("*.2.owner"))
        one.thaw()
        two.thaw()
        if stood:
            assert held(kind, folder) == shown(kind, successor.source.rows), (first, second)
            check_charts(kind, folder, successor.source.rows)
        return stood, stood_too


@pytest.mark.statistical
@pytest.mark.parametrize("kind", SINKS)
def test_two_that_wake_up_in_the_midst_of_opening(kind: str) -> None:
    """Frozen one and successor both stand anywhere in `open`, and go on one after the other: the later one wins."""
    moments = opening(kind)
    assert moments > 20
    for first, second in some(list(product(range(1, moments + 1), repeat=2))):
        assert play_both(kind, first, second) == (True, True)


def opening(kind: str) -> int:
    """How many operations `open` takes."""
    with scratch() as folder, pytest.MonkeyPatch.context() as patch:
        some_rows(kind, folder)
        sidecar = Sidecar(kind, folder, 2, rows_of(0.0, 0, COMMITTED), suspect=0)
        freezer = Freezer((), lambda: None if sidecar.delivery.advance() == 0.0 else pytest.fail("not opened"))
        freezer.install(patch)
        freezer.start()
        freezer.thaw()
        sidecar.delivery.close()
        return freezer.moments


@pytest.mark.statistical
@pytest.mark.parametrize("kind", SINKS)
def test_one_that_is_frozen_twice(kind: str) -> None:
    """Thawed in the midst of its successor's work, frozen again a few steps later, and thawed after its end."""
    moments = opening(kind)
    for first, later in some(list(product(range(1, moments + 1), range(1, 12)))):
        with scratch() as folder, pytest.MonkeyPatch.context() as patch:
            some_rows(kind, folder)
            frozen = Sidecar(kind, folder, 1, rows_of(0.0, 0, COMMITTED), suspect=0)
            successor = Sidecar(kind, folder, 2, rows_of(0.0, 0, COMMITTED), suspect=1)
            freezer = Freezer((first, first + later), frozen.ship)
            freezer.install(patch)
            assert freezer.start()
            successor.ship()
            freezer.go_on()
            successor.source.append(rows_of(0.5, COMMITTED, END))
            successor.ship()
            successor.delivery.close()
            freezer.thaw()
            frozen.delivery.close()
            assert held(kind, folder) == shown(kind, successor.source.rows), (first, later)
            check_charts(kind, folder, successor.source.rows)


@statistical(400)
@given(
    kind=st.sampled_from(sorted(SINKS)),
    moves=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["advance", "advance", "commit", "close"])), max_size=60
    ),
)
def test_any_order_of_what_three_of_them_do(kind: str, moves: list[tuple[int, str]]) -> None:
    """Three generations that all believe that they own work in any order, each on its own copy of the store as it was
    when it came and opened the sink: the last one's rows are there, each once.
    """
    with scratch() as folder:
        sidecars = [Sidecar(kind, folder, 0, rows_of(0.0, 0, BEFORE))]
        for who, what in moves:
            if who > len(sidecars):
                continue
            if who == len(sidecars):
                sidecars.append(Sidecar(kind, folder, who, list(sidecars[-1].source.rows), suspect=who - 1))
                sidecars[-1].delivery.advance()
            sidecar = sidecars[who]
            sidecar.clock.sleep(60.0)
            if what == "advance":
                sidecar.delivery.advance(drain=True)
            elif what == "commit":
                count = len(sidecar.source.rows)
                sidecar.source.append(rows_of((who + 1) / 8, count, count + 2))
            else:
                sidecar.delivery.close()
        latest = sidecars[-1]
        latest.ship()
        for sidecar in reversed(sidecars):
            sidecar.ship()
            sidecar.delivery.close()
        assert latest.delivery.facts.refused is None
        assert held(kind, folder) == shown(kind, latest.source.rows)
        check_charts(kind, folder, latest.source.rows)
