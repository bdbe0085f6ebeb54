"""The sidecar's own metrics as rows of the run, logged into the experiment like those of any process of the job.

What depends on arrival happens only once: how late rows were, which sink was down. The sidecar writes it to a file of
its own and makes the rows from that file, so a replay makes the same rows.
"""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rlship.file import Disk
from rlship.identity import Identity
from rlship.logger import Logger
from rlship_sidecar.report.status import SinkStatus, Status
from rlship_sidecar.rows import count_ranks
from rlship_sidecar.tally import OWN_ACTOR, Tally

# A job is at work while one of its writers has written a line or a beat within this time, in seconds.
AT_WORK_S = 120.0

_NAMES: dict[str, tuple[str | list[str], str]] = {
    "lag_s": ("max", "s"),
    "unread_bytes": ("max", "bytes"),
    "missing_ranks": ("max", "ranks"),
    "late_rows": ("sum", "rows"),
    "partial_rows": ("sum", "rows"),
    "dead_letters": ("sum", "lines"),
    "dead_values": ("sum", "values"),
    "cpu_cores": ("mean", "1"),
    "rss_bytes": ("max", "bytes"),
}
_OF_A_SINK: dict[str, tuple[str | list[str], str]] = {
    "behind_rows": ("max", "rows"),
    "trouble_s": ("max", "s"),
    "errors": ("sum", "attempts"),
    "lag_s": (["p50", "p99", "max"], "s"),
}


class _FoundFolders(Disk):
    """A disk that makes no folder: a job's folder that was renamed or removed would reappear as an empty one."""

    def make_folder(self, path: str) -> None:
        """Make nothing; the job's own writers make the folder."""


def _new_logger(folder: str, identity: Identity) -> Logger:
    logger = Logger(folder, identity, disk=_FoundFolders())
    logger.steps.count(False)  # it has none on purpose: no advice about steps is meant for it
    return logger


class SelfMetrics:
    """Logs the sidecar's own metrics every `every_s` seconds while the job is at work.

    It stops with the job. Otherwise the run would never end, and each record would wake the sidecar. It then closes its
    file, and begins another one when the job goes on.

    `attempt` is the sidecar's generation, so that a successor writes for the same rank.
    """

    def __init__(
        self,
        experiment: Path,
        every_s: float,
        attempt: int,
        *,
        new_logger: Callable[[str, Identity], Logger] | None = None,
        used: Callable[[], tuple[float, int]] | None = None,
    ) -> None:
        self._folder = str(experiment)
        self._every_s = every_s
        self._attempt = attempt
        self._new_logger = new_logger or _new_logger
        self._used = used or _used
        self._logger: Logger | None = None
        self._next: float | None = None
        self._before: dict[str, float] = {}
        self._at = self._cpu_s = 0.0
        self._problem = ""

    def log(self, status: Status, tally: Tally, now: float) -> None:
        """Log the metrics if it is time; `now` is in monotonic seconds."""
        if self._next is None:  # counts from before this sidecar must not appear as new
            self._since(_totals(status, tally), now)
            self._next = now + self._every_s
        if not at_work(status):
            self.close()
            return
        if self._problem:
            status.notes.append(self._problem)
        if now < self._next:
            return
        self._next += self._every_s * max(1, (now - self._next) // self._every_s + 1)
        logger = self._logger or self._open(status.sinks)
        if logger is not None:
            logger.log(self._metrics(status, tally, now))

    @property
    def is_open(self) -> bool:
        """True while a file is open for logging."""
        return self._logger is not None

    def close(self) -> None:
        """Close the file with all that was logged. Waits at most 5 s, and not at all if its folder is gone."""
        if self._logger is not None:
            self._logger.close(5.0 if os.path.isdir(os.path.join(self._folder, "rlship")) else 0.0)
            self._logger = None

    def _open(self, sinks: Iterable[SinkStatus]) -> Logger | None:
        place = os.path.join(self._folder, "rlship")
        if os.path.islink(place) or not os.access(place, os.W_OK | os.X_OK):
            self._problem = (
                f"{place} cannot be written by the sidecar: the run has no rows of the sidecar's own metrics"
            )
            return None
        self._problem = ""
        identity = Identity(OWN_ACTOR, "0", 0, 1, self._attempt, "given", socket.gethostname())
        self._logger = self._new_logger(self._folder, identity)
        names = dict(_NAMES)
        for sink in sinks:
            names |= {f"sink/{sink.name}/{name}": how for name, how in _OF_A_SINK.items()}
        for name, (reduce, unit) in names.items():
            self._logger.define(name, reduce, unit=unit)
        return self._logger

    def _metrics(self, status: Status, tally: Tally, now: float) -> Mapping[str, Any]:
        totals, elapsed_s = _totals(status, tally), max(1e-9, now - self._at)
        cpu_s, rss_bytes = self._used()
        values: dict[str, Any] = {name: total - self._before.get(name, 0.0) for name, total in totals.items()}
        values["cpu_cores"] = (cpu_s - self._cpu_s) / elapsed_s
        values["rss_bytes"] = rss_bytes
        others = [actor for actor in status.actors if actor.actor != OWN_ACTOR]
        values["lag_s"] = max((actor.lag_s for actor in others), default=0.0)
        values["missing_ranks"] = sum(count_ranks(actor.missing) for actor in others)
        values["unread_bytes"] = sum(writer.unread for writer in status.writers)
        for sink in status.sinks:
            values[f"sink/{sink.name}/behind_rows"] = max(0, status.rows - sink.sent)
            values[f"sink/{sink.name}/trouble_s"] = sink.trouble_s
        for name, shipping in tally.sinks.items():
            if lags := shipping.written.take_new():
                values[f"sink/{name}/lag_s"] = lags
        self._since(totals, now)
        return values

    def _since(self, totals: dict[str, float], now: float) -> None:
        self._before, self._at, self._cpu_s = totals, now, self._used()[0]


def at_work(status: Status) -> bool:
    """True if any process of the job itself still writes."""
    return any(
        writer.actor and not writer.observes and not writer.closed and writer.silent_s < AT_WORK_S
        for writer in status.writers
    )


def _totals(status: Status, tally: Tally) -> dict[str, float]:
    """The counters, which only grow."""
    rows = [(closed, count) for (actor, closed), count in tally.rows.items() if actor != OWN_ACTOR]
    totals: dict[str, float] = {
        "late_rows": sum(count for closed, count in rows if closed == "revision"),
        "partial_rows": sum(count for closed, count in rows if closed == "partial"),
        "dead_letters": status.dead_letter_count,
        "dead_values": status.dead_value_count,
    }
    return totals | {f"sink/{name}/errors": shipping.errors for name, shipping in tally.sinks.items()}


def _used() -> tuple[float, int]:
    """CPU seconds and resident bytes of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[1])
    return usage.ru_utime + usage.ru_stime, pages * resource.getpagesize()
