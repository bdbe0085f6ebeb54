"""The Logger: what a worker calls. It encodes and buffers; a `Flusher` writes."""

from __future__ import annotations

import os
import threading
import time

from . import definitions, family
from .batches import MOST_OBSERVATIONS, Batches
from .buffer import CAPACITY, Buffer
from .encode import ALLOWED, Encoder, UnusableError, json_value, number, plain, size_of, weight_number
from .file import Disk, LineFile, Part
from .filesystem import is_network
from .flusher import Flusher, Timing
from .header import file_name, open_record
from .notices import Notices, say
from .steps import Steps, StepScope, whole_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Concatenate, ParamSpec, SupportsIndex, TypeVar

    from .definitions import Entries
    from .identity import Identity

    P = ParamSpec("P")
    R = TypeVar("R")

# Lines wait at most Timing.flush, or until there are this many bytes of them.
_WAKE_AT = 256 << 10
_RELEARN_S = 5.0


def _guarded(fallback: R) -> Callable[[Callable[Concatenate[Logger, P], R]], Callable[Concatenate[Logger, P], R]]:
    """Make a method of Logger that never raises into the job: an error is counted and told, and gives `fallback`."""

    def wrap(method: Callable[Concatenate[Logger, P], R]) -> Callable[Concatenate[Logger, P], R]:
        def guarded(self: Logger, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
                self._failed(method.__name__, error)
                return fallback

        guarded.__name__, guarded.__qualname__ = method.__name__, method.__qualname__
        guarded.__doc__, guarded.__module__ = method.__doc__, method.__module__
        guarded.__wrapped__ = method  # type: ignore[attr-defined]
        return guarded

    return wrap


class Logger:
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
        self.id: str | None = None
        self.dropped_values = 0
        self.errors = 0
        self._identity = identity
        self._labels = dict(labels or {})
        self._parent = parent
        self._clock = clock
        self._timing = timing or _timing_for(identity.world)
        self._buffer_bytes = buffer_bytes
        self._disk = disk or Disk()
        self._network = network
        self.checksum = family.checksum(
            (folder, self.actor, self.replica, self.rank, self.world, self.attempt, identity.source)
        )
        self._notices = Notices()
        self._steps = Steps()
        self._definitions: Entries = {}
        self._closed = False
        self._disk_error = ""
        self._reset()

    def _reset(self) -> None:
        """Set up what belongs to one process: nothing of it may be shared with a forked child."""
        self._live = False
        self._lock = threading.RLock()
        self._buffer = Buffer(self._clock, self._buffer_bytes)
        self._batches = Batches()
        # True for a thread that holds the lock means: a signal handler or finaliser runs in the middle of a change.
        self._batching = False
        self._encoder = Encoder(self._unusable)
        self._barrier = -1
        self._relearn_at = 0.0
        self._first_id: str | None = None
        self._inherited: Entries = {}
        self._file = LineFile(self._next_part, self._define_lines, self._buffer.release, self._clock, self._disk)
        self._flusher = Flusher(
            self._buffer,
            self._file,
            self._timing,
            collect=self._periodic,
            beat=self._beat,
            network=lambda: self._network(self.folder),
            trouble=self._trouble,
            well=self._well,
        )

    # Logging

    def log(
        self,
        metrics: Mapping[str, Any],
        step: SupportsIndex | None = None,
        weight: float | Sequence[float] | None = None,
    ) -> None:
        """Write one record of `metrics` at `step`. See `rlship.log`."""
        try:
            if not self._live and not self._begin():
                return
            if step is None:
                step = self._steps.current()
            elif type(step) is not int or not 0 <= step <= 9007199254740991:
                step = self._checked(step, "log")
                if step is None:
                    return
            t = self._clock()
            buffer = self._buffer
            line = None if weight is not None else self._encoder.line(metrics, step, t)
            if line is not None:
                buffer.append(line, len(line) if line.isascii() else size_of(line), step)
            else:
                if not hasattr(metrics, "items"):
                    self._refuse("log", f"log() takes a dict of names and values, not {metrics!r:.200}; it is left out")
                    return
                for line in self._encoder.lines(metrics, step, t, weight):
                    buffer.append(line, size_of(line), step)
            if buffer.size > _WAKE_AT:
                self._flusher.wake()
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            self._failed("log", error)

    @_guarded(None)
    def record_metric(
        self,
        key: str,
        value: Any,
        reduce: str | Iterable[str] | None = None,
        weight: float | Sequence[float] | None = None,
    ) -> None:
        """Add observations of one metric at the implicit step. See `rlship.record_metric`."""
        if not self._live and not self._begin():
            return
        name = key if type(key) is str else str(key)
        if reduce is not None and self._asks_more(name, reduce):
            self._ask(name, reduce)
        step = self._steps.current()
        if isinstance(value, dict):
            self.log({name: value}, step, weight)
            return
        try:
            if not name:
                raise UnusableError("the metric's name is empty")
            found = value if type(value) is float else plain(value)
            values = found if isinstance(found, list) else [found]
            for item in values:
                if type(item) is int:
                    number(item)
            weights = None if weight is None else _weights(weight, len(values))
        except UnusableError as error:
            self._unusable(name, value, str(error))
            return
        with self._lock:
            again = self._batching
            if not again:
                self._batching = True
                try:
                    self._batches.add(name, values, weights, step, self._clock())
                finally:
                    self._batching = False
        if again:
            self.log({name: value}, step, weight)
        elif self._batches.count >= MOST_OBSERVATIONS:
            self._collect()

    @_guarded(None)
    def define(
        self,
        metrics: str | Mapping[str, Any],
        reduce: str | Iterable[str] | None = None,
        *,
        unit: str | None = None,
        per_rank: bool | None = None,
    ) -> None:
        """Declare metrics. See `rlship.define`."""
        if not self._live and not self._begin():
            return
        told = self._notices.once
        self._declare(
            definitions.parse(metrics, reduce, unit, per_rank, lambda name, message: told(f"define {name}", message))
        )

    # Steps

    @_guarded(None)
    def set_step(self, step: SupportsIndex) -> None:
        """Set the implicit step. See `rlship.set_step`."""
        found = self._checked(step, "set_step", dropped=False)
        if found is None:
            return
        if found <= self._barrier:
            self._notices.once(
                "back",
                f"set_step({found}) goes back behind barrier({self._barrier}): call rollback({found}) first if the job "
                f"resumed from an older checkpoint",
            )
        self._steps.put(found)

    def step(self, step: SupportsIndex) -> StepScope:
        """A context manager that sets the implicit step inside. See `rlship.step`."""
        return StepScope(self._steps, self._checked(step, "step", dropped=False))

    @_guarded(None)
    def barrier(self, step: SupportsIndex | None = None) -> None:
        """Promise that this process writes nothing more for steps up to `step`. See `rlship.barrier`."""
        t = self._clock()
        if not self._live and not self._begin():
            return
        found = self._own_step(step, "barrier")
        if found is None:
            return
        self._collect(found)
        self._control(f'{{"kind":"barrier","step":{found},"t":{t:.3f}}}\n', found)
        self._barrier = max(self._barrier, found)
        self._steps.put(found + 1)
        self._flusher.wake()

    @_guarded(None)
    def rollback(self, step: SupportsIndex) -> None:
        """Go back to `step`. See `rlship.rollback`."""
        if not self._live and not self._begin():
            return
        found = self._own_step(step, "rollback")
        if found is None:
            return
        self._collect()
        self._control(f'{{"kind":"rollback","step":{found},"t":{self._clock():.3f}}}\n', found)
        self._barrier = found - 1
        self._steps.put(found)

    # The end

    @_guarded(False)
    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything logged before is in the file. See `rlship.flush`."""
        if not self._live:
            return True
        return self._flusher.flush(timeout)

    @_guarded(False)
    def close(self, timeout: float | None = None) -> bool:
        """Write what is left and the `close` record. See `rlship.close`."""
        with self._lock:
            if self._closed:
                return True
            self._closed = True
            live, self._live = self._live, False
        if not live:
            return True
        if self.id is not None:
            family.withdraw(self.id)
        self._collect()
        self._control(f'{{"kind":"close","t":{self._clock():.3f},"reason":"exit"}}\n')
        limit = self._timing.close if timeout is None else timeout
        done = self._flusher.close(limit)
        if not done:
            say(f"{self.actor}: not everything could be written to {self.folder} in {limit:g} s before the end")
        return done

    @property
    def path(self) -> str | None:
        """Where the file is, or will be; None while the writing thread has not come to it."""
        return self._file.path

    @property
    def dropped_lines(self) -> int:
        """How many lines were left out because the buffer was full or the call could not be understood."""
        return self._buffer.dropped

    # Life

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def adopt(self, parent: str | None) -> None:
        """Make this the writer of a child process of the writer `parent`. Before the first call only."""
        self._parent = parent

    @_guarded(False)
    def start(self) -> bool:
        """Open the file now instead of at the first call. Returns whether calls are taken."""
        return self._live or self._begin()

    def _begin(self) -> bool:
        """Open for this process, at init or at a forked child's first call. False where calls are to be dropped."""
        with self._lock:
            if self._live:
                return True
            if self._closed:
                self._notices.once("closed", f"{self.actor} is closed: calls after close() are dropped")
                return False
            self.id = self._first_id = os.urandom(8).hex()
            self._inherited = dict(self._definitions)
            try:
                self._flusher.start()
            except RuntimeError:
                self._closed = True  # the interpreter is ending; say it once instead of failing at every call
                raise
            self._live = True
        if self._parent is None:
            family.announce(self.id, self.checksum)
        _close_with_multiprocessing(self)
        return True

    def after_fork(self) -> None:
        """In a forked child: forget the parent's buffer, thread and file; the first call opens a file of its own."""
        self._flusher.drop_inherited()
        # A child that never logged has no file, so its own children are its parent's.
        self._parent = self.id if self._live and self.id is not None else self._parent
        self.id = None
        self._notices = Notices()
        self.dropped_values = self.errors = 0
        self._reset()

    def _next_part(self) -> Part:
        first = self._first_id is not None
        if first:
            self._first_id = None
        else:  # the name is taken, or the file is gone: the lines that follow are another writer's
            before, self.id = self.id, os.urandom(8).hex()
            if self._parent is None and before is not None:
                family.withdraw(before)
                family.announce(self.id, self.checksum)
        writer = self.id or ""
        header = open_record(
            self._identity,
            writer,
            axis=self.axis,
            beat=self._timing.beat,
            t=self._clock(),
            parent=self._parent,
            labels=self._labels,
        )
        # Of the first part only what was declared before it began: a later definition must not govern earlier lines.
        declared = definitions.lines(self._inherited) if first else self._define_lines()
        return Part(os.path.join(self.folder, "rlship", file_name(self._identity, writer)), [header, *declared])

    # Lines

    def _control(self, line: str, step: int | None = None) -> bool:
        return self._buffer.append_control(line, size_of(line), step)

    def _collect(self, upto: int | None = None) -> None:
        """Move batched observations into the buffer.

        All under the lock: a barrier must not overtake lines that the writing thread is just moving.
        """
        with self._lock:
            if self._batching:
                return
            self._batching = True
            try:
                for step, batch in self._batches.pop(upto):
                    for line in self._encoder.pack(batch.encoded(), step, batch.t):
                        self._buffer.append(line, size_of(line), step)
            finally:
                self._batching = False

    def _periodic(self) -> None:
        self._collect()
        now = time.monotonic()
        if now >= self._relearn_at:
            self._relearn_at = now + _RELEARN_S
            self._encoder.relearn()

    def _beat(self) -> None:
        self._control(f'{{"kind":"beat","t":{self._clock():.3f}}}\n')

    def _event(self, where: str, error: str) -> None:
        attrs = json_value({"where": where, "error": error[:1000]})
        self._control(f'{{"kind":"event","t":{self._clock():.3f},"name":"rlship_error","attrs":{attrs}}}\n')

    def _asks_more(self, name: str, reduce: str | Iterable[str]) -> bool:
        known = self._definitions.get(name, {}).get("reduce", ())
        return not isinstance(reduce, str) or reduce not in known

    def _ask(self, name: str, reduce: str | Iterable[str]) -> None:
        """Add to the reductions of a metric: two places in a program may ask for different ones of the same metric."""
        with self._lock:
            try:
                entry = definitions.with_more(self._definitions.get(name, {}), reduce)
            except ValueError as error:
                self._notices.once(f"reduce {name}", f"record_metric({name[:200]!r}): {error}")
                return
            if entry is not None:
                self._declare({name: entry})

    def _declare(self, entries: Entries) -> None:
        with self._lock:
            if any(self._batches.holds(name) for name in entries):
                self._collect()  # a definition governs the lines after it, so what came before goes first
            kept = [self._control(line) for line in definitions.lines(entries)]
            if all(kept):  # else the next call says it again
                self._definitions.update(entries)

    def _define_lines(self) -> list[str]:
        return definitions.lines(dict(self._definitions))

    # What goes wrong

    def _checked(self, step: Any, call: str, dropped: bool = True) -> int | None:
        try:
            return whole_step(step)
        except ValueError as error:
            if dropped:
                self._refuse(call, f"{call}: {error}; the call is left out")
            else:
                self._notices.once(f"step {call}", f"{call}: {error}; the call is left out")
            return None

    def _own_step(self, step: Any, call: str) -> int | None:
        if step is not None:
            return self._checked(step, call, dropped=False)
        found = self._steps.current()
        if found is None:
            self._notices.once(f"no step {call}", f"{call}() without a step: give one, or call set_step(n) before")
        return found

    def _refuse(self, call: str, message: str) -> None:
        self._notices.once(f"refused {call}", message)
        self._buffer.refuse(None)

    def _unusable(self, name: str, value: Any, why: str) -> None:
        self.dropped_values += 1
        reason = f" ({why})" if why else ""
        kind = _type_name(value)
        message = (
            f"{name[:200]!r} has a value of type {kind} that is no metric{reason}; it is left out. Allowed: {ALLOWED}"
        )
        if self._notices.once(f"value {name}", message):
            self._event("value", message)

    def _failed(self, where: str, error: Exception) -> None:
        """Never raises: it is called where nothing may."""
        try:
            self.errors += 1
            text = f"{type(error).__name__}: {error}"
            topic = f"error {where} {type(error).__name__}"
            if self._notices.once(topic, f"internal error in {where}, the job goes on: {text}"):
                self._event(where, text)
        except Exception:  # noqa: BLE001 - the error is counted already, and there is nowhere left to tell it
            return

    def _trouble(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self.errors += 1
            place = self.path or self.folder
            self._notices.once("disk", f"cannot write to {place}: {error}; keeping lines in memory and trying again")
            self._disk_error = str(error)
        else:
            self._failed("writing thread", error)

    def _well(self) -> None:
        if "disk" in self._notices.counts:
            self._notices.forget("disk")
            say(f"writing to {self.path} again")
            self._event("disk", self._disk_error)


_MULTIPROCESSING_PRIORITY = -1000


def _close_with_multiprocessing(logger: Logger) -> None:
    """A `multiprocessing` child ends by os._exit, which skips `atexit`; its own finalisers do run."""
    import sys

    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    Finalize(None, logger.close, exitpriority=_MULTIPROCESSING_PRIORITY)


def _timing_for(world: int | None) -> Timing:
    # At most about 500 syncs a second reach the file server, however many ranks there are.
    return Timing(sync=max(0.5, (world or 1) / 500))


def _weights(weight: Any, count: int) -> list[str]:
    found = plain(weight)
    if not isinstance(found, list):
        return [weight_number(found)] * count
    if len(found) != count:
        raise UnusableError(f"{count} values have {len(found)} weights")
    return [*map(weight_number, found)]


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
