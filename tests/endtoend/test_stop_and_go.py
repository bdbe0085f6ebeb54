"""The sidecar ends, in order or not, and goes on where it stopped."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from rlship_sidecar.rows import Unit
from tests.endtoend.evidence import check_rows, newest, shipped, state_of, stored
from tests.endtoend.job import crew
from tests.endtoend.sidecar import rlship, watching

SETTINGS = {"RLSHIP_REVISE_S": "0.2", "RLSHIP_GRACE_S": "1"}
KILLS = 6
LAST_STEP = 399
SEED = 20260711


def test_sigterm_in_the_middle(tmp_path: Path) -> None:
    """What was in the files when SIGTERM came is delivered with exit code 0; the next daemon adds the rest, once, and
    in the same run.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    with crew(experiment, "trainer", 2) as workers:
        for half in range(2):
            with watching(experiment, home=home) as sidecar:
                for rank, worker in enumerate(workers):
                    for step in range(20 * half, 20 * half + 20):
                        worker.log({"loss": step / (rank + 3)}, step)
                        worker.barrier(step)
                    # A step that the stop cuts in two: one rank is done with it, the other is not.
                    worker.log({"loss": 1.0, "half": rank}, 20 * half + 20)
                    if rank == 0:
                        worker.barrier(20 * half + 20)
                    worker.flush()
                # The first step is proof that the daemon runs; what it read by then is its own business.
                sidecar.until(lambda half=half: Unit("trainer", "step", 20 * half) in newest(shipped(experiment)))
                assert sidecar.stop() == 0, sidecar.said()
                assert len(shipped(experiment)) == 20 * half + 20
            assert [row.to_json() for row in shipped(experiment)] == [row.to_json() for row in stored(experiment)]
        for worker in workers:
            worker.end()
    assert rlship(home, "watch", experiment, "--once", "--sink", "jsonl").returncode == 0
    rows = shipped(experiment)
    assert [row.unit.index for row in rows] == list(range(41))
    check_rows(experiment, rows)


def tear(file: Path) -> None:
    """Cut the last line in two, as a host that dies with it may leave it."""
    if file.exists() and file.stat().st_size:
        os.truncate(file, file.stat().st_size - 10)


@pytest.mark.long
def test_kill_9_of_the_sidecar_again_and_again(tmp_path: Path) -> None:
    """The daemon is killed at random moments while ranks log, write late lines, die and come back: in the end the file
    has each row once, and the newest of each unit is what the files say.
    """
    experiment, home = tmp_path / "job", tmp_path / "home"
    dice = random.Random(SEED)
    with crew(experiment, "trainer", 3) as trainers, crew(experiment, "reward", 2, replica="r") as rewards:
        for number, worker in enumerate(trainers + rewards):
            worker.tell("run", 0, LAST_STEP, seed=number, pause=0.02, late=number % 2 == 1)
        for kill in range(KILLS):
            with watching(experiment, home=home, settings=SETTINGS) as sidecar:
                if kill % 2:
                    # Most of a short life is the start; every other time let it come to ship.
                    sidecar.until_status(lambda status: status.rows > 0)
                time.sleep(dice.uniform(0.0, 0.6))
                sidecar.kill()
            if kill % 3 == 1:
                tear(state_of(experiment) / "rows.jsonl")
            if kill == 2:
                trainers[1].kill()
        with (
            crew(experiment, "trainer", 3, attempt=1) as again,
            watching(experiment, home=home, settings=SETTINGS) as sidecar,
        ):
            for rank in (0, 2):
                again[rank].end()
            again[1].tell("run", 30, 120, seed=99, pause=0.0)
            for worker in (again[1], trainers[0], trainers[2], *rewards):
                worker.end()
            sidecar.until_status(lambda status: True)
            assert sidecar.stop() == 0, sidecar.said()
    done = rlship(home, "watch", experiment, "--once", "--sink", "jsonl", settings=SETTINGS)
    assert done.returncode in (0, 3), done.stderr
    rows = shipped(experiment)
    check_rows(experiment, rows)
    assert [row.to_json() for row in rows] == [row.to_json() for row in stored(experiment)]
    assert len({row.unit for row in rows}) == 2 * (LAST_STEP + 1)
    assert any(row.arrival.revision for row in rows)
