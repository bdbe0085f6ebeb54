"""An actor in two replicas of two ranks, each logging its rank twice under a sum: what every way of showing it gives.

It is the example by which Forge's documentation explains its logging modes; the numbers are those it prints.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship_sidecar.sinks.wandb.sink import WandbSink
from rlship_sidecar.store.store import Store
from tests.loopback.backend import LoopbackBackend
from tests.sinks.kinds import client_env
from tests.sinks.readback import tensorboard_points
from tests.sinks.rows import make_run

PROCESS = """
import sys
import rlship

folder, replica, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rlship.init(folder, actor="MyActor", replica=replica, rank=rank, world=2)
rlship.set_step(0)
for _ in range(2):
    rlship.record_metric("my_sum_rank_metric", rank, rlship.Reduce.SUM)
rlship.barrier(0)
"""
LAUNCHER = ("RLSHIP_", "RANK", "WORLD_SIZE", "SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "JOB_COMPLETION_INDEX")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The four processes' files; rows keep the values of every rank."""
    folder = tmp_path_factory.mktemp("forge") / "job"
    places = [(replica, rank) for replica in range(2) for rank in range(2)]
    command = [sys.executable, "-c", PROCESS, str(folder)]
    running = [subprocess.Popen([*command, str(replica), str(rank)], env=plain()) for replica, rank in places]
    assert [process.wait(60) for process in running] == [0, 0, 0, 0]
    (folder / "rlship.toml").write_text("per_rank = true\n", encoding="utf-8")
    yield folder


def plain() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHER)}


def watched(experiment: Path, *sinks: str, **settings: str) -> str:
    """What the sidecar prints on standard output, once all is read."""
    state_dir = experiment.parent / "-".join([*sinks, *settings.values()])
    command = [sys.executable, "-m", "rlship", "watch", "--once", "--state-dir", str(state_dir), str(experiment)]
    command += [word for sink in sinks for word in ("--sink", sink)]
    done = subprocess.run(command, env={**plain(), **settings}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # How far apart the four processes ended the step is another matter.
    return re.sub(r"  barrier/\S+", "", done.stdout)


def test_global_reduce_on_the_console(experiment: Path) -> None:
    """(0 + 1) * 2 calls * 2 replicas = 4, one figure for all ranks."""
    assert watched(experiment, "console") == "MyActor global_step=0  my_sum_rank_metric=4\n"


def test_per_rank_reduce_on_the_console(experiment: Path) -> None:
    """Rank 0 of each replica has 0 * 2 calls = 0, rank 1 has 1 * 2 calls = 2, beside the figure for all."""
    assert watched(experiment, "console", RLSHIP_SINK__CONSOLE__RANKS="per_rank_reduce") == (
        "MyActor global_step=0  my_sum_rank_metric=4  "
        "my_sum_rank_metric/r0.0=0  my_sum_rank_metric/r0.1=2  my_sum_rank_metric/r1.0=0  my_sum_rank_metric/r1.1=2\n"
    )


def test_per_rank_no_reduce_on_the_console(experiment: Path) -> None:
    """Each process's two observations, not added up, with who made them."""
    printed = watched(experiment, "console", RLSHIP_SINK__CONSOLE__RANKS="per_rank_no_reduce")
    lines = [re.sub(r" t=\d+\.\d{3} ", " ", line) for line in printed.splitlines()]
    assert lines == [
        f"MyActor/{replica}.{rank} step=0  my_sum_rank_metric=[{rank},{rank}]"
        for replica in range(2)
        for rank in range(2)
    ]


def test_per_rank_no_reduce_in_a_file(experiment: Path) -> None:
    """rows.jsonl has the reduced row as ever, observations.jsonl beside it the four processes' observations."""
    watched(experiment, "jsonl", RLSHIP_SINK__JSONL__RANKS="per_rank_no_reduce")
    state = experiment.parent / "jsonl-per_rank_no_reduce" / "job"
    (row,) = map(json.loads, (state / "rows.jsonl").read_text("utf-8").splitlines())
    assert row["m"]["MyActor/my_sum_rank_metric"] == 4.0
    found = [json.loads(line) for line in (state / "observations.jsonl").read_text("utf-8").splitlines()]
    assert [(one["actor"], one["replica"], one["rank"], one["attempt"], one["step"], one["m"]) for one in found] == [
        ("MyActor", str(replica), rank, 0, 0, {"my_sum_rank_metric": [rank, rank]})
        for replica in range(2)
        for rank in range(2)
    ]


def test_per_rank_reduce_in_files_and_at_the_server(experiment: Path, tmp_path: Path) -> None:
    """TensorBoard and W&B get the same five numbers, W&B in one line of history."""
    key = "MyActor/my_sum_rank_metric"
    ranks = {"r0.0": 0.0, "r0.1": 2.0, "r1.0": 0.0, "r1.1": 2.0}
    expected = {key: 4.0, **{f"zz_rlship/{key}/{rank}": value for rank, value in ranks.items()}}
    watched(experiment, "tensorboard", RLSHIP_SINK__TENSORBOARD__RANKS="per_rank_reduce")
    state = experiment.parent / "tensorboard-per_rank_reduce" / "job"
    found = {tag: tensorboard_points(state / "tensorboard", tag) for tag in expected}
    assert found == {tag: [(0, value)] for tag, value in expected.items()}

    (path,) = state.glob("store.*.db")
    store = Store(path, local=True)
    rows = store.read_rows(0, 9)
    store.close()
    with LoopbackBackend() as backend:
        sink = WandbSink(env=client_env(backend.environment(tmp_path / "home")))
        sink.open(make_run(tmp_path, rows=len(rows), project="replicas", ranks="per_rank_reduce"))
        sink.write(rows)
        sink.flush()
        sink.close()
        (line,) = backend.run("replicas", "store1").rows()
    assert {tag: line[tag] for tag in expected} == expected
