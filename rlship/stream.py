"""One process's lines on their way into its file: batched, buffered, and written by a thread of its own."""

from __future__ import annotations

import os
import sys
import time

from . import definitions, family, records
from .buffer import Buffer
from .cuda import let_this_thread_look
from .declared import Declared
from .deferred import Deferred
from .encode import Encoder, size_of
from .file import LineFile, Part
from .flusher import Flusher
from .gathering import Gathering
from .guard import raised_by_signal
from .identity import file_name
from .misuse import Misuse
from .notices import Notices, say
from .probe import Probe
from .quota import Quota

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .definitions import Entries
    from .disk import Disk
    from .flusher import Timing
    from .identity import Identity
    from .quota import Dropped

# Lines wait at most Timing.flush, or until there are this many bytes of them.
WAKE_AT = 256 << 10
_RELEARN_S = 5.0
_AGAIN_S = 1.0
_FOR_DEVICES = 0.8  # of the time that closing may take; the rest is for the disk


class Stream:
    """What a Logger has in one process; a forked child gets a new one, so that no lock, line or descriptor is shared.

    It is new until `start`, then `live`, and `closed` at the end. Any thread may call it. It trusts its arguments: the
    Logger has checked them.

    Attributes: `id` of the file that is written and of the writer whose child this process is (`parent`), each None
    where there is none; `declared`, what was declared so far; `promised`, the step of the last barrier, -1 before
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
        self.promised = -1
        self.errors = 0
        self.notices = Notices()
        self.samples = Quota()
        self.tagged: dict[int, frozenset[str]] = {}
        self.buffer = Buffer(clock, buffer_bytes)
        self.misuse = Misuse(self.notices, self._event, self.buffer.refuse)
        self.refuse, self.unusable = self.misuse.refuse, self.misuse.unusable
        self.encoder = Encoder(self.unusable, several=self.misuse.several)
        self.gathering = Gathering(self.buffer, self.encoder, self.misuse, clock, self.failed)
        self.lock = self.gathering.lock
        self.ended_spans = self.gathering.spans.waiting
        self.declared = Declared(declared, self.gathering, self.misuse, self._control)
        self.asked = self.declared.asked
        self._folder = folder
        self._identity = identity
        self._axis = axis
        self._labels = labels
        self._checksum = checksum
        self._clock = clock
        self._timing = timing
        self._looks = False
        self._relearn_at = 0.0
        self._begin_at = 0.0
        self._first_id: str | None = None
        self._first_definitions: Entries = {}
        self._disk_error = ""
        self.deferred = Deferred(self.buffer, self.misuse.tell, self.failed)
        self._file = LineFile(self._next_part, self.declared.lines, self.buffer.release, clock, disk, timing.look)
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
        try:
            if self.id is None:  # else an earlier start was interrupted, perhaps after its thread began
                self._first_definitions = dict(self.declared.entries)
                self.id = self._first_id = os.urandom(8).hex()
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
        except BaseException:  # a signal handler of the job raised: the next call starts the thread, if none runs
            self.live = False
            raise
        if self.parent is None:
            family.announce(self.id, self._checksum)
        return True

    def close(self, timeout: float | None) -> bool:
        """Write what is left and the `close` record. False if that took longer than `timeout` (or `Timing.close`)."""
        with self.lock:
            if self.closed:
                return True
            self.closed = True
            live, self.live = self.live or self._flusher.running, False
        if not live:
            return True
        if self.id is not None:
            family.withdraw(self.id)
        limit = self._timing.close if timeout is None else timeout
        deadline = time.monotonic() + limit
        self.deferred.wait(limit * _FOR_DEVICES)
        self.deferred.settle()
        self.collect()
        self.tell_dropped(self.samples.settle(None))
        self._control(records.close_line(self._clock()))
        done = self._flusher.close(max(0.0, deadline - time.monotonic()))
        if not done:
            say(
                f"{self._identity.actor}: not everything could be written to {self._folder} in {limit:g} s before the "
                f"end"
            )
        return done

    def flush(self, timeout: float) -> bool:
        """Wait until all that was logged before is in the file. False after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        arrived = self.deferred.wait(timeout, nudge=self.wake)
        return self._flusher.flush(max(0.0, deadline - time.monotonic())) and arrived

    def leave_to_parent(self) -> str | None:
        """In a forked child: let go of the file, which is the parent process's. Returns whose child this process is."""
        self._flusher.drop_inherited()
        self.deferred.leave()
        # A child that never logged has no file, so its own children are its parent's.
        return self.id if self.live and self.id is not None else self.parent

    # Lines

    def collect(self, upto: int | None = None) -> None:
        """Move observations of steps <= `upto` (None: of all steps) and ended spans into the buffer.

        Like `log`, this wakes the writing thread early when many bytes wait: otherwise a job that records much fills
        the buffer before the next periodic write.
        """
        self.gathering.move(upto)
        if self.buffer.size > self.wake_at:
            self.wake()

    def barrier(self, step: int, t: float) -> None:
        """Write a barrier of time `t`, and before it what was observed of steps up to `step`."""
        self.collect(step)
        self.tell_dropped(self.samples.settle(step))
        line = records.barrier_line(step, t)
        if not self.deferred.hold(step, line):
            self._control(line, step)
        self.promised = max(self.promised, step)
        self.wake()

    def rollback(self, step: int) -> None:
        """Write a rollback, and before it all that was observed: what is late then is given up."""
        self.collect()
        self.deferred.settle()
        self.tell_dropped(self.samples.settle(None))
        self.tagged.clear()
        self._control(records.rollback_line(step, self._clock()), step)
        self.promised = step - 1

    def _control(self, line: str, step: int | None = None) -> bool:
        return self.buffer.append_control(line, size_of(line), step)

    def _event(self, where: str, error: str) -> None:
        self._control(records.error_line(where, error, self._clock()))

    def tell_dropped(self, dropped: list[Dropped]) -> None:
        """Write how many samples were not kept, one event for each step."""
        for one in dropped:
            self._control(one.line(self._clock()), one.step)

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
        header = records.open_line(
            self._identity,
            writer,
            axis=self._axis,
            beat=self._timing.beat,
            t=self._clock(),
            parent=self.parent,
            labels=self._labels,
        )
        # Of the first part only what was declared before it began: a later definition must not govern earlier lines.
        declared = definitions.lines(self._first_definitions) if first else self.declared.lines()
        return Part(
            os.path.join(self._folder, "rlship", file_name(self._identity, os.getpid(), writer)), [header, *declared]
        )

    def _periodic(self) -> float | None:
        try:
            self.collect()
        except Exception as error:  # noqa: BLE001 - whatever it is, what is in the buffer already is written
            self.failed("gathering", error)
        if self.deferred and not self._looks:
            self._looks = True
            let_this_thread_look()
        soon = self.deferred.look()
        now = time.monotonic()
        if now >= self._relearn_at:
            self._relearn_at = now + _RELEARN_S
            self.encoder.relearn()
        return soon

    def _beat(self) -> None:
        self._control(records.beat_line(self._clock()))

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
