"""A Ray job that is submitted again into its folder, with real actors. Each logs 10^i, in the second job 5·10^i."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.endtoend.evidence import newest, shipped
from tests.endtoend.job import CLEAN, ROOT
from tests.endtoend.sidecar import rlship
from tests.kit.tools import module

pytestmark = pytest.mark.ray

JOB = """
import os, sys, time, warnings
import ray
import rlship

folder, digit, count, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

@ray.remote(num_cpus=0, max_restarts=1)
class Generator:
    def step(self, number, die=False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            logger = rlship.init(folder, "generator")
        rlship.define("who", "sum")
        rlship.log({"who": digit * 10**number}, step=1)
        rlship.barrier(1)
        rlship.flush()
        if die:
            os._exit(1)
        return [str(one.message) for one in caught], logger.replica, logger.attempt

plain = dict(include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000)
ray.init(num_cpus=1, _temp_dir=sys.argv[5], **plain)
options = [{"name": f"g{i}"} if how == "named" else {} for i in range(count)]
if how == "group":
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Strategy
    group = placement_group([{"CPU": 1}])
    options = [{"scheduling_strategy": Strategy(group)} for _ in range(count)]
actors = [Generator.options(**one).remote() for one in options]
said = ray.get([actor.step.remote(i) for i, actor in enumerate(actors)])
assert all(warned == [] for warned, _, _ in said), said
if how == "named":
    assert [replica for _, replica, _ in said] == [f"g{i}" for i in range(count)], said
if how == "plain":
    try:
        ray.get(actors[0].step.remote(0, die=True))
    except ray.exceptions.RayActorError:
        pass
    found = None
    while found is None:  # until Ray has restarted it
        try:
            found = ray.get(actors[0].step.remote(0))
        except ray.exceptions.ActorUnavailableError:
            time.sleep(0.2)
    warned, replica, attempt = found
    assert (warned, replica, attempt) == ([], said[0][1], 1), (warned, replica, attempt)
ray.shutdown()
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["plain", "named", "group"])
def test_the_second_job_counts_alone(tmp_path: Path, how: str) -> None:
    """Two jobs, each in a cluster of its own, so that Ray counts both as its first: the second one has fewer actors.
    No call of ours makes Ray warn, and an actor that Ray restarted is of attempt 1.
    """
    module("ray")
    experiment = tmp_path / "job"
    for digit, count in ((1, 3), (5, 2)):
        # Paths of sockets must be short, shorter than those of pytest.
        with tempfile.TemporaryDirectory(prefix="rlship-ray-", dir="/tmp") as scratch:
            arguments = [str(experiment), str(digit), str(count), how, scratch]
            done = subprocess.run(
                [sys.executable, "-c", JOB, *arguments],
                cwd=ROOT,
                env=CLEAN | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"},
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
    watched = rlship(tmp_path / "home", "watch", experiment, "--once", "--sink", "jsonl")
    assert watched.returncode == 0, watched.stderr
    [row] = newest(shipped(experiment)).values()
    assert (row.values["generator/who"], row.coverage.expected, row.coverage.missing) == (55, 2, ())
