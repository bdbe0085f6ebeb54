"""Where a run's files go: its folder, its actor, and the step after which a resumed run goes on."""

from __future__ import annotations

import json
import os
import re

from .axes import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

# The words of a job type or a label that say what a process does.
_ROLES = {
    "trainer": ("train", "trainer", "training", "learner", "driver", "main", "primary", "policy", "sft", "grpo", "ppo"),
    "generator": (
        "rollout",
        "rollouts",
        "inference",
        "generator",
        "generation",
        "sampler",
        "explorer",
        "vllm",
        "sglang",
    ),
    "reward": ("reward", "rewards", "judge", "verifier", "grader", "rm"),
    "evaluator": ("eval", "evaluation", "evaluator", "validation", "test"),
    "orchestrator": ("orchestrator",),
    "environment": ("env", "environment", "envs", "sandbox"),
    "critic": ("critic", "value"),
    "buffer": ("buffer", "replay"),
}
_TRAINER = "trainer"
_MAX_FILES = 64
_HEAD_BYTES = 16 << 10
_TAIL_BYTES = 64 << 10
_MAX_NAME = 64


def role(*texts: str | None) -> str | None:
    """The actor that the first of these texts with a known word names; None if there is no such word."""
    for text in texts:
        found = words(text or "")
        for actor, known in _ROLES.items():
            if found.intersection(known):
                return actor
    return None


def actor_of(job_type: str | None, label: str | None, *, secondary: bool) -> str:
    """The actor of a run: `RLSHIP_ACTOR`, else by job type and label, else the trainer.

    A process that only joins another one's run, with a label of which no word is known, is an actor by that label.
    """
    given = os.environ.get("RLSHIP_ACTOR")
    found = given or role(job_type, label)
    if found is None and secondary and label:
        found = re.sub(r"[\W_]*\d+$", "", label)[:_MAX_NAME]
    return found or _TRAINER


def folder_of(base: str, number: int) -> str:
    """The folder of the process's experiment `number`, from 1: the given one, then its neighbours `<name>-2`, …"""
    return base if number < 2 else f"{base.rstrip('/')}-{number}"


def newest_files(folder: str) -> list[str]:
    """The newest files of an experiment's writers, the newest first."""
    try:
        with os.scandir(os.path.join(folder, "rlship")) as entries:
            plain = [one for one in entries if one.name.endswith(".jsonl") and one.is_file(follow_symlinks=False)]
            files = [(one.stat().st_mtime, one.path) for one in plain]
    except OSError:
        return []
    return [path for _, path in sorted(files, reverse=True)[:_MAX_FILES]]


def belongs_to(file: BinaryIO, run_id: str) -> dict[str, Any] | None:
    """The record `open` of a file that a process of the run wrote, else None."""
    opened = _opened(file)
    return opened if _run_of(opened) == run_id else None


def ended_run(folder: str, actor: str, run_id: str) -> str | None:
    """The id of another run that the newest process of an actor ended here; None without one, or if it failed."""
    for path in newest_files(folder):
        try:
            with open(path, "rb") as file:
                opened = _opened(file)
                if opened.get("actor") == actor and opened.get("rank") == 0:
                    other = _run_of(opened)
                    ended = (
                        b'"kind":"close"' in (last := _tail(file).rstrip().rpartition(b"\n")[2]) and b'"exit"' in last
                    )
                    return other if ended and other != run_id else None
        except (OSError, ValueError):
            continue
    return None


def _opened(file: BinaryIO) -> dict[str, Any]:
    opened: Any = json.loads(file.read(_HEAD_BYTES).partition(b"\n")[0])
    return opened if isinstance(opened, dict) else {}


def _run_of(opened: dict[str, Any]) -> str | None:
    found: str | None = (opened.get("labels") or {}).get("wandb_id")
    return found


def _tail(file: BinaryIO) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    return file.read()


def last_step(folder: str, actor: str, run_id: str) -> int:
    """The greatest step that earlier processes of a run wrote for an actor; -1 if there is no such file.

    Only the ends of the newest files are read.
    """
    best = -1
    for path in newest_files(folder):
        try:
            best = max(best, _last_of(path, actor, run_id))
        except (OSError, ValueError):
            continue
    return best


def _last_of(path: str, actor: str, run_id: str) -> int:
    with open(path, "rb") as file:
        opened = belongs_to(file, run_id)
        if opened is None or opened.get("actor") != actor:
            return -1
        tail = _tail(file)
    return max((int(found) for found in re.findall(rb'"step":(\d{1,16})[,}]', tail)), default=-1)
