"""The Logger of a framework's integration: one source for each process. Faults of an integration stay in it."""

from __future__ import annotations

import os

from .. import guard, registry
from ..identity import detect
from ..logger import Logger
from ..notices import Notices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

_opened: list[Logger] = []
_notices = Notices()


def job_has_its_own() -> bool:
    """Whether the process opened a Logger by itself, by `rlship.init`."""
    found = registry.opened()
    return found is not None and found not in _opened


def is_on() -> bool:
    """Whether the environment names a folder and does not turn rlship off."""
    return bool(os.environ.get("RLSHIP_DIR")) and os.environ.get("RLSHIP_DISABLE", "") in ("", "0")


def open_logger(
    source: str,
    folder: str,
    *,
    named: bool = False,
    actor: str | None = None,
    replica: str | None = None,
    rank: int | None = None,
    world: int | None = None,
    count_steps: bool | None = None,
) -> Logger:
    """The Logger that the job itself opened; else one whose file names `source` in its labels.

    The folder is `RLSHIP_DIR`, else `folder`; `named`: it is `folder`, which the job's code gives. The actor is
    `actor`; None: the lead, `RLSHIP_ACTOR`, else `trainer`.
    """
    found = registry.opened()
    if found is not None and found not in _opened:
        return found
    logger = registry.init(
        folder if named else os.environ.get("RLSHIP_DIR") or folder,
        actor or os.environ.get("RLSHIP_ACTOR") or "trainer",
        replica=replica,
        rank=rank,
        world=world,
        count_steps=count_steps,
        labels={"source": source},
    )
    if logger not in _opened:
        _opened.append(logger)
    return logger


def open_beside(source: str, actor: str, *, replica: str, rank: int, world: int) -> Logger:
    """The Logger that the job itself opened; else one for an actor without steps that is not the job's own program.

    A facade goes on beside it, and the module's functions do not use it. The folder is `RLSHIP_DIR`.
    """
    found = registry.opened()
    if found is not None and found not in _opened:
        return found

    def warn(message: str) -> None:
        _notices.once(message, f"{actor}: {message}")

    identity = detect(actor, replica, rank, world, warn=warn)
    logger = Logger(os.path.abspath(os.environ["RLSHIP_DIR"]), identity, labels={"source": source})
    logger.steps.count(False)
    registry.look_after(logger)
    logger.start()
    return logger


def safely(framework: str, call: Callable[..., T], *args: Any) -> T | None:
    """The result of a call for a framework. A fault is said once on stderr, and the result is None."""

    def say(error: Exception) -> None:
        what = f"{call.__name__.strip('_')}: {type(error).__name__}: {error}"
        _notices.once(f"{framework} {what}", f"integration of {framework}: {what}; it is left out")

    return guard.safely(say, call, *args)
