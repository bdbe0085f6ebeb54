"""Discovery of experiments and of their files. Every name comes from scandir: no module polls a name that was not
listed.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rlship_sidecar.errors import FORMATS, MAX_NAMED, NothingToWatch, no_experiment
from rlship_sidecar.tail.foreign.places import holds_foreign, in_place
from rlship_sidecar.tail.foreign.readers import readers
from rlship_sidecar.tail.listing import WRITERS_FOLDER, is_utf8
from rlship_sidecar.tail.looks import Looks, Repeated, begin

QUIET_S = 60.0  # A folder that has not changed for this long is taken for no experiment until it changes,
LOOK_AGAIN_S = 10.0  # or until a file in it grows, which is checked this often
MAX_NEAR_LOOKS, MAX_NEAR = 100, 3  # sub-folders that are looked into where there is no experiment, and that are named
EXPLAIN_EVERY_S = 10.0  # between two looks for folders that are left out

NONE_KNOWN: Mapping[str, Path] = {}


class NegativeCache:
    """Folders that were checked and are not experiments, so that discovery need not look into each of them every
    second.
    """

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
        """Remember that `folder` is not an experiment."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:
            return  # gone by now
        if time.time() - changed_ns / 1e9 > QUIET_S:
            self._seen[folder] = changed_ns, time.monotonic() + LOOK_AGAIN_S


def experiments(
    directory: Path, not_experiments: NegativeCache | None = None, known: Mapping[str, Path] = NONE_KNOWN
) -> list[Path]:
    """Return the folder itself if it is an experiment, else its subfolders that are, sorted.

    `not_experiments` holds the results of earlier calls. `known` holds experiments by path; they are not looked into
    again. Raises OSError if the folder cannot be read.
    """
    itself = os.fspath(directory)
    if itself in known or _is_one(itself, not_experiments):
        return [known.get(itself, directory)]
    with os.scandir(directory) as entries:
        folders = [entry.path for entry in entries if is_utf8(entry.name) and entry.is_dir(follow_symlinks=False)]
    return [
        known.get(folder) or Path(folder)
        for folder in sorted(folders)
        if folder in known or _is_one(folder, not_experiments)
    ]


def _is_one(folder: str, not_experiments: NegativeCache | None) -> bool:
    if not_experiments is not None and folder in not_experiments:
        return False
    found = is_experiment(folder)
    if not_experiments is not None and not found:
        not_experiments.add(folder)
    return found


def is_experiment(folder: str | Path) -> bool:
    """True if a folder holds a writers' folder or files of another framework.

    A checkout may hold a Python package of the same name as the writers' folder; such a package does not count.
    """
    writers = os.path.join(folder, WRITERS_FOLDER)
    if _is_folder(writers) and not os.path.exists(os.path.join(writers, "__init__.py")):
        return True
    return holds_foreign(os.fspath(folder), readers())


