"""The Loggers of this process: `init`, the default Logger, and their handling at a fork and at exit."""

from __future__ import annotations

import atexit
import os
import time
from _thread import get_ident
from operator import methodcaller

from . import endings, family, threads
from .encode import json_string
from .guard import raised_by_signal
from .hidden import is_secret
from .hook.environment import is_named
from .identity import MAX_NAME, Identity, bounded, detect
from .logger import Logger
from .notices import Notices, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

_CLOSE_S = 5.0
_MAX_LABELS = 8 << 10

_loggers: dict[tuple[str, str], Logger] = {}
# Those of a facade: forks and the end of the process concern them, but `init` never returns one.
_of_facades: list[Logger] = []
# What a facade does as soon as the process itself calls `init`.
_stand_down: list[Callable[[], object]] = []
# What a facade does as the process ends, before its Loggers close.
_ends: list[Callable[[], object]] = []
_default: Logger | None = None
# In a forked child: the module's functions still write for the actor of the parent. The child's first `init` ends that.
_default_of_parent = False
_hooked = False
_notices = Notices()
# Reentrant, because a signal handler may be the first to log while this thread is in `init`.
_lock = threads.reentrant_lock()

# Arguments of wandb's init that have another place here.
_INSTEAD = {"mode": "set it for the sidecar, in [sink.wandb] of rlship.toml"}


class Disabled(Logger):
    """A Logger that drops every call, because it has no folder or `RLSHIP_DISABLE` is set."""

    def __init__(self) -> None:
        super().__init__("", Identity("", "0", 0, None, 0, "none", ""))
        self.stream.closed = True

    def _begin(self) -> bool:
        return False


_disabled = Disabled()


def look_after(logger: Logger) -> None:
    """Take over a Logger of a facade: forks and the end of the process concern it like any other."""
    parent = family.parent_of(logger.checksum)
    logger.adopt(parent)
    if parent is None:
        logger.find_facts()
    with _lock:
        _hook()
        _of_facades[:] = [one for one in _of_facades if not one.closed]
        _of_facades.append(logger)


def is_explicit() -> bool:
    """True if this process called `init` itself, so that a facade records nothing."""
    return bool(_loggers)


def when_explicit(stand_down: Callable[[], object]) -> None:
    """Call `stand_down()` once the process calls `init` itself."""
    _stand_down.append(stand_down)


