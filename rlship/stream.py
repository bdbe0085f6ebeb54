"""One process's lines on their way into its file: batched, buffered, and written by a thread of its own."""

from __future__ import annotations

import sys
import time

from . import quota, records
from .buffer import Buffer, encoded
from .clock import Probe
from .declared import Declared
from .encode import Encoder, size_of
from .facts import Facts
from .faults import Faults
from .file import LineFile
from .flusher import Flusher
from .gathering import Gathering
from .gpu.cuda import let_this_thread_look
from .gpu.late import Deferred
from .misuse import Misuse
from .notices import Notices, say
from .parts import Parts
from .quota import Quota
from .rundata import MAX_KEYS, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .definitions import Entries
    from .encode import Note
    from .parts import Setup
    from .quota import Dropped
    from .settings import Settings
    from .threads import RLock

# Lines wait at most Timing.flush, or until there are this many bytes of them.
WAKE_AT = 256 << 10
_RELEARN_S = 5.0
_COMPARED_AT = 13  # relearnings: after a minute, names that were declared have probably been logged
_AGAIN_S = 1.0
_FOR_DEVICES = 0.8  # of the time that closing may take; the rest is for the disk


class Stream:
    """A Logger's state in one process. A forked child gets a new one, so that no lock, line or descriptor is shared.

    It is new until `start`, then `live`, and `closed` at the end. Any thread may call it. It trusts its arguments: the
    Logger has checked them.

    Attributes: `parts`, the files and their ids; `declared`, the definitions so far; `promised`, the step of the last
    barrier, -1 before the first; `misuse` and `faults`, reports on the job's calls and on the writer itself; `samples`,
    the quota of samples; `tagged`, the tags of steps; `unplaced`, whether calls without a known step wait for the first
    barrier to give them its step.
    """

    def __init__(
        self, setup: Setup, *, parent: str | None = None, declared: Entries | None = None, closed: bool = False
    ) -> None:
        self.live = False
        self.closed = closed
        self.wake_at = WAKE_AT
        self.promised = -1
        self.unplaced = False
        self.notices = Notices()
        self.samples = Quota()
        self.tagged: dict[int, frozenset[str]] = {}
        self.buffer = Buffer(setup.clock, setup.buffer_bytes)
        self.misuse = Misuse(self.notices, self.report, self.buffer.refuse)
        self.faults = Faults(self.notices, self.report)
        self.encoder = Encoder(self.misuse.unusable, several=self.misuse.several, renamed=self.misuse.renamed)
        self.gathering = Gathering(self.buffer, self.encoder, self.misuse, setup.clock, self.faults.failed)
        self.ended_spans = self.gathering.spans.waiting
        self.declared = Declared(declared or {}, self.gathering, self.misuse, self.control)
        self.deferred = Deferred(self.buffer, self.misuse.tell, self.faults.failed)
        self.parts = Parts(setup, self.declared, parent)
        self._setup = setup
        self._begin_at = 0.0
        file = LineFile(
            self.parts.next, self.declared.lines, self.buffer.release, setup.clock, setup.disk, setup.timing.look
        )
        # One process of each host measures its clock.
        probe = None if setup.identity.local_rank else Probe(setup.clock, self._measured)
        self._flusher = Flusher(self.buffer, file, setup.timing, _Rounds(self, setup), probe)

    @property
    def lock(self) -> RLock:
        """Held while observations and spans move into the buffer, and while the Stream starts or closes."""
        return self.gathering.lock

    @property
    def path(self) -> str | None:
        """The path of the file, or of the one about to be made; None before the writing thread's first attempt."""
        return self._flusher.file.path

    def failed(self, where: str, error: Exception) -> None:
        """Count and report an internal error. Never raises."""
        self.faults.failed(where, error)

    def wake(self) -> None:
        """Let the writing thread write now. Never blocks."""
        self._flusher.wake()

    # Life

    def start(self) -> bool:
        """Begin to write. Returns False after `close`. The caller holds the lock and has seen that `live` is false."""
        if self.closed:
            self.notices.once("closed", f"{self._setup.identity.actor} is closed: calls after close() are dropped")
            return False
        if time.monotonic() < self._begin_at:
            return False
        self.live = True  # first of all, so that a signal handler that logs does not start it again
        try:
            self.parts.begin()
            self._flusher.start()
        except RuntimeError as error:
            self.live = False
            if sys.is_finalizing() or "shutdown" in str(error):
                self.closed = True  # the interpreter is ending; one report instead of a failure at every call
                raise
            # No thread can be started right now (a full pids cgroup, say): retry at a later call, not at each.
            self._begin_at = time.monotonic() + _AGAIN_S
            self.notices.once("thread", f"cannot start the writing thread: {error}; trying again at later calls")
            return False
        except BaseException:  # a signal handler of the job raised: the next call starts the thread, if none runs
            self.live = False
            raise
        self.parts.announce()
        return True

    def close(self, timeout: float | None, error: str = "") -> bool:
        """Write what is left and the `close` record. Returns False after `timeout` (default `Timing.close`) seconds.

        `error` is the one that ends the process, "" for none.
        """
        with self.lock:
            if self.closed:
                return True
            self.closed = True
            live, self.live = self.live or self._flusher.running, False
        if not live:
            return True
        self.parts.withdraw()
        limit = self._setup.timing.close if timeout is None else timeout
        deadline = time.monotonic() + limit
        self.deferred.wait(limit * _FOR_DEVICES)
        self.deferred.settle()
        self.collect()
        self.compare_names()
        self.compare_keys()
        self.report_dropped(self.samples.settle(None))
        self.control(records.close_line(self._setup.clock(), error))
        done = self._flusher.close(max(0.0, deadline - time.monotonic()))
        if not done:
            setup = self._setup
            what = f"not everything could be written to {setup.folder} in {limit:g} s before the end"
            say(f"{setup.identity.actor}: {what}")
        return done

    def flush(self, timeout: float) -> bool:
        """Wait until everything logged before is in the file. Returns False after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        arrived = self.deferred.wait(timeout, nudge=self.wake)
        return self._flusher.flush(max(0.0, deadline - time.monotonic())) and arrived

    def leave_to_parent(self) -> str | None:
        """In a forked child: drop the parent process's file. Returns the writer whose child this process is."""
        self._flusher.drop_inherited()
        self.deferred.leave()
        # A child that never logged has no file, so its own children are its parent's.
        return self.parts.id if self.live and self.parts.id is not None else self.parts.parent

    # Lines

    def collect(self, upto: int | None = None) -> None:
        """Move observations of steps <= `upto` (None: of all steps) and ended spans into the buffer.

        Like `log`, this wakes the writing thread early when many bytes wait. Otherwise a job that records much would
        fill the buffer before the next periodic write.
        """
        self.gathering.move(upto)
        if self.buffer.size > self.wake_at:
            self.wake()

    def barrier(self, step: int, t: float, *, wake: bool = True, exact: bool = False) -> None:
        """Write a barrier of time `t`, to the microsecond if `exact`, and before it the observations of steps up to
        `step`.
        """
        adopts, self.unplaced = self.unplaced, False
        nothing_before_it = self.gathering.empty and not self.samples.uses and self.deferred.empty and not exact
        if not (nothing_before_it and self.buffer.note((adopts, t, records.BARRIER_BYTES), step)):
            self.collect(step)
            self.report_dropped(self.samples.settle(step))
            line = records.barrier_line(step, t, adopts, exact=exact)
            if not self.deferred.hold(step, line):
                self.control(line, step)
        self.promised = max(self.promised, step)
        if wake:
            self._flusher.wake_for_barrier()

    def rollback(self, step: int) -> None:
        """Write a rollback, and before it all observations; values that are still late are given up."""
        self.collect()
        self.deferred.settle()
        self.report_dropped(self.samples.settle(None))
        self.tagged.clear()
        self.control(records.rollback_line(step, self._setup.clock()), step)
        self.promised = step - 1
        self.unplaced = False  # it belongs to the former course of the job, to whose steps no barrier will lead

    def control(self, line: str, step: int | None = None) -> bool:
        """Put a line that may use the reserve into the buffer. Returns False if it was dropped."""
        return self.buffer.append_control(line, size_of(line), step)

    def report(self, where: str, message: str) -> None:
        """Write a message of the writer itself into the file, as an event."""
        self.control(records.error_line(where, message, self._setup.clock()))

    def note_run(self, found: Settings) -> None:
        """Note data of the run for the writing thread. What is too much is reported once."""
        refused = self.declared.note(found, self._setup.clock())
        if refused:
            first = ".".join(refused[0])[:200]
            self.misuse.tell(
                refused[0][0],
                f"too much {refused[0][0]}",
                f"{refused[0][0]} has more than {MAX_KEYS} keys or 4 MiB: {first!r} and {len(refused) - 1} others of "
                f"this call are left out",
            )

    def admit(self, step: int | None, t: float) -> float | None:
        """The priority of a sample that is offered at `t`; None if the quota of its step has no place for it."""
        pri = quota.priority()
        with self.lock:
            kept = self.samples.admits(step, t, pri)
            passed = self.samples.passed()
        if passed:
            self.report_dropped(passed)
        return pri if kept else None

    def append_sample(self, line: str, step: int | None, t: float) -> None:
        """Put the line of an admitted sample into the buffer."""
        size = size_of(line)
        self.samples.spend(step, t, size)
        self.buffer.append(line, size, step)
        if self.buffer.size > self.wake_at:
            self.wake()

    def report_dropped(self, dropped: list[Dropped]) -> None:
        """Write the number of dropped samples, one event for each step."""
        for one in dropped:
            self.control(one.line(self._setup.clock()), one.step)

    def compare_names(self) -> None:
        """Report definitions whose names are probably misspelt, in one rank only: others declare the same."""
        who = self._setup.identity
        if self.parts.parent is None and (who.replica, who.rank) == ("0", 0):
            logged = self.encoder.names | self.buffer.noted_names() | self.gathering.spans.metrics()
            self.misuse.undefined(self.declared.entries, logged)

    def compare_keys(self) -> None:
        """Report metrics that share a key with a reduction of another one. A process without a `define` has none."""
        entries = self.declared.entries
        if entries:
            self.misuse.clash(entries, self.encoder.names | self.buffer.noted_names())

    def _measured(self, line: str) -> None:
        with self.lock:
            if self.parts.parent is None and not self.closed:  # a child is on the host of its parent
                self.control(line)


