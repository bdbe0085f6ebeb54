"""Another row function than the one that rows were made with: what is revised, when, and what is said of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlship_sidecar.pipeline import sweep
from rlship_sidecar.pipeline.sweep import PIECE
from rlship_sidecar.reduce.rules import ROW_FUNCTION
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import ALIGNED, CLOCK, STEP, Unit
from rlship_sidecar.store.made_with import MadeWith
from rlship_sidecar.store.store import Store
from tests.kit.cases import some
from tests.pipeline.older import OLDER, make_older
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.test_against_reference import check_numbering
from tests.pipeline.test_crash_points import FUSE, Fragile, surviving
from tests.reference.building import CLOSE, T0, barrier, file, log
from tests.reference.reduction import differing, final_rows

STEPS = 200
DEFINE = {"kind": "define", "m": {"ping": {"stream": True}}}


def trainer(rank: int, first: int, last: int, *, close: bool = False) -> bytes:
    """A rank's lines of some steps, one a second."""
    records = [
        record
        for step in range(first, last)
        for record in (log(step, t=T0 + step, loss=rank + step), barrier(step) | {"t": T0 + step + 0.5})
    ]
    data = file(*records, *([CLOSE] if close else []), id=f"w{rank}", rank=rank, world=2, beat=10)
    return data if first == 0 else data.split(b"\n", 1)[1]


def generator(first: int, last: int, *, close: bool = False) -> bytes:
    """Lines without a step, one a second, some of them points."""
    records = [{"t": T0 + second, "m": {"speed": second, "ping": 1.0}} for second in range(first, last)]
    data = file(DEFINE, *records, *([CLOSE] if close else []), id="g", actor="generator", beat=10)
    return data if first == 0 else data.split(b"\n", 2)[2]


def write(sim: Simulation, first: int, last: int, *, close: bool = False) -> None:
    for rank in range(2):
        sim.write(f"r{rank}.jsonl", trainer(rank, first, last, close=close))
    sim.write("g.jsonl", generator(first, last, close=close))


def files_of(sim: Simulation) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (sim.directory / "rlship").glob("*.jsonl")}


@contextmanager
def made_before(*, close: bool = False, steps: int = STEPS) -> Iterator[Simulation]:
    """An experiment whose rows an older sidecar made, as this sidecar finds it."""
    with simulation() as sim:
        with pytest.MonkeyPatch.context() as patch:
            make_older(patch.setattr)
            sim.restart()
            write(sim, 0, steps, close=close)
            sim.tick()
            sim.wait(10.0)
            sim.tick()
            if close:
                sim.write("node.jsonl", file({"t": T0 + 3.0, "m": {"load": 0.5}}, id="n", actor="node"))  # never closes
                sim.finish()
        assert MadeWith(sim.store).row_function() == OLDER
        sim.restart()
        yield sim


def up_to_date(sim: Simulation) -> bool:
    """Whether the newest row of each unit is that of the reference."""
    should = final_rows(files_of(sim))
    have = sim.final()
    return not differing(should.where(lambda unit: unit in have), have)


def test_rows_of_a_running_experiment_are_revised_once() -> None:
    """Steps, windows and points; the next start has nothing to do, and the news is one line."""
    with made_before() as sim:
        before = len(sim.rows())
        assert {unit.kind for unit in sim.final()} == {STEP, ALIGNED, CLOCK, "point"}
        assert not up_to_date(sim)
        sim.tick()
        assert up_to_date(sim) and MadeWith(sim.store).row_function() == ROW_FUNCTION
        assert {row.arrival.revision for row in sim.rows()[before:]} == {1}
        check_numbering(sim.rows())
        (news,) = sim.experiment.news()
        assert f"row function {OLDER}, this rlship has {ROW_FUNCTION}" in news
        rows = len(sim.rows())
        sim.restart()
        sim.tick()
        assert len(sim.rows()) == rows and not sim.experiment.news()


def test_rows_that_come_out_equal_are_no_revision() -> None:
    """A store without a number counts as 1. Where the functions agree nothing is shipped, and the number is new."""
    with simulation() as sim:
        write(sim, 0, STEPS)
        sim.tick()
        sim.store.change("delete from meta where key = 'row_function'")
        rows = sim.rows()
        assert MadeWith(sim.store).row_function() == 1
        sim.experiment.tick(sim.now + 10.0, 0.0)  # commits
        sim.restart()
        sim.tick()
        assert MadeWith(sim.store).row_function() == ROW_FUNCTION
        assert sim.rows()[: len(rows)] == rows and {row.arrival.revision for row in sim.rows()} == {0}


