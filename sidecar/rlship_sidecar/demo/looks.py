"""Commands that show the demo's results. They work as printed, in the shell that started the demo."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path


def commands(experiment: Path, boards: Iterable[Path], runs: Iterable[Path]) -> list[str]:
    """One line each for the status, TensorBoard and W&B."""
    return [
        _line("rlship", "status", str(experiment)),
        *(_line("tensorboard", "--logdir", str(board)) for board in boards),
        *(_line("wandb", "sync", str(run)) for run in runs),
    ]


def _line(program: str, *arguments: str) -> str:
    """The command line of a program: by its name if the shell finds it, otherwise by the path beside this Python.

    Without the program, the command that installs it comes first.
    """
    if shutil.which(program):
        return shlex.join([program, *arguments])
    beside = Path(sys.executable).with_name(program)
    line = shlex.join([_short(beside), *arguments])
    if beside.is_file():
        return line
    return f"{shlex.join([_short(Path(sys.executable)), '-m', 'pip', 'install', program])} && {line}"


def _short(program: Path) -> str:
    """The path as a person would type it: relative if the program lies below the working directory."""
    relative = os.path.relpath(program)
    return str(program) if relative.startswith(os.pardir) else relative
