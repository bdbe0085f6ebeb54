"""One process's lines on their way into its file: batched, buffered, and written by a thread of its own."""

from __future__ import annotations

import os
import sys
import time

from . import definitions, family, threads
from .batches import MOST_OBSERVATIONS, Batches
from .buffer import Buffer
from .encode import Encoder, size_of
from .file import LineFile, Part
from .flusher import Flusher
from .guard import raised_by_signal
from .header import file_name, open_record
from .jsondata import json_value
from .misuse import Misuse
from .notices import Notices, say
from .probe import Probe
from .quota import Quota

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .definitions import Entries
    from .disk import Disk
    from .encode import Scalar
    from .flusher import Timing
    from .identity import Identity
    from .quota import Dropped

# Lines wait at most Timing.flush, or until there are this many bytes of them.
WAKE_AT = 256 << 10
_RELEARN_S = 5.0
_AGAIN_S = 1.0


class Stream:
    """What a Logger has in one process; a forked child gets a new one, so that no lock, line or descriptor is shared.

    It is new until `start`, then `live`, and `closed` at the end. Any thread may call it. It trusts its arguments: the
    Logger has checked them.

    Attributes: `id` of the file that is written and of the writer whose child this process is (`parent`), each None
    where there is none; `definitions`, what was declared so far; `promised`, the step of the last barrier, -1 before
    the first; `misuse`, what the job is told of its calls; `samples`, how many are kept; `tagged`, the tags of steps;
    `errors`, a count.
    """

    def __init__(
        self,
        folder: str,
        identity: Identity,
        *,
        axis: str,
        labels: Mapping[str, str],
        checksum: str,
        clock: Callable[[], float],
        timing: Timing,
        buffer_bytes: int,
        disk: Disk,
        network: Callable[[str], bool],
        parent: str | None,
        declared: Entries,
        closed: bool = False,
    ) -> None:
        self.live = False
        self.closed = closed
        self.wake_at = WAKE_AT
        self.id: str | None = None
        self.parent = parent
        self.definitions = dict(declared)
        self.promised = -1
        self.errors = 0
        self.notices = Notices()
        self.samples = Quota()
        self.tagged: dict[int, frozenset[str]] = {}
        # Reentrant, because a signal handler or a finaliser may log while this thread holds it.
        self.lock = threads.reentrant_lock()
        self.buffer = Buffer(clock, buffer_bytes)
        self.misuse = Misuse(self.notices, self._event, self.buffer.refuse)
        self.refuse, self.unusable = self.misuse.refuse, self.misuse.unusable
        self.encoder = Encoder(self.unusable, several=self.misuse.several)
        self._folder = folder
        self._identity = identity
        self._axis = axis
        self._labels = labels
        self._checksum = checksum
        self._clock = clock
        self._timing = timing
        self._batches = Batches()
        # True for a thread that holds the lock means: a signal handler or finaliser runs in the middle of a change.
        self._batching = False
        self._relearn_at = 0.0
        self._begin_at = 0.0
        self._first_id: str | None = None
        self._first_definitions: Entries = {}
        self._disk_error = ""
        self._file = LineFile(self._next_part, self._define_lines, self.buffer.release, clock, disk, timing.look)
        self._flusher = Flusher(
            self.buffer,
            self._file,
            timing,
            collect=self._periodic,
            beat=self._beat,
            network=lambda: network(folder),
            trouble=self._trouble,
            well=self._well,
            probe=None if identity.local_rank else Probe(clock, self._measured),
        )
        self.wake = self._flusher.wake
        self.flush = self._flusher.flush

    @property
    def path(self) -> str | None:
        """Where the file is, or will be; None while the writing thread has not come to it."""
        return self._file.path

    # Life

    def start(self) -> bool:
        """Begin to write. False, and said once, after `close`. Its caller holds the lock and has looked at `live`."""
        if self.closed:
            self.notices.once("closed", f"{self._identity.actor} is closed: calls after close() are dropped")
            return False
        if time.monotonic() < self._begin_at:
            return False
        self.live = True  # first of all: a signal handler may log from here on, and must not start it once more
        self.id = self._first_id = os.urandom(8).hex()
        self._first_definitions = dict(self.definitions)
        try:
            self._flusher.start()
        except RuntimeError as error:
            self.live = False
            if sys.is_finalizing() or "shutdown" in str(error):
                self.closed = True  # the interpreter is ending; say it once instead of failing at every call
                raise
            # No thread to be had just now (a full pids cgroup, say): the next call tries again, but not every call.
            self._begin_at = time.monotonic() + _AGAIN_S
            self.notices.once("thread", f"cannot start the writing thread: {error}; trying again at later calls")
            return False
        if self.parent is None:
            family.announce(self.id, self._checksum)
        return True

    def close(self, timeout: float | None) -> bool:
        """Write what is left and the `close` record. False if that took longer than `timeout` (or `Timing.close`)."""
        with self.lock:
            if self.closed:
                return True
            self.closed = True
            live, self.live = self.live, False
        if not live:
            return True
        if self.id is not None:
            family.withdraw(self.id)
        self.collect()
        self.tell_dropped(self.samples.settle(None))
        self._control(f'{{"kind":"close","t":{self._clock():.3f},"reason":"exit"}}\n')
        limit = self._timing.close if timeout is None else timeout
        done = self._flusher.close(limit)
        if not done:
            say(
                f"{self._identity.actor}: not everything could be written to {self._folder} in {limit:g} s before the "
                f"end"
            )
        return done

    def hold(self, timeout: float) -> bool:
        """Take the locks in their order, or none of them."""
        if not self.lock.acquire(timeout=timeout):
            return False
        if self.buffer.lock.acquire(timeout=timeout):
            return True
        self.lock.release()
        return False

    def let_go(self) -> None:
        self.buffer.lock.release()
        self.lock.release()

    def leave_to_parent(self) -> str | None:
        """In a forked child: let go of the file, which is the parent process's. Returns whose child this process is."""
        self._flusher.drop_inherited()
        # A child that never logged has no file, so its own children are its parent's.
        return self.id if self.live and self.id is not None else self.parent

    # Lines

    def observe(self, name: str, values: list[Scalar], weights: list[str] | None, step: int | None) -> bool:
        """Add observations to the batch of their step.

        False where nothing can be added, in a signal handler or finaliser that came in the middle of adding.
        """
        with self.lock:
            if self._batching:
                return False
            self._batching = True
            try:
                self._batches.add(name, values, weights, step, self._clock())
            finally:
                self._batching = False
        if self._batches.count >= MOST_OBSERVATIONS:
            self.collect()
        return True

    def collect(self, upto: int | None = None) -> None:
        """Move batched observations into the buffer, those of steps <= `upto` or all.

        All under the lock: a barrier must not overtake lines that the writing thread is just moving.
        """
        with self.lock:
            if self._batching:
                return
            self._batching = True
            try:
                self._batches.move(upto, self.buffer, self.encoder.pack)
            finally:
                self._batching = False

    def barrier(self, step: int, t: float) -> None:
        """Write a barrier of time `t`, and before it what was observed of steps up to `step`."""
        self.collect(step)
        self.tell_dropped(self.samples.settle(step))
        self._control(f'{{"kind":"barrier","step":{step},"t":{t:.3f}}}\n', step)
        self.promised = max(self.promised, step)
        self.wake()

    def rollback(self, step: int) -> None:
        """Write a rollback, and before it all that was observed."""
        self.collect()
        self.tell_dropped(self.samples.settle(None))
        self.tagged.clear()
        self._control(f'{{"kind":"rollback","step":{step},"t":{self._clock():.3f}}}\n', step)
        self.promised = step - 1

    def _control(self, line: str, step: int | None = None) -> bool:
        return self.buffer.append_control(line, size_of(line), step)

    def _event(self, where: str, error: str) -> None:
        attrs = json_value({"where": where, "error": error[:1000]})
        self._control(f'{{"kind":"event","t":{self._clock():.3f},"name":"rlship_error","attrs":{attrs}}}\n')

    def tell_dropped(self, dropped: list[Dropped]) -> None:
        """Write how many samples were not kept, one event for each step."""
        for one in dropped:
            self._control(one.line(self._clock()), one.step)

    # Definitions

    def declare(self, entries: Entries, by: str = "define") -> None:
        """Write `define` records, which govern what is logged after them. `by` is the call that asks for it."""
        with self.lock:
            self.misuse.compare(self.definitions, entries, by)
            if any(self._batches.holds(name) for name in entries):
                self.collect()  # a definition governs the lines after it, so what came before goes first
            kept = [self._control(line) for line in definitions.lines(entries)]
            if all(kept):  # else the next call says it again
                self.definitions.update(entries)

    def ask(self, name: str, reduce: str | Iterable[str]) -> None:
        """Add to the reductions of a metric: two places in a program may ask for different ones of the same metric."""
        known = self.definitions.get(name, {}).get("reduce", ())
        if isinstance(reduce, str) and reduce in known:
            return
        with self.lock:
            try:
                entry = definitions.with_more(self.definitions.get(name, {}), reduce)
            except ValueError as error:
                self.misuse.tell("record_metric", f"reduce {name}", f"record_metric({name[:200]!r}): {error}")
                return
            if entry is not None:
                self.declare({name: entry}, "record_metric")

    def _define_lines(self) -> list[str]:
        return definitions.lines(dict(self.definitions))

    # For the writing thread

    def _next_part(self) -> Part:
        first = self._first_id is not None
        if first:
            self._first_id = None
        else:  # the name is taken, or the file is gone: the lines that follow are another writer's
            before, self.id = self.id, os.urandom(8).hex()
            if self.parent is None and before is not None:
                family.withdraw(before)
                family.announce(self.id, self._checksum)
        writer = self.id or ""
        header = open_record(
            self._identity,
            writer,
            axis=self._axis,
            beat=self._timing.beat,
            t=self._clock(),
            parent=self.parent,
            labels=self._labels,
        )
        # Of the first part only what was declared before it began: a later definition must not govern earlier lines.
        declared = definitions.lines(self._first_definitions) if first else self._define_lines()
        return Part(os.path.join(self._folder, "rlship", file_name(self._identity, writer)), [header, *declared])

    def _periodic(self) -> None:
        self.collect()
        now = time.monotonic()
        if now >= self._relearn_at:
            self._relearn_at = now + _RELEARN_S
            self.encoder.relearn()

    def _beat(self) -> None:
        self._control(f'{{"kind":"beat","t":{self._clock():.3f}}}\n')

    def _measured(self, line: str) -> None:
        with self.lock:
            if self.parent is None and not self.closed:  # a child is on the host of its parent
                self._control(line)

    # What goes wrong

    def failed(self, where: str, error: Exception) -> None:
        """An internal error: count it, and say it once for each place. Never raises: it is called where nothing may."""
        try:
            self.errors += 1
            text = f"{type(error).__name__}: {error}"
            topic = f"error {where} {type(error).__name__}"
            if self.notices.once(topic, f"internal error in {where}, the job goes on: {text}"):
                self._event(where, text)
        except Exception as second:  # the error is counted already, and there is nowhere left to tell it
            if raised_by_signal(second):
                raise

    def _trouble(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self.errors += 1
            place = self.path or self._folder
            self.notices.once("disk", f"cannot write to {place}: {error}; keeping lines in memory and trying again")
            self._disk_error = str(error)
        else:
            self.failed("writing thread", error)

    def _well(self) -> None:
        if "disk" in self.notices.counts:
            self.notices.forget("disk")
            say(f"writing to {self.path} again")
            self._event("disk", self._disk_error)
