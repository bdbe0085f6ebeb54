"""How to look at what the demo made: commands that work as printed from the shell that the demo was started in."""

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
    """The program by its name if the shell finds it, else by the path of the one beside this Python; where there is
    none, what installs it stands in front.
    """
    if shutil.which(program):
        return shlex.join([program, *arguments])
    beside = Path(sys.executable).with_name(program)
    line = shlex.join([_short(beside), *arguments])
    if beside.is_file():
        return line
    return f"{shlex.join([_short(Path(sys.executable)), '-m', 'pip', 'install', program])} && {line}"


def _short(program: Path) -> str:
    """The path as one would type it: relative if the program lies below the working directory."""
    relative = os.path.relpath(program)
    return str(program) if relative.startswith(os.pardir) else relative
