"""Forge's metric logger: what the controlling process calls to begin, to flush a step, and to end.

Forge asks all processes for their values at each flush. Here each process writes its own, and a flush only notes that
the step has ended, so it waits for no other process.
"""

from __future__ import annotations

import os
import time

from .. import registry
from ..guard import safely
from ..notices import Notices
from ..steps import whole_step
from .recording import SOURCE, current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from ..logger import Logger

# The lead: its barriers say to which step the lines of all other processes belong.
LEAD = "trainer"
_RUN = ("name", "notes", "tags", "group", "project", "entity", "job_type")
_PLAIN = str.maketrans(dict.fromkeys("/\\\0 ", "-"))


class Done:
    """The answer of a call that is done already: awaited, asked with `get()`, or left alone."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield

    def get(self, timeout: float | None = None) -> None:
        """Return at once."""


class Endpoint:
    """A call in the forms that an actor's endpoint has. All forms do the same, once, and never raise."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call
        self._notices = Notices()

    def __call__(self, *args: Any, **kwargs: Any) -> Done:
        safely(self._say, self._call, *args, **kwargs)
        return Done()

    def _say(self, error: Exception) -> None:
        what = f"{self._call.__name__.strip('_')}: {type(error).__name__}: {error}"
        self._notices.once(what, f"metric logger: {what}; the call is left out")

    call_one = call = choose = route = fanout = broadcast = __call__


class MetricLogger:
    """What `get_or_create_metric_logger` returns. Each attribute is an `Endpoint`.

    `init_backends({"wandb": {"project": …, "name": …}})` opens the file. `flush(global_step)` ends a step.
    `shutdown()` writes what is left and closes the file. Where rows go and how ranks are shown is set for the sidecar.
    """

    def __init__(self, process_name: str) -> None:
        self._name = process_name
        self._flushed: int | None = None
        self._wandb: dict[str, Any] = {}
        self.init_backends = Endpoint(self._init_backends)
        self.flush = Endpoint(self._flush)
        self.shutdown = Endpoint(self._shutdown)

    def _init_backends(self, backends: Mapping[str, Mapping[str, Any] | None] | None = None, **_: Any) -> None:
        told = backends or {}
        self._wandb = dict(told.get("wandb") or {})
        logger = current.logger()
        logger.run_data(**{name: self._wandb[name] for name in _RUN if self._wandb.get(name) is not None})
        modes = {str((own or {}).get("logging_mode", "")) for own in told.values()}
        if logger.begun and any(mode.startswith("per_rank") for mode in map(str.lower, modes)):
            logger.report(
                "init_backends",
                "logging_mode",
                'logging_mode is set for the sidecar: `ranks = "per_rank_reduce"` of a sink in rlship.toml',
            )

    def _flush(self, global_step: Any) -> None:
        logger = current.logger()
        before, self._flushed = self._flushed, whole_step(global_step)
        logger.barrier(self._flushed)
        if before is not None and self._flushed > before:
            # A job that flushes each tenth step records what comes now for the tenth step from here.
            logger.steps.put(2 * self._flushed - before)

    def _shutdown(self) -> None:
        current.logger().close()

    def open_lead(self) -> Logger:
        """Open the file of this process, whose barriers are the steps of all."""
        folder = os.environ.get("RLSHIP_DIR") or _folder(self._name, self._wandb)
        labels = {"source": SOURCE, "process_name": self._name}
        logger = registry.init(folder, os.environ.get("RLSHIP_ACTOR") or LEAD, labels=labels)
        if logger.begun:
            # Processes that start from here on write to the same folder.
            os.environ.setdefault("RLSHIP_DIR", os.path.abspath(folder))
        return logger


def _folder(process_name: str, wandb: Mapping[str, Any]) -> str:
    """Where the files go if `RLSHIP_DIR` does not say it. A run with a name finds its folder again after a restart."""
    parts = [str(wandb[key]).translate(_PLAIN) for key in ("project", "name") if wandb.get(key)]
    if not wandb.get("name"):
        parts.append(f"{process_name.translate(_PLAIN)}-{time.strftime('%Y%m%d-%H%M%S')}".lower())
    return os.path.join("outputs", *(part.lstrip(".") or "run" for part in parts))


_known: list[MetricLogger] = []


async def get_or_create_metric_logger(proc_mesh: Any = None, process_name: str | None = None) -> MetricLogger:
    """The metric logger of this process, always the same one.

    Args:
        proc_mesh: taken and not used: processes of a mesh need no registration.
        process_name: of the controlling process, for the default folder and as a label. Default: "Controller".
    """
    if not _known:
        _known.append(MetricLogger(str(process_name or "Controller")))
        current.expect_lead(_known[0].open_lead)
    return _known[0]
