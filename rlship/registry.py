"""The Loggers of this process: `init`, the default one, and what happens to them at a fork and at exit."""

from __future__ import annotations

import atexit
import os
import time

from . import family
from .identity import Identity, detect
from .logger import Logger
from .notices import Notices, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_CLOSE_S = 5.0

_loggers: dict[tuple[str, str], Logger] = {}
_default: Logger | None = None
_hooked = False
_notices = Notices()


class Disabled(Logger):
    """A Logger that drops every call, where there is nowhere to write to or `RLSHIP_DISABLE` is set."""

    def __init__(self) -> None:
        super().__init__("", Identity("", "0", 0, None, 0, "none", ""))
        self._stream.closed = True

    def _begin(self) -> bool:
        return False


_disabled = Disabled()


def init(
    dir: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    *,
    replica: str | int | None = None,
    rank: int | None = None,
    world: int | None = None,
    attempt: int | None = None,
    axis: str = "global_step",
    labels: Mapping[str, Any] | None = None,
) -> Logger:
    """Open this process's file for one actor, and return the Logger that writes it.

    The first Logger is the one that `rlship.log` and the other functions of the module use. Calling `init` again with
    the same `dir` and `actor` returns the same Logger, or a new one if it was closed.

    Args:
        dir: the experiment's folder, made absolute now and created when needed; files go to `dir/rlship/`. Default:
            `RLSHIP_DIR`.
        actor: the kind of worker: `"trainer"`, `"generator"`, `"reward"`… Default: `RLSHIP_ACTOR`. The actor called
            `trainer` gives the global steps unless the sidecar is told otherwise.
        replica: tells apart groups that each count their ranks from 0, such as several generators. Default:
            `RLSHIP_REPLICA`, else the launcher's, else `"0"`.
        rank, world: this process's place in its group, and how many there are (None: not known). Default:
            `RLSHIP_RANK`, `RLSHIP_WORLD`, else those of the launcher (torchrun, MPI, Slurm, Kubernetes, JAX, TPU,
            Ascend, verl on Ray), else rank 0. They come as a pair: with a `rank` of your own, give `world` too.
        attempt: how often this rank was restarted; the lines of a higher attempt replace those of a lower one. Default:
            `RLSHIP_ATTEMPT`, else the launcher's restart count.
        axis: what this actor's steps count.
        labels: facts about this process, kept as text in the file.

    Where `dir` or `actor` is known from neither the argument nor the environment, this says so on stderr and returns a
    Logger that drops every call; so does `RLSHIP_DISABLE=1`, silently. An unusable argument is said and left out.
    Nothing is raised.

    Forks and children: a forked child writes a file of its own from its first call on, as a child of its parent's
    rank. So does a process spawned by this one (`subprocess`, `multiprocessing`) that calls `init` with the same
    folder, actor and identity: it contributes to this rank and is not waited for. A process whose rank, world or
    attempt differs, or which outlives or replaces this one, is a writer in its own right. To spawn an independent one
    with the same identity, remove `RLSHIP_PARENT` from its environment.
    """
    try:
        return _init(dir, actor, replica, rank, world, attempt, axis, labels)
    except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
        _notices.once(f"init {error}", f"init failed, nothing is logged: {type(error).__name__}: {error}")
        return _disabled


def current() -> Logger:
    """The Logger of the module's functions: the first one opened, or one from `RLSHIP_DIR` and `RLSHIP_ACTOR`."""
    if _default is not None:
        return _default
    if _off():
        return _disabled
    if os.environ.get("RLSHIP_DIR") and os.environ.get("RLSHIP_ACTOR"):
        return init()
    _notices.once("early", "nothing is logged before rlship.init(dir, actor), or with RLSHIP_DIR and RLSHIP_ACTOR set")
    return _disabled


def _off() -> bool:
    return os.environ.get("RLSHIP_DISABLE", "") not in ("", "0")


def _init(
    dir: str | os.PathLike[str] | None,
    actor: str | None,
    replica: str | int | None,
    rank: int | None,
    world: int | None,
    attempt: int | None,
    axis: str,
    labels: Mapping[str, Any] | None,
) -> Logger:
    global _default
    if _off():
        return _disabled
    folder = os.fspath(dir) if dir is not None else os.environ.get("RLSHIP_DIR", "")
    name = actor if actor is not None else os.environ.get("RLSHIP_ACTOR", "")
    needed = (("dir (or RLSHIP_DIR)", folder), ("actor (or RLSHIP_ACTOR)", name))
    missing = [what for what, given in needed if not given]
    if missing:
        _notices.once(f"missing {missing}", f"init needs {' and '.join(missing)}: nothing is logged")
        return _disabled
    folder, name = os.path.abspath(os.fsdecode(folder)), str(name)
    if "\0" in folder:
        raise ValueError(f"dir={folder!r} holds a NUL character, which no path can")
    known = _loggers.get((folder, name))
    if known is not None and not known.closed:
        return known
    identity = detect(
        name, replica, rank, world, attempt, warn=lambda message: _notices.once(message, f"{name}: {message}")
    )
    logger = Logger(
        folder,
        identity,
        axis=str(axis) or "global_step",
        labels={str(key)[:1000]: str(value)[:1000] for key, value in (labels or {}).items()},
    )
    logger.adopt(family.parent_of(logger.checksum))
    _hook()
    _loggers[folder, name] = logger
    if _default is None or _default.closed:
        _default = logger
    if logger.start() and identity.rank == 0 and identity.replica == "0":
        _notices.once(f"folder {folder}", f"{name} writes to {os.path.join(folder, 'rlship')}")
    return logger


def _hook() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    global _notices
    _notices = Notices()
    for logger in _loggers.values():
        try:
            logger.after_fork()
        except Exception as error:  # noqa: BLE001 - os.fork must return in the child whatever happens here
            say(f"after a fork: {type(error).__name__}: {error}")


def _close_all() -> None:
    deadline = time.monotonic() + _CLOSE_S
    for logger in list(_loggers.values()):
        logger.close(max(0.1, deadline - time.monotonic()))
