"""Forge's tracer: durations and GPU memory of a piece of work and of its steps, under the keys that Forge gives them.

A span of rlship would be a second chart of the same time, so there is not one here. `rlship.span` is for the timeline.
"""

from __future__ import annotations

import os
import time
from functools import update_wrapper

from ..gpu import cuda
from ..gpu import memory as gpu_memory
from ..guard import safely
from ..tracing import is_coroutine_function
from .recording import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Any, TypeVar

    from ..encode import Encoder
    from ..logger import Logger

    F = TypeVar("F", bound=Callable[..., Any])

_GIB = 1 << 30
_TIMERS = ("cpu", "gpu")
_YES = ("1", "true", "yes")


class Point:
    """A point in the program: by the CPU's clock, and on the current CUDA stream if `torch` is given."""

    __slots__ = ("mark", "t")

    def __init__(self, torch: Any = None) -> None:
        self.t = time.perf_counter()
        self.mark = None if torch is None else cuda.Mark(torch)


class LateDuration:
    """A duration between two points of the GPU, which it may not have reached."""

    def __init__(self, keys: Sequence[str], began: cuda.Mark, end: cuda.Mark, encoder: Encoder, torch: Any) -> None:
        self.step: int | None = None
        self.t = 0.0
        self._keys = keys
        self._began = began
        self._end = end
        self._encoder = encoder
        self._torch = torch

    def ready(self) -> bool:
        """True if the GPU has reached both points."""
        return self._end.reached(self._torch) and self._began.reached(self._torch)

    def lines(self) -> list[str]:
        """The record with the duration in seconds, under each of the keys."""
        seconds = max(0.0, self._began.seconds_until(self._end, self._torch))
        return self._encoder.lines(dict.fromkeys(self._keys, seconds), self.step, self.t, None)


