"""The job's processes are linked up as planned, end together, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rlship_sidecar.demo.job import Job, end, members, wiring
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.demo.process import LoopPace
from rlship_sidecar.demo.straggler import find_straggler, read_files
from tests.kit.waiting import wait_until


def test_plan_shares_out_the_ranks() -> None:
    """Every trainer rank is fed by one generator, and both sides agree which."""
    plan = JobPlan(trainers=5, generators=2)

    assert [plan.fed_by(0), plan.fed_by(1)] == [[0, 1, 2], [3, 4]]
    assert [plan.feeder(rank) for rank in range(5)] == [0, 0, 0, 1, 1]
    assert JobPlan.from_json(plan.to_json()) == plan


def test_wiring_links_every_pair_once() -> None:
    """Rank 0 reaches ranks and generators, generators the reward worker and their ranks, the reward worker the
    verifier; no pair is linked twice.
    """
    pairs = [frozenset(pair) for pair in wiring(JobPlan())]

    assert len(pairs) == len(set(pairs)) == 11
    assert {frozenset({"trainer-0", peer}) for peer in ("trainer-1", "trainer-2", "trainer-3")} < set(pairs)
    assert {frozenset({"trainer-0", peer}) for peer in ("generator-0", "generator-1")} < set(pairs)
    assert {frozenset({"reward-0", peer}) for peer in ("generator-0", "generator-1", "verifier-0")} < set(pairs)
    assert {name for pair in pairs for name in pair} == {f"{actor}-{rank}" for actor, rank in members(JobPlan())}


def test_pace_holds_back_and_does_not_catch_up() -> None:
    """A round waits for its due time; after a slow round the next ones are not hurried."""
    now = [100.0]
    pace = LoopPace(1.0, clock=lambda: now[0])

    now[0] = 100.25
    assert pace.left() == 0.75
    now[0] = 105.0
    assert pace.left() == 0.0
    assert pace.left() == 1.0


def test_a_short_job_ends_well_and_leaves_a_file_per_process(tmp_path: Path) -> None:
    """Eight processes run as eight processes, all end with code 0, and the rank that is slow on purpose shows."""
    with Job(tmp_path, tmp_path / "logs", JobPlan(steps=8, pace_s=0.0)) as job:
        pids = job.pids

        assert len(set(pids.values())) == 8
        assert job.wait() is None

    files = read_files(tmp_path)
    assert len(files) == 8
    found = find_straggler(files)
    assert found is not None
    assert found.name == "trainer r2"


def test_the_process_that_failed_is_named_and_the_others_end(tmp_path: Path) -> None:
    """After a kill of one process the job names it, not those that ended because of it, and no process is left."""
    with Job(tmp_path, tmp_path / "logs", JobPlan(steps=10_000, pace_s=0.02)) as job:
        wait_until(lambda: len(list(tmp_path.glob("rlship/*.jsonl"))) == 8, "eight files")
        pids = job.pids
        os.kill(pids["generator-1"], signal.SIGKILL)
        failure = job.wait()

    assert failure is not None
    assert (failure.name, failure.code) == ("generator-1", -signal.SIGKILL)
    assert not [pid for pid in pids.values() if psutil.pid_exists(pid)]


def test_giving_up_leaves_nobody_behind(tmp_path: Path) -> None:
    """An exception while the job runs ends all eight processes before it goes on."""
    pids: dict[str, int] = {}

    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Job(tmp_path, tmp_path / "logs", JobPlan(steps=10_000, pace_s=0.02)) as job:
        pids = job.pids
        job.wait(give_up)

    assert len(pids) == 8
    assert not [pid for pid in pids.values() if psutil.pid_exists(pid)]


def test_a_process_that_will_not_end_is_killed() -> None:
    """SIGTERM is tried first; a process that ignores it is gone after the patience all the same."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == b"ready\n"
        end([process], patience_s=0.1)

    assert process.returncode == -signal.SIGKILL
