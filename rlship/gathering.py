"""What the job's threads leave for the writing thread without waiting: observations and ended spans."""

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

    What cannot be encoded is left out: `failed(where, error)` reports it, and the buffer counts it for a gap.
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
        # True for a thread that holds the lock means: a signal handler or finaliser runs in the middle of a move.
        self._moving = False

    def move(self, upto: int | None = None) -> None:
        """Move what was gathered into the buffer: spans, and observations of steps <= `upto` or all.

        All under the lock: a barrier must not overtake lines that the writing thread is just moving.
        """
        with self.lock:
            if self._moving:
                return
            self._moving = True
            try:
                self.batches.move(upto, self._buffer, self._encoder)
                self.spans.move(self._buffer)
            finally:
                self._moving = False

    def _lose(self, where: str, step: int | None, error: Exception) -> None:
        self._failed(where, error)
        self._buffer.refuse(step)
