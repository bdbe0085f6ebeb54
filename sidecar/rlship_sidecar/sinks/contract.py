"""The contract between the sidecar and a destination of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlship_sidecar.rows import Row
from rlship_sidecar.run_data.merging import RunData


class SinkRefused(Exception):
    """The destination must not or will not take these rows (wrong store, no permission). A person has to act. Exit code
    4.
    """


class SinkUnavailable(Exception):
    """The destination cannot be reached now: the shipper closes the sink, waits and opens it again."""


class SinkInterrupted(SinkUnavailable):
    """A call was ended by `interrupt`. That says nothing about the destination, so an earlier error stays the last."""


class SinkReopen(SinkUnavailable):
    """Nothing is wrong, but the sink has to start afresh: the shipper closes it and opens it again at once."""


def _no() -> bool:
    return False


def _unnamed() -> tuple[str, ...]:
    return ()


def _nothing(first: int, limit: int) -> list[Row]:
    return []


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The facts about the experiment that a sink needs.

    `rows` is the most rows that the destination can hold of this store at the time of `open`. `store_id` names the
    store that numbered them. `options` is the sink's own part of the configuration; each sink's module lists them.
    `generation` counts the sidecars that owned the experiment. `suspect` is the newest earlier one that may still be
    alive, and might write again if it wakes up; -1 if there is no such sidecar. `own_names` gives the actors whose
    metrics have the names that the job gave them at W&B. `run_data` is what the job said of the run up
    to now. `is_replay`: the rows were made again, beside those of the sidecar that watches. `stored` gives rows of the
    store again, from a first one on and at most so many.
    """

    name: str
    experiment: Path
    state_dir: Path
    store_id: str
    rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    suspect: int = -1
    over_time: Callable[[], bool] = _no
    own_names: Callable[[], tuple[str, ...]] = _unnamed
    run_data: RunData = field(default_factory=RunData)
    is_replay: bool = False
    stored: Callable[[int, int], Sequence[Row]] = _nothing


Run = SinkContext  # the name that plug-ins of earlier releases import

Observed = Mapping[str, Any]  # how far each file was observed: a sink keeps it and returns it unchanged


class Sink(ABC):
    """One destination. Calls come one at a time, from any thread: open, (describe | write | flush | observe)*, close;
    then open again.

    A sink defines open, write, flush and close. Every other member has the default that stands here. Any call may raise
    SinkUnavailable (retried) or SinkRefused (final); any other exception counts as unavailable. The status shows it.

    A row that is written twice may show. The rows of a call are the store's own even in a process that was frozen and
    replaced: they are read before ownership is checked. A sink whose destination could show a late write keeps late
    writers out itself, as `claim` does for files.
    """

    where: str = ""
    """A path, an address or a command that shows the destination; the status shows it."""
    note: str = ""
    """A notice for people although rows are delivered; the status shows it."""
    advice: str = ""
    """What a person can do that concerns other experiments alike, such as to log in; read after each `open`. The
    sidecar says it once, with the number of experiments. It names none of them.
    """
    trouble: str = ""
    """The reason why rows are not delivered right now. Any thread may read it."""
    named_after_s: float = 0.0
    """For how many seconds rows had not been delivered when `trouble` named the reason. Any thread may read it."""

    @staticmethod  # noqa: B027 - a default
    def check_options(options: Mapping[str, Any]) -> None:
        """Raise `options.WrongOption`, or any SinkRefused, for options that cannot be used; called before any start."""

    @staticmethod
    def foresee(options: Mapping[str, Any]) -> str:
        """The `advice` as far as it is known before any `open`, or "". `watch` says it at its start."""
        return ""

    def destination(self, run: SinkContext) -> str:
        """For a sink whose `open` is expensive: the name of the place that `open` leads to, found without opening it.

        The store remembers how many rows that place confirmed. So the sink is opened only for further rows, and few
        such sinks at a time. "" means that `open` is cheap.
        """
        return ""

    @abstractmethod
    def open(self, run: SinkContext) -> int | None:
        """Connect; return the number of the next row that the destination lacks, or None if it cannot be read back."""

    def ends_with(self, row: Row) -> bool:
        """Whether `row` is the last one that the destination holds; called after an `open` that returned a number."""
        return True

    def describe(self, run: RunData) -> None:  # noqa: B027 - a default
        """Take what the job said of the run: its configuration, results, name and so on; all of it, at each call.

        Called before the first `write` after each `open` if the job said anything, and whenever it says something else,
        with rows or without. The next `flush` delivers it. A sink that shows it already does nothing.
        """

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Take rows whose numbers follow the last; may return before they are delivered."""

    @property
    def flush_due_s(self) -> float | None:
        """The seconds until the sink wants a `flush` although no row was written since the last one; None: it does not.

        Read after a `flush`. It is for a sink that puts off expensive work.
        """
        return None

    @abstractmethod
    def flush(self) -> None:
        """Return once every row written so far is delivered and will survive this process."""

    observes: bool = False
    """Whether the sink wants observations; read after each `open`."""

    def observed(self) -> Observed | None:
        """The last position that the destination holds. If it cannot be read back, None: then the sidecar remembers the
        position.
        """
        return None

    def observe(self, lines: bytes, position: Observed) -> None:  # noqa: B027 - a default
        """Return once these observations are delivered.

        They are values as they were logged, without any reduction. Each line is JSON: actor, replica, rank, attempt, t,
        step (or null) and the values by name, `m`. `position` is where they end. A sink that keeps it with them, and
        returns it by `observed`, gets each observation once. Any other gets the last ones again after a crash. Calls
        come from a thread of their own, about twice a second.
        """

    def interrupt(self) -> None:  # noqa: B027 - a default
        """Let a call that waits for the destination raise SinkUnavailable soon. Any thread may call this."""

    @abstractmethod
    def close(self) -> None:
        """Release everything, also after a failed call. Rows not delivered are no error: the next `open` finds them."""

    def abandon(self) -> None:
        """Called in place of `close` once ownership is lost: nothing may reach the destination any more."""
        self.close()
