"""Facts about a machine, a folder and an experiment, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlship_sidecar.filesystem import Filesystem


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine and the environment of this command.

    `wanted` maps each package that rlship needs to the versions that it takes, `installed` to the version that is here.
    `descriptors` is the hard limit of open files, `places` the number of experiments that may be open at a time.
    `threads` is how many threads the user may still start; None: without a limit.
    """

    version: str
    python: str
    wanted: Mapping[str, str]
    installed: Mapping[str, str]
    descriptors: int
    places: int
    threads: int | None


@dataclass(frozen=True, slots=True)
class Server:
    """Where rows of the sink wandb go. `mode` is "online", "offline" or "auto", which is online with a key.

    `key` names the source of the API key, "" without one. `trouble` is why the server gave no answer, "" if it did or
    was not asked. `is_rejected`: it does not take the key.
    """

    mode: str
    address: str
    key: str
    trouble: str = ""
    is_rejected: bool = False


@dataclass(frozen=True, slots=True)
class Space:
    """Free space for this user, in bytes, and how many more files there is room for; None: the filesystem has no such
    limit.
    """

    path: str
    free: int
    files: int | None
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class Place:
    """A folder as it is now, and whether this user may make files in it."""

    path: str
    mode: int
    group: str
    may_write: bool


@dataclass(frozen=True, slots=True)
class ExperimentFiles:
    """The experiment's folders and files, as its processes and a sidecar find them.

    `writers` is the folder `rlship`, None before a process made it. `keeps_state` is the folder that a sidecar's state
    goes into, or the nearest one above it. `unreadable` counts files that this user cannot read, of which
    `example` is one. `ahead_s` is how much newer the newest file is than this host's clock.
    """

    experiment: Place
    writers: Place | None
    keeps_state: Place
    unreadable: int
    example: str
    ahead_s: float
    umask: int | None


@dataclass(frozen=True, slots=True)
class NamedFolder:
    """The folder that was named. `unused` is a settings file above it, which does not count for it. `overridden` are
    variables that win over its own.
    """

    path: str
    filesystem: Filesystem
    spaces: list[Space] = field(default_factory=list)
    unused: str = ""
    overridden: list[str] = field(default_factory=list)
