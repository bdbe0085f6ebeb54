"""A sink in memory that fails on demand, and time that only moves when told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlship_sidecar.rows import Row
from rlship_sidecar.sinks.contract import Run, Sink


@dataclass(slots=True)
class Destination:
    """What survives a sink. `fail(call)` may raise before a call (open, write, flush, close) has any effect."""

    held: list[int] = field(default_factory=list)
    tells: bool = True
    calls: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    fail: Callable[[str], None] = lambda call: None
    made: int = 0

    def sink(self) -> FakeSink:
        self.made += 1
        return FakeSink(self)


class FakeSink(Sink):
    """Rows are delivered by `flush`, or by `write` already where `eager`; those under way are lost with the object."""

    where = "memory"

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._under_way: list[int] = []

    def open(self, run: Run) -> int | None:
        self._enter("open")
        self._destination.runs.append(run)
        return len(self._destination.held) if self._destination.tells else None

    def write(self, rows: Sequence[Row]) -> None:
        self._enter("write")
        self._under_way += [row.row_number for row in rows]

    def flush(self) -> None:
        self._enter("flush")
        self._destination.held += self._under_way
        self._under_way = []

    def close(self) -> None:
        self._enter("close")

    def _enter(self, call: str) -> None:
        self._destination.calls.append(call)
        self._destination.fail(call)


def raising(error: Exception, *, on: str = "open", times: int = 10**9) -> Callable[[str], None]:
    """A `fail` that raises `error` at the next `times` calls named `on`."""
    left = [times]

    def fail(call: str) -> None:
        if call == on and left[0] > 0:
            left[0] -= 1
            raise error

    return fail