def before_end(end: Callable[[], object]) -> None:
    """Call `end()` at the end of the process, right before its Loggers close. It may open one, and must not raise."""
    with _lock:
        _hook()
        _ends.append(end)


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
    system_metrics: bool | float | Mapping[str, Any] | None = None,
    count_steps: bool | None = None,
    config: Any = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    group: str | None = None,
    project: str | None = None,
    entity: str | None = None,
    job_type: str | None = None,
    ledger_share: float | None = None,
    **unknown: NoReturn,
) -> Logger:
    """Open this process's file for one actor, and return the Logger that writes it.

    `rlship.log` and the other functions of the module use the first Logger. Calling `init` again with the same `dir`
    and `actor` returns the same Logger, or a new one if it was closed.

    Args:
        dir: the experiment's folder, made absolute now and created when needed; files go to `dir/rlship/`. Default:
            `RLSHIP_DIR`.
        actor: the kind of worker: `"trainer"`, `"generator"`, `"reward"`… Default: `RLSHIP_ACTOR`. The actor called
            `trainer` provides the global steps.
        replica: distinguishes groups that each count their ranks from 0, such as several generators. Default:
            `RLSHIP_REPLICA`, else the launcher's, else `"0"`.
        rank, world: this process's number in its group, and the group's size (None: unknown). Default:
            `RLSHIP_RANK`, `RLSHIP_WORLD`, else those of the launcher (torchrun, MPI, Slurm, Kubernetes, JAX, TPU,
            Ascend, verl on Ray), else rank 0. They come as a pair: with a `rank` of your own, give `world` too.
        attempt: how often this rank was restarted; the lines of a higher attempt replace those of a lower one. Default:
            `RLSHIP_ATTEMPT`, else the launcher's restart count.
        axis: what this actor's steps count.
        labels: facts about this process, kept as text in the file, at most 8 KiB in all.
        system_metrics: also log what this process, its machine and its GPUs use, from a thread of its own, and what
            torch's allocator holds at each step: True for once a second, the seconds between two samples, or a dict of
            `interval` (those seconds), `roles` (the actors whose processes do this, such as `["trainer"]`) and `gpus`
            (indices or UUIDs, "local", "all" or "none"; default: the visible ones). Needs psutil and nvidia-ml-py
            (`pip install psutil nvidia-ml-py`), or the vendor's `npu-smi` or `amd-smi`; metrics that are not available
            are reported once and left out. Default: `RLSHIP_SYSTEM_METRICS` (1, 0, or seconds),
            `RLSHIP_SYSTEM_METRICS_ROLES` and `RLSHIP_SYSTEM_METRICS_GPUS`, else off.
        count_steps: True makes each call of `log` without `step=` a step of its own: 0, 1, 2, … or, from a step that
            the job sets, on from there. The call ends its step, so no `barrier` is needed. False says that this process
            has no steps on purpose, and nothing is reported about it. Default: calls are not counted.
        config: the configuration of this process, such as hyper-parameters: see `rlship.config`.
        name, notes, tags, group, job_type: what the run is called and what it belongs to, as at W&B. Where processes
            differ, those of the lead count.
        ledger_share: the share of groups that `rlship.ledger` records, 0 to 1. It has to be the same in every process.
            Default: `RLSHIP_LEDGER_SHARE`, else 1/8.
        project, entity: of W&B. They count when the run is made there, and only in a folder that the sidecar trusts.

    If neither the argument nor the environment gives `dir` or `actor`, this reports it on stderr and returns a Logger
    that drops every call. `RLSHIP_DISABLE=1` has the same effect, silently. An unusable argument is reported and left
    out. Nothing is raised.

    Forks and children: a forked child writes a file of its own from its first call on, as a child of its parent's rank.
    So does a process spawned by this one (`subprocess`, `multiprocessing`) that calls `init` with the same folder,
    actor and identity: it contributes to this rank and rows do not wait for it. A process whose rank, world or attempt
    differs, or which outlives or replaces this one, is a writer in its own right. To spawn an independent one with the
    same identity, remove `RLSHIP_PARENT` from its environment. From the first `init` of a forked child on, the module's
    functions use the Logger that this `init` returned.
    """
    for other in unknown:  # as Python does it, with the way out
        instead = _INSTEAD.get(other)
        hint = "" if instead is None else f": {instead}"
        raise TypeError(f"init() got an unexpected keyword argument {other!r}{hint}")
    run = {"config": config, "name": name, "notes": notes, "tags": tags, "group": group}
    run |= {"project": project, "entity": entity, "job_type": job_type}
    try:
        with _lock:
            logger = _init(dir, actor, replica, rank, world, attempt, axis, labels, system_metrics)
            if count_steps is not None:
                logger.steps.count(bool(count_steps))
            _set_share(logger, ledger_share)
            logger.run_data(**run)
            return logger
    except Exception as error:  # the promise is that logging never crashes the job
        if raised_by_signal(error):
            raise
        kind = type(error).__name__
        try:
            text = str(error)
        except Exception:  # noqa: BLE001 - the error's own code
            text = ""
        _notices.once(f"init {kind} {text}", f"init failed, nothing is logged: {kind}: {text}")
        return _disabled


def _set_share(logger: Logger, share: float | None) -> None:
    given: object = os.environ.get("RLSHIP_LEDGER_SHARE") if share is None else share
    if given is None or given == "":
        return
    try:
        found = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = -1.0
    if 0 <= found <= 1:
        logger.ledger_share = found
    else:
        logger.report("init", f"ledger_share {given!r:.40}", f"ledger_share={given!r:.40} is not a number from 0 to 1")


