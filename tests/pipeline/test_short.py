"""Ranks that are short of a metric: what rows say of them, whatever the order of arrival, and after restarts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.align.units import StreamConfig
from rlship_sidecar.report import terminal
from rlship_sidecar.report.status import ShortSpan, ShortStatus
from rlship_sidecar.report.survey import survey
from rlship_sidecar.rows import STEP, Unit
from rlship_sidecar.steps import parse_steps
from tests.kit.cases import statistical
from tests.kit.files import CLOSE, T0, barrier, event, file, lines, log, rollback
from tests.pipeline.simulated import Simulation, simulation
from tests.pipeline.test_against_reference import check_numbering
from tests.reference.reduction import differing, final_rows
from tests.reference.settings import Settings

Does = Callable[[int, int], Mapping[str, float]]  # the metrics that a rank logs at a step


def logged(step: int, t: float, **m: Any) -> dict[str, Any]:
    return log(step, **m) | {"t": t}


def steps_of(does: Does, rank: int, steps: Collection[int]) -> list[dict[str, Any]]:
    """The lines of one rank: at each step its metrics, then a barrier."""
    found = []
    for step in steps:
        metrics = does(rank, step)
        found += [logged(step, T0 + step, **metrics)] if metrics else []
        found.append(barrier(step, step + 0.5))
    return found


def rank_file(does: Does, rank: int, steps: Collection[int], **identity: Any) -> bytes:
    """The file of one rank of four."""
    return file(*steps_of(does, rank, steps), **{"id": f"w{rank}", "rank": rank, "world": 4, "beat": 10} | identity)


def short(sim: Simulation) -> dict[int, dict[str, tuple[str, ...]]]:
    """The steps of the trainer whose newest rows are short, with what they are short of."""
    rows = sorted(sim.final().items())
    return {
        unit.index: dict(row.coverage.short)
        for unit, row in rows
        if unit.kind == STEP and unit.actor == "trainer" and row.coverage.short
    }


def all_of(files: Mapping[str, bytes], *, window: int = 20) -> dict[int, dict[str, tuple[str, ...]]]:
    """What the final rows of some files are short of, after comparing them with the reference."""
    with simulation(short_window=window) as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        assert not differing(final_rows(files, settings=Settings(samples_every=1, short_window=window)), sim.final())
        check_numbering(sim.rows())
        return short(sim)


def four(does: Does, steps: Collection[int] = range(60)) -> dict[str, bytes]:
    return {f"r{rank}.jsonl": rank_file(does, rank, steps) for rank in range(4)}


LOSS = {"loss": 1.0}


def test_a_rank_that_skips_a_metric_once_is_named() -> None:
    """It logged something else and passed its barrier. Before, nothing in the row showed it."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0} if (rank, step) == (3, 30) else {"grad": 2.0, "loss": 1.0}

    assert all_of(four(does)) == {30: {"trainer/loss": ("0.3",)}}


def test_a_rank_that_logs_nothing_but_passes_is_short_of_everything() -> None:
    """Ranks are named as in the rest of the coverage."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {} if rank in (1, 2) and step == 30 else {"grad": 2.0, "loss": 1.0}

    assert all_of(four(does)) == {30: {"trainer/grad": ("0.1-2",), "trainer/loss": ("0.1-2",)}}


def test_what_all_ranks_log_every_tenth_step_is_short_nowhere_else() -> None:
    """A step at which no rank logged it is not short. The window counts the steps that have it, however far apart."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        evaluates = step % 10 == 0 and (rank, step) != (2, 450)
        return {"loss": 1.0, "eval": 0.5} if evaluates else LOSS

    assert all_of(four(does, range(500))) == {450: {"trainer/eval": ("0.2",)}}


def test_a_metric_of_one_rank_alone_is_normal() -> None:
    """A rank, or the ranks of a pipeline stage, that always log it alone."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0, **({"loss": 1.0} if rank >= 2 else {}), **({"lr": 1.0} if rank == 0 else {})}

    assert all_of(four(does)) == {}


def test_a_rank_that_stops_for_good_is_short_for_a_window() -> None:
    """From then on it belongs to those that never logged it."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0} if rank == 3 and step >= 10 else {"grad": 2.0, "loss": 1.0}

    assert set(all_of(four(does))) == set(range(10, 30))
    assert set(all_of(four(does), window=3)) == {10, 11, 12}
    assert all_of(four(does), window=0) == {}


