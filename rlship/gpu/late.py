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
        """A value on its way. Its methods are called by one thread at a time."""

        step: int | None

        def ready(self) -> bool:
            """Whether it has arrived. Never waits."""

        def lines(self) -> list[str]:
            """The lines that tell it, once it is ready."""


PATIENCE_S = 5.0  # how long a barrier waits for values of its steps
MAX_AGE_S = 300.0  # a value that no barrier waits for is given up then
MAX_VALUES = 8192
LOOK_S = 0.02  # how often values are looked at while a barrier waits for them

_PATIENT_S = 0.1

# Never freed: what a forked child inherited belongs to a CUDA context that is not its own.
_inherited: list[object] = []


class Deferred:
    """The late values of one Stream, in the order in which they were recorded.

    They are written as they arrive, whatever the order. Only a barrier waits: until those of its steps and all earlier
    barriers are written, at most `patience` seconds. What is not there by then is given up, with a gap, and
    `told(where, topic, message)` says so.
    """

    def __init__(
        self,
        buffer: Buffer,
        told: Callable[[str, str, str], object],
        failed: Callable[[str, Exception], None],
        patience: float = PATIENCE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buffer = buffer
        self._told = told
        self._failed = failed
        self._patience = patience
        self._now = now
        # Each change is one call of a list's own method, so that no thread needs a lock to add or to hold. A value
        # leaves once its lines are in the buffer, and only then a barrier may go.
        self._values: list[tuple[Late, float]] = []
        self._barriers: list[tuple[int, str, float]] = []
        self._looking = threads.lock()

    def __len__(self) -> int:
        """How many values have not arrived."""
        return len(self._values)

    def add(self, value: Late) -> None:
        """Write `value` when it has arrived."""
        if len(self._values) >= MAX_VALUES:
            self._told(
                "device",
                "deferred full",
                f"{MAX_VALUES} values of a device have not arrived: further ones are left out",
            )
            self._buffer.refuse(value.step)
            return
        self._values.append((value, self._now()))

    def hold(self, step: int, line: str) -> bool:
        """Keep a barrier line until the values of steps <= `step` are written. False if it can go now."""
        if not self._barriers and not self._owed(step):
            return False
        self._barriers.append((step, line, self._now() + self._patience))
        return True

    def look(self) -> float | None:
        """Write what has arrived, and the barriers that waited for it.

        Returns after how many seconds to look again, None where the usual time will do.
        """
        if not self._values and not self._barriers:
            return None
        if self._looking.acquire(blocking=False):  # else another thread is at it
            try:
                self._write_arrived()
                self._release_barriers()
            finally:
                self._looking.release()
        return LOOK_S if self._barriers else None

    def settle(self) -> None:
        """Write what has arrived by now, give up the rest, and let all barriers go."""
        if not self._values and not self._barriers:
            return
        if not self._looking.acquire(timeout=_PATIENT_S):
            return  # a look that hangs in the driver, or that a signal handler interrupted
        try:
            self._write_arrived()
            for entry in list(self._values):
                self._give_up(entry)
            self._release_barriers()
        finally:
            self._looking.release()

    def wait(self, seconds: float, nudge: Callable[[], object] | None = None) -> bool:
        """Wait until what is late now has been written; False after `seconds`. `nudge()` makes someone else look."""
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
        """In a forked child: the values are the parent's."""
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
                self._give_up(entry, told=True)
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

    def _give_up(self, entry: tuple[Late, float], told: bool = False) -> None:
        if not told:
            self._told(
                "device",
                "deferred late",
                f"a value or GPU time of step {entry[0].step} has not arrived from the device in "
                f"{self._now() - entry[1]:.1f} s: it is left out, and the row says so",
            )
        self._buffer.refuse(entry[0].step)
        self._values.remove(entry)