def current() -> Logger:
    """The Logger of the module's functions: the first open one, or one from `RLSHIP_DIR` and `RLSHIP_ACTOR`."""
    if _default is not None:
        return _default
    if is_off():
        return _disabled
    if os.environ.get("RLSHIP_DIR") and os.environ.get("RLSHIP_ACTOR"):
        return init()
    _notices.once("early", "nothing is logged before rlship.init(dir, actor), or with RLSHIP_DIR and RLSHIP_ACTOR set")
    return _disabled


def opened() -> Logger | None:
    """The Logger of the module's functions if the process has an open one. It opens none and reports nothing."""
    return _default if _default is not None and not _default.closed else None


def is_off() -> bool:
    """True if `RLSHIP_DISABLE` is set."""
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
    system_metrics: bool | float | Mapping[str, Any] | None,
) -> Logger:
    if is_off():
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
        raise ValueError(f"dir={folder!r} holds a NUL character, which a path cannot")
    while _stand_down:
        _stand_down.pop()()
    known = _loggers.get((folder, name))
    if known is not None and not known.closed and known.begun:
        _report_difference(known, {"replica": replica, "rank": rank, "world": world, "attempt": attempt})
        _take_over(known)
        return known
    given: tuple[Any, ...] = (replica, rank, world, attempt)
    inherited = known if known is not None and not known.closed else None
    if inherited is not None:  # a forked child inherits the arguments that it does not pass
        given = tuple(before if own is None else own for own, before in zip(given, inherited.given))
    replica, rank, world, attempt = given

    told: list[str] = []

    def warn(message: str) -> None:
        _notices.once(message, f"{name[:MAX_NAME]}: {message}")
        told.append(message)

    identity = detect(name, replica, rank, world, attempt, warn=warn)
    if inherited is not None and family.identity_of(folder, identity) == inherited.checksum:
        _take_over(inherited)
        return inherited  # a forked child of the same rank
    # Otherwise it is a forked worker with a rank of its own by now: a writer in its own right, like a spawned one.
    logger = Logger(
        folder,
        identity,
        axis=bounded("axis", str(axis), warn) or "global_step",
        labels=_usable_labels(labels, warn),
    )
    logger.given = given
    parent = family.parent_of(logger.checksum)
    logger.adopt(parent)
    if parent is None:  # a child works for its parent's rank, whose facts are the run's
        logger.find_facts()
    _hook()
    _loggers[folder, name] = logger
    _set_default(logger, inherited)
    if logger.start() and identity.rank == 0 and identity.replica == "0" and not is_named(folder):
        _notices.once(f"folder {folder}", f"{name} writes to {os.path.join(folder, 'rlship')}")
    start_sampling(logger, system_metrics, warn)
    if logger.begun:
        for message in told:
            logger.stream.report("init", message)
    return logger


def _take_over(logger: Logger) -> None:
    """In a forked child: the Logger of its first `init` becomes that of the module's functions."""
    global _default, _default_of_parent
    if _default_of_parent:
        _default, _default_of_parent = logger, False


def _set_default(logger: Logger, inherited: Logger | None) -> None:
    """Let the module's functions use a new Logger, unless they use an open one that this process asked for.

    `inherited` is the one of the same actor from before a fork, which the new one replaces.
    """
    global _default
    _take_over(logger)
    if _default is None or _default.closed or _default is inherited:
        _default = logger
    elif _default is not logger and logger.rank == 0 and logger.replica == "0":
        same = logger.actor == _default.actor  # and thus in another folder
        first, this = (_default.folder, logger.folder) if same else (_default.actor, logger.actor)
        _notices.once(
            "another",
            f"rlship.log and the other functions of the module still write for {first!r}: for {this!r} use the Logger "
            "that init returned",
        )