def test_new_rows_come_before_a_piece_of_revisions() -> None:
    """Each look makes the new rows first and revises no more than a piece, so that a long history holds up nothing."""
    with made_before() as sim:
        step = STEPS
        while MadeWith(sim.store).row_function() != ROW_FUNCTION:
            before = len(sim.rows())
            write(sim, step, step + 1)
            sim.wait(1.0)
            sim.experiment.tick(sim.now, 0.0)
            made = sim.rows()[before:]
            assert made[0].unit == Unit("trainer", STEP, step) and made[0].arrival.revision == 0
            assert sum(row.arrival.revision > 0 for row in made) <= PIECE
            step += 1
        assert step - STEPS >= 3 * STEPS // PIECE
        sim.tick()
        assert up_to_date(sim)


def test_a_finished_experiment_keeps_its_rows_until_it_grows() -> None:
    """Its rows and their number stay however often a sidecar starts. One more line, and all rows are made again."""
    with made_before(close=True) as sim:
        rows = sim.rows()
        for _ in range(2):
            sim.tick()
            sim.finish()
            assert sim.rows() == rows and not sim.experiment.news()
            assert survey(sim.experiment, [], now=sim.now, wall=0.0).row_function == OLDER
            sim.restart()
        sim.write("late.jsonl", file(log(3, loss=5.0), CLOSE, id="late", rank=0, attempt=1, world=2))
        sim.finish()
        assert up_to_date(sim) and MadeWith(sim.store).row_function() == ROW_FUNCTION
        assert len(sim.experiment.news()) == 1


def test_a_sweep_goes_on_where_it_was_and_begins_again_with_another_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Back to the older sidecar within the sweep: what was revised already is made once more."""
    with made_before() as sim:
        sim.experiment.tick(sim.now, 0.0)
        some = len(sim.rows())
        sim.restart()
        assert MadeWith(sim.store).row_function() == OLDER and not sim.experiment.news()
        with monkeypatch.context() as patch:
            make_older(patch.setattr)
            sim.restart()
            sim.tick()
            assert MadeWith(sim.store).row_function() == OLDER and MadeWith(sim.store).sweep() is None
            again = [row for row in sim.rows()[some:] if row.arrival.revision]
            assert again and all(row.arrival.revision == 2 for row in again)
        sim.restart()
        sim.tick()
        assert up_to_date(sim)


@pytest.mark.statistical
def test_a_kill_within_a_sweep_changes_no_final_row() -> None:
    """Killed between any two statements, or two rows of one, it goes on with the unit that is next."""
    with pytest.MonkeyPatch.context() as patch, made_before(steps=4) as sim:
        patch.setattr(Store, "connection_class", Fragile)
        patch.setattr(sweep, "PIECE", 5)
        sim.stop()
        state, saved = sim.directory / "rlship" / "state", sim.directory / "saved"
        shutil.copytree(state, saved)
        FUSE.last_words = lambda: shutil.copytree(state, sim.directory / "snapshot")
        expected = final_rows(files_of(sim))
        for fatal in some(range(1, 1000), share=8):
            shutil.rmtree(state)
            shutil.copytree(saved, state)
            FUSE.fatal = -1
            sim._start()
            FUSE.moments, FUSE.fatal = 0, fatal
            surviving(sim, sim.finish)
            moments, FUSE.fatal = FUSE.moments, -1
            assert not differing(expected, sim.final()), fatal
            assert MadeWith(sim.store).row_function() == ROW_FUNCTION
            check_numbering(sim.rows())
            sim.stop()
            if fatal >= moments:
                break
        assert fatal > 50
        sim._start()


def test_the_timeline_is_made_again_too() -> None:
    """Row function 3 let every step of the lead begin with its segment, and the store keeps when they began."""
    with simulation() as sim:
        sim.write("t0.jsonl", file(*(barrier(n) | {"t": T0 + 10 * n} for n in range(1, 8)), id="t0"))
        again = (barrier(n) | {"t": T0 + 70 + 10 * n} for n in (2, 3))
        sim.write("t1.jsonl", file(*again, id="t1", attempt=1, t=T0 + 80, beat=10))
        sim.write("g.jsonl", file(*({"t": T0 + s, "m": {"x": s}} for s in range(105)), id="g", actor="generator"))
        sim.tick()
        assert sim.final()[Unit("generator", ALIGNED, 4)].values == {"generator/x": 35.5}
        sim.store.change("update timeline set since_t = open_t, since = open_t")
        sim.store.change("update meta set value = ? where key = 'row_function'", (str(OLDER),))
        sim.experiment.tick(sim.now + 10.0, 0.0)  # commits
        sim.restart()
        sim.tick()
        sim.finish()
        assert up_to_date(sim)
