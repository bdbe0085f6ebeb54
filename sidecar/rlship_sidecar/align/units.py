"""What is kept of a step that is open or dirty, and of barriers that come before their step has a line. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rlship_sidecar.align.window import Ended, UnitLines
from rlship_sidecar.steps import Steps


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: the configuration's values of the same names; see docs/architecture.md."""

    join_s: float = 60.0
    grace_s: float = 30.0
    max_wait_s: float = 600.0
    implicit_s: float = 10.0
    revise_s: float = 5.0


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The configuration's `lead` and `clock_window_s`. `steps`: only what is beside these becomes rows."""

    lead: str = "trainer"
    clock_window_s: float = 10.0
    steps: Steps | None = None


@dataclass(slots=True)
class OpenUnit:
    """A step with lines and no row. `window` is None where its values were not kept: they are in the files."""

    window: UnitLines | None
    barrier_at: float | None = None
    line_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Closing:
    """A decision to close a step; `how` is "complete", "partial" or "end"."""

    step: int
    how: str


MAX_KEPT = 64  # open units that keep their values; the files are the buffer for the rest


class RowIndex(Protocol):
    """What the store knows of an actor's closed steps. `partial` means that the row lacks ranks."""

    def lacks_ranks(self, step: int) -> bool | None:
        """None if the step has no row, else whether that row is partial."""

    def rows_between(self, first: int, last: int, *, partial: bool) -> list[tuple[int, bool]]:
        """(step, partial) of the rows from `first` to `last` inclusive, or only the partial ones of them."""


@dataclass(slots=True)
class EarlyBarriers:
    """Barrier records of steps that have no metrics record yet.

    Of steps up to `forgotten` some may be lacking: the values of such a step have to come from the files once it opens.
    """

    forgotten: int = -1
    _records: dict[int, list[Ended]] = field(default_factory=dict)

    def add(self, step: int, record: Ended) -> None:
        """Keep one; forgets the lowest step where there are too many."""
        records = self._records.get(step)
        if records is None:
            records = self._records[step] = []
            if len(self._records) > MAX_KEPT:
                lowest = min(self._records)
                del self._records[lowest]
                self.forgotten = max(self.forgotten, lowest)
                if lowest == step:
                    return
        records.append(record)

    def take(self, step: int) -> list[Ended]:
        """Those of a step that opens."""
        return self._records.pop(step, [])
