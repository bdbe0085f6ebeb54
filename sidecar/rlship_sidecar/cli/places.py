"""Checks the DIR of the command line, and explains what is wrong with it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from rlship_sidecar.errors import NothingToWatch


def require(directory: Path) -> None:
    """Raise NothingToWatch unless `directory` is a readable folder; the hint names the way out."""
    from rlship_sidecar.report.terminal import clean
    from rlship_sidecar.tail.listing import is_utf8  # slow, which `rlship --help` must not be

    try:
        with os.scandir(directory) as entries:
            names = {entry.name for entry in entries}
    except FileNotFoundError:
        raise NothingToWatch(f"there is no folder {directory}", _nearest(directory)) from None
    except NotADirectoryError:
        raise NothingToWatch(
            f"{directory} is not a folder", f"give the experiment's folder: {_experiment_of(directory)}"
        ) from None
    except PermissionError:
        raise NothingToWatch(
            f"{directory} cannot be read: permission denied",
            f"run as a user who may read it, or allow it: chmod o+rx {directory}",
        ) from None
    except OSError as problem:
        raise NothingToWatch(
            f"{directory} cannot be read: {problem.strerror}", "is the filesystem mounted?"
        ) from problem
    if not is_utf8(os.path.realpath(directory)):
        raise NothingToWatch(
            f"the path of {clean(str(directory), 2000)} is not UTF-8 text, and no run could be named after it",
            "rename the folder, or the one above it whose name is not",
        )
    if (
        directory.absolute().name == "rlship"
        and "rlship" not in names
        and any(name.endswith(".jsonl") for name in names)
    ):
        raise NothingToWatch(
            f"{directory} holds the writers' files, not an experiment",
            f"give its parent: {directory.absolute().parent}",
        )


def _experiment_of(file: Path) -> Path:
    parent = file.absolute().parent
    return parent.parent if parent.name == "rlship" else parent


def _nearest(directory: Path) -> str:
    """The way out: a folder with nearly the same name beside the missing part of the path."""
    import difflib

    missing = directory.absolute()
    while not missing.parent.is_dir():
        missing = missing.parent
    try:
        with os.scandir(missing.parent) as entries:
            folders = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        folders = []
    near = difflib.get_close_matches(missing.name, folders, 1)
    if near:
        return f"did you mean {missing.parent / near[0]}?"
    create = f"create it if the job is still to start: mkdir -p {shlex.quote(str(directory))}"
    if missing == directory.absolute():
        return create
    return f"{missing} does not exist; {missing.parent} does: {create}"
