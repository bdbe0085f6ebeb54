"""A replay beside a sidecar that watches the same job."""

from __future__ import annotations

from pathlib import Path

from rlship_sidecar.rows import STEP, Unit
from tests.endtoend.evidence import shipped, state_of
from tests.endtoend.job import crew
from tests.endtoend.sidecar import rlship, watching
from tests.reference.reduction import exactly
from tests.replay.replaying import newest_rows, rows_in, watched

SETTINGS = {"RLSHIP_GRACE_S": "2", "RLSHIP_REVISE_S": "0.3"}


def test_a_replay_beside_a_sidecar(tmp_path: Path) -> None:
    """While a job is watched, its replay disturbs no process and has the rows so far; at the end, after a restart, a
    rank that died and late lines, it has the rows of the sidecar, bit by bit.
    """
    job, home = tmp_path / "outputs" / "job", tmp_path / "home"
    with watching(job.parent, home=home_of(home), settings=SETTINGS) as sidecar:
        with crew(job, "trainer", 2) as first:
            for step in range(6):
                for worker in first:
                    worker.log({"loss": 1 / (step + 1)}, step)
                    worker.barrier(step)
            for worker in first:
                worker.flush()
            sidecar.until(lambda: len(shipped(job)) == 6)
            middle = rlship(home, "replay", job, "--sink", "jsonl", "--out", tmp_path / "middle")
            assert middle.returncode == 0, middle.stderr
            assert len(rows_in(tmp_path / "middle")) == 6
            first[1].kill()
            first[0].end()
        with crew(job, "trainer", 2, attempt=1) as second:
            for step in range(4, 9):
                for rank, worker in enumerate(second):
                    worker.log({"loss": 2 / (step + rank + 1)}, step)
                    worker.barrier(step)
            for worker in second:
                worker.flush()
            sidecar.until(lambda: {row.unit.index for row in shipped(job)} == set(range(9)))
            second[0].log({"evaluation": 0.5}, 2)
            second[0].flush()
            sidecar.until(lambda: any("trainer/evaluation" in row.values for row in shipped(job)))
            # Revisions may take a while: a sidecar that ends leaves them to its successor.
            sidecar.until(lambda: all(watched(job)[Unit("trainer", STEP, n)].coverage.attempts == (1,) for n in (4, 5)))
            for worker in second:
                worker.end()
        assert sidecar.stop() == 0, sidecar.said()
    before = sorted(path.name for path in state_of(job).iterdir())
    done = rlship(home, "replay", job.parent, "--sink", "jsonl")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in state_of(job).iterdir()) == sorted([*before, "replay-1"])
    assert exactly(newest_rows(state_of(job) / "replay-1")) == exactly(watched(job))


def home_of(home: Path) -> Path:
    """A home that is there."""
    home.mkdir()
    return home
