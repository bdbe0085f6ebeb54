"""Which experiments there are, and which files in them. scandir is the truth: a name is never polled before it was
listed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from rlship_sidecar.tail.foreign.places import holds_foreign
from rlship_sidecar.tail.foreign.readers import readers
from rlship_sidecar.tail.listing import WRITERS_FOLDER, is_utf8

QUIET_S = 60.0  # a folder that has not changed for so long is no experiment for as long as it does not change,
LOOK_AGAIN_S = 10.0  # or a file in it grows, which is seen this often

NONE_KNOWN: Mapping[str, Path] = {}


class Dull:
    """Folders that were no experiments when they were looked at, so that not all are looked into every second."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def __contains__(self, folder: str) -> bool:
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:
            return False
        before = self._seen.get(folder)
        return before is not None and before[0] == changed_ns and time.monotonic() < before[1]

    def add(self, folder: str) -> None:
        """It is none."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:
            return  # gone by now
        if time.time() - changed_ns / 1e9 > QUIET_S:
            self._seen[folder] = changed_ns, time.monotonic() + LOOK_AGAIN_S


def experiments(directory: Path, dull: Dull | None = None, known: Mapping[str, Path] = NONE_KNOWN) -> list[Path]:
    """The folder itself if it is an experiment, else its subfolders that are, sorted; raises OSError where it cannot be
    read. `dull`: what earlier calls found out. `known`: experiments by path, which are not looked into again.
    """
    itself = os.fspath(directory)
    if itself in known or _is_one(itself, dull):
        return [known.get(itself, directory)]
    with os.scandir(directory) as entries:
        folders = [entry.path for entry in entries if is_utf8(entry.name) and entry.is_dir(follow_symlinks=False)]
    return [known.get(folder) or Path(folder) for folder in sorted(folders) if folder in known or _is_one(folder, dull)]


def _is_one(folder: str, dull: Dull | None) -> bool:
    if dull is not None and folder in dull:
        return False
    found = is_experiment(folder)
    if dull is not None and not found:
        dull.add(folder)
    return found


def is_experiment(folder: str | Path) -> bool:
    """Whether a folder has a writers' folder in it, and not a Python package of that name, as a checkout may have; or
    files of another framework.
    """
    writers = os.path.join(folder, WRITERS_FOLDER)
    if _is_folder(writers) and not os.path.exists(os.path.join(writers, "__init__.py")):
        return True
    return holds_foreign(os.fspath(folder), readers())


def _is_folder(path: str) -> bool:
    """Whether a folder is there, and no link to one: that may lead anywhere."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def barred(directory: Path) -> dict[str, str]:
    """Folders that may be experiments but are left out, the given one or below it, sorted, with why."""
    with os.scandir(directory) as entries:
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    found = {}
    for folder in (os.fspath(directory), *sorted(folders)):
        writers = os.path.join(folder, WRITERS_FOLDER)
        if not is_utf8(folder):  # a store could not name the experiment, nor a sink its run
            found[folder] = "cannot be looked into: its name is not UTF-8; if it is an experiment, it is left out"
        elif not os.access(folder, os.R_OK | os.X_OK):
            found[folder] = "cannot be looked into: permission denied; if it is an experiment, it is left out"
        elif os.path.islink(writers):
            found[folder] = f"is left out: {WRITERS_FOLDER} in it is a link, which is not followed"
    return found


def newest_change(experiment: Path) -> float:
    """When a file of an experiment changed last, in Unix seconds; 0.0 if that cannot be seen."""
    newest = 0.0
    for folder in (experiment / WRITERS_FOLDER, experiment):
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
        except OSError:
            continue
    return newest
