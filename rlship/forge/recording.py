"""`record_metric` as Forge calls it, and the Logger to which a process of a Forge job writes."""

from __future__ import annotations

import enum
import os
import socket

from .. import registry
from ..guard import raised_by_signal
from ..notices import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..logger import Logger

SOURCE = "forge"
WORKER = "worker"  # the actor of a process that flushes no steps, unless RLSHIP_ACTOR names it
_OFF = ("1", "true", "yes", "on")


class Reduce(str, enum.Enum):
    """How the observations of one metric become one value, over all processes of an actor.

    `SAMPLE` is for a dict: a row of a table, whose score is its `score`, else its `reward`.
    """

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    STD = "std"
    SAMPLE = "sample"


# `record_metric` is quick for a reduction that is the same object as in the call before.
_NAMES = {member.value: member.value for member in Reduce}


class Current:
    """The Logger of Forge's calls in this process, once it has one.

    It is the one that `rlship.init` opened, else the lead's in a process that asked for the metric logger, else a
    worker's.
    """

    def __init__(self) -> None:
        self._found: Logger | None = None
        self._worker: Logger | None = None
        self._open_lead: Callable[[], Logger] | None = None

    def logger(self) -> Logger:
        """The Logger, which is opened now unless there is one. It drops all calls if the process has no folder."""
        if self._found is not None:
            return self._found
        try:
            return self._find()
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            say(f"nothing is logged: {type(error).__name__}: {error}")
            self._found = registry.Disabled()
            return self._found

    def expect_lead(self, open_lead: Callable[[], Logger]) -> None:
        """This process asked for the metric logger: `open_lead()` opens its file, at the first call that needs it."""
        self._open_lead, self._found = open_lead, None

    def _find(self) -> Logger:
        opened = registry.opened()
        if disabled():
            self._found = registry.Disabled()
        elif opened is not None and opened is not self._worker:
            self._found = opened
        elif self._open_lead is not None:
            self._found = self._open_lead()
        elif os.environ.get("RLSHIP_DIR"):
            self._found = self._worker = _worker()
        else:
            return registry.current()  # it says once what is missing; the folder may be known at a later call
        return self._found


def _worker() -> Logger:
    # Processes of several meshes count their ranks from 0, each for itself. So each is a replica of its own.
    own = os.environ.get("RLSHIP_REPLICA") or os.environ.get("RLSHIP_RANK")
    alone: dict[str, Any] = {"replica": f"{socket.gethostname()}-{os.getpid()}", "rank": 0, "world": 1}
    return registry.init(
        actor=os.environ.get("RLSHIP_ACTOR") or WORKER,
        labels={"source": SOURCE},
        count_steps=False,
        **({} if own else alone),
    )


current = Current()


def disabled() -> bool:
    """Whether the environment turns Forge's metrics off."""
    return os.environ.get("FORGE_DISABLE_METRICS", "").strip().lower() in _OFF


def record_metric(key: str, value: Any, reduction: Any = None, reduce_type: Any = None) -> None:
    """Add an observation of one metric, from anywhere in the program. Nothing is raised.

    What the process that flushes recorded belongs to the step that it flushes next. What others record has no step: it
    is shown at the step of that process during which they recorded it.

    Args:
        key: the metric's name.
        value: as in `rlship.log`; for `Reduce.SAMPLE` a dict, the row of the table `key`.
        reduction, reduce_type: a `Reduce`, one of rlship's, or the name of a reduction. Default: `Reduce.MEAN`.
    """
    logger = current.logger()
    try:
        chosen = reduction if reduction is not None else reduce_type
        named = "mean" if chosen is None else getattr(chosen, "value", chosen)
        if named == "sample":
            logger.sample(key, value, score=_score(value))
        else:
            logger.record_metric(key, value, _NAMES.get(named, named))
    except Exception as error:  # the promise is that logging never crashes the job
        if raised_by_signal(error):
            raise
        logger.failed("record_metric", error)


def _score(row: Any) -> Any:
    if not isinstance(row, dict):
        return None
    score = row.get("score")
    return row.get("reward") if score is None else score