def test_a_rank_that_dies_or_closes_is_not_short() -> None:
    """It never passes a barrier again. The dead one is missing, the closed one is done."""
    files = {f"r{rank}.jsonl": rank_file(lambda rank, step: LOSS, rank, range(30)) for rank in range(2)}
    files["r2.jsonl"] = rank_file(lambda rank, step: LOSS, 2, range(10))
    files["r3.jsonl"] = rank_file(lambda rank, step: LOSS, 3, range(10)) + lines(CLOSE)
    assert all_of(files) == {}


def test_a_rank_that_joins_is_short_only_once_it_logged_the_metric() -> None:
    """Before its first value it is like a rank that never logs it."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {} if rank == 3 and step in (20, 21, 26) else LOSS

    files = {f"r{rank}.jsonl": rank_file(does, rank, range(20 if rank == 3 else 0, 40)) for rank in range(4)}
    assert all_of(files) == {26: {"trainer/loss": ("0.3",)}}


def test_steps_done_again_count_what_was_logged_there_in_any_life() -> None:
    """After a rollback a rank that leaves the metric out has it still, from the first time, and its row shows it."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return LOSS

    def again(rank: int, step: int) -> Mapping[str, float]:
        return {} if rank == 3 and step in (8, 12) else LOSS

    files = {
        name: data + lines(rollback(5), *steps_of(again, rank, range(5, 20)))
        for rank, (name, data) in enumerate(four(does, range(10)).items())
    }
    assert all_of(files) == {12: {"trainer/loss": ("0.3",)}}


def test_a_smaller_world_has_no_place_for_a_rank_that_could_be_short() -> None:
    """An elastic restart with two ranks instead of four. In a third attempt with four the window is over."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {} if rank == 3 and step >= 40 else LOSS

    files = four(does, range(10))
    for rank in range(2):
        files[f"b{rank}.jsonl"] = rank_file(does, rank, range(8, 40), id=f"b{rank}", world=2, attempt=1, t=T0 + 20)
    for rank in range(4):
        files[f"c{rank}.jsonl"] = rank_file(does, rank, range(40, 50), id=f"c{rank}", attempt=2, t=T0 + 60)
    assert all_of(files) == {}
    assert set(all_of(files, window=35)) == set(range(40, 45))


def test_replicas_are_ranks_of_their_own() -> None:
    """The rank of one replica is short, not the equal rank of the other."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {} if step == 5 else LOSS

    files = {
        f"{replica}{rank}.jsonl": rank_file(
            does if (replica, rank) == ("b", 0) else lambda rank, step: LOSS,
            rank,
            range(10),
            id=f"{replica}{rank}",
            replica=replica,
            world=2,
        )
        for replica in ("a", "b")
        for rank in range(2)
    }
    assert all_of(files) == {5: {"trainer/loss": ("b.0",)}}


def test_events_are_not_expected_of_other_ranks() -> None:
    """Each rank has the event at other steps."""
    files = {
        f"r{rank}.jsonl": file(
            *(
                record
                for step in range(10)
                for record in (
                    logged(step, T0 + step, loss=1.0),
                    *([event("retry", step=step, t=T0 + step)] if step % 4 == rank else []),
                    barrier(step, step + 0.5),
                )
            ),
            id=f"w{rank}",
            rank=rank,
            world=4,
        )
        for rank in range(4)
    }
    assert all_of(files) == {}


def test_values_that_are_no_plain_numbers_count_alike() -> None:
    """Lists, and a summary of nothing, which is no observation."""

    def does(rank: int, step: int) -> Mapping[str, Any]:
        if rank == 3 and step == 5:
            return {"loss": [], "len": [1.0, 2.0]}
        return {"loss": [1.0, 2.0], "len": [1.0, 2.0]}

    assert all_of(four(does, range(10))) == {5: {"trainer/loss": ("0.3",)}}


