"""The Logger of a framework's integration: one source for each process."""

from __future__ import annotations

import os

from .. import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..logger import Logger

_opened: list[Logger] = []


def job_has_its_own() -> bool:
    """Whether the process opened a Logger by itself, by `rlship.init`."""
    found = registry.opened()
    return found is not None and found not in _opened


def open_logger(source: str, folder: str, *, rank: int | None = None, world: int | None = None) -> Logger:
    """The Logger that the job itself opened; else one for the lead, whose file names `source` in its labels.

    The folder is `RLSHIP_DIR`, else `folder`. The actor is `RLSHIP_ACTOR`, else `trainer`.
    """
    found = registry.opened()
    if found is not None and found not in _opened:
        return found
    folder = os.environ.get("RLSHIP_DIR") or folder
    actor = os.environ.get("RLSHIP_ACTOR") or "trainer"
    logger = registry.init(folder, actor, rank=rank, world=world, labels={"source": source})
    if logger not in _opened:
        _opened.append(logger)
    return logger
