"""Commands that show the demo's results. They work as printed, in the shell that started the demo."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

QUESTION = "SELECT step, reward, loss FROM trainer_steps WHERE step % 20 = 0 ORDER BY step"


def commands(experiment: Path, boards: Iterable[Path], runs: Iterable[Path], *, alerts: bool = False) -> list[str]:
    """One line each for the status, a question, a trace, TensorBoard, W&B and the page, and for alerts where they are
    wanted. `runs` are folders of offline runs.
    """
    return [
        _line("rlship", "status", str(experiment)),
        *([_line("rlship", "alerts", str(experiment))] if alerts else []),
        _needing(("duckdb", "pyarrow", "pytz"), _line("rlship", "query", QUESTION, str(experiment))),
        _line("rlship", "export", "--chrome-trace", "-o", "trace.json.gz", str(experiment))
        + "  # open it in https://ui.perfetto.dev",
        *(_line("tensorboard", "--logdir", str(board)) for board in boards),
        *(_line("wandb", "sync", str(run)) + "  # needs an account" for run in runs),
        _needing(("starlette", "uvicorn"), _line("rlship", "view", str(experiment))) + "  # the page, in a browser",
    ]


def _needing(packages: Sequence[str], line: str) -> str:
    """A command line, after the one that installs the packages which this Python lacks."""
    lacking = [package for package in packages if find_spec(package) is None]
    return f"{_install(*lacking)} && {line}" if lacking else line


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
    return f"{_install(program)} && {line}"


def _install(*packages: str) -> str:
    return shlex.join([_short(Path(sys.executable)), "-m", "pip", "install", *packages])


def _short(program: Path) -> str:
    """The path as a person would type it: relative if the program lies below the working directory."""
    relative = os.path.relpath(program)
    return str(program) if relative.startswith(os.pardir) else relative