def test_without_barriers_a_later_step_says_that_a_rank_passed() -> None:
    """The rank's last step is open to its end: it may still log there."""
    files = {
        f"r{rank}.jsonl": file(
            *(logged(step, T0 + step, loss=1.0) for step in range(10) if (rank, step) not in ((3, 5), (3, 9))),
            id=f"w{rank}",
            rank=rank,
            world=4,
        )
        for rank in range(4)
    }
    assert all_of(files) == {5: {"trainer/loss": ("0.3",)}}


# Arrival, late lines, restarts ----------------------------------------------------------------------------------------


def revised(sim: Simulation, rows: int) -> list[int]:
    """The steps of the rows made since there were so many."""
    return [row.unit.index for row in sim.rows()[rows:]]


@pytest.mark.parametrize("restart", [False, True], ids=["one sidecar", "restart"])
def test_a_late_line_revises_rows_within_the_window_only(restart: bool) -> None:
    """Rank 3 never logged the loss. A late line says that it did at step 30, so it is short at the next 20."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0} if rank == 3 else {"grad": 2.0, "loss": 1.0}

    with simulation() as sim:
        files = four(does, range(100))
        for name, data in files.items():
            sim.write(name, data)
        sim.tick()
        assert short(sim) == {}
        rows = len(sim.rows())
        if restart:
            sim.restart()
        late = lines(log(30, loss=9.0, t=T0 + 30))
        sim.write("r3.jsonl", late)
        files["r3.jsonl"] += late
        sim.wait(10.0)
        sim.tick()
        sim.wait(10.0)
        sim.tick()
        assert revised(sim, rows) == list(range(30, 51))
        assert set(short(sim)) == set(range(31, 51))
        sim.finish()
        assert not differing(final_rows(files, settings=Settings(samples_every=1)), sim.final())


def test_a_late_line_that_mends_a_row_is_seen_by_the_next_ones() -> None:
    """The metric that was lacking comes late: the row is short no more, and no other row changes."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {} if (rank, step) == (3, 30) else LOSS

    with simulation() as sim:
        for name, data in four(does).items():
            sim.write(name, data)
        sim.tick()
        assert set(short(sim)) == {30}
        rows = len(sim.rows())
        sim.write("r3.jsonl", lines(log(30, loss=9.0, t=T0 + 30)))
        sim.wait(10.0)
        sim.tick()
        assert revised(sim, rows) == [30] and short(sim) == {}


def test_a_late_barrier_tells_short_from_missing() -> None:
    """A silent rank is missing from a partial row. Once it goes on without the metric, it is short there."""
    with simulation() as sim:
        for rank in range(4):
            sim.write(f"r{rank}.jsonl", rank_file(lambda rank, step: LOSS, rank, range(10 if rank < 3 else 5)))
        sim.tick()
        sim.wait(40.0)
        sim.tick()
        assert sim.final()[Unit("trainer", STEP, 7)].coverage.missing == ("0.3",) and short(sim) == {}
        sim.write("r3.jsonl", lines(log(6, loss=1.0, t=T0 + 6), barrier(9, 9.5)))
        sim.tick()
        sim.wait(10.0)
        sim.tick()
        assert set(short(sim)) == {5, 7, 8, 9}


def test_a_barrier_behind_a_close_counts() -> None:
    """A closed rank is not missing, so its row is complete; a barrier that follows all the same makes it short."""
    with simulation() as sim:
        files = {f"r{rank}.jsonl": rank_file(lambda rank, step: LOSS, rank, range(10)) for rank in range(3)}
        files["r3.jsonl"] = rank_file(lambda rank, step: LOSS, 3, range(5)) + lines(CLOSE)
        for name, data in files.items():
            sim.write(name, data)
        sim.tick()
        assert short(sim) == {}
        late = lines(barrier(9, 9.5))
        sim.write("r3.jsonl", late)
        files["r3.jsonl"] += late
        sim.finish()
        assert set(short(sim)) == {5, 6, 7, 8, 9}
        assert not differing(final_rows(files, settings=Settings(samples_every=1)), sim.final())