def start_sampling(logger: Logger, given: object, warn: Callable[[str], object]) -> None:
    """Log system metrics as well, if the argument of `init` or the environment asks for them."""
    if given is None and not any(name.startswith("RLSHIP_SYSTEM_METRICS") for name in os.environ):
        return
    if given is None and logger.stream.parts.parent is not None:
        return  # the parent's values contain this process
    from .system import asked

    try:
        found = asked.read(given, os.environ, logger.actor)
    except Exception as error:  # ValueError, or anything that the code of a given value raises
        if raised_by_signal(error):
            raise
        warn(f"{error}; no system metrics are logged")
        return
    if found is not None and logger.begun:
        from .system import worker

        worker.start(logger, found)


def _report_difference(known: Logger, asked: Mapping[str, Any]) -> None:
    other = [f"{what}={value!r}" for what, value in asked.items() if value is not None]
    if any(value is not None and str(value) != str(getattr(known, what)) for what, value in asked.items()):
        known.report(
            "init",
            "again",
            f"init({known.actor!r}) with {', '.join(other)} changes nothing: this process writes there already, as "
            f"replica={known.replica!r}, rank={known.rank}, world={known.world}, attempt={known.attempt}. Close that "
            f"Logger first, or use another process for another rank",
        )


def _usable_labels(labels: Any, warn: Callable[[str], object]) -> dict[str, str]:
    """Labels as text, as many as fit."""
    if labels is None:
        return {}
    if not hasattr(labels, "items"):
        warn(f"labels={labels!r:.200} is not a dict of names and values, so it is left out")
        return {}
    kept: dict[str, str] = {}
    room = _MAX_LABELS
    for key, value in labels.items():
        name, text = str(key)[:1000], str(value)[:1000]
        if is_secret((name,), text):
            warn(f"the label {name[:40]!r} looks like a secret, so it is left out")
            continue
        room -= len(json_string(name)) + len(json_string(text))
        if room < 0:
            warn(f"the labels are longer than {_MAX_LABELS} characters: {name[:40]!r} and those after it are left out")
            break
        kept[name] = text
    return kept


def _hook() -> None:
    global _hooked
    if _hooked:
        return
    # In this order: if a signal handler raises in between, closing twice does no harm, but not closing loses lines.
    atexit.register(_close_all)
    _hooked = True


# The locks of a fork and which of them were taken; by thread, because two threads may fork at the same time.
_held: dict[int, list[tuple[tuple[threads.RLock, ...], list[bool]]]] = {}
_HOLD_S = 0.05


def _before_fork() -> None:
    """Hold the Loggers' locks over the fork: hooks that run before ours in the child may log, and so may finalisers.

    A lock that another thread keeps for longer than `_HOLD_S` is left out, and the fork goes on.
    """
    held = _held.setdefault(get_ident(), [])
    deadline = time.monotonic() + _HOLD_S
    for logger in [*_loggers.values(), *_of_facades]:
        locks, taken = logger.locks, list[bool]()
        held.append((locks, taken))
        # `extend` and `map` run without a bytecode in between. If a signal handler raised after `acquire` and before
        # its result is stored, the lock would never be released, and the writing thread would stop.
        taken.extend(map(methodcaller("acquire", timeout=max(0.0, deadline - time.monotonic())), locks))


def _after_fork_in_parent() -> None:
    for locks, taken in _held.pop(get_ident(), []):
        for lock, got in zip(locks, taken):
            if got:
                lock.release()


def _after_fork() -> None:
    global _notices, _lock, _default_of_parent
    _held.clear()
    _notices, _lock = Notices(), threads.reentrant_lock()
    _default_of_parent = True
    for logger in [*_loggers.values(), *_of_facades]:
        try:
            logger.after_fork()
        except Exception as error:  # noqa: BLE001 - os.fork must return in the child after any error here
            say(f"after a fork: {type(error).__name__}: {error}")


# At import and not at the first `init`, because another thread may be inside `init` at a fork.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)


def _close_all() -> None:
    for end in _ends:
        end()
    deadline = time.monotonic() + _CLOSE_S
    error = endings.error_of_program()
    for logger in [*_of_facades, *_loggers.values()]:
        logger.close_at_exit(max(0.1, deadline - time.monotonic()), error)
