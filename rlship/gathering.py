"""Observations and ended spans, which the job's threads leave for the writing thread without waiting."""

from __future__ import annotations

from . import threads
from .batches import Batches
from .spans import Spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .buffer import Buffer
    from .encode import Encoder
    from .misuse import Misuse


class Gathering:
    """The observations and spans of one Stream on their way into its buffer.

    An entry that cannot be encoded is left out: `failed(where, error)` reports it, and the buffer counts it for a gap.
    """

    def __init__(
        self,
        buffer: Buffer,
        encoder: Encoder,
        misuse: Misuse,
        clock: Callable[[], float],
        failed: Callable[[str, Exception], object],
    ) -> None:
        # Reentrant, because a signal handler or a finaliser may log while this thread holds it.
        self.lock = threads.reentrant_lock()
        self.batches = Batches(clock, lambda step, error: self._lose("record_metric", step, error))
        self.spans = Spans(misuse, lambda step, error: self._lose("span", step, error))
        self._failed = failed
        self._buffer = buffer
        self._encoder = encoder
        # If a thread that holds the lock sees True, a signal handler or finaliser interrupted its own move.
        self._moving = False
        self._unfinished = False  # an error or a signal handler may end a move halfway; the next one continues it

    @property
    def empty(self) -> bool:
        """True if nothing waits, and no thread is moving anything: what it moves may not be in the buffer yet.

        The order of the looks matters: `_unfinished` is set before the first entry leaves its list.
        """
        return not self.batches.entries and not self.spans.waiting and not self._unfinished

    def move(self, upto: int | None = None) -> None:
        """Move spans into the buffer, and the observations of steps <= `upto` or all.

        Everything happens under the lock: a barrier must not overtake lines that the writing thread is moving.
        """
        with self.lock:
            if self._moving:
                return
            self._moving = self._unfinished = True
            try:
                self.batches.move(upto, self._buffer, self._encoder)
                self.spans.move(self._buffer)
                self._unfinished = False
            finally:
                self._moving = False

    def _lose(self, where: str, step: int | None, error: Exception) -> None:
        self._failed(where, error)
        self._buffer.refuse(step)
