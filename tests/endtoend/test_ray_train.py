"""A job of Ray Train that is submitted again into its folder, with real workers: it calls `init`, `log`, `barrier`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.endtoend.evidence import newest, shipped
from tests.endtoend.job import CLEAN, ROOT
from tests.endtoend.sidecar import rlship
from tests.kit.tools import module

pytestmark = [pytest.mark.ray, pytest.mark.long]

JOB = """
import sys
import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

folder, digit, workers, how, scratch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]

def train(config):
    import os
    import rlship
    import ray.train
    logger = rlship.init(config["folder"], "trainer")
    rank = ray.train.get_context().get_world_rank()
    rlship.define("who", "sum")
    for step in (1, 2):
        rlship.log({"who": config["digit"] * 10**rank}, step=step)
        rlship.barrier(step)
        rlship.flush()
        died = config["folder"] + "/died"
        if config["dies"] and rank == 0 and step == 1 and not os.path.exists(died):
            open(died, "w").close()
            os._exit(1)
    rlship.close()

plain = dict(include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
ray.init(num_cpus=workers + 1, _temp_dir=scratch, **plain)
DataParallelTrainer(
    train,
    train_loop_config={"folder": folder, "digit": digit, "dies": how == "dies"},
    scaling_config=ScalingConfig(num_workers=workers),
    run_config=RunConfig(storage_path=scratch + "/results", failure_config=FailureConfig(max_failures=1)),
).fit()
ray.shutdown()
"""


def submit(experiment: Path, digit: int, workers: int, *, dies: bool = False) -> None:
    # Paths of sockets must be short, shorter than those of pytest.
    with tempfile.TemporaryDirectory(prefix="rlship-ray-", dir="/tmp") as scratch:
        arguments = [str(experiment), str(digit), str(workers), "dies" if dies else "lives", scratch]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(
            [sys.executable, "-c", JOB, *arguments],
            cwd=ROOT,
            env=CLEAN | {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr


def opened(experiment: Path) -> list[dict[str, object]]:
    """The first line of each file."""
    return [json.loads(path.read_bytes().partition(b"\n")[0]) for path in (experiment / "rlship").glob("*.jsonl")]


@pytest.mark.timeout(500)
def test_workers_have_ranks_and_the_second_job_counts_alone(tmp_path: Path) -> None:
    """Two workers are ranks 0 and 1 of one world. A worker that dies has Ray Train start all again. The job that is
    submitted again, with other values, takes the place of the first one.
    """
    for name in ("fsspec", "pandas", "ray"):
        module(name)
    experiment = tmp_path / "job"
    submit(experiment, 1, 2, dies=True)
    places = [(one.get("replica", "0"), one["rank"], one["world"]) for one in opened(experiment)]
    assert sorted(places) == [("0", 0, 2), ("0", 0, 2), ("0", 1, 2), ("0", 1, 2)]
    submit(experiment, 5, 2)
    watched = rlship(tmp_path / "home", "watch", experiment, "--once", "--sink", "jsonl")
    assert watched.returncode == 0, watched.stderr
    rows = newest(shipped(experiment)).values()
    assert [row.values["trainer/who"] for row in rows] == [55, 55]
    assert {(row.coverage.expected, row.coverage.missing) for row in rows} == {(2, ())}
