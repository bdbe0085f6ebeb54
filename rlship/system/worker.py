"""System metrics inside a worker: one more daemon thread, which logs the use of its process and its machine."""

from __future__ import annotations

import os
import time
from _thread import get_ident

from .. import threads
from ..encode import size_of
from ..gpu.memory import Allocator
from ..guard import raised_by_signal
from ..notices import say
from ..records import event_line, on_purpose
from .attribution import Attribution, Share, under
from .background import Due, Repeated
from .processes import Processes
from .readings import GpuReading
from .sampler import Sampler
from .series import RARELY_S, overall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ..logger import Logger
    from .asked import Asked
    from .readings import GpuProcess


def start(logger: Logger, asked: Asked) -> None:
    """Log system metrics with `logger` until it is closed. Never raises."""
    logger.allocator = Allocator(asked.interval_s)
    try:
        # Here and not on the thread: a child that is forked while a thread imports a module can never import it.
        worker = _Worker(logger, asked)
    except Exception as error:  # the promise is that logging never crashes the job
        if raised_by_signal(error):
            raise
        logger.failed("system_metrics", error)
        return
    try:
        threads.start(worker.run)
    except RuntimeError as error:
        say(f"no system metrics: cannot start a thread: {error}")


class _Fork:
    """Keeps forks out of calls of NVML, if the call ends soon. The library has locks of its own, and a child that was
    forked while one was held could never use NVML.
    """

    def __init__(self) -> None:
        self.looking = threads.lock()
        self._held: set[int] = set()
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def _before(self) -> None:
        if self.looking.acquire(timeout=_HOLD_S):
            self._held.add(get_ident())

    def _in_parent(self) -> None:
        if get_ident() in self._held:
            self._held.discard(get_ident())
            self.looking.release()

    def _in_child(self) -> None:
        self._held.clear()
        self.looking = threads.lock()


_HOLD_S = 0.05
_fork = _Fork()


class _Worker:
    """The thread. Its records have no step, whatever the implicit step is: rows place them by their time."""

    def __init__(self, logger: Logger, asked: Asked) -> None:
        self._logger = logger
        self._stream = logger.stream  # a forked child has another one, and no such thread
        self._interval_s = asked.interval_s
        self._pause = threads.lock()
        self._pause.acquire()
        self._rare_at = float("-inf")
        self._sampler = Sampler(
            asked.interval_s, asked.gpus, self._report, self._event, _fork.looking, logger.local_rank
        )
        self._place: Repeated | None = self._sampler.place(logger.folder)
        self._processes = Processes()
        self._attribution = Attribution(self._processes)
        self._share = Share()
        self._own = os.getpid()
        self._mine: frozenset[str] = frozenset()

    def run(self) -> None:
        try:
            self._begin()
            due = Due(self._interval_s)
            while not self._stream.closed:
                self._put(self._look())
                self._pause.acquire(timeout=due.left())
            self._sampler.close()
            if self._place is not None:
                self._place.stop()
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            self._logger.failed("system_metrics", error)

    def _begin(self) -> None:
        self._sampler.start()
        if self._place is not None:
            self._place.start()
        self._pause.acquire(timeout=self._sampler.phase_s)

    def _look(self) -> dict[str, Any]:
        now = time.monotonic()
        rare = now >= self._rare_at
        if rare:
            self._rare_at = now + RARELY_S - self._interval_s / 2
        found: dict[str, Any] = dict(self._sampler.host(rare=rare))
        self._processes.look(now)
        gpus = self._sampler.gpus()
        mine: list[GpuProcess] = []
        if gpus is not None:
            mine = [one for one in gpus.processes if self._attribution.owner(one.pid, (self._own,)) is not None]
            if mine:
                self._mine = frozenset(one.device for one in mine)
            found.update(overall(self._used(gpus), rare=rare))
        use = self._processes.use(self._processes.tree(self._own))
        found.update(under("proc", self._share.figures(now, use, mine)))
        news = self._place.take() if self._place is not None else None
        found.update(news or {})
        return found

    def _used(self, gpus: GpuReading) -> GpuReading:
        """The reading reduced to those visible GPUs on which this process has memory, once it has some."""
        chosen = self._mine & gpus.figures.keys()
        if not chosen:
            return gpus
        kept = GpuReading()
        kept.figures = {key: gpus.figures[key] for key in gpus.figures if key in chosen}
        kept.parents = gpus.parents
        return kept

    def _put(self, metrics: Mapping[str, Any]) -> None:
        stream = self._stream
        if metrics and not stream.closed:
            for line in stream.encoder.lines(metrics, None, time.time()):
                line = on_purpose(line)
                stream.buffer.append(line, size_of(line), None)

    def _report(self, topic: str, line: str) -> None:
        # Only on stderr: a machine without GPUs is no mistake that the job's record should show.
        self._stream.notices.once(f"system_metrics {topic or line}", f"{self._logger.actor}: {line}")

    def _event(self, name: str, attrs: dict[str, Any]) -> None:
        stream = self._stream
        if not stream.closed:
            line = on_purpose(event_line(name, attrs, None, time.time(), lambda attribute, why: None))
            stream.buffer.append(line, size_of(line), None)
