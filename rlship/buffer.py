"""The bounded buffer between the threads that log and the writing thread, and its gaps."""

from __future__ import annotations

from . import threads
from .encode import size_of
from .records import barrier_line, gap_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from .encode import Encoder, Note

    Sized: TypeAlias = tuple[str, int, int | None]  # a line, its bytes, its step
    Staged: TypeAlias = tuple[list[str], list[int | None], int]  # lines, their steps, the bytes of all

CAPACITY = 8 << 20
# Barriers, definitions and rollbacks are few and small. Losing one costs more than losing a line of values.
RESERVE = 1 << 20
MAX_NOTES = 64  # that wait at a time: a job that logs in a tight loop encodes its lines itself


class Tally:
    """Counts lines that were dropped (or may be lost), with the range of their steps."""

    __slots__ = ("first", "last", "stepped", "unstepped")

    def __init__(self) -> None:
        self.stepped = 0
        self.first = 0
        self.last = 0
        self.unstepped = 0

    def __bool__(self) -> bool:
        return self.stepped > 0 or self.unstepped > 0

    def add(self, step: int | None) -> None:
        """Count one line; `step` is None for a line without a step."""
        if step is None:
            self.unstepped += 1
            return
        if not self.stepped or step < self.first:
            self.first = step
        if not self.stepped or step > self.last:
            self.last = step
        self.stepped += 1

    def records(self, t: float) -> list[str]:
        """The `gap` lines with these counts, one for lines with a step and one for lines without."""
        lines = []
        if self.stepped:
            lines.append(gap_line(self.stepped, t, (self.first, self.last)))
        if self.unstepped:
            lines.append(gap_line(self.unstepped, t))
        return lines


class Buffer:
    """Encoded lines that wait for the writing thread: at most `capacity` bytes, those being written included.

    When the buffer is full, lines are dropped and counted, and a `gap` record goes in before the next line that fits.
    Control lines (barriers, definitions…) may use `reserve` bytes more.
    """

    def __init__(self, clock: Callable[[], float], capacity: int = CAPACITY, reserve: int = RESERVE) -> None:
        self._clock = clock  # gives the time of a gap record
        # Reentrant, because a signal handler or a finaliser may log while this thread holds it.
        self.lock = threads.reentrant_lock()
        self._capacity = capacity
        self._reserve = reserve
        self._lines: list[str | Note] = []
        self._steps: list[int | None] = []
        self.notes = 0  # how many of the waiting lines are notes still
        self.taken: list[str | Note] = []  # what is being encoded, which ends by emptying this
        self._dropped = Tally()
        # One comparison on the fast path covers "full" and "drops not reported yet": the latter sets this below zero.
        self._limit = capacity
        self.size = 0
        self.dropped = 0

    def append(self, line: str, size: int, step: int | None) -> bool:
        """Add one line of `size` bytes. Returns False if it was dropped."""
        with self.lock:
            if self.size + size > self._limit and not self._room(size, 0):
                self._drop(step)
                return False
            self._lines += (line,)
            self._steps += (step,)
            self.size += size
            return True

    def note(self, note: Note, step: int | None) -> bool:
        """Add a record that is encoded after `take`. Returns False if the caller has to encode it."""
        with self.lock:
            if self.notes >= MAX_NOTES or self.size + note[2] > self._limit:
                return False
            self._lines += (note,)
            self._steps += (step,)
            self.notes += 1
            self.size += note[2]
            return True

    def move(self, lines: list[Sized]) -> None:
        """Append lines, removing each from `lines` at once: an exception of a signal handler loses or doubles none."""
        with self.lock:
            while lines:
                line, size, step = lines[0]
                if self.size + size > self._limit and not self._room(size, 0):
                    self._drop(step)
                else:
                    self._lines += (line,)
                    self._steps += (step,)
                    self.size += size
                del lines[0]

    def extend(self, staged: list[Staged]) -> bool:
        """Append many lines, removing each bundle from `staged` at once. False if a bundle does not fit as a whole."""
        with self.lock:
            while staged:
                lines, steps, size = staged[0]
                if self.size + size > self._limit:
                    return False
                self._lines += lines
                self._steps += steps
                self.size += size
                del staged[0]
            return True

    def append_control(self, line: str, size: int, step: int | None) -> bool:
        """Like `append`, for a line that may use the reserve."""
        with self.lock:
            if self.size + size > self._limit and not self._room(size, self._reserve):
                self._drop(step)
                return False
            self._lines += (line,)
            self._steps += (step,)
            self.size += size
            return True

    def refuse(self, step: int | None) -> None:
        """Count a line that could not be encoded at all."""
        with self.lock:
            self._drop(step)

    def noted_names(self) -> set[str]:
        """The names of metrics in notes that are not encoded yet."""
        with self.lock:
            notes = [item[0] for item in (*self.taken, *self._lines) if not isinstance(item, str)]
        return {name for metrics in notes if isinstance(metrics, dict) for name in metrics}

    def take(self) -> tuple[list[str | Note], list[int | None]]:
        """Remove and return all waiting lines and notes with their steps. Their bytes count as used until `release`."""
        with self.lock:
            if self._dropped:
                self._report_drops(self._reserve)
            lines, steps = self._lines, self._steps
            self.taken = lines
            self._lines, self._steps, self.notes = [], [], 0
            return lines, steps

    def release(self, size: int) -> None:
        """Free `size` bytes of what was taken: lines that have been written or given up, or the excess of notes."""
        with self.lock:
            self.size -= size

    @property
    def empty(self) -> bool:
        """True if no line waits to be taken, and no drop to be reported."""
        return not self._lines and not self._dropped

    def _drop(self, step: int | None) -> None:
        self._dropped.add(step)
        self.dropped += 1
        self._limit = -1

    def _room(self, size: int, reserve: int) -> bool:
        if self._dropped and not self._report_drops(reserve, size):
            return False
        return self.size + size <= self._capacity + reserve

    def _report_drops(self, reserve: int, size: int = 0) -> bool:
        """Put the gap records in if they and `size` more bytes fit. Returns whether they did."""
        records = self._dropped.records(self._clock())
        need = sum(map(len, records))
        if self.size + need + size > self._capacity + reserve:
            return False
        self._lines += records
        self._steps += [None] * len(records)
        self.size += need
        self._dropped = Tally()
        self._limit = self._capacity
        return True


def encoded(
    items: list[str | Note],
    steps: list[int | None],
    encoder: Encoder,
    lost: Callable[[int | None, Exception], object],
) -> tuple[list[str], list[int | None], int]:
    """The lines of what a buffer held, the step of each, and how many bytes fewer they have than the buffer counts.

    The lists are the given ones, changed. Calls `lost(step, error)` for a note that cannot be encoded.
    """
    fewer = 0
    failed: list[int] = []
    for i, (what, t, size) in [(i, item) for i, item in enumerate(items) if type(item) is tuple]:
        try:
            items[i] = line = _line(what, steps[i], t, encoder)
            fewer += size - size_of(line)
        except Exception as error:  # noqa: BLE001 - the other lines are good
            lost(steps[i], error)
            failed.append(i)
            fewer += size
    for i in reversed(failed):
        del items[i], steps[i]
    return items, steps, fewer  # type: ignore[return-value]  # now all are lines


def _line(what: dict[str, Any] | bool, step: int | None, t: float, encoder: Encoder) -> str:
    if isinstance(what, dict):
        # One line, as `metrics_note` takes few names.
        return encoder.line(what, step, t) or "".join(encoder.lines(what, step, t))
    assert step is not None, "a barrier has a step"
    return barrier_line(step, t, what)
