"""How long things took: `span`, and the records it makes."""

from __future__ import annotations

import time

from . import lanes
from .device_probe import DeviceProbe
from .encode import size_of
from .guard import raised_by_signal
from .records import span_form, span_line
from .wrapping import wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeAlias, TypeVar

    from .buffer import Buffer, Sized, Staged
    from .device_probe import Measured
    from .logger import Logger
    from .misuse import Misuse
    from .stream import Stream

    F = TypeVar("F", bound=Callable[..., Any])
    # Start, duration, step, name, lane, error. Steps and names are as the job gave them.
    Ended: TypeAlias = tuple[float, float, int | None, str, Any, str | None]
    # An open span: its Logger, that one's stream, what is measured on the device, start, and start by `_mark`.
    Entry: TypeAlias = tuple[Logger, Stream, Measured | None, float, float]

# Spans are put into lines early when there are so many, so that a stalled disk cannot let them grow.
MOST_WAITING = 1024
LONGEST_NAME = 500
UNNAMED = "unnamed"
_MOST_FORMS = 1024

_mark = time.perf_counter


class Spans:
    """The ended spans of one Stream that are not lines yet. Adding to `waiting` needs no lock, `move` its caller's.

    `lost(step, error)` is told of each span that cannot be encoded and is left out.
    """

    def __init__(self, misuse: Misuse, lost: Callable[[int | None, Exception], object]) -> None:
        self._misuse = misuse
        self._tell_lost = lost
        self.waiting: list[Ended] = []
        self._staged: list[Staged] = []
        self._lines: list[Sized] = []
        self._lost: list[tuple[int | None, Exception]] = []
        self._forms: dict[str, str] = {}

    def move(self, buffer: Buffer) -> None:
        """Put what waits into the buffer. An exception of a signal handler loses or doubles none."""
        waiting, staged = self.waiting, self._staged
        if waiting:
            count = len(waiting)
            lines, steps, lost = self._usable(waiting[:count])
            item = (lines, steps, sum(map(len if all(map(str.isascii, lines)) else size_of, lines)))
            # No call in between: see `Batches.move`.
            staged += (item,)
            self._lost += lost
            del waiting[:count]
        if staged and not buffer.extend(staged):  # it is nearly full: line by line, so that it can count those it drops
            single = [(line, size_of(line), step) for lines, steps, _ in staged for line, step in zip(lines, steps)]
            self._lines += single
            del staged[:]
        if self._lines:
            buffer.move(self._lines)
        while self._lost:
            self._tell_lost(*self._lost[0])
            del self._lost[0]

    def line(
        self, t: float, dur: float, step: int | None, name: str, lane: Any, err: str | None, suffix: str = ""
    ) -> str:
        """One span's record; `suffix` is added to the name of its lane."""
        form = self._forms.get(name) or self._learn(name)
        return span_line(form, t, dur, step, lanes.text(lane, suffix), err)

    def _usable(self, spans: list[Ended]) -> tuple[list[str], list[int | None], list[tuple[int | None, Exception]]]:
        """Lines, their steps, and what cannot be encoded: kept, it would hold up all others for ever."""
        try:
            return *self._encoded(spans), []
        except Exception as error:  # the code of a name or of a task may raise anything
            if raised_by_signal(error):
                raise
            if len(spans) == 1:
                return [], [], [(spans[0][2], error)]
        lines: list[str] = []
        steps: list[int | None] = []
        lost: list[tuple[int | None, Exception]] = []
        for span in spans:
            own_lines, own_steps, own_lost = self._usable([span])
            lines += own_lines
            steps += own_steps
            lost += own_lost
        return lines, steps, lost

    def _encoded(self, spans: list[Ended]) -> tuple[list[str], list[int | None]]:
        lines: list[str] = []
        steps: list[int | None] = []
        forms = self._forms
        known: Any = None
        where = ""
        for t, dur, step, name, lane, err in spans:
            steps.append(step)
            if step is None or err is not None:
                lines.append(self.line(t, dur, step, name, lane, err))
                continue
            if lane is not known:
                known, where = lane, lanes.text(lane)
            form = forms.get(name)
            if form is None:
                form = self._learn(name)
            lines.append(form % (t, dur, step, where))
        return lines, steps

    def _learn(self, name: str) -> str:
        if not 0 < len(name) <= LONGEST_NAME:
            wrong = f"has {len(name)} characters, {LONGEST_NAME} are allowed: it is shortened"
            if not name:
                wrong = f"is empty: {UNNAMED!r} stands in its place"
            self._misuse.tell("span", f"span name {name[:200]}", f"span({name[:40]!r}): the name {wrong}")
        form = span_form(name[:LONGEST_NAME] or UNNAMED)
        if len(self._forms) >= _MOST_FORMS:
            self._forms.clear()
        self._forms[name] = form
        return form