class _Rounds:
    """The writing thread's calls in each of its rounds for a Stream: see `flusher.Rounds`."""

    def __init__(self, stream: Stream, setup: Setup) -> None:
        self._stream = stream
        self._setup = setup
        self._looks = False
        self._relearn_at = 0.0
        self._relearnt = 0
        self._facts = Facts(setup.identity)

    def collect(self) -> float | None:
        stream = self._stream
        try:
            if self._setup.each_round is not None:
                self._setup.each_round()
            stream.collect()
        except Exception as error:  # noqa: BLE001 - after any error, lines in the buffer are still written
            stream.failed("gathering", error)
        if stream.deferred and not self._looks:
            self._looks = True
            let_this_thread_look()
        soon = stream.deferred.look()
        if stream.closed:
            self.look()  # there is no later round
        return soon

    def look(self) -> bool:
        stream, now = self._stream, time.monotonic()
        if now < self._relearn_at:
            return False
        self._relearn_at = now + _RELEARN_S
        stream.encoder.relearn()
        found = stream.declared.finds_facts and self._find_facts()
        self._relearnt += 1
        stream.compare_keys()
        if self._relearnt == _COMPARED_AT:
            stream.compare_names()
        return found

    def encode(self, items: list[str | Note], steps: list[int | None]) -> tuple[list[str], list[int | None], int]:
        stream = self._stream
        try:
            lines, steps, fewer = encoded(items, steps, stream.encoder, self._lost)
        finally:
            stream.buffer.taken = []
        run, at = stream.declared.among(lines, last=stream.closed)
        if run:
            lines[at:at], steps[at:at] = run, [None] * len(run)
            fewer -= sum(map(size_of, run))  # the buffer has never held them
        return lines, steps, fewer

    def _find_facts(self) -> bool:
        try:
            facts = self._facts.more()
            if facts:
                self._stream.note_run(read({"facts": facts}, lambda path, why: None))
            return bool(facts)
        except Exception as error:  # noqa: BLE001 - after any error, lines are still written
            self._stream.failed("facts", error)
            return False

    def _lost(self, step: int | None, error: Exception) -> None:
        self._stream.failed("encoding", error)
        self._stream.buffer.refuse(step)

    def beat(self) -> None:
        self._stream.control(records.beat_line(self._setup.clock()))

    def network(self) -> bool:
        return self._setup.disk.network(self._setup.folder)

    def trouble(self, error: Exception) -> None:
        self._stream.faults.trouble(error, self._stream.path or self._setup.folder)

    def well(self) -> None:
        self._stream.faults.well(self._stream.path or self._setup.folder)
