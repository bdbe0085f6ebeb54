"""A job whose processes die, stand still or outrun the sidecar."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from tests.endtoend.evidence import check_rows, files_of, revisions, shipped
from tests.endtoend.job import crew
from tests.endtoend.sidecar import rlship, watching

GRACE_S = 2.5
SETTINGS = {"RLSHIP_GRACE_S": str(GRACE_S), "RLSHIP_REVISE_S": "0.2"}


def file_of_rank(experiment: Path, rank: int) -> bytes:
    """What the trainer's rank has in its file, b"" while there is no file."""
    return b"".join(data for name, data in files_of(experiment).items() if f"-r{rank}-" in name)


def test_kill_9_of_writers_leaves_at_most_a_torn_tail(tmp_path: Path) -> None:
    """Each file of a killed writer is whole lines and perhaps the beginning of one, from its `open` on without a hole;
    the sidecar makes rows of all that is whole.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    dice = random.Random(11)
    with watching(experiment, home=home, settings=SETTINGS) as sidecar, crew(experiment, "trainer", 6) as workers:
        for number, worker in enumerate(workers):
            worker.tell("run", 0, 10**6, seed=number, pause=0.0)
            sidecar.until(lambda number=number: len(file_of_rank(experiment, number)) > 8192)
            time.sleep(dice.uniform(0.0, 0.04))
            worker.kill()
        sidecar.until_status(lambda status: len(status.writers) == 6 and all(w.unread < 4096 for w in status.writers))
        assert sidecar.stop() == 0, sidecar.said()

    for name, data in files_of(experiment).items():
        lines = data.split(b"\n")[:-1]
        records = [json.loads(line) for line in lines]
        assert [record.get("kind") for record in records[:1]] == ["open"], name
        steps = [record["step"] for record in records if record.get("kind") == "barrier"]
        assert steps == list(range(len(steps)))
        assert len(steps) > 10, name
    done = rlship(home, "watch", experiment, "--once", "--sink", "jsonl", settings=SETTINGS)
    assert done.returncode in (0, 3), done.stderr
    check_rows(experiment, shipped(experiment))


def test_a_dead_rank_is_named_and_a_silent_one_waited_for(tmp_path: Path) -> None:
    """A rank that only beats keeps its step open long past `grace_s`; once it is killed, the step becomes a row that
    names it, about `grace_s` later, and so do the steps after it.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    with (
        crew(experiment, "trainer", 2, beat=0.2) as (steady, stuck),
        watching(experiment, home=home, settings=SETTINGS) as sidecar,
    ):
        for step in range(3):
            for worker in (steady, stuck):
                worker.log({"loss": float(step)}, step)
                worker.barrier(step)
        stuck.log({"loss": 3.0}, 3)
        stuck.flush()
        for step in (3, 4):
            steady.log({"loss": 7.0}, step)
            steady.barrier(step)
        steady.flush()
        sidecar.until(lambda: len(shipped(experiment)) == 3)
        beating = time.monotonic() + 2 * GRACE_S
        while time.monotonic() < beating:
            assert len(shipped(experiment)) == 3
            time.sleep(0.1)

        stuck.kill()
        assert sidecar.until(lambda: len(shipped(experiment)) == 5) < GRACE_S + 5
        rows = shipped(experiment)
        assert [row.arrival.closed for row in rows] == ["complete"] * 3 + ["partial"] * 2
        assert [row.coverage.missing for row in rows] == [()] * 3 + [("0.1",)] * 2
        assert [row.coverage.ranks for row in rows] == [("0.0-1",)] * 4 + [("0.0",)]
        told = sidecar.until_status(lambda status: status.rows == 5)
        assert told.actors[0].missing == ["0.1"] and not told.complete
        steady.end()
        assert sidecar.stop() == 0, sidecar.said()
    check_rows(experiment, shipped(experiment))


def test_a_job_needs_no_sidecar(tmp_path: Path) -> None:
    """Workers that run with none, or whose folder cannot be written to, end as they would without rlship; what is in
    the files becomes rows later.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    with crew(experiment, "trainer", 2) as workers:
        for number, worker in enumerate(workers):
            worker.tell("run", 0, 99, seed=number, pause=0.0)
        for worker in workers:
            worker.end()
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be\n")
    with crew(blocked, "trainer", 1) as (worker,):
        worker.tell("run", 0, 99, seed=0, pause=0.0)
        assert worker.answer() < 1.0
        assert str(blocked) in worker.end()
    done = rlship(home, "watch", experiment, "--once", "--sink", "jsonl")
    assert done.returncode == 0, done.stderr
    check_rows(experiment, shipped(experiment))
    assert len(shipped(experiment)) == 100


def test_late_records_make_one_revision_with_their_own_keys(tmp_path: Path) -> None:
    """A rank that logs for closed steps: a new metric is one revision with that key alone; a further observation of a
    known one changes only that figure, to what all observations together give; no other step is touched.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    with (
        crew(experiment, "trainer", 2) as (first, second),
        watching(experiment, home=home, settings=SETTINGS) as sidecar,
    ):
        for worker in (first, second):
            worker.define({"spread": "std"})
        for step in range(6):
            for rank, worker in enumerate((first, second)):
                worker.log({"loss": step + rank, "lr": 0.25, "spread": [rank, step]}, step)
                worker.barrier(step)
        for worker in (first, second):
            worker.flush()
        sidecar.until(lambda: len(shipped(experiment)) == 6)

        second.log({"evaluation": 0.5, "passed": [1, 0, 1]}, 2)
        second.log({"loss": 9.0}, 4)
        second.flush()
        sidecar.until(lambda: len(shipped(experiment)) >= 8)
        # This one changes no figure, only the time that the row says.
        second.log({"lr": 0.25}, 5)
        second.log({"loss": 6.0}, 6)
        first.log({"loss": 6.0}, 6)
        for worker in (first, second):
            worker.barrier(6)
            worker.end()
        assert sidecar.stop() == 0, sidecar.said()
    assert rlship(home, "watch", experiment, "--once", "--sink", "jsonl", settings=SETTINGS).returncode == 0

    rows = shipped(experiment)
    check_rows(experiment, rows)
    assert sorted(row.unit.index for row in rows) == [0, 1, 2, 2, 3, 4, 4, 5, 5, 6]
    before, after = revisions(rows, "trainer", 2)
    assert (after.arrival.revision, after.arrival.changed) == (1, ("trainer/evaluation", "trainer/passed"))
    assert after.shipped == {"trainer/evaluation": 0.5, "trainer/passed": 2 / 3}
    assert before.values.items() < after.values.items() and before.coverage == after.coverage
    before, after = revisions(rows, "trainer", 4)
    assert after.shipped == {"trainer/loss": (4 + 5 + 9) / 3} and before.values["trainer/loss"] == 4.5
    before, after = revisions(rows, "trainer", 5)
    assert after.shipped == {} and before.values == after.values and before.t < after.t
