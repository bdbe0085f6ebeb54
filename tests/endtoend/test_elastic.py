"""Elastic jobs: ranks that join, leave, die and come back, jobs that go back and change their size.

At every step rank r of attempt a logs the number (a + 1)·10^r under a sum, so the digits of the figure say who counts:
22 is the second attempt of ranks 0 and 1, 112 the second of rank 0 and the first of 1 and 2. All expectations are
written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from rlship_sidecar.rows import Row
from tests.endtoend.evidence import check_rows, newest, shipped, state_of
from tests.endtoend.job import Worker, crew
from tests.endtoend.sidecar import Sidecar, rlship, watching
from tests.reference.reduction import exactly
from tests.sinks.readback import offline_rows

GRACE_S = 2.5
BEAT_S = 0.2  # Who lives is never silent for GRACE_S.
SETTINGS = {"RLSHIP_GRACE_S": str(GRACE_S), "RLSHIP_JOIN_S": "4", "RLSHIP_REVISE_S": "0.2"}
SINKS = ("jsonl", "wandb")


class Told(NamedTuple):
    """What a step's newest row says."""

    figure: float
    ranks: tuple[str, ...]
    expected: int
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    attempts: tuple[int, ...] = (0,)


class Point(NamedTuple):
    """What W&B has of a step: its keys as the last history line that has them says."""

    figure: float
    ranks_in: int
    expected: int
    missing: int


def steps(workers: Sequence[Worker], first: int, last: int, digit: int) -> None:
    """Let these ranks, from rank 0 on, log and finish the steps `first` to `last` inclusive."""
    for step in range(first, last + 1):
        for rank, worker in enumerate(workers):
            one(worker, rank, step, digit)
    for worker in workers:
        worker.flush()


def one(worker: Worker, rank: int, step: int, digit: int) -> None:
    """One step of one rank."""
    worker.define({"who": "sum"})
    worker.log({"who": digit * 10**rank}, step)
    worker.barrier(step)


def job(tmp_path: Path) -> Path:
    """A new experiment's folder."""
    experiment = tmp_path / "job"
    experiment.mkdir()
    return experiment


