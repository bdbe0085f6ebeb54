"""Which folder a job logs into."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlship_sidecar.errors import RlshipError, UsageProblem
from rlship_sidecar.launch.command import CannotStart
from rlship_sidecar.launch.nodes import Crowd, job_name

OUTPUTS = Path("outputs")
MAX_NAME = 100
_LAUNCHERS = re.compile(r"(python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|uv|ray|srun|env|nohup|time|nice|stdbuf)$")
_MODULE_FLAGS = ("-m", "--module")


@dataclass(frozen=True, slots=True)
class Choice:
    """An absolute `folder`, and `by` what it was chosen: a flag, a variable, or "" for a new one. `made` are the
    folders that were made for it, the innermost first.
    """

    folder: Path
    by: str
    made: tuple[Path, ...] = ()


def choose(asked: Path | None, environ: Mapping[str, str], command: Sequence[str], others: Crowd) -> Choice:
    """The experiment of a job: `asked` for by --dir or RLSHIP_DIR, else named by W&B's variables or the launcher's job.

    A job that is restarted finds its folder by these. Without any of them it gets a new one, named by the command and
    the time. Raises UsageProblem if there may be several nodes then, since each would take another folder.
    """
    if asked is not None:
        return Choice(_absolute(asked), "--dir")
    for variable in ("WANDB_RUN_ID", "WANDB_NAME"):
        if environ.get(variable, "").strip():
            return Choice(_absolute(OUTPUTS / plain(environ[variable])), variable)
    if job := job_name(environ):
        return Choice(_absolute(OUTPUTS / plain(job)), "the launcher's job")
    if others.several:
        name = shlex.quote(f"outputs/{name_of(command)}")
        raise UsageProblem(
            f"{others.several}: the job has several processes that start `rlship run`, and nothing names its folder",
            f"add the same --dir for all of them, on a filesystem that they share: rlship run --dir {name} -- "
            f"{_short(command)}",
        )
    made = _new(OUTPUTS, name_of(command))
    return Choice(made[0], "", made)


def name_of(command: Sequence[str]) -> str:
    """What the command runs, as the name of a folder: `train` for `torchrun --nproc-per-node 8 train.py`."""
    for number, word in enumerate(command[:-1]):
        if word in _MODULE_FLAGS:
            return plain(command[number + 1].rpartition(".")[2])
    scripts = [word for word in command if re.search(r"\w\.(py|sh|bash)$", word)]
    if scripts:
        return plain(os.path.basename(scripts[0]).rpartition(".")[0])
    words = [os.path.basename(word) for word in command if not word.startswith("-") and "=" not in word]
    return plain(words[0]) if words and not _LAUNCHERS.match(words[0]) else "job"


def plain(text: str) -> str:
    """A text as the name of a folder: letters, digits, `.`, `_` and `-`, and no leading dot."""
    kept = re.sub(r"[^A-Za-z0-9._-]+", "_", text.strip())[:MAX_NAME]
    return "_" + kept[1:] if kept.startswith(".") else kept or "job"


def make(folder: Path) -> tuple[Path, ...]:
    """Make a folder with those above it, unless it is there. Returns what was made, the innermost first."""
    try:
        made = _missing(folder)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _cannot_be_made(folder, problem) from problem
    return made


@contextmanager
def kept_if_started(made: Iterable[Path]) -> Iterator[None]:
    """Remove the folders that were made for a command, up to one that holds something by now, if it cannot start."""
    try:
        yield
    except CannotStart:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()
        raise


def _missing(folder: Path) -> tuple[Path, ...]:
    return tuple(one for one in (folder, *folder.parents) if not one.exists())


def _cannot_be_made(folder: Path, problem: OSError) -> RlshipError:
    return RlshipError(f"{folder} cannot be made: {problem.strerror}", "name a folder that you may write to: --dir DIR")


def _new(above: Path, name: str) -> tuple[Path, ...]:
    """A folder that no other job has, with those above it that were made; it is made, so that the next job does not
    take it.
    """
    dated = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1, 1000):
        folder = _absolute(above / (dated if number == 1 else f"{dated}-{number}"))
        try:
            above_it = _missing(folder.parent)
            folder.mkdir(parents=True)
        except FileExistsError:
            if folder.parent.is_dir():
                continue
            raise RlshipError(f"{folder.parent} is not a folder", "name another one: rlship run --dir DIR") from None
        except OSError as problem:
            raise _cannot_be_made(folder, problem) from problem
        return folder, *above_it
    raise RlshipError(f"there are too many folders called {dated}", "name another one: rlship run --dir DIR")


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _short(command: Sequence[str]) -> str:
    text = shlex.join(command)
    return text if len(text) <= 80 else text[:79] + "…"