class Tracer:
    """Times a piece of work and its steps, under Forge's keys.

        tracer = Tracer("update", track_memory=True)
        tracer.start()
        forward()
        tracer.step("forward")     # update/forward/duration_avg_s and …_max_s
        tracer.stop()              # update/total_duration_avg_s and …_max_s, and the memory

    As a context manager it starts and stops itself. It may start again after `stop`. A call out of order is reported
    once and has no other effect.

    Args:
        prefix: what the keys begin with.
        track_memory: with torch and CUDA also `<prefix>/memory_delta_end_start_avg_gb` and
            `<prefix>/memory_peak_max_gb`, in GiB.
        timer: `"gpu"` takes times on the current CUDA stream and never waits for it; without CUDA it is the CPU's
            clock. The variable `METRIC_TIMER_USES_GPU` overrides it.
    """

    def __init__(self, prefix: str, track_memory: bool = False, timer: str = "cpu") -> None:
        self._prefix = str(prefix)
        self._memory = bool(track_memory)
        self._timer = timer
        self._began: Point | None = None
        self._last: Point | None = None
        self._watch: tuple[gpu_memory.Watch, int] | None = None

    def start(self) -> None:
        """Begin."""
        self._call(self._start)

    def step(self, step_name: str) -> None:
        """End the step `step_name`, which began at `start` or at the `step` before."""
        self._call(self._step, step_name)

    def stop(self) -> None:
        """End the whole. What ran since the last step counts in the total only."""
        self._call(self._stop)

    def __enter__(self) -> Tracer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _call(self, call: Callable[..., None], *args: Any) -> None:
        logger = current.logger()
        if not logger.start() or _off():
            return
        safely(lambda error: logger.failed("Tracer", error), call, logger, *args)

    def _start(self, logger: Logger) -> None:
        if self._began is not None:
            self._report(logger, "start() while it is running: it begins again")
            self._end_memory()
        self._began = self._last = Point(self._device(logger))
        torch = cuda.initialised() if self._memory else None
        if torch is not None and not cuda.capturing(torch):
            watch = gpu_memory.begin(torch)
            self._watch = watch, watch.peak  # at the beginning the peak is what is allocated
        elif self._memory and torch is None:
            self._report(logger, f"track_memory=True: {cuda.why_not()}, so no memory is measured")

    def _step(self, logger: Logger, name: str) -> None:
        last = self._last
        if last is None:
            self._report(logger, f"step({name!r:.100}) before start(): it is left out")
            return
        self._last = Point(self._device(logger))
        self._record(logger, f"{self._prefix}/{name}/duration", last, self._last)

    def _stop(self, logger: Logger) -> None:
        began = self._began
        if began is None:
            self._report(logger, "stop() before start(): it is left out")
            return
        self._began = self._last = None
        self._record(logger, f"{self._prefix}/total_duration", began, Point(self._device(logger)))
        memory = self._end_memory()
        if memory is not None:
            delta, peak = memory
            logger.record_metric(f"{self._prefix}/memory_delta_end_start_avg_gb", delta, "mean")
            logger.record_metric(f"{self._prefix}/memory_peak_max_gb", peak, "max")

    def _record(self, logger: Logger, name: str, began: Point, end: Point) -> None:
        """Record a duration under two keys: its mean, and its greatest."""
        keys = {f"{name}_avg_s": "mean", f"{name}_max_s": "max"}
        torch = cuda.initialised()
        if began.mark is None or end.mark is None or torch is None or began.mark.device != end.mark.device:
            for key, reduction in keys.items():
                logger.record_metric(key, end.t - began.t, reduction)
            return
        logger.record_late(LateDuration([*keys], began.mark, end.mark, logger.stream.encoder, torch), keys)

    def _device(self, logger: Logger) -> Any:
        """torch, if the times are those of a GPU."""
        asked = os.environ.get("METRIC_TIMER_USES_GPU")
        if self._timer not in _TIMERS:
            self._report(logger, f"timer={self._timer!r:.100}: use 'cpu' or 'gpu'; the CPU's clock is used")
        if not (self._timer == "gpu" if asked is None else asked.strip().lower() in _YES):
            return None
        torch = cuda.initialised()
        if torch is None:
            self._report(logger, f"timer='gpu': {cuda.why_not()}, so the CPU's clock is used")
            return None
        return None if cuda.capturing(torch) else torch

    def _end_memory(self) -> tuple[float, float] | None:
        """Growth and greatest size of the allocated memory since the start, in GiB."""
        watched, self._watch = self._watch, None
        torch = cuda.initialised()
        if watched is None or torch is None:
            return None
        watch, before = watched
        found = watch.end(torch, "")
        return (found["/mem_allocated_bytes"] - before) / _GIB, found["/mem_peak_bytes"] / _GIB

    def _report(self, logger: Logger, why: str) -> None:
        logger.report("Tracer", f"tracer {self._prefix[:200]} {why[:20]}", f"Tracer({self._prefix!r:.200}): {why}")


class trace:  # noqa: N801 - it is called like a function, and used as a context manager and as a decorator
    """Time a block, or each call of a function: see `Tracer`.

    with trace(prefix="update", track_memory=True, timer="gpu") as tracer:
        forward()
        tracer.step("forward")

    @trace(prefix="reward")
    async def reward(sample): ...
    """

    def __init__(self, prefix: str, track_memory: bool = False, timer: str = "cpu") -> None:
        self._arguments = prefix, track_memory, timer
        self._open: list[Tracer] = []

    def __enter__(self) -> Tracer:
        tracer = Tracer(*self._arguments)
        self._open.append(tracer)
        tracer.start()
        return tracer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.pop().stop()

    def __call__(self, function: F) -> F:
        """The function with a tracer of its own around each call."""
        arguments = self._arguments
        around: Callable[..., Any]
        if is_coroutine_function(function):

            async def around(*args: Any, **kwargs: Any) -> Any:
                with Tracer(*arguments):
                    return await function(*args, **kwargs)

        else:

            def around(*args: Any, **kwargs: Any) -> Any:
                with Tracer(*arguments):
                    return function(*args, **kwargs)

        return update_wrapper(around, function)  # type: ignore[return-value]


def _off() -> bool:
    return os.environ.get("DISABLE_PERF_METRICS", "").strip().lower() in _YES
