"""The daemon thread of a Logger: it alone touches the disk."""

from __future__ import annotations

import os
import time

from . import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .buffer import Buffer
    from .file import LineFile
    from .probe import Probe


_RARER = 12


class Timing:
    """How long things take, in seconds. The defaults are the contract; tests shorten them."""

    __slots__ = ("backoff", "backoff_most", "beat", "close", "flush", "look", "sync")

    def __init__(
        self,
        flush: float = 0.5,
        beat: float = 10.0,
        sync: float = 0.5,
        close: float = 5.0,
        backoff: float = 0.1,
        backoff_most: float = 5.0,
        look: float = 5.0,
    ) -> None:
        self.flush = flush
        self.beat = beat
        self.sync = sync
        self.close = close
        self.backoff = backoff
        self.backoff_most = backoff_most
        # A descriptor stays good where nobody finds the file any more: under a mount that was taken away, or under the
        # name that an NFS client gives to a file that was removed while open. So the path is looked at now and then.
        self.look = look

    @classmethod
    def for_world(cls, world: int | None) -> Timing:
        """The defaults for one of `world` ranks."""
        # At most about 500 syncs a second reach the file server, however many ranks there are.
        return cls(sync=max(0.5, (world or 1) / 500))


class Flusher:
    """Moves lines from the buffer into the file: when woken, every `timing.flush` seconds, and at the end.

    `collect()` puts batched observations into the buffer and may say in how many seconds it wants to be called again,
    `beat()` puts a beat record there. `network()` says whether written
    lines have to be synced to be seen. `trouble(error)` is told of every failed attempt, `well()` of the first that
    works again. `probe`, where there is one, measures the clock on a network filesystem.
    """

    def __init__(
        self,
        buffer: Buffer,
        file: LineFile,
        timing: Timing,
        collect: Callable[[], float | None],
        beat: Callable[[], None],
        network: Callable[[], bool],
        trouble: Callable[[Exception], None],
        well: Callable[[], None],
        probe: Probe | None = None,
    ) -> None:
        self._buffer = buffer
        self._file = file
        self._timing = timing
        self._collect = collect
        self._beat = beat
        self._network = network
        self._trouble = trouble
        self._well = well
        self._probe = probe
        # Bare locks as signals: unlike Event and Condition they may be used in a signal handler at any moment.
        self._signal = threads.lock()
        self._signal.acquire()
        self._ended = threads.lock()
        self._ended.acquire()
        # Taken by the thread that writes and never given back: there is at most one.
        self._writing = threads.lock()
        self._asked = 0
        self._done = 0
        self._closing: float | None = None
        # While the disk fails nobody's wake shortens the wait, or each line logged would be one more attempt.
        self._failing = False

    @property
    def running(self) -> bool:
        """Whether the thread runs."""
        return self._writing.locked()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the interpreter is already shutting down.

        May be called again: a signal handler can raise out of a start that did, or did not, create the thread.
        """
        threads.start(self._run)

    def wake(self) -> None:
        """Let the thread write now. Never blocks."""
        if not self._failing:
            self._rouse()

    def _rouse(self) -> None:
        if not self._signal.locked():
            return
        try:
            self._signal.release()
        except RuntimeError:  # another thread has just woken it
            return

    def flush(self, timeout: float) -> bool:
        """Wait until all lines added before are written, and synced where that matters.

        False after `timeout` seconds.
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
        """Write what is left, end the thread and close the file. False if that was not done after `timeout` seconds."""
        self._closing = time.monotonic() + timeout
        self._rouse()
        if not self._ended.acquire(timeout=max(0.0, timeout)):
            return False
        self._ended.release()
        return self._done < 0

    def drop_inherited(self) -> None:
        """In a forked child: the thread does not exist here, and the file is the parent's."""
        self._file.drop_inherited()

    def _run(self) -> None:
        if not self._writing.acquire(blocking=False):
            return  # an earlier start did create its thread
        try:
            self._loop()
        finally:
            self._ended.release()

    def _loop(self) -> None:
        timing = self._timing
        network: bool | None = None
        # Ranks start together: a random phase keeps them from syncing together.
        next_sync = time.monotonic() + timing.sync * os.urandom(1)[0] / 256
        last_line = time.monotonic()
        unsynced = False
        backoff = timing.backoff
        while True:
            asked, closing = self._asked, self._closing
            soon: float | None = None
            try:
                if network is None:
                    network = self._network()
                if not self._failing:
                    soon = self._collect()
                    if time.monotonic() - last_line >= timing.beat and self._buffer.empty and closing is None:
                        self._beat()
                    self._file.put(*self._buffer.take())
                probe = self._probe if network else None
                if probe:
                    probe.begin()
                written = self._file.write_out()
                if probe:
                    probe.stamped(self._file.modified_ns)
                if written:
                    last_line = time.monotonic()
                    unsynced = True
                    if probe:
                        probe.wrote()
                if unsynced and not network:
                    self._file.forget_unsynced()
                    unsynced = False
                due = asked > self._done or closing is not None or self._failing  # well only once synced again
                if unsynced and (due or time.monotonic() >= next_sync):
                    next_sync = time.monotonic() + timing.sync
                    if self._file.sync() and probe:
                        probe.synced()
                    unsynced = False
                if self._failing:
                    self._failing, backoff = False, timing.backoff
                    network = None  # what is mounted there may have changed
                    self._well()
                    continue
                self._done = asked
                if closing is not None and self._file.idle and self._buffer.empty:
                    self._done = -1
                    self._file.close()
                    return
                wait = min(timing.flush, max(0.0, next_sync - time.monotonic())) if unsynced else timing.flush
            except Exception as error:  # noqa: BLE001 - whatever it is, the job goes on and hears of it once
                self._trouble(error)
                self._failing = True
                if self._probe:
                    self._probe.failed()
                # Where each attempt costs a new file, they have to be few.
                most = timing.backoff_most * (_RARER if self._file.in_vain else 1)
                wait, backoff = min(backoff, most), min(backoff * 2, most)
            if closing is not None:
                if time.monotonic() >= closing:
                    return
                wait = min(wait, 0.05)
            self._signal.acquire(timeout=wait if soon is None else min(wait, soon))
