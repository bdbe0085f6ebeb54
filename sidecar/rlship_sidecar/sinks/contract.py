"""The contract between the sidecar and a place that takes rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rlship_sidecar.rows import Row


class SinkRefused(Exception):
    """The destination must not or will not take these rows (wrong store, no permission): a person has to act. Exit code
    4.
    """


class SinkUnavailable(Exception):
    """The destination cannot be reached now: the shipper closes the sink, waits and opens it again."""


class SinkReopen(SinkUnavailable):
    """Nothing is wrong, but the sink has to begin anew: the shipper closes it and opens it again at once."""


@dataclass(frozen=True, slots=True)
class Run:
    """The experiment, as a sink needs to know it.

    `rows` is how many rows the store holds at the time of `open`; `store_id` names the store that numbered them;
    `options` is the sink's own part of the configuration (each sink's module lists what it knows). `generation` counts
    the sidecars that owned the experiment; `suspect` is the newest earlier one that may still be alive, and might go on
    writing if it wakes up; -1: none.
    """

    name: str
    experiment: Path
    state_dir: Path
    store_id: str
    rows: int
    options: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    suspect: int = -1


class Sink(Protocol):
    """One destination. All calls come from one thread: open, (write | flush)*, close; then open again.

    The rows handed over are the store's own even if this process has just woken up after another took over: they are
    read before it is made sure that this one still owns. Where writing the same row twice would show, a sink has to
    keep a late writer out itself, as `claim` does for files. Optional as well is a method `abandon()`: it is called in
    place of `close` once ownership is lost, when nothing may reach the destination any more. And `interrupt()`, which
    any thread may call: a call that waits for the destination then raises SinkUnavailable soon. And
    `ends_with(row)`, asked after an `open` that told of rows: whether the last one that the destination holds is this.

    Any call may raise SinkUnavailable (retried) or SinkRefused (final); anything else counts as unavailable and is
    shown in the status. Three attributes are optional, all str, and shown in the status: `where`, a path, an address or
    how to look at it; `note`, what a person should know though rows are delivered; `trouble`, what keeps rows from
    being delivered right now, which any thread may read. Optional as well is a static method `check_options(options)`:
    it is called before anything is started, and raises `options.WrongOption`, or any other SinkRefused, for options
    that the sink cannot use.
    """

    def open(self, run: Run) -> int | None:
        """Connect; return the number of the next row that the destination lacks, or None where it cannot tell."""

    def write(self, rows: Sequence[Row]) -> None:
        """Take rows whose numbers follow on from the last; may return before they are delivered."""

    def flush(self) -> None:
        """Return once every row written so far is delivered and will survive this process."""

    def close(self) -> None:
        """Release everything, also after a failed call. Rows not delivered are no error: the next `open` tells."""
