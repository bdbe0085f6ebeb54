"""The file of one axis of a run: its steps end by themselves, as W&B has no call that ends one."""

from __future__ import annotations

import time

from .. import definitions, threads
from ..buffer import MAX_NOTES
from ..encode import MAX_LINE_BYTES, Encoder, metrics_note, size_of
from ..guard import raised_by_signal
from ..logger import Logger
from ..records import event_line, on_purpose, sample_line
from ..values import UnusableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..identity import Identity

_ON_PURPOSE_BYTES = 24  # what the mark of a line without a step and microseconds add to it


class _Newest:
    """The newest step, -1 before the first, and the last call at it: Unix time, and monotonic time."""

    __slots__ = ("called", "step", "t")

    def __init__(self, step: int = -1, t: float = 0.0, called: float = 0.0) -> None:
        self.step = step
        self.t = t
        self.called = called


class Track(Logger):
    """A Logger that writes barriers by itself. Only its facade calls it, never the job.

    A barrier of step s has the time of the last call at s. It is written as soon as a later step begins, `quiet_s`
    seconds after that call, and at the end. A child process writes none: its parent's count.

    `before_close` is called once, before the last line. Calls after the end do nothing: an object of the job may make
    them when the interpreter deletes it.
    """

    def __init__(
        self,
        folder: str,
        identity: Identity,
        *,
        axis: str,
        labels: Mapping[str, str],
        opened: float,
        quiet_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(folder, identity, axis=axis, labels=labels, clock=clock)
        self.attend(opened, self._look)
        self.before_close: Callable[[], object] | None = None
        self._quiet_s = quiet_s
        self._guard = threads.reentrant_lock()
        self._newest = _Newest()
        self._plain = Encoder(
            lambda *found: self.stream.misuse.unusable(*found),
            MAX_LINE_BYTES - _ON_PURPOSE_BYTES,
            lambda found: self.stream.misuse.several(found),
        )

    @property
    def newest(self) -> int:
        """The step of the latest row; -1 before the first, and in a forked child."""
        return self._newest.step

    def put(self, metrics: dict[str, Any], step: int | None, t: float) -> None:
        """Write one record of metrics at `step`; without a step it is a stream line, whatever comes later."""
        if self.closed or not self.start():
            return
        stream, buffer = self.stream, self.stream.buffer
        if step is None:
            # Its time decides to which step it belongs: the barrier before it may be of the same millisecond.
            head = len(f'{{"t":{t:.3f},')
            for line in self._plain.lines(metrics, None, t):
                marked = on_purpose(f'{{"t":{t:.6f},{line[head:]}')
                buffer.append(marked, size_of(marked), None)
        else:
            with self._guard:
                self._go_to(step, t)
                if self.allocator is not None:
                    self._add_memory(stream, step)
                note = metrics_note(metrics, t) if buffer.notes < MAX_NOTES else None
                if note is None or not buffer.note(note, step):
                    self._log_now(stream, metrics, step, t, None)
        if buffer.size > stream.wake_at:
            stream.wake()

    def tell(self, name: str, attrs: Mapping[str, Any], step: int | None, t: float) -> None:
        """Write an event."""
        if self.closed or not self.start():
            return
        if step is not None:
            with self._guard:
                self._go_to(step, t)
        line = event_line(name, attrs, step, t, stream=step is None)
        self.stream.buffer.append(line, size_of(line), step)

    def offer(self, table: str, row: Mapping[str, Any], score: str | None, step: int | None, t: float) -> None:
        """Offer a sample; `score` is a number as JSON, or None."""
        if self.closed or not self.start():
            return
        stream = self.stream
        if step is not None:
            with self._guard:
                self._go_to(step, t)
        pri = stream.admit(step, t)
        if pri is None:
            return
        try:
            line = sample_line(table, row, score, pri, step, t, lambda column, why: None, stream=step is None)
        except UnusableError as error:
            stream.misuse.refuse("columns", f"a row of the table {table[:40]!r} is left out: {error}")
            return
        stream.append_sample(line, step, t)

    def lose(self, step: int | None) -> None:
        """Count something that could not be kept, for a gap of its step."""
        if not self.closed and self.start():
            self.stream.buffer.refuse(step)

    def declare(self, entries: dict[str, dict[str, Any]]) -> None:
        """Write definitions: they govern the later lines."""
        if not self.closed and self.start():
            parsed = definitions.parse(entries, None, None, None, None, lambda name, why: None)
            self.stream.declared.declare(parsed, by="")

    def complete(self, step: int | None = None) -> None:
        """Write the barrier of the newest step, if it lacks one; with `step`, only if that is the newest."""
        with self._guard:
            if step is None or step == self._newest.step:
                self._complete()

    def close(self, timeout: float | None = None) -> bool:
        """Write the last barrier, what is left and the `close` record."""
        self._end()
        return super().close(timeout)

    def close_at_exit(self, timeout: float | None, error: str) -> bool:
        """Close as the process ends."""
        self._end()
        return super().close_at_exit(timeout, error)

    def after_fork(self) -> None:
        """In a forked child: forget the parent's steps with its file."""
        self._guard = threads.reentrant_lock()
        self._newest = _Newest()
        self.before_close = None
        super().after_fork()

    def _go_to(self, step: int, t: float) -> None:
        if step > self._newest.step:
            self._complete()
            self._newest = _Newest(step, t, time.monotonic())
        elif step == self._newest.step:
            self._newest = _Newest(step, max(t, self._newest.t), time.monotonic())

    def _complete(self) -> None:
        stream = self.stream
        if self._newest.step > stream.promised and stream.live and stream.parts.parent is None:
            stream.barrier(self._newest.step, self._newest.t, wake=False, exact=True)

    def _look(self) -> None:
        """In each round of the writing thread: end a step at which nothing was called for a while."""
        if self._newest.step <= self.stream.promised or time.monotonic() - self._newest.called < self._quiet_s:
            return
        if self._guard.acquire(blocking=False):  # else a call is being made
            try:
                if time.monotonic() - self._newest.called >= self._quiet_s:
                    self._complete()
            finally:
                self._guard.release()

    def _end(self) -> None:
        if self.closed:
            return
        try:
            before, self.before_close = self.before_close, None
            if before is not None and self.begun:
                before()
            self.complete()
        except Exception as error:  # the promise is that logging never crashes the job
            if raised_by_signal(error):
                raise
            self.failed("close", error)
