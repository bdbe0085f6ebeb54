"""Which node of a job this is, how many there are, and which job it is, by the launcher's variables and flags. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# The number of this process or of its node. A job's first process has 0 in each of these that it has at all.
_PLACES = (
    *("RANK", "NODE_RANK", "GROUP_RANK", "MACHINE_RANK", "RANK_ID", "JAX_PROCESS_ID", "JAX_PROCESS_INDEX"),
    *("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_NODEID", "SLURM_PROCID", "FLUX_TASK_RANK"),
    *("TPU_WORKER_ID", "CLOUD_TPU_TASK_ID", "MEGASCALE_SLICE_ID", "LWS_WORKER_INDEX", "LWS_GROUP_INDEX"),
    *("JOB_COMPLETION_INDEX", "JOB_GLOBAL_INDEX", "JOB_INDEX", "SKYPILOT_NODE_RANK"),
)
_PLACE_FLAGS = ("--node-rank", "--machine-rank")
# How many processes or nodes there are, several of which may start `rlship run`.
_COUNTS = (
    *("NNODES", "NUM_NODES", "GROUP_WORLD_SIZE", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_TASKS"),
    *("WORLD_SIZE", "RANK_SIZE", "JAX_NUM_PROCESSES", "JAX_PROCESS_COUNT", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    *("LWS_GROUP_SIZE", "MEGASCALE_NUM_SLICES", "SKYPILOT_NUM_NODES"),
)
_LISTS = ("TPU_WORKER_HOSTNAMES", "SKYPILOT_NODE_IPS")
_COUNT_FLAGS = ("--nnodes", "--num-nodes", "--num-machines")
# An index without a count: there may be others.
_INDICES = ("JOB_COMPLETION_INDEX", "PMIX_RANK")

# Ids that all processes of one start share, also after the launcher has restarted it.
_JOBS = (
    ("slurm", ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")),
    ("slurm", ("SLURM_JOB_ID",)),
    ("pbs", ("PBS_JOBID",)),
    ("lsf", ("LSB_JOBID",)),
    ("flux", ("FLUX_JOB_ID",)),
    ("skypilot", ("SKYPILOT_TASK_ID",)),
    ("azureml", ("AZUREML_RUN_ID",)),
    ("sagemaker", ("TRAINING_JOB_NAME",)),
    ("torchrun", ("TORCHELASTIC_RUN_ID",)),
)
_NO_ID = ("", "none")  # torchrun's own default


@dataclass(frozen=True, slots=True)
class Crowd:
    """`is_first`: no other process of the job is before this one. `several` says by what the job has several nodes or
    processes that may run `rlship run`, such as "SLURM_NNODES=2"; "" if nothing says so.
    """

    is_first: bool
    several: str


def crowd(environ: Mapping[str, str], command: Sequence[str]) -> Crowd:
    """What the launcher's variables and the launcher's flags in `command` say of this process and its siblings."""
    places = [_number(environ.get(name, "")) for name in _PLACES] + [
        _number(_flag(command, flag)) for flag in _PLACE_FLAGS
    ]
    return Crowd(not any(places), next(_signs(environ, command), ""))


def _signs(environ: Mapping[str, str], command: Sequence[str]) -> Iterator[str]:
    for name in _COUNTS:
        if (_number(environ.get(name, "")) or 0) > 1:
            yield f"{name}={environ[name]}"
    for name in _LISTS:
        if len(environ.get(name, "").replace(",", " ").split()) > 1:
            yield f"{name}={environ[name]}"
    for flag in _COUNT_FLAGS:
        # torchrun takes a range, 1:4, whose upper end counts.
        text = _flag(command, flag)
        if (_number(text.rpartition(":")[2]) or 0) > 1:
            yield f"{flag} {text}"
    for name in _INDICES:
        if environ.get(name):
            yield f"{name}={environ[name]}"


def job_name(environ: Mapping[str, str]) -> str:
    """The launcher's id of this job with the launcher's name, such as "slurm-4121"; "" without one."""
    for launcher, names in _JOBS:
        parts = [environ.get(name, "") for name in names]
        if not any(part.lower() in _NO_ID for part in parts):
            return "-".join([launcher, *parts])
    return ""


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _flag(command: Sequence[str], flag: str) -> str:
    """The value of `--flag VALUE` or `--flag=VALUE`, with `-` or `_` in its name; "" without it."""
    for number, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            return value if equals else "".join(command[number + 1 : number + 2])
    return ""