class Span:
    """A context manager and decorator: see `rlship.span`. One object may be entered many times at once."""

    __slots__ = ("_device", "_find", "_more", "_name", "_open")

    def __init__(self, find: Callable[[], Logger], name: str, device: DeviceProbe | None = None) -> None:
        self._find = find
        self._name = name
        self._device = device
        # The usual object is entered once at a time. While it is, further entries go into a dict, by lane; each holds
        # the one of the same lane that it is inside of.
        self._open: Entry | None = None
        self._more: dict[Any, tuple[Entry, Any]] | None = None

    def __enter__(self) -> Span:
        try:
            logger = self._find()
            stream = logger._stream
            if stream.live or logger.start():
                device = (
                    None if self._device is None else self._device.begin(stream, self._name[:LONGEST_NAME] or UNNAMED)
                )
                if self._open is None:
                    self._open = logger, stream, device, logger._clock(), _mark()
                else:
                    self._nest((logger, stream, device, logger._clock(), _mark()))
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            self.failed(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            entry = self._open
            if self._more is not None:
                entry = self._innermost(self._more)
            elif entry is not None:
                self._open = None
            if entry is not None:
                self.end(entry, kind)
        except Exception as own:  # noqa: BLE001 - the promise is that logging never crashes the job
            self.failed(own)

    def __call__(self, function: F) -> F:
        """The function with this span around each of its calls."""
        return wrapped(self, function)

    def begin(self) -> Entry | None:
        """Start one span, to be ended with `end`. None where nothing is logged. What `__enter__` does, as a value."""
        logger = self._find()
        stream = logger._stream
        if not stream.live and not logger.start():
            return None
        device = None if self._device is None else self._device.begin(stream, self._name[:LONGEST_NAME] or UNNAMED)
        return logger, stream, device, logger._clock(), _mark()

    def end(self, entry: Entry, kind: type[BaseException] | None = None) -> None:
        """End the span that `begin` started, with the type of the exception that ended it."""
        now = _mark()
        logger, stream, device, t, mark = entry
        if stream is not logger._stream:
            return  # a forked child: the span is its parent's
        step = logger._steps.task.get()
        if step is None:
            step = logger._steps.process
        err = None if kind is None or kind is GeneratorExit else kind.__name__
        ended = (t, now - mark, step, self._name, lanes.current(), err)
        if device is not None and device.end(ended, logger, stream):
            return
        waiting = stream.ended_spans
        waiting.append(ended)
        if len(waiting) >= MOST_WAITING:
            stream.collect()

    def failed(self, error: Exception) -> None:
        """Count an error of our own; one that the job's signal handler raised goes on."""
        if raised_by_signal(error):
            raise error
        self._find().failed("span", error)

    def refuse(self, why: str) -> None:
        """Say of this span, once, what it cannot do."""
        self._find().told("span", f"span {self._name[:200]}", f"span({self._name!r:.200}): {why}")

    def _nest(self, entry: Entry) -> None:
        lane = lanes.current()
        if self._more is None:
            self._more = {}
        self._more[lane] = (entry, self._more.get(lane))

    def _innermost(self, more: dict[Any, tuple[Entry, Any]]) -> Entry | None:
        """The entry that ends here."""
        lane = lanes.current()
        found = more.pop(lane, None)
        if found is None:
            entry, self._open = self._open, None
            # None of both: left in another lane than entered (a generator closed elsewhere).
            return entry if entry is not None or not more else more.popitem()[1][0]
        if found[1] is not None:
            more[lane] = found[1]
        return found[0]


def make(find: Callable[[], Logger], name: Any, timer: str = "cpu", memory: bool = False) -> Any:
    """A Span; around the function itself where that is given instead of a name."""
    try:
        given = name if isinstance(name, str) else str(getattr(name, "__qualname__", name))
    except Exception as error:  # the name's own code may raise anything
        if raised_by_signal(error):
            raise
        given = UNNAMED
    span = Span(find, given, None if timer == "cpu" and not memory else DeviceProbe(timer, memory))
    decorated = isinstance(name, classmethod) or (callable(name) and not isinstance(name, type))
    return span(name) if decorated else span
