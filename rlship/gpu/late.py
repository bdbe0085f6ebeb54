"""Values that a device has not delivered yet, and the barriers that wait for them."""

from __future__ import annotations

import time

from .. import threads
from ..encode import size_of
from ..guard import raised_by_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from ..buffer import Buffer

    class Late(Protocol):
        """A value on its way. Only one thread at a time calls its methods."""

        step: int | None

        def ready(self) -> bool:
            """True if it has arrived. Never waits."""

        def lines(self) -> list[str]:
            """The lines that hold it, once it is ready."""

    class Timed(Late, Protocol):
        """A late value that its Logger gives a step and a time."""

        t: float


PATIENCE_S = 5.0  # how long a barrier waits for values of its steps
MAX_AGE_S = 300.0  # a value that no barrier waits for is given up at this age
MAX_VALUES = 8192
LOOK_S = 0.02  # seconds between two checks while a barrier waits for values

_PATIENT_S = 0.1

# Never freed: inherited values belong to a CUDA context of the parent, which a forked child must not use.
_inherited: list[object] = []


class Deferred:
    """The late values of one Stream, in the order in which they were recorded.

    They are written as they arrive, in any order. Only a barrier waits for the values of its steps and for all earlier
    barriers, at most `patience` seconds. Values that are missing by then are given up and counted for a gap, and
    `report(where, topic, message)` reports them.
    """

    def __init__(
        self,
        buffer: Buffer,
        report: Callable[[str, str, str], object],
        failed: Callable[[str, Exception], None],
        patience: float = PATIENCE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buffer = buffer
        self._report = report
        self._failed = failed
        self._patience = patience
        self._now = now
        # Each change is one call of a list's own method, so no thread needs a lock to add or to hold. A value leaves
        # once its lines are in the buffer, and only then may a barrier go.
        self._values: list[tuple[Late, float]] = []
        self._barriers: list[tuple[int, str, float]] = []
        self._looking = threads.lock()

    def __len__(self) -> int:
        """The number of values that have not arrived."""
        return len(self._values)

    @property
    def empty(self) -> bool:
        """True if no value and no barrier waits."""
        return not self._values and not self._barriers

    def add(self, value: Late) -> None:
        """Write `value` when it has arrived."""
        if len(self._values) >= MAX_VALUES:
            self._report(
                "device",
                "deferred full",
                f"{MAX_VALUES} values of a device have not arrived: further ones are left out",
            )
            self._buffer.refuse(value.step)
            return
        self._values.append((value, self._now()))

    def hold(self, step: int, line: str) -> bool:
        """Keep a barrier line until the values of steps <= `step` are written. False if it can be written now."""
        if not self._barriers and not self._owed(step):
            return False
        self._barriers.append((step, line, self._now() + self._patience))
        return True

    def look(self) -> float | None:
        """Write the values that have arrived, and the barriers that waited for them.

        Returns the seconds until the next call, or None for the usual time.
        """
        if self.empty:
            return None
        if self._looking.acquire(blocking=False):  # otherwise another thread is doing it
            try:
                self._write_arrived()
                self._release_barriers()
            finally:
                self._looking.release()
        return LOOK_S if self._barriers else None

    def settle(self) -> None:
        """Write the values that have arrived, give up the rest, and write all barriers."""
        if self.empty:
            return
        if not self._looking.acquire(timeout=_PATIENT_S):
            return  # another look hangs in the driver, or a signal handler interrupted it
        try:
            self._write_arrived()
            for entry in list(self._values):
                self._give_up(entry)
            self._release_barriers()
        finally:
            self._looking.release()

    def wait(self, seconds: float, nudge: Callable[[], object] | None = None) -> bool:
        """Wait until what is late now is written; False after `seconds`. `nudge()` makes another thread look."""
        deadline = self._now() + seconds
        owed = {id(value) for value, _ in list(self._values)}
        held = {id(line) for _, line, _ in list(self._barriers)}
        while owed or held:
            (nudge or self.look)()
            owed &= {id(value) for value, _ in list(self._values)}
            held &= {id(line) for _, line, _ in list(self._barriers)}
            if (owed or held) and self._now() >= deadline:
                return False
            if owed or held:
                time.sleep(0.001)
        return True

    def leave(self) -> None:
        """In a forked child: keep the parent's values alive without using them."""
        _inherited.append((self._values, self._barriers))

    def _owed(self, step: int) -> bool:
        return any(value.step is not None and value.step <= step for value, _ in list(self._values))

    def _write_arrived(self) -> None:
        oldest = self._now() - MAX_AGE_S
        for entry in list(self._values):
            value, since = entry
            try:
                if not value.ready():
                    if since < oldest:
                        self._give_up(entry)
                    continue
                lines = value.lines()
            except Exception as error:  # the device or its library may raise anything
                if raised_by_signal(error):
                    raise
                self._failed("deferred value", error)
                self._give_up(entry, reported=True)
                continue
            for line in lines:
                self._buffer.append(line, size_of(line), value.step)
            self._values.remove(entry)

    def _release_barriers(self) -> None:
        while self._barriers:
            step, line, deadline = self._barriers[0]
            if self._owed(step):
                if self._now() < deadline:
                    return
                for entry in list(self._values):
                    if entry[0].step is not None and entry[0].step <= step:
                        self._give_up(entry)
            self._buffer.append_control(line, size_of(line), step)
            del self._barriers[0]

    def _give_up(self, entry: tuple[Late, float], reported: bool = False) -> None:
        if not reported:
            self._report(
                "device",
                "deferred late",
                f"a value or GPU time of step {entry[0].step} has not arrived from the device in "
                f"{self._now() - entry[1]:.1f} s: it is left out, and the row shows a gap",
            )
        self._buffer.refuse(entry[0].step)
        self._values.remove(entry)
