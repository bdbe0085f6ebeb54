"""Gathers the facts about this machine and the folders. It writes nothing, and follows no link below a folder."""

from __future__ import annotations

import grp
import os
import platform
import re
import resource
import stat
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

from rlship._version import __version__
from rlship_sidecar import config
from rlship_sidecar.daemon.limits import MAX_DESCRIPTORS, Budget
from rlship_sidecar.doctor.facts import ExperimentFiles, Machine, NamedFolder, Place, Space
from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.filesystem import filesystem_of
from rlship_sidecar.tail.listing import WRITERS_FOLDER

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)(;.*)?$")
_CGROUP = Path("/sys/fs/cgroup")


def machine(sinks: Collection[str]) -> Machine:
    """The facts about this machine, for a sidecar with these sinks."""
    wanted = dict(_wanted())
    installed = {}
    for name in wanted:
        with suppress(metadata.PackageNotFoundError):
            installed[name] = metadata.version(name)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    places = Budget(sinks, limit=limit).places
    return Machine(__version__, platform.python_version(), wanted, installed, limit, places, _threads_left())


def _wanted() -> Iterator[tuple[str, str]]:
    """What rlship's distribution asks for; nothing where it runs from a checkout that is not installed."""
    with suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("rlship") or ():
            found = _REQUIREMENT.match(line)
            if found is None or "extra ==" in line or ("python_version" in line and sys.version_info >= (3, 11)):
                continue
            yield found[1], found[2].strip().replace(" ", "")


def _threads_left() -> int | None:
    """How many threads this user may still start, by `ulimit -u` and by the control group; None: no limit."""
    left = []
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # the superuser is exempt
        used = 0
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                used += process.num_threads() if process.uids().real == os.getuid() else 0
        left.append(soft - used)
    with suppress(OSError, ValueError):
        left.append(int((_CGROUP / "pids.max").read_text()) - int((_CGROUP / "pids.current").read_text()))
    return max(0, min(left)) if left else None


def folder(directory: Path, state_dir: str | None, env: Mapping[str, str]) -> NamedFolder:
    """The facts about the folder that was named. Raises OSError."""
    real = os.path.realpath(directory)
    places = [real, *([_nearest(state_dir)] if state_dir else [])]
    above = os.path.join(os.path.dirname(real), config.CONFIG_FILE)
    overridden = []
    with suppress(UsageProblem):  # reported with the settings
        names = {key: f"RLSHIP_{key.upper()}" for key in config.settings_in(directory)}
        overridden = [name for name in names.values() if env.get(name, "").strip()]
    return NamedFolder(
        real,
        filesystem_of(real),
        [_space(place) for place in dict.fromkeys(places)],
        above if os.path.lexists(above) and os.path.dirname(real) != real else "",
        overridden,
    )


def _space(path: str) -> Space:
    found = os.statvfs(path)
    files = found.f_favail if found.f_files else None
    return Space(path, found.f_bavail * found.f_frsize, files, bool(found.f_flag & os.ST_RDONLY))


def files(experiment: Path, state_dir: Path) -> ExperimentFiles:
    """The facts about the files of an experiment. Raises OSError."""
    above = place(experiment)
    writers = experiment / WRITERS_FOLDER
    newest = 0.0
    is_there = os.path.isdir(writers) and not os.path.islink(writers)
    listed = is_there and _may(writers, os.R_OK | os.X_OK)
    unreadable = [str(writers)] if is_there and not listed else []
    for entry in os.scandir(writers) if listed else ():
        if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
            newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
            if not _may(entry.path, os.R_OK):
                unreadable.append(entry.path)
    return ExperimentFiles(
        above,
        place(writers) if is_there else None,
        place(Path(_nearest(state_dir))),
        len(unreadable),
        min(unreadable, default=""),
        newest - time.time() if newest else 0.0,
        _umask(),
    )


def place(path: Path) -> Place:
    """A folder as it is now. Raises OSError."""
    found = os.stat(path)
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    return Place(str(path), stat.S_IMODE(found.st_mode), group, _may(path, os.W_OK | os.X_OK))


def _may(path: str | Path, what: int) -> bool:
    return os.access(path, what, effective_ids=True)


def _nearest(path: str | Path) -> str:
    """The folder itself, or the nearest one above it that exists."""
    at = Path(path).absolute()
    while not os.path.isdir(at):
        at = at.parent
    return str(at)


def _umask() -> int | None:
    """The umask of this process, without a moment in which it is another one."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return None
