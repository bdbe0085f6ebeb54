"""Facts about this process that it need not say: its command, commit, host, packages and job.

Everything here runs on the writing thread. It starts no process and imports nothing: a fork while another thread
imports leaves the child with a lock that is never released.
"""

from __future__ import annotations

import os
import sys
import zlib

from . import commit
from ._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .identity import Identity

_MAX_ARGUMENTS = 200
_MAX_ARGUMENT = 1000  # characters
# By the names under which they are imported. What the job has not imported says nothing about it.
_PACKAGES = (
    *("torch", "numpy", "jax", "transformers", "trl", "verl", "vllm", "sglang", "ray", "accelerate", "deepspeed"),
    *("peft", "datasets", "tokenizers", "flash_attn", "xformers", "triton", "bitsandbytes", "liger_kernel", "unsloth"),
    *("lightning", "pytorch_lightning", "torchtitan", "torchtune", "openrlhf", "nemo_rl", "prime_rl", "skyrl_train"),
    *("areal", "roll", "slime", "swift", "megatron.core", "transformer_engine", "torchao", "wandb"),
)
# Launchers from the outermost on: a torchrun in a batch job is the batch system's.
_JOBS = (
    ("slurm", ("SLURM_JOB_ID", "SLURM_JOBID")),
    ("lsf", ("LSB_JOBID",)),
    ("pbs", ("PBS_JOBID",)),
    ("ray", ("RAY_JOB_ID",)),
    ("torchrun", ("TORCHELASTIC_RUN_ID",)),
)


class Facts:
    """What this process is. Of one Stream, as a forked child is another process."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._packages: dict[str, str] = {}
        self._begun = False

    def more(self) -> dict[str, Any]:
        """All facts at the first call, afterwards the packages that the job has imported since."""
        found: dict[str, Any] = {}
        if not self._begun:
            self._begun = True
            found = process(self._identity, os.environ)
        packages = {name: version for name, version in versions().items() if self._packages.get(name) != version}
        self._packages |= packages
        return found | ({"packages": packages} if packages else {})


def process(identity: Identity, environ: Mapping[str, str]) -> dict[str, Any]:
    """Command, folder, commit, host, Python and job, as far as they are known."""
    found: dict[str, Any] = {"host": identity.host, "python": sys.version.partition(" ")[0]}
    command = [argument[:_MAX_ARGUMENT] for argument in sys.orig_argv[:_MAX_ARGUMENTS]]
    if command:
        found["command"] = command
    cwd, job = _folder(), job_of(identity, environ)
    found |= {name: value for name, value in (("cwd", cwd), ("job", job)) if value is not None}
    return found | git([cwd, _folder_of_program()])


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def git(folders: list[str | None]) -> dict[str, Any]:
    """Commit and state of the first of these folders that is in a git repository."""
    for folder in folders:
        found = None if folder is None else commit.find(folder)
        if found is not None:
            name = commit.commit_of(found)
            dirty = None if name is None else _dirty(found, name)
            return {key: value for key, value in (("git", name), ("git_dirty", dirty)) if value is not None}
    return {}


def _dirty(found: commit.Repository, name: str) -> bool | None:
    try:
        return commit.is_dirty(found, name)
    except (OSError, ValueError, zlib.error):  # git is just writing, or writes another form by now
        return None


def _folder_of_program() -> str | None:
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.dirname(os.path.abspath(program)) if isinstance(program, str) else None


def job_of(identity: Identity, environ: Mapping[str, str]) -> str | None:
    """The launcher and its id of the job, such as "slurm:4121"; None without a known launcher."""
    for launcher, names in _JOBS:
        text = next((environ[name] for name in names if environ.get(name)), "")
        if launcher == "ray" and not environ.get("RLSHIP_JOB"):
            text = identity.job or text
        if text and text != "none":  # torchrun's own default
            return f"{launcher}:{text}"
    # A pod's name is its host's, and that of its job with a suffix.
    return f"k8s:{identity.host}" if environ.get("KUBERNETES_SERVICE_HOST") else None


def versions() -> dict[str, str]:
    """The versions of the packages that the job has imported. A module that is just being imported may lack its own."""
    found = {"rlship": __version__}
    for name in _PACKAGES:
        module = sys.modules.get(name)
        # Not getattr: a lazy module would import what it is asked for.
        version = getattr(module, "__dict__", {}).get("__version__")
        if isinstance(version, str):
            found[name.partition(".")[0]] = version[:200]
    return found
