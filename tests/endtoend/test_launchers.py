"""torchrun and Ray with real processes under a live sidecar: a rank is killed, the launcher starts it again, and all is
one run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import Unit
from tests.endtoend.evidence import check_rows, newest, shipped
from tests.endtoend.job import CLEAN, ROOT
from tests.endtoend.sidecar import Sidecar, watching
from tests.kit.tools import module, needed
from tests.loopback.backend import LoopbackBackend

RANKS, STEPS, KILLED, DIES_AT = 3, 10, 1, 4
BACK = 1  # torchrun's ranks go on so many steps before the one at which one of them was killed
ENVIRONMENT = CLEAN | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}

# A rank that outlives the killed one waits, as in a collective, for torchrun to end it.
TORCHRUN = """
import os, signal, sys
import rlship

ranks, steps, killed, dies_at, back = map(int, sys.argv[1:])
logger = rlship.init(actor="trainer")
assert logger.world == ranks, logger.world
rlship.define("who", "sum")
for step in range(dies_at - back if logger.attempt else 0, steps):
    rlship.log({"who": 10**logger.rank, "attempt": logger.attempt}, step=step)
    rlship.barrier(step)
    if step == dies_at and not logger.attempt:
        rlship.flush()
        if logger.rank == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()
"""

RAY = """
import os, signal, sys, time
import ray
import rlship

folder, scratch = sys.argv[1:3]
ranks, steps, killed, dies_at = map(int, sys.argv[3:])

@ray.remote(num_cpus=0, max_restarts=1)
class Trainer:
    def __init__(self, rank):
        self.logger = rlship.init(folder, "trainer", rank=rank, world=ranks)
        rlship.define("who", "sum")
    def step(self, step):
        rlship.log({"who": 10**self.logger.rank, "attempt": self.logger.attempt}, step=step)
        rlship.barrier(step)
        rlship.flush()
        return os.getpid()
    def done(self):
        rlship.close()

ray.init(num_cpus=1, _temp_dir=scratch, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
actors = [Trainer.remote(rank) for rank in range(ranks)]
for step in range(steps):
    pids = ray.get([actor.step.remote(step) for actor in actors])
    if step == dies_at:
        os.kill(pids[killed], signal.SIGKILL)
        while True:
            try:
                again = ray.get(actors[killed].step.remote(step))
                break
            except ray.exceptions.RayActorError:  # until Ray has started it again
                time.sleep(0.2)
        assert again != pids[killed]
ray.get([actor.done.remote() for actor in actors])
ray.shutdown()
"""


def watched(sidecar: Sidecar, command: list[str], settings: dict[str, str]) -> Status:
    """Run a job to its end, and wait until all of it is delivered."""
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT | settings, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    status = sidecar.until_status(lambda status: status.finished)
    assert sidecar.stop() == 0, sidecar.said()
    return status


def opened(experiment: Path) -> list[tuple[int, int, int]]:
    """Rank, world and attempt of each file."""
    first = [json.loads(path.read_bytes().partition(b"\n")[0]) for path in (experiment / "rlship").glob("*.jsonl")]
    return sorted((one["rank"], one["world"], one.get("attempt", 0)) for one in first)


def attempts(experiment: Path, backend: LoopbackBackend) -> list[float]:
    """The attempts of the ranks that each step is made of, added up. Every step has each rank once, and the one run at
    W&B each row.
    """
    rows = shipped(experiment)
    check_rows(experiment, rows)
    found = newest(rows)
    assert set(found) == {Unit("trainer", "step", step) for step in range(STEPS)}
    for row in found.values():
        assert row.values["trainer/who"] == 111
        assert (row.coverage.expected, row.coverage.missing) == (RANKS, ())
    (run,) = backend.runs.values()
    assert run.steps() == list(range(len(rows)))
    return [RANKS * (found[Unit("trainer", "step", step)].values["trainer/attempt"] or 0) for step in range(STEPS)]


@pytest.mark.toolchain
@pytest.mark.timeout(300)
def test_torchrun_starts_all_ranks_again(tmp_path: Path) -> None:
    """One of three ranks is killed; `--max-restarts` starts all of them again, as attempt 1. They do two steps again,
    which count alone. The run is one, and names torchrun's id.
    """
    torchrun = needed("torchrun")
    experiment, home, job = tmp_path / "run", tmp_path / "home", tmp_path / "job.py"
    job.write_text(TORCHRUN)
    command = [torchrun, "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--rdzv_id=t7", "--max_restarts=1"]
    # torch 1.13 under Python 3.11, as Debian 12 has them, fails where nothing is redirected, which is the default.
    command += ["--redirects=1", "--tee=2", f"--log_dir={tmp_path}/logs"]
    command += [f"--nproc_per_node={RANKS}", str(job), *map(str, (RANKS, STEPS, KILLED, DIES_AT, BACK))]
    with LoopbackBackend() as backend:
        settings = backend.environment(home)
        with watching(experiment, "jsonl", "wandb", home=home, settings=settings) as sidecar:
            status = watched(sidecar, command, {"RLSHIP_DIR": str(experiment), "OMP_NUM_THREADS": "1"})
        assert opened(experiment) == [(rank, RANKS, attempt) for rank in range(RANKS) for attempt in (0, 1)]
        first = DIES_AT - BACK
        assert attempts(experiment, backend) == [0.0] * first + [float(RANKS)] * (STEPS - first)
    assert status.run is not None
    assert status.run.facts["job"] == "torchrun:t7"


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_ray_starts_a_killed_actor_again(tmp_path: Path) -> None:
    """One of three actors with a rank each is killed; Ray starts that one again, as attempt 1. It does a step again,
    which counts alone, and the others go on. The run is one, and names Ray's job.
    """
    module("ray")
    experiment, home = tmp_path / "run", tmp_path / "home"
    with (
        LoopbackBackend() as backend,
        # Paths of sockets must be short, shorter than those of pytest.
        tempfile.TemporaryDirectory(prefix="rlship-ray-", dir="/tmp") as scratch,
    ):
        command = [sys.executable, "-c", RAY, str(experiment), scratch]
        command += map(str, (RANKS, STEPS, KILLED, DIES_AT))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with watching(experiment, "jsonl", "wandb", home=home, settings=backend.environment(home)) as sidecar:
            status = watched(sidecar, command, {"PYTHONPATH": path})
        whole = [(rank, RANKS, 0) for rank in range(RANKS)]
        assert opened(experiment) == sorted([*whole, (KILLED, RANKS, 1)])
        assert attempts(experiment, backend) == [0.0] * DIES_AT + [1.0] * (STEPS - DIES_AT)
    assert status.run is not None
    assert str(status.run.facts["job"]).startswith("ray:")
