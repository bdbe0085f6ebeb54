"""The Logger: what a worker calls. It checks what it is given and encodes it; its `Stream` gets it into the file."""

from __future__ import annotations

import time
from functools import partial
from sys import modules

from . import definitions, device_values, family, spans
from .batches import MOST_OBSERVATIONS, NUMBERS
from .buffer import CAPACITY
from .disk import Disk
from .encode import LONGEST_NAME, size_of
from .filesystem import is_network
from .flusher import Timing
from .guard import guarded, raised_by_signal
from .multiprocessing_child import live_with_multiprocessing
from .occurrences import Occurrences
from .recording import record
from .steps import Steps, StepScope, whole_step
from .stream import Stream
from .values import GREATEST, INT64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, SupportsIndex

    from .identity import Identity
    from .spans import Span
    from .threads import RLock


class Logger(Occurrences):
    """One actor of this process, with a file of its own. Made by `rlship.init`; every method may be called by any
    thread.

    No method blocks on the disk (except `flush` and `close`, for as long as they say) and none raises: what cannot be
    done is left out, counted, and said once on stderr and in the file.

    Attributes: `actor`, `replica`, `rank`, `world`, `attempt` and `axis` as in the file; `folder` (absolute), `id` and
    `path` of the file (None while there is none); `dropped_lines`, `dropped_values` and `errors`, counts.
    """

    def __init__(
        self,
        folder: str,
        identity: Identity,
        *,
        axis: str = "global_step",
        labels: Mapping[str, str] | None = None,
        parent: str | None = None,
        clock: Callable[[], float] = time.time,
        timing: Timing | None = None,
        buffer_bytes: int = CAPACITY,
        disk: Disk | None = None,
        network: Callable[[str], bool] = is_network,
    ) -> None:
        self.folder = folder
        self.actor = identity.actor
        self.replica = identity.replica
        self.rank = identity.rank
        self.world = identity.world
        self.attempt = identity.attempt
        self.axis = axis
        self.given: tuple[Any, ...] = (None,) * 4  # what `init` was told of the identity
        self.checksum = family.identity_of(folder, identity)
        self._clock = clock
        self._steps = Steps()
        self._new_stream = partial(
            Stream,
            folder,
            identity,
            axis=axis,
            labels=dict(labels or {}),
            checksum=self.checksum,
            clock=clock,
            timing=timing or Timing.for_world(identity.world),
            buffer_bytes=buffer_bytes,
            disk=disk or Disk(),
            network=network,
        )
        self._stream = self._new_stream(parent=parent, declared={})

    # Logging

    def log(
        self,
        metrics: Mapping[str, Any],
        step: SupportsIndex | None = None,
        weight: float | Sequence[float] | None = None,
    ) -> None:
        """Write one record of `metrics` at `step`. See `rlship.log`."""
        stream = self._stream
        try:
            if not stream.live and not self._begin():
                return
            if step is None:
                step = self._steps.current()
            elif type(step) is not int or not 0 <= step <= 9007199254740991:
                step = self._checked(step, "log")
                if step is None:
                    return
            t = self._clock()
            buffer = stream.buffer
            line = None if weight is not None else stream.encoder.line(metrics, step, t)
            if line is not None:
                buffer.append(line, len(line) if line.isascii() else size_of(line), step)
            else:
                if not hasattr(metrics, "items"):
                    stream.refuse(
                        "log", f"log() takes a dict of names and values, not {metrics!r:.200}; it is left out"
                    )
                    return
                if "torch" in modules and device_values.defer(stream, metrics, step, t, weight):
                    return
                for line in stream.encoder.lines(metrics, step, t, weight):
                    buffer.append(line, size_of(line), step)
            if buffer.size > stream.wake_at:
                stream.wake()
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            stream.failed("log", error)

    def record_metric(
        self,
        key: str,
        value: Any,
        reduce: str | Iterable[str] | None = None,
        weight: float | Sequence[float] | None = None,
    ) -> None:
        """Add observations of one metric at the implicit step. See `rlship.record_metric`."""
        stream = self._stream
        try:
            batches = stream.gathering.batches
            if (
                (type(value) is float or (type(value) is int and -INT64 <= value < INT64))
                and type(key) is str
                # What was asked for by this name says that the name can be used.
                and (0 < len(key) <= LONGEST_NAME if reduce is None else stream.asked.get(key) is reduce)
                and stream.live
                and (weight is None or (type(weight) in NUMBERS and 0 <= weight <= GREATEST))  # type: ignore[operator]
            ):
                steps = self._steps
                step = steps.task.get()
                if step is None:
                    step = steps.process
                if step is not batches.marked:
                    batches.mark(step)
                entries = batches.entries
                entries.append((key, value, step, weight))
                if len(entries) >= MOST_OBSERVATIONS:
                    stream.collect()
            elif stream.live or self._begin():
                record(self, stream, key, value, reduce, weight)
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            stream.failed("record_metric", error)

    @guarded(None)
    def define(
        self,
        metrics: str | Mapping[str, Any],
        reduce: str | Iterable[str] | None = None,
        *,
        unit: str | None = None,
        per_rank: bool | None = None,
        stream: bool | None = None,
    ) -> None:
        """Declare metrics. See `rlship.define`."""
        own = self._stream
        if not own.live and not self._begin():
            return

        def told(name: str, message: str) -> None:
            own.misuse.tell("define", f"define {name[:200]}", message)

        own.declared.declare(definitions.parse(metrics, reduce, unit, per_rank, stream, told))

    def span(self, name: str, *, timer: str = "cpu", memory: bool = False) -> Span:
        """A context manager and decorator that records how long something took. See `rlship.span`."""
        return spans.make(self._self, name, timer, memory)  # type: ignore[no-any-return]

    def _self(self) -> Logger:
        return self

    def implicit_step(self) -> int | None:
        """The step of calls that name none."""
        return self._steps.current()

    # Steps

    @guarded(None)
    def set_step(self, step: SupportsIndex) -> None:
        """Set the implicit step. See `rlship.set_step`."""
        found = self._checked(step, "set_step", dropped=False)
        if found is None:
            return
        self._stream.misuse.back("set_step", found, self._stream.promised, self._steps.outside())
        self._steps.put(found)

    def step(self, step: SupportsIndex) -> StepScope:
        """A context manager that sets the implicit step inside. See `rlship.step`."""
        return StepScope(self._steps, self._checked(step, "step", dropped=False))

    @guarded(None)
    def barrier(self, step: SupportsIndex | None = None) -> None:
        """Promise that this process writes nothing more for steps up to `step`. See `rlship.barrier`."""
        t = self._clock()
        if not self._stream.live and not self._begin():
            return
        found = self._own_step(step, "barrier")
        if found is None:
            return
        self._stream.misuse.back("barrier", found, self._stream.promised)
        self._stream.barrier(found, t)
        self._steps.put(found + 1)

    @guarded(None)
    def rollback(self, step: SupportsIndex) -> None:
        """Go back to `step`. See `rlship.rollback`."""
        if not self._stream.live and not self._begin():
            return
        found = self._own_step(step, "rollback")
        if found is None:
            return
        self._stream.rollback(found)
        self._steps.put(found)

    def _checked(self, step: Any, call: str, dropped: bool = True) -> int | None:
        misuse = self._stream.misuse
        try:
            found = whole_step(step)
            misuse.step_on_device(step, call)
            return found
        except Exception as error:  # the step's own code may raise anything
            if raised_by_signal(error):
                raise
            why = str(error) if type(error) is ValueError else f"reading the step raised {type(error).__name__}"
            if dropped:
                misuse.refuse(call, f"{call}: {why}; the call is left out")
            else:
                misuse.tell(call, f"step {call}", f"{call}: {why}; the call is left out")
            return None

    def _own_step(self, step: Any, call: str) -> int | None:
        if step is not None:
            return self._checked(step, call, dropped=False)
        found = self._steps.current()
        if found is None:
            told = f"{call}() without a step: give one, or call set_step(n) before"
            self._stream.misuse.tell(call, f"no step {call}", told)
        return found

    # The end

    @guarded(False)
    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything logged before is in the file. See `rlship.flush`."""
        return not self._stream.live or self._stream.flush(timeout)

    @guarded(False)
    def close(self, timeout: float | None = None) -> bool:
        """Write what is left and the `close` record. See `rlship.close`."""
        return self._stream.close(timeout)

    # What became of it

    @property
    def id(self) -> str | None:
        """The random id of the file that is written; None before the first call of a forked child."""
        return self._stream.id

    @property
    def path(self) -> str | None:
        """Where the file is, or will be; None while the writing thread has not come to it."""
        return self._stream.path

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._stream.closed

    @property
    def dropped_lines(self) -> int:
        """How many lines were left out because the buffer was full or the call could not be understood."""
        return self._stream.buffer.dropped

    @property
    def dropped_values(self) -> int:
        """How many values were left out because they are no metrics."""
        return self._stream.misuse.dropped_values

    @property
    def errors(self) -> int:
        """How many attempts to write failed, and how many calls with an error of their own."""
        return self._stream.errors

    # For the registry

    def adopt(self, parent: str | None) -> None:
        """Make this the writer of a child process of the writer `parent`. Before the first call only."""
        self._stream.parent = parent

    @guarded(False)
    def start(self) -> bool:
        """Open the file now instead of at the first call. Returns whether calls are taken."""
        return self._stream.live or self._begin()

    def _begin(self) -> bool:
        """Open for this process, at init or at a forked child's first call. False where calls are to be dropped."""
        stream = self._stream
        with stream.lock:  # one thread of several does it
            if stream.live:
                return True
            if stream.id is None and not stream.closed:
                # Before the start: a signal handler may raise out of it, and the lines need their end all the same.
                live_with_multiprocessing(self.close, stream)
            return stream.start()

    def failed(self, where: str, error: Exception) -> None:
        """Count an internal error and say it once."""
        self._stream.failed(where, error)

    def told(self, where: str, topic: str, message: str) -> None:
        """Say it on stderr and in the file, once for each topic."""
        self._stream.misuse.tell(where, topic, message)

    @property
    def begun(self) -> bool:
        """Whether this process has opened a file; False in a forked child that has not logged yet."""
        return self._stream.live

    @property
    def locks(self) -> tuple[RLock, RLock]:
        """The locks that no other thread may hold at a fork, in the order in which they are taken."""
        return self._stream.lock, self._stream.buffer.lock

    def after_fork(self) -> None:
        """In a forked child: forget the parent's buffer, thread and file; the first call opens a file of its own."""
        before = self._stream
        self._stream = self._new_stream(
            parent=before.leave_to_parent(), declared=before.declared.entries, closed=before.closed
        )
