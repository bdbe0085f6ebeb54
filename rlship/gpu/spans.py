"""GPU measurements of a span: its time, its memory or both."""

from __future__ import annotations

from ..guard import raised_by_signal
from . import cuda
from . import memory as gpu_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    from ..spans import Ended, Spans
    from ..stream import Stream

    class Log(Protocol):
        """The methods of its Logger that a measured span needs."""

        def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None: ...
        def fill_memory(self, step: int | None) -> None: ...


_TIMERS = ("cpu", "gpu")


class DeviceProbe:
    """How to measure the spans of one `Span`."""

    __slots__ = ("_memory", "_timer")

    def __init__(self, timer: str, memory: bool) -> None:
        self._timer = timer
        self._memory = memory

    def begin(self, stream: Stream, name: str) -> Measured | None:
        """Begin to measure. Returns None, and reports it once, if the measurement is impossible."""
        report, memory = stream.misuse.tell, self._memory
        if self._timer not in _TIMERS:
            report(
                "span",
                "timer",
                f"span({name!r:.200}, timer={self._timer!r}): use 'cpu' or 'gpu'; the CPU's clock is used",
            )
        gpu = self._timer == "gpu"
        if not gpu and not memory:
            return None
        torch = cuda.initialised()
        if torch is None:
            lost = ["the CPU's clock is used"] * gpu + ["no memory is measured"] * memory
            report("span", "no gpu", f"span({name!r:.200}): {cuda.why_not()}, so {' and '.join(lost)}")
            return None
        try:
            if cuda.capturing(torch):
                return None
            return Measured(name, cuda.Mark(torch) if gpu else None, gpu_memory.begin(torch) if memory else None)
        except Exception as error:  # whatever the device raises, the CPU's clock is used
            if raised_by_signal(error):
                raise
            stream.failed("span on the GPU", error)
            return None


class Measured:
    """The measurements of one open span."""

    __slots__ = ("_began", "_name", "_watch")

    def __init__(self, name: str, began: cuda.Mark | None, watch: gpu_memory.Watch | None) -> None:
        self._name = name
        self._began = began
        self._watch = watch

    def end(self, ended: Ended, host: Log, stream: Stream) -> bool:
        """Measure the end. True if the span is written later, with the GPU's time."""
        try:
            torch = cuda.initialised()
            if torch is None or cuda.capturing(torch):
                return False
            host.fill_memory(ended[2])
            if self._watch is not None:
                entries = gpu_memory.definitions(self._name)
                missing = {name: entry for name, entry in entries.items() if name not in stream.declared.entries}
                if missing:
                    stream.declared.declare(missing, "span")
                host.log(self._watch.end(torch, self._name), ended[2])
            if self._began is None or self._began.device != torch.cuda.current_device():
                return False  # the time between two devices cannot be measured
            late = LateSpan(stream.gathering.spans, torch, self._began, cuda.Mark(torch), ended)
        except Exception as error:  # whatever the device raises, the CPU's clock has the time
            if raised_by_signal(error):
                raise
            stream.failed("span on the GPU", error)
            return False
        stream.deferred.add(late)
        return True


class LateSpan:
    """A span whose end the GPU has not reached."""

    def __init__(self, spans: Spans, torch: Any, began: cuda.Mark, end: cuda.Mark, ended: Ended) -> None:
        self.step = ended[2]
        self._spans = spans
        self._torch = torch
        self._began = began
        self._end = end
        self._ended = ended

    def ready(self) -> bool:
        """True if the GPU has reached both ends (they may be on different streams)."""
        return self._end.reached(self._torch) and self._began.reached(self._torch)

    def lines(self) -> list[str]:
        """The span's record, with the GPU's time."""
        t, _, step, name, lane, err = self._ended
        dur = max(0.0, self._began.seconds_until(self._end, self._torch))
        # A lane of its own: the GPU runs later than the CPU, so spans of both would not nest.
        return [self._spans.line(t, dur, step, name, lane, err, " (gpu)")]