def test_a_restart_in_the_middle_knows_the_last_steps() -> None:
    """The metric is logged every fifth step, so what the new sidecar needs lies far before the lines it reads."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 1.0, **({"eval": 1.0} if step % 5 == 0 and (rank, step) != (1, 70) else {})}

    with simulation() as sim:
        for at in range(0, 100, 7):
            for rank in range(4):
                data = rank_file(does, rank, range(at, at + 7))
                sim.write(f"r{rank}.jsonl", data if at == 0 else data.split(b"\n", 1)[1])
            sim.tick()
            sim.restart()
        sim.tick()
        assert short(sim) == {70: {"trainer/eval": ("0.1",)}}
        assert all(row.arrival.revision == 0 for row in sim.rows())


def test_another_window_makes_rows_again() -> None:
    """A restart with another setting revises the rows that it changes."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0} if rank == 3 and step >= 10 else {"grad": 2.0, "loss": 1.0}

    with simulation() as sim:
        for name, data in four(does).items():
            sim.write(name, data)
        sim.tick()
        for window in (5, 0, 20):
            sim.short_window = window
            sim.restart()
            sim.tick()
            assert set(short(sim)) == set(range(10, 10 + window))


def test_a_store_of_an_earlier_release_gets_the_tables() -> None:
    """It has rows, which are made again, and no table of what ranks logged."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0} if (rank, step) == (3, 30) else {"grad": 2.0, "loss": 1.0}

    with simulation(short_window=0) as sim:
        for name, data in four(does).items():
            sim.write(name, data)
        sim.tick()
        for name in ("logged_steps", "logged_metrics"):
            sim.store.change(f"drop table {name}")
        sim.store.change("update meta set value = '3' where key = 'row_function'")
        sim.experiment.tick(sim.now + 10.0, 0.0)  # commits
        sim.short_window = 20
        sim.restart()
        sim.tick()
        assert short(sim) == {30: {"trainer/loss": ("0.3",)}}


def test_rows_of_some_steps_look_back_at_the_others() -> None:
    """`rlship replay --steps`: steps that become no rows count for those that do."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        return {"grad": 2.0} if rank == 3 and step >= 190 else {"grad": 2.0, "loss": 1.0}

    files = four(does, range(250))
    late = lines(log(10, loss=9.0, t=T0 + 300))  # opens step 10 again, which has no row
    files["r0.jsonl"] += late
    with simulation(streams=StreamConfig(steps=parse_steps("205:215"))) as sim:
        for name, data in files.items():
            sim.write(name, data)
        sim.finish()
        found = sim.final()
        assert {unit.index for unit in found if unit.kind == STEP} == set(range(205, 216))
        assert set(short(sim)) == {205, 206, 207, 208, 209}


