"""The daemon thread of a Logger; no other thread touches the disk."""

from __future__ import annotations

import math
import os
import time

from . import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from .buffer import Buffer
    from .clock import Probe
    from .encode import Note
    from .file import LineFile

    class Rounds(Protocol):
        """The calls that the thread makes in its rounds."""

        def collect(self) -> float | None:
            """Put batched observations into the buffer. Returns the seconds until the next call; None: the usual."""

        def look(self) -> bool:
            """Look around, which may take a while: no line waits for it. Returns whether there is more to write."""

        def encode(self, items: list[str | Note], steps: list[int | None]) -> tuple[list[str], list[int | None], int]:
            """Make lines of what the buffer held. They have some bytes fewer than the buffer counts: the number."""

        def beat(self) -> None:
            """Put a beat record into the buffer."""

        def network(self) -> bool:
            """True if written lines have to be synced before others see them."""

        def trouble(self, error: Exception) -> None:
            """Report a failed attempt."""

        def well(self) -> None:
            """Report the first attempt that succeeds again."""


_RARER = 12


class Timing:
    """Durations in seconds. The defaults are the contract; tests shorten them."""

    __slots__ = ("backoff", "backoff_most", "beat", "close", "flush", "look", "lull", "sync")

    def __init__(
        self,
        flush: float = 0.5,
        beat: float = 10.0,
        sync: float = 0.5,
        close: float = 5.0,
        backoff: float = 0.1,
        backoff_most: float = 5.0,
        look: float = 5.0,
        lull: float = 0.05,
    ) -> None:
        self.flush = flush
        self.beat = beat
        self.sync = sync
        self.close = close
        self.backoff = backoff
        self.backoff_most = backoff_most
        # A descriptor can stay usable when the file's path has gone: after an unmount, or under the name that an NFS
        # client gives to a file that was removed while open. So the path is checked now and then.
        self.look = look
        # Barriers that follow each other sooner than this are written together, once in this time. To wake a thread
        # costs as much as all else that a barrier does.
        self.lull = lull

    @classmethod
    def for_world(cls, world: int | None) -> Timing:
        """The default durations for a rank of `world`."""
        # About 500 syncs a second reach the file server up to 1,000 ranks, then more, so that no line waits longer than
        # 2 s. From 4,000 ranks on it is 2,000 syncs a second, however many ranks there are.
        ranks = world or 1
        return cls(sync=max(0.5, min(ranks / 500, 2.0), ranks / 2000))


