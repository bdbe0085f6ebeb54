"""Times a piece of work in named steps, one after the other."""

from __future__ import annotations

from .registry import current
from .tracing import Span, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from .tracing import Entry


class Tracer:
    """Times a piece of work and its steps.

        tracer = rlship.Tracer("train_step")
        tracer.start()
        batch = fetch()
        tracer.step("fetch")        # the span train_step/fetch: since start()
        train(batch)
        tracer.step("train")        # the span train_step/train: since the step before
        tracer.stop()               # the span train_step: since start()

    As a context manager it starts and stops itself. One object times one piece of work at a time, any number of times.
    A call out of order is reported once and has no other effect.

    Args:
        prefix: the name of the whole; each step's is `<prefix>/<step>`.
        timer: as in `rlship.span`.
        memory: as in `rlship.span`, for the whole.
    """

    def __init__(self, prefix: str, *, timer: str = "cpu", memory: bool = False) -> None:
        self._prefix = str(prefix)
        self._timer = timer
        self._whole: Span = make(current, self._prefix, timer, memory)
        self._steps: dict[str, Span] = {}
        self._running = False
        self._began: Entry | None = None
        self._since: Entry | None = None

    def start(self) -> None:
        """Begin. If it is already running, begin again; the piece begun before is not recorded."""
        if self._running:
            self._whole.refuse("start() while it is running: stop() was not called; it begins again")
        self._running = True
        self._began = self._begin(self._whole)
        self._since = self._begin(self._span(""))

    def step(self, name: str) -> None:
        """End the step `name`, which began at `start` or at the `step` before."""
        if not self._running:
            self._whole.refuse(f"step({name!r}) before start(): it is left out")
            return
        span = self._span(str(name))
        self._end(span, self._since, None)
        self._since = self._begin(span)

    def stop(self) -> None:
        """End the whole."""
        self._stop(None)

    def __enter__(self) -> Tracer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(kind)

    def _stop(self, kind: type[BaseException] | None) -> None:
        if not self._running:
            self._whole.refuse("stop() before start(): it is left out")
            return
        self._running = False
        began, self._began, self._since = self._began, None, None
        self._end(self._whole, began, kind)

    def _span(self, name: str) -> Span:
        span = self._steps.get(name)
        if span is None:
            span = self._steps[name] = make(current, f"{self._prefix}/{name}", self._timer, False)
        return span

    @staticmethod
    def _begin(span: Span) -> Entry | None:
        try:
            return span.begin()
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            span.failed(error)
            return None

    @staticmethod
    def _end(span: Span, entry: Entry | None, kind: type[BaseException] | None) -> None:
        if entry is None:
            return
        try:
            span.end(entry, kind)
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            span.failed(error)