def _is_folder(path: str) -> bool:
    """True for a folder, False for a link to one, because a link may lead anywhere."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def excluded(directory: Path) -> dict[str, str]:
    """The folders that may be experiments but are left out, with the reason: the given one and those below it,
    sorted.
    """
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


def nothing_in(directory: Path) -> NothingToWatch:
    """The error for a folder without an experiment. It names sub-folders that hold experiments, such as `outputs`."""
    near: list[Path] = []
    for folder in _below(directory):
        with suppress(OSError):
            near += [folder] if experiments(folder) else []
    return no_experiment(directory, sorted(near)[:MAX_NEAR], unknown_files(directory))


def _below(directory: Path) -> list[Path]:
    """The first `MAX_NEAR_LOOKS` folders in one that may be looked into."""
    with suppress(OSError), os.scandir(directory) as entries:
        folders = islice((one for one in entries if one.is_dir(follow_symlinks=False)), MAX_NEAR_LOOKS)
        return [directory / one.name for one in folders if not one.name.startswith(".") and is_utf8(one.name)]
    return []


def unknown_files(directory: Path) -> list[str]:
    """Where a folder holds no experiment: the files in it, and in the folders below it, that have the name and place of
    a known format, and not its content.
    """
    found = []
    for folder in (directory, *sorted(_below(directory))):
        found += [os.path.relpath(folder / file, directory) for file in in_place(os.fspath(folder), readers())]
    return found


class Outlook(NamedTuple):
    """What is in a folder: the experiments, and what is left out, as `excluded` says; None where that was not due."""

    found: list[Path]
    excluded: dict[str, str] | None


class Directory:
    """A folder that is an experiment or holds experiments. Threads of `looks` look at it, where they are given.

    With `further_since` (Unix seconds) the folder is that of a job, whose further runs are looked for as well.
    """

    def __init__(self, path: Path, looks: Looks | None, further_since: float | None = None) -> None:
        self._path = path
        self._looks = looks
        self._further_since = further_since
        self._listing = Repeated(self._look, looks)
        self._not_experiments = NegativeCache()
        self._explain_at = 0.0
        self._unknown: set[str] = set()

    def look(self, now: float, known: Mapping[str, Path], *, force: bool, wait_s: float) -> Outlook | None:
        """See `experiments`. None if threads need longer than `wait_s`; then a later call returns what they found. With
        `force` it waits until they are done or hang. Raises OSError if the folder cannot be read.
        """
        return self._listing(now, force=force, wait_s=wait_s, known=known)

    def _look(self, now: float, *, force: bool, known: Mapping[str, Path]) -> Outlook:
        found = experiments(self._path, self._not_experiments, known)
        if self._further_since is not None:
            found = [*found, *further_runs(self._path, self._further_since, known)]
        if self._path in found or now < self._explain_at:
            return Outlook(found, None)
        self._explain_at = now + EXPLAIN_EVERY_S
        return Outlook(found, excluded(self._path) | ({} if found else self._not_known()))

    def _not_known(self) -> dict[str, str]:
        """The first files that no reader knows, and knew neither at the look before: a log may just begin."""
        unknown = {os.path.join(self._path, file) for file in unknown_files(self._path)}
        lasting, self._unknown = unknown & self._unknown, unknown
        why = f"has a format that rlship does not know, and is left alone: {FORMATS}"
        return dict.fromkeys(sorted(lasting)[:MAX_NAMED], why)

    def changes(self, found: list[Path], enough: float) -> dict[Path, float]:
        """When each of these experiments changed, as `newest_change` says; 0.0 if one hangs."""
        looks = {path: begin(self._looks, partial(newest_change, path, enough)) for path in found}
        if self._looks is not None:
            self._looks.wait(list(looks.values()), math.inf)
        return {path: look.result or 0.0 for path, look in looks.items()}


def further_runs(folder: Path, since: float, known: Mapping[str, Path] = NONE_KNOWN) -> list[Path]:
    """The experiments of a job's further runs, `<folder>-2` and so on by their number, then those of a sweep's runs,
    `<folder>-sweep-<run id>`.

    Only those into which something was written after `since` (Unix seconds), and those in `known`: another job may
    have such a name.
    """
    name = re.compile(re.escape(folder.name) + r"-(?:([2-9]|[1-9][0-9]{1,5})|sweep-[A-Za-z0-9._-]+)")
    try:
        with os.scandir(folder.parent) as entries:
            alike = [(name.fullmatch(one.name), one.path) for one in entries]
    except OSError:  # the folder itself can be used all the same
        return []
    return [
        known.get(path) or Path(path)
        for _, path in sorted((int(found[1] or 1 << 20), path) for found, path in alike if found and _is_folder(path))
        if path in known or (is_experiment(path) and newest_change(Path(path), since) >= since)
    ]


def newest_change(experiment: Path, enough: float = math.inf) -> float:
    """The newest modification time of an experiment's files, in Unix seconds; 0.0 if it cannot be read.

    The first time of at least `enough` will do.
    """
    newest = 0.0
    for folder in (experiment / WRITERS_FOLDER, experiment):
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
                    if newest >= enough:
                        return newest
        except OSError:
            continue
    return newest