def kill(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.kill()


def told(experiment: Path, actor: str = "trainer") -> dict[int, Told]:
    """By step, what the jsonl sink's newest rows say of an actor."""
    return {
        unit.index: Told(
            row.values[f"{actor}/who"],
            row.coverage.ranks,
            row.coverage.expected,
            row.coverage.missing,
            row.coverage.absent,
            row.coverage.attempts,
        )
        for unit, row in newest(shipped(experiment)).items()
        if unit.actor == actor
    }


def points(experiment: Path, actor: str = "trainer") -> dict[int, Point]:
    """By step, what the offline W&B run has of an actor."""
    merged: dict[int, dict[str, float]] = {}
    for line in offline_rows(state_of(experiment)):
        if f"zz_rlship/{actor}/ranks/in" in line:
            merged.setdefault(line["global_step"], {}).update(line)
    about = f"zz_rlship/{actor}/ranks"
    names = (f"{actor}/who", f"{about}/in", f"{about}/expected", f"{about}/missing")
    return {step: Point(*(line[name] for name in names)) for step, line in merged.items()}


def until_told(sidecar: Sidecar, experiment: Path, expected: dict[int, Told], actor: str = "trainer") -> None:
    """Wait until the rows say so; else show how they differ."""
    try:
        sidecar.until(lambda: told(experiment, actor) == expected, timeout_s=20)
    except AssertionError as late:
        assert told(experiment, actor) == expected, str(late)


def finish(sidecar: Sidecar, experiment: Path) -> None:
    """Stop the sidecar; the reference, and one that reads the files from their beginning, come to the same rows."""
    assert sidecar.stop() == 0, sidecar.said()
    rows = shipped(experiment)
    check_rows(experiment, rows)
    home = experiment.parent / "home"
    again = rlship(home, "watch", experiment, "--once", "--sink", "jsonl", "--state-dir", home / "again")
    assert again.returncode in (0, 3), again.stderr
    anew = (home / "again" / experiment.name / "rows.jsonl").read_bytes().splitlines()
    assert exactly(newest(map(Row.from_json, anew))) == exactly(newest(rows))


def test_a_job_that_grows(tmp_path: Path) -> None:
    """Two ranks are killed after step 4 and come back at step 3 as four: the row of a step expects as many as the
    attempt had that did it last.
    """
    experiment = job(tmp_path)
    with watching(experiment, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar:
        with crew(experiment, "trainer", 2, beat=BEAT_S) as small:
            steps(small, 0, 4, 1)
            before = {step: Told(11, ("0.0-1",), 2) for step in range(5)}
            until_told(sidecar, experiment, before)
            kill(small)
        with crew(experiment, "trainer", 4, attempt=1, beat=BEAT_S) as large:
            steps(large, 3, 6, 2)
            after = {step: Told(2222, ("0.0-3",), 4, attempts=(1,)) for step in range(3, 7)}
            until_told(sidecar, experiment, before | after)
        finish(sidecar, experiment)
    assert points(experiment) == {
        **{step: Point(11, 2, 2, 0) for step in range(3)},
        **{step: Point(2222, 4, 4, 0) for step in range(3, 7)},
    }


@pytest.mark.long
def test_a_job_that_shrinks(tmp_path: Path) -> None:
    """Four ranks are killed after step 4 and come back at step 3 as two: in steps that are done again the ranks that
    are no more do not count, nor are they missing; what the two have not logged again stays.
    """
    experiment = job(tmp_path)
    with watching(experiment, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar:
        with crew(experiment, "trainer", 4, beat=BEAT_S) as large:
            steps(large, 0, 3, 1)
            large[3].log({"evaluation": 0.5}, 4)
            steps(large, 4, 4, 1)
            before = {step: Told(1111, ("0.0-3",), 4) for step in range(5)}
            until_told(sidecar, experiment, before)
            kill(large)
        with crew(experiment, "trainer", 2, attempt=1, beat=BEAT_S) as small:
            steps(small, 3, 3, 2)
            halfway = {3: Told(22, ("0.0-1",), 2, attempts=(1,))}
            # Step 4 is not done again yet: its figures stay.
            still = {4: Told(1111, ("0.0-3",), 2)}
            until_told(sidecar, experiment, before | halfway | still)
            steps(small, 4, 6, 2)
            after = {step: Told(22, ("0.0-1",), 2, attempts=(1,)) for step in (3, 5, 6)}
            evaluated = {4: Told(22, ("0.0-1", "0.3"), 2, attempts=(0, 1))}
            until_told(sidecar, experiment, before | after | evaluated)
        finish(sidecar, experiment)
    rows = {unit.index: row for unit, row in newest(shipped(experiment)).items()}
    assert rows[4].values["trainer/evaluation"] == 0.5
    # From two ranks that came moments after each other, not from some that came minutes before.
    assert rows[3].values["trainer/barrier/spread_s"] < 1
    assert points(experiment) == {
        **{step: Point(1111, 4, 4, 0) for step in range(3)},
        3: Point(22, 2, 2, 0),
        4: Point(22, 3, 2, 0),
        5: Point(22, 2, 2, 0),
        6: Point(22, 2, 2, 0),
    }


@pytest.mark.long
def test_a_job_that_goes_back(tmp_path: Path) -> None:
    """The whole job is started again from step 2, and later goes back to step 3 by itself: steps that are not done
    again yet keep what they had, then the last to log a step counts.
    """
    experiment = job(tmp_path)
    with watching(experiment, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar:
        with crew(experiment, "trainer", 2, beat=BEAT_S) as first:
            steps(first, 0, 5, 1)
            before = {step: Told(11, ("0.0-1",), 2) for step in range(6)}
            until_told(sidecar, experiment, before)
            kill(first)
        with crew(experiment, "trainer", 2, attempt=1, beat=BEAT_S) as second:
            steps(second, 2, 3, 2)
            begun = before | {step: Told(22, ("0.0-1",), 2, attempts=(1,)) for step in (2, 3)}
            # No rank is missing from steps 4 and 5: the first attempt finished them.
            until_told(sidecar, experiment, begun)
            for worker in second:
                worker.tell("rollback", 3)
            steps(second, 3, 6, 3)
            rest = {step: Told(33, ("0.0-1",), 2, attempts=(1,)) for step in range(3, 7)}
            until_told(sidecar, experiment, begun | rest)
        finish(sidecar, experiment)
    assert [points(experiment)[step].figure for step in range(7)] == [11, 11, 22, 33, 33, 33, 33]


def test_a_rank_that_dies_and_comes_back(tmp_path: Path) -> None:
    """Rank 1 is killed after step 1: once it has been silent, rows go on without it and name it. It comes back at step
    2, and the rows that lacked it are completed.
    """
    experiment = job(tmp_path)
    with watching(experiment, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar, ExitStack() as stack:
        ranks = stack.enter_context(crew(experiment, "reward", 2, beat=BEAT_S))
        steps(ranks, 0, 1, 1)
        ranks[1].kill()
        steps(ranks[:1], 2, 3, 1)
        whole = {step: Told(11, ("0.0-1",), 2) for step in (0, 1)}
        lacking = {step: Told(1, ("0.0",), 2, missing=("0.1",)) for step in (2, 3)}
        until_told(sidecar, experiment, whole | lacking, "reward")
        again = stack.enter_context(crew(experiment, "reward", 2, attempt=1, beat=BEAT_S))
        again[0].kill()  # Only rank 1 was started again.
        for step in (2, 3, 4):
            one(again[1], 1, step, 2)
        again[1].flush()
        completed = {step: Told(21, ("0.0-1",), 2, attempts=(0, 1)) for step in (2, 3)}
        until_told(sidecar, experiment, whole | completed, "reward")
        steps(ranks[:1], 4, 4, 1)
        completed[4] = completed[2]
        until_told(sidecar, experiment, whole | completed, "reward")
        finish(sidecar, experiment)
    assert points(experiment, "reward") == {
        **{step: Point(11, 2, 2, 0) for step in (0, 1)},
        **{step: Point(21, 2, 2, 0) for step in (2, 3, 4)},
    }


@pytest.mark.long
def test_ranks_that_join_and_leave(tmp_path: Path) -> None:
    """Rank 2 of three comes at step 2 and ends after step 3. Before, it is absent, and rows wait for it only at first;
    after, it is expected as before but not missing, as it said goodbye, and no row waits for it.
    """
    experiment = job(tmp_path)
    with watching(experiment, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar, ExitStack() as stack:
        early = [Worker(experiment, "trainer", rank=rank, world=3, beat=BEAT_S) for rank in range(2)]
        for worker in early:
            stack.callback(close, worker)
        steps(early, 0, 1, 1)
        alone = {step: Told(11, ("0.0-1",), 2, absent=("0.2",)) for step in (0, 1)}
        until_told(sidecar, experiment, alone)
        late = Worker(experiment, "trainer", rank=2, world=3)
        stack.callback(close, late)
        late.flush()
        steps([*early, late], 2, 3, 1)
        together = {step: Told(111, ("0.0-2",), 3) for step in (2, 3)}
        until_told(sidecar, experiment, alone | together)
        late.end()
        steps(early, 4, 5, 1)
        without = {step: Told(11, ("0.0-1",), 3) for step in (4, 5)}
        until_told(sidecar, experiment, alone | together | without)
        finish(sidecar, experiment)
    closed = {row.unit.index: row.arrival.closed for row in shipped(experiment)}
    assert (closed[4], closed[5]) == ("complete", "complete")
    assert points(experiment) == {
        **{step: Point(11, 2, 2, 0) for step in (0, 1)},
        **{step: Point(111, 3, 3, 0) for step in (2, 3)},
        **{step: Point(11, 2, 3, 0) for step in (4, 5)},
    }


@pytest.mark.long
def test_replicas_with_the_same_rank_numbers(tmp_path: Path) -> None:
    """Two replicas count their ranks from 0 each. One is started again with one rank instead of two: the other's
    attempt, size and values are its own.
    """
    experiment = job(tmp_path)
    with watching(experiment, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar, ExitStack() as stack:
        left = stack.enter_context(crew(experiment, "trainer", 2, replica="0", beat=BEAT_S))
        right = stack.enter_context(crew(experiment, "trainer", 2, replica="1", beat=BEAT_S))
        steps(left, 0, 2, 1)
        steps(right, 0, 1, 4)
        kill(right)
        again = stack.enter_context(crew(experiment, "trainer", 1, replica="1", attempt=1, beat=BEAT_S))
        steps(again, 1, 2, 5)
        until_told(
            sidecar,
            experiment,
            {
                0: Told(11 + 44, ("0.0-1", "1.0-1"), 4),
                1: Told(11 + 5, ("0.0-1", "1.0"), 3, attempts=(0, 1)),
                2: Told(11 + 5, ("0.0-1", "1.0"), 3, attempts=(0, 1)),
            },
        )
        finish(sidecar, experiment)
    assert points(experiment) == {0: Point(55, 4, 4, 0), 1: Point(16, 3, 3, 0), 2: Point(16, 3, 3, 0)}


@pytest.mark.long
def test_two_experiments_in_one_folder(tmp_path: Path) -> None:
    """Two jobs with the same actor, ranks and steps under one outputs/, of which one begins later and shrinks: each has
    rows and a W&B run of its own.
    """
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    one_job, other_job = outputs / "a", outputs / "b"
    with watching(outputs, *SINKS, home=tmp_path / "home", settings=SETTINGS) as sidecar, ExitStack() as stack:
        ranks = stack.enter_context(crew(one_job, "trainer", 2, beat=BEAT_S))
        steps(ranks, 0, 1, 1)
        until_told(sidecar, one_job, {step: Told(11, ("0.0-1",), 2) for step in (0, 1)})
        with crew(other_job, "trainer", 2, beat=BEAT_S) as others:
            steps(others, 0, 1, 4)
            kill(others)
        others = stack.enter_context(crew(other_job, "trainer", 1, attempt=1, beat=BEAT_S))
        steps(others, 1, 2, 5)
        steps(ranks, 2, 2, 1)
        until_told(sidecar, one_job, {step: Told(11, ("0.0-1",), 2) for step in range(3)})
        shrunk = {step: Told(5, ("0.0",), 1, attempts=(1,)) for step in (1, 2)}
        until_told(sidecar, other_job, {0: Told(44, ("0.0-1",), 2)} | shrunk)
        assert sidecar.stop() == 0, sidecar.said()
    assert points(one_job) == {step: Point(11, 2, 2, 0) for step in range(3)}
    assert points(other_job) == {0: Point(44, 2, 2, 0), 1: Point(5, 1, 1, 0), 2: Point(5, 1, 1, 0)}


def close(worker: Worker) -> None:
    """Make sure that nothing is left of it."""
    if worker.process.poll() is None:
        worker.kill()
    for stream in (worker.process.stdin, worker.process.stdout, worker.process.stderr):
        if stream is not None:
            stream.close()