def test_the_status_names_rank_and_metric() -> None:
    """Of the newest rows together, with how many there are; the experiment is complete all the same."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        left_out = {(0, 5): "grad", (1, 40): "loss", (3, 30): "loss"}.get((rank, step))
        return {name: 1.0 for name in ("grad", "loss") if name != left_out}

    with simulation() as sim:
        for name, data in four(does).items():
            sim.write(name, data)
        sim.tick()
        for _ in range(2):
            status = survey(sim.experiment, [], now=sim.now, wall=0.0)
            metrics = {"trainer/grad": ["0.0"], "trainer/loss": ["0.1", "0.3"]}
            last, varied = {"trainer/loss": ["0.1"]}, ["trainer/loss"]
            spans = {
                "trainer/grad": [ShortSpan(["0.0"], 5, 5)],
                "trainer/loss": [ShortSpan(["0.3"], 30, 30), ShortSpan(["0.1"], 40, 40)],
            }
            assert status.short == [ShortStatus("trainer", 3, 5, 40, metrics, of_last=last, varied=varied, spans=spans)]
            assert terminal.lines(None, status)[-3:] == [
                "trainer step 40: r1 left out loss",
                "trainer step 30: r3 left out loss",
                "trainer step 5: r0 left out grad",
            ]
            assert status.complete
            sim.restart()
        sim.write("r3.jsonl", lines(log(30, loss=9.0)))
        sim.wait(10.0)
        sim.tick()
        (found,) = survey(sim.experiment, [], now=sim.now, wall=0.0).short
        assert (found.rows, found.metrics["trainer/loss"]) == (2, ["0.1"])


def test_the_status_says_which_ranks_stopped_for_good() -> None:
    """Rows name such a rank for 20 steps; from then on the status says that later rows lack the metric, too. A rank
    that logs it again is not meant.
    """

    def does(rank: int, step: int) -> Mapping[str, float]:
        left_out = {1: step >= 6, 2: 6 <= step < 9}.get(rank, False)
        return {"grad": 1.0} if left_out else {"grad": 1.0, "loss": 1.0}

    with simulation() as sim:
        for name, data in four(does, range(60)).items():
            sim.write(name, data)
        sim.tick()
        found = survey(sim.experiment, [], now=sim.now, wall=0.0)
        assert found.short[0].stopped == {"trainer/loss": ["0.1"]}
        rows = "trainer: 20 rows lack a metric of a rank, steps 6..25: some of r1-2 left out loss"
        later = "Later rows lack it too and do not say so: r1 stopped logging loss"
        assert f"{rows}. {later}" in terminal.columns(found)
        sim.write("r1.jsonl", lines(log(60, loss=9.0), barrier(60)))
        for rank in (0, 2, 3):
            sim.write(f"r{rank}.jsonl", lines(log(60, loss=9.0), barrier(60)))
        sim.tick()
        assert survey(sim.experiment, [], now=sim.now, wall=0.0).short[0].stopped == {}


def test_a_status_of_many_such_rows_says_how_many_it_names() -> None:
    """The ranks of the newest 20 rows are named, and the status says so: others may have been short earlier."""

    def does(rank: int, step: int) -> Mapping[str, float]:
        left_out = step % 2 and rank == (1 if step < 10 else 2)
        return {"grad": 1.0} if left_out else {"grad": 1.0, "loss": 1.0}

    with simulation() as sim:
        for name, data in four(does, range(80)).items():
            sim.write(name, data)
        sim.tick()
        (found,) = survey(sim.experiment, [], now=sim.now, wall=0.0).short
        assert (found.rows, found.of_newest) == (40, 20)
        assert found.metrics == {"trainer/loss": ["0.2"]}


PLANS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from((True, True, False))), min_size=12, max_size=12
)


@statistical(150)
@given(data=st.data())
def test_however_lines_arrive_the_rows_are_those_of_the_reference(data: st.DataObject) -> None:
    """Ranks log two metrics at will, in pieces, in any order, with restarts of the sidecar and late lines between."""
    window = data.draw(st.sampled_from((1, 2, 4, 20)))
    streams: dict[str, list[bytes]] = {}
    for rank in range(3):
        plan = data.draw(PLANS)
        begins = data.draw(st.sampled_from((0, 0, 3)))
        records = [
            record
            for step, (first, second, ends) in enumerate(plan)
            if step >= begins
            for record in (
                *([logged(step, T0 + step, a=1.0)] if first else []),
                *([logged(step, T0 + step, a=1.0, b=2.0)] if second else []),
                *([barrier(step, step + 0.5)] if ends else []),
            )
        ]
        for _ in range(data.draw(st.sampled_from((0, 0, 1, 2)))):
            step = data.draw(st.integers(0, 11))
            late = data.draw(st.sampled_from((log(step, b=3.0), rollback(step), CLOSE, barrier(step))))
            records.insert(data.draw(st.integers(0, len(records))), late)
        identity = {"id": f"w{rank}", "rank": rank, "world": 3, "beat": 10}
        streams[f"r{rank}.jsonl"] = file(*records, **identity).splitlines(keepends=True)
    files = {name: b"".join(parts) for name, parts in streams.items()}
    with simulation(short_window=window) as sim:
        while any(streams.values()):
            name = data.draw(st.sampled_from([name for name, parts in streams.items() if parts]))
            count = data.draw(st.integers(1, 16))
            sim.write(name, b"".join(streams[name][:count]))
            del streams[name][:count]
            sim.wait(data.draw(st.sampled_from((0.0, 1.0, 40.0, 700.0))))
            sim.tick()
            if data.draw(st.integers(0, 4)) == 0:
                sim.restart()
        sim.finish()
        settings = Settings(samples_every=1, short_window=window)
        assert not differing(final_rows(files, settings=settings), sim.final())
        check_numbering(sim.rows())
