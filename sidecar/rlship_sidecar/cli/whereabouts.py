"""The first line of `watch`: where the run can be seen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlship_sidecar.report.terminal import MAX_ERROR_CHARS, clean

if TYPE_CHECKING:
    from rlship_sidecar.cli.plain_report import OnStatus
    from rlship_sidecar.report.status import SinkStatus, Status

HELD_S = 10.0  # for so long other lines wait for the first place; W&B's client opens a run in two or three seconds
MAX_LINES = 5
_MAX_SAID = 1 << 16
PLACES, ADVICE = "place ", "advice "  # kinds of what is printed once


class Printed:
    """What was printed once: of `PLACES` the experiments whose place was, of `ADVICE` the texts. With the descriptor of
    a file they outlive the process: a sidecar that is started again beside a job prints nothing twice.
    """

    def __init__(self, kind: str, file: int | None = None) -> None:
        self._kind = kind
        self._file = file
        self._entries: set[str] = set()
        if file is not None:
            noted = os.fsdecode(os.pread(file, _MAX_SAID, 0)).split("\0")[:-1]
            self._entries.update(entry[len(kind) :] for entry in noted if entry.startswith(kind))

    def __contains__(self, entry: str) -> bool:
        return entry in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: str) -> None:
        """It is printed."""
        self._entries.add(entry)
        if self._file is not None:
            os.write(self._file, os.fsencode(self._kind + entry) + b"\0")


class Whereabouts:
    """Calls `say` with the place of each experiment once it is known, and passes statuses on to `then` after the first.

    Of a folder of experiments only those that run have a line, at most `MAX_LINES`; with `finished` the others have one
    too. `only`: just the experiment of this path has one, as above a screen, which has little room and shows the places
    of a folder's experiments itself. Those in `said` have none. `offer` is called with each later status of those that
    have a line.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        then: OnStatus | None,
        *,
        only: str = "",
        finished: bool = False,
        said: Printed | None = None,
        offer: Callable[[Status], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._only = only
        self._finished = finished
        self._then = then
        self._offer = offer
        self._clock = clock
        self._said = Printed(PLACES) if said is None else said
        self._since: float | None = None

    def __call__(self, statuses: list[Status]) -> None:
        """Say what is new, then pass the statuses on, unless the first place is still awaited."""
        running = [status for status in statuses if not status.finished or self._finished or len(statuses) == 1]
        if self._only:
            running = [status for status in running if status.experiment == self._only]
        for status in running:
            if status.experiment not in self._said and len(self._said) < MAX_LINES and (place := seen_at(status)):
                self._say(f"{clean(status.experiment, MAX_ERROR_CHARS)}: {place}")
                self._said.add(status.experiment)
            if self._offer is not None and status.experiment in self._said:
                self._offer(status)
        if statuses and self._since is None:
            self._since = self._clock()
        if self._then is not None and not self._waits(running):
            self._then(statuses)

    def _waits(self, running: list[Status]) -> bool:
        """True while the first place is awaited. Trouble of a sink ends the wait, and so does time."""
        if self._said or self._since is None or self._clock() - self._since >= HELD_S:
            return False
        return bool(running) and not any(sink.error for status in running for sink in status.sinks)


def seen_at(status: Status) -> str:
    """Where the rows of an experiment can be seen: W&B's address, the command that uploads an offline run, else where
    another sink puts them; "" as long as no sink is open.
    """
    known: dict[str, SinkStatus] = {sink.name: sink for sink in status.sinks if sink.where}
    if "wandb" not in known:
        if any(sink.name == "wandb" and sink.state != "refused" for sink in status.sinks):
            return ""
        return next((f"{sink.name}: {clean(sink.where, MAX_ERROR_CHARS)}" for sink in known.values()), "")
    where = clean(known["wandb"].where, MAX_ERROR_CHARS)
    return f"W&B, offline; to upload the run: {where}" if where.startswith("wandb sync ") else where