class Flusher:
    """Moves lines from the buffer into the file: when woken, every `timing.flush` seconds, and at the end.

    `probe` measures the clock on a network filesystem; None: no measurement.
    """

    def __init__(
        self, buffer: Buffer, file: LineFile, timing: Timing, rounds: Rounds, probe: Probe | None = None
    ) -> None:
        self.file = file
        self._buffer = buffer
        self._timing = timing
        self._rounds = rounds
        self._probe = probe
        # Bare locks as signals: unlike Event and Condition, a signal handler may use them at any moment.
        self._signal = threads.lock()
        self._signal.acquire()
        self._ended = threads.lock()
        self._ended.acquire()
        # The writing thread takes it and never releases it, so there is at most one such thread.
        self._writing = threads.lock()
        self._asked = 0
        self._done = 0
        self._closing: float | None = None
        # While barriers follow each other closely, the thread wakes by itself, and a barrier only notes that it came.
        self._lulling = False
        self._more = False
        # While the disk fails, no wake shortens the wait; otherwise each logged line would be one more attempt.
        self._failing = False

    @property
    def running(self) -> bool:
        """True if the thread runs."""
        return self._writing.locked()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the interpreter is already shutting down.

        May be called again: a signal handler can raise out of a start, whether or not it created the thread.
        """
        threads.start(self._run)

    def wake(self) -> None:
        """Let the thread write now. Never blocks."""
        if not self._failing:
            self._rouse()

    def wake_for_barrier(self) -> None:
        """Let the thread write now, or within `timing.lull` seconds if barriers follow each other closely.

        The barrier's line is in the buffer already, so the thread takes it even if its lull ends at this moment.
        """
        if self._lulling:
            self._more = True
        else:
            self.wake()

    def _rouse(self) -> None:
        if not self._signal.locked():
            return
        try:
            self._signal.release()
        except RuntimeError:  # another thread has just woken it
            return

    def flush(self, timeout: float) -> bool:
        """Wait until all lines added before are written, and synced where that matters.

        Returns False after `timeout` seconds.
        """
        self._asked += 1
        ticket = self._asked
        deadline = time.monotonic() + timeout
        self._rouse()
        while self._done < ticket:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
            self.wake()
        return True

    def close(self, timeout: float) -> bool:
        """Write what is left, end the thread and close the file. Returns False if that took over `timeout` seconds."""
        self._closing = time.monotonic() + timeout
        self._rouse()
        if not self._ended.acquire(timeout=max(0.0, timeout)):
            return False
        self._ended.release()
        return self._done < 0

    def drop_inherited(self) -> None:
        """In a forked child: drop the parent's file. The thread does not exist here."""
        self.file.drop_inherited()

    def _run(self) -> None:
        if not self._writing.acquire(blocking=False):
            return  # an earlier start did create its thread
        try:
            self._loop()
        finally:
            self._ended.release()

    def _loop(self) -> None:
        timing = self._timing
        state = _State(timing)
        while True:
            asked, closing = self._asked, self._closing
            state.soon = None
            try:
                self._write(state, closing)
                # After a failure, only a successful sync ends the failing state.
                self._sync(state, asked > self._done or closing is not None or self._failing)
                if self._failing:
                    self._failing, state.backoff = False, timing.backoff
                    state.network = None  # another filesystem may be mounted there now
                    self._rounds.well()
                    continue
                if closing is None and self._rounds.look():
                    continue
                self._done = asked
                if closing is not None and self.file.idle and self._buffer.empty:
                    self._done = -1
                    self.file.close()
                    return
                # What came while lines were written, as when a disk is slow to make the file, waits no longer for that.
                least = min(timing.lull, timing.flush)
                wait = timing.lull if self._lulling else max(least, timing.flush - state.writing)
                if state.unsynced:
                    wait = min(wait, max(0.0, state.next_sync - time.monotonic()))
            except Exception as error:  # noqa: BLE001 - any error is reported once, and the job goes on
                wait = self._wait_after(error, state)
            if closing is not None:
                if time.monotonic() >= closing:
                    return
                wait = min(wait, 0.05)
            woken = self._signal.acquire(timeout=wait if state.soon is None else min(wait, state.soon))
            self._begin_or_end_lull(state, woken)

    def _begin_or_end_lull(self, state: _State, woken: bool) -> None:
        """Decide, before the next lines are taken, whether the barriers after them have to wake the thread."""
        now = time.monotonic()
        if not self._lulling:
            self._lulling = woken and now - state.woken < self._timing.lull
        elif now - state.lulled >= self._timing.lull:
            self._lulling, self._more = self._more, False
        else:
            return  # woken for something else, in the middle of a lull
        state.lulled = now
        if woken:
            state.woken = now

    def _write(self, state: _State, closing: float | None) -> None:
        """Write the lines in the buffer and those left from earlier rounds."""
        began = time.monotonic()
        if state.network is None:
            state.network = self._rounds.network()
        if not self._failing:
            state.soon = self._rounds.collect()
            silent = time.monotonic() - state.last_line >= self._timing.beat
            if silent and self._buffer.empty and closing is None:
                self._rounds.beat()
            lines, steps, fewer = self._rounds.encode(*self._buffer.take())
            self.file.put(lines, steps)
            state.excess += fewer
        probe = self._probe if state.network else None
        if probe:
            probe.begin()
        written = self.file.write_out()
        # Not before: what a disk that hangs holds up must drop the newest lines, not some in between.
        if state.excess:
            self._buffer.release(state.excess)
            state.excess = 0
        if probe:
            probe.stamped(self.file.modified_ns)
        if written:
            state.last_line = time.monotonic()
            state.unsynced = True
            if probe:
                probe.wrote()
        state.writing = time.monotonic() - began

    def _sync(self, state: _State, due: bool) -> None:
        """Make written lines visible to others, on a network filesystem at most every `timing.sync` seconds."""
        if not state.unsynced:
            return
        if not state.network:
            self.file.forget_unsynced()
            state.unsynced = False
        elif due or time.monotonic() >= state.next_sync:
            state.next_sync = time.monotonic() + self._timing.sync
            if self.file.sync() and self._probe:
                self._probe.synced()
            state.unsynced = False

    def _wait_after(self, error: Exception, state: _State) -> float:
        """Report a failed attempt. Returns how long to wait before the next one."""
        self._rounds.trouble(error)
        self._failing = True
        if self._probe:
            self._probe.failed()
        # Attempts that create a new file each must be rare.
        longest = self._timing.backoff_most * (_RARER if self.file.in_vain else 1)
        wait, state.backoff = min(state.backoff, longest), min(state.backoff * 2, longest)
        return wait


class _State:
    """The state that one round of the thread leaves for the next. Plain data."""

    __slots__ = (
        "backoff",
        "excess",
        "last_line",
        "lulled",
        "network",
        "next_sync",
        "soon",
        "unsynced",
        "woken",
        "writing",
    )

    def __init__(self, timing: Timing) -> None:
        self.network: bool | None = None
        # Ranks start together: a random phase keeps them from syncing together.
        self.next_sync = time.monotonic() + timing.sync * os.urandom(1)[0] / 256
        self.last_line = time.monotonic()
        self.unsynced = False
        self.backoff = timing.backoff
        self.soon: float | None = None
        self.excess = 0  # bytes that the buffer counts for lines that turned out shorter than their notes said
        self.woken = -math.inf  # when a call last woke the thread
        self.lulled = 0.0  # when the lull began
        self.writing = 0.0  # seconds that the newest round took to collect and write lines
