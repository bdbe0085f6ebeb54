"""Which process of a job is the first, whether there are several, and which job it is."""

from __future__ import annotations

import pytest

from rlship_sidecar.launch.nodes import crowd, job_name

TRAIN = ["python", "train.py"]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_NNODES": "4"},
        {"RANK": "0", "WORLD_SIZE": "16"},
        {"JOB_COMPLETION_INDEX": "0"},
        {"RANK": "not a number"},
    ],
)
def test_the_first_process(variables: dict[str, str]) -> None:
    """A process with number 0 in all that a launcher says, or without any number, is the first."""
    assert crowd(variables, TRAIN).is_first


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_NODEID": "1", "SLURM_PROCID": "1"},
        {"SLURM_NODEID": "0", "SLURM_PROCID": "3"},  # the fourth task of the first node
        {"RANK": "5", "SLURM_PROCID": "0"},
        {"NODE_RANK": "1"},
        {"OMPI_COMM_WORLD_RANK": "2"},
        {"JOB_COMPLETION_INDEX": "2"},
        {"LWS_WORKER_INDEX": "1"},
        {"TPU_WORKER_ID": "7"},
    ],
)
def test_another_process(variables: dict[str, str]) -> None:
    """One number above 0 is enough."""
    assert not crowd(variables, TRAIN).is_first


@pytest.mark.parametrize(
    ("command", "is_first"),
    [
        (["torchrun", "--nnodes", "2", "--node-rank", "0", "train.py"], True),
        (["torchrun", "--nnodes=2", "--node_rank=1", "train.py"], False),
        (["accelerate", "launch", "--num_machines", "2", "--machine_rank", "1", "train.py"], False),
    ],
)
def test_the_launchers_flags_count(command: list[str], is_first: bool) -> None:
    """Where no variable says it yet, the flags of torchrun and accelerate do."""
    found = crowd({}, command)
    assert found.is_first is is_first
    assert found.several in ("--nnodes 2", "--num-machines 2")


@pytest.mark.parametrize(
    ("variables", "sign"),
    [
        ({"SLURM_NNODES": "2"}, "SLURM_NNODES=2"),
        ({"WORLD_SIZE": "8"}, "WORLD_SIZE=8"),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU_WORKER_HOSTNAMES=a,b"),
        ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETION_INDEX=0"),
        ({"SLURM_NNODES": "1", "WORLD_SIZE": "1"}, ""),
        ({}, ""),
    ],
)
def test_signs_of_several_processes(variables: dict[str, str], sign: str) -> None:
    """What says that there are several is named, so that a message can name it."""
    assert crowd(variables, TRAIN).several == sign


def test_a_range_of_nodes_counts_by_its_end() -> None:
    """torchrun's elastic `--nnodes 1:4` may have four nodes; `1:1` has one."""
    assert crowd({}, ["torchrun", "--nnodes", "1:4", "train.py"]).several == "--nnodes 1:4"
    assert crowd({}, ["torchrun", "--nnodes", "1:1", "train.py"]).several == ""
    assert crowd({}, ["torchrun", "train.py", "--nnodes"]).several == ""


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"SLURM_JOB_ID": "4121"}, "slurm-4121"),
        ({"SLURM_JOB_ID": "4122", "SLURM_ARRAY_JOB_ID": "4121", "SLURM_ARRAY_TASK_ID": "3"}, "slurm-4121-3"),
        ({"TORCHELASTIC_RUN_ID": "none"}, ""),
        ({"TORCHELASTIC_RUN_ID": "grpo"}, "torchrun-grpo"),
        ({"PBS_JOBID": "77.server"}, "pbs-77.server"),
        ({}, ""),
    ],
)
def test_the_launchers_job(variables: dict[str, str], name: str) -> None:
    """The id stays the same when the launcher starts the job again; torchrun's default is no id."""
    assert job_name(variables) == name
