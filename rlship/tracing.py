"""`span` as jobs use it: a context manager, and a decorator of functions of every kind.

The span of a coroutine includes what it awaits. The span of a generator lasts from its first item to its end, including
the time that its consumer takes in between.
"""

from __future__ import annotations

import time
from functools import partial, update_wrapper

from . import lanes
from .gpu.spans import DeviceProbe
from .guard import raised_by_signal
from .spans import MAX_NAME, MAX_WAITING, UNNAMED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping
    from types import TracebackType
    from typing import Any, Protocol, TypeAlias, TypeVar

    from .gpu.spans import Measured
    from .spans import Ended
    from .steps import Steps

    F = TypeVar("F", bound=Callable[..., Any])

    class Staging(Protocol):
        """The parts of its Stream that a span needs. A forked child has another Stream."""

        live: bool
        unplaced: bool
        ended_spans: list[Ended]

        def collect(self) -> None: ...

    class Host(Protocol):
        """The parts of its Logger that a span needs."""

        stream: Any  # a Staging; measurements on a GPU need more of it
        steps: Steps
        clock: Callable[[], float]

        def start(self) -> bool: ...
        def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None: ...
        def fill_memory(self, step: int | None) -> None: ...
        def failed(self, where: str, error: Exception) -> None: ...
        def report(self, where: str, topic: str, message: str) -> None: ...

    # An open span: its Logger, the Logger's stream, the measurement on the device, start, and start by `_mark`.
    Entry: TypeAlias = tuple[Host, Staging, Measured | None, float, float]

_mark = time.perf_counter


class Span:
    """A context manager and decorator: see `rlship.span`. One object may be entered many times at once."""

    __slots__ = ("_device", "_find", "_more", "_name", "_open")

    def __init__(self, find: Callable[[], Host], name: str, device: DeviceProbe | None = None) -> None:
        self._find = find
        self._name = name
        self._device = device
        # The usual object is entered once at a time. Further entries meanwhile go into a dict, by lane; each holds the
        # enclosing entry of the same lane.
        self._open: Entry | None = None
        self._more: dict[Any, tuple[Entry, Any]] | None = None

    def __enter__(self) -> Span:
        try:
            host = self._find()
            stream = host.stream
            if stream.live or host.start():
                device = None if self._device is None else self._device.begin(stream, self._name[:MAX_NAME] or UNNAMED)
                if self._open is None:
                    self._open = host, stream, device, host.clock(), _mark()
                else:
                    self._nest((host, stream, device, host.clock(), _mark()))
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
        """Like `__enter__`, but returns the open span, to be ended with `end`. None if nothing is logged."""
        host = self._find()
        stream = host.stream
        if not stream.live and not host.start():
            return None
        device = None if self._device is None else self._device.begin(stream, self._name[:MAX_NAME] or UNNAMED)
        return host, stream, device, host.clock(), _mark()

    def end(self, entry: Entry, kind: type[BaseException] | None = None) -> None:
        """End the span that `begin` started, with the type of the exception that ended it."""
        now = _mark()
        host, stream, device, t, mark = entry
        if stream is not host.stream:
            return  # a forked child: the span is its parent's
        step = host.steps.task.get()
        if step is None:
            step = host.steps.process
            if step is None:
                stream.unplaced = True
        err = None if kind is None or kind is GeneratorExit else kind.__name__
        ended = (t, now - mark, step, self._name, lanes.current(), err)
        if device is not None and device.end(ended, host, stream):
            return
        waiting = stream.ended_spans
        waiting.append(ended)
        if len(waiting) >= MAX_WAITING:
            stream.collect()

    def failed(self, error: Exception) -> None:
        """Count an internal error; an error that the job's signal handler raised passes."""
        if raised_by_signal(error):
            raise error
        self._find().failed("span", error)

    def refuse(self, why: str) -> None:
        """Report, once, what this span cannot do."""
        self._find().report("span", f"span {self._name[:200]}", f"span({self._name!r:.200}): {why}")

    def _nest(self, entry: Entry) -> None:
        lane = lanes.current()
        if self._more is None:
            self._more = {}
        self._more[lane] = (entry, self._more.get(lane))

    def _innermost(self, more: dict[Any, tuple[Entry, Any]]) -> Entry | None:
        """Remove and return the entry that ends here."""
        lane = lanes.current()
        found = more.pop(lane, None)
        if found is None:
            entry, self._open = self._open, None
            # Neither holds it: it was left in another lane than entered (a generator closed elsewhere).
            return entry if entry is not None or not more else more.popitem()[1][0]
        if found[1] is not None:
            more[lane] = found[1]
        return found[0]


def make(find: Callable[[], Host], name: Any, timer: str = "cpu", memory: bool = False) -> Any:
    """A Span; if `name` is a function, the function with a span around it."""
    try:
        given = name if isinstance(name, str) else str(getattr(name, "__qualname__", name))
    except Exception as error:  # the name's own code may raise anything
        if raised_by_signal(error):
            raise
        given = UNNAMED
    span = Span(find, given, None if timer == "cpu" and not memory else DeviceProbe(timer, memory))
    decorated = isinstance(name, classmethod) or (callable(name) and not isinstance(name, type))
    return span(name) if decorated else span


_GENERATOR = 0x20
_COROUTINE = 0x80 | 0x100
_ASYNC_GENERATOR = 0x200


class _Call:
    """One call. Like the `with` statement of a Span, but its entry cannot be mixed up with that of another call."""

    __slots__ = ("_entry", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._entry: Entry | None = None
        try:
            self._entry = self._span.begin()
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            self._span.failed(error)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._entry is None:
            return
        try:
            self._span.end(self._entry, kind)
        except Exception as error:  # noqa: BLE001 - the promise is that logging never crashes the job
            self._span.failed(error)


def wrapped(span: Span, function: F) -> F:
    """`function` with `span` around each of its calls; anything but a function is returned unchanged."""
    if isinstance(function, (staticmethod, classmethod)):  # these have to stay the outermost wrapper
        return type(function)(wrapped(span, function.__func__))
    if not callable(function) or isinstance(function, type):
        what = f"the class {function.__name__}" if isinstance(function, type) else f"a {type(function).__name__}"
        span.refuse(f"it cannot wrap {what}, only a function; put it around the function itself")
        return function
    flags = _flags(function)
    around: Callable[..., Any]
    if flags & _ASYNC_GENERATOR:

        async def around(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with _Call(span):
                inner = function(*args, **kwargs)
                step = inner.__anext__()
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:  # noqa: BLE001 - any exception belongs to the generator
                        step = inner.athrow(error)
                    else:
                        step = inner.asend(sent)

    elif flags & _GENERATOR:

        def around(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with _Call(span):
                return (yield from function(*args, **kwargs))

    elif flags & _COROUTINE:

        async def around(*args: Any, **kwargs: Any) -> Any:
            with _Call(span):
                return await function(*args, **kwargs)

    else:

        def around(*args: Any, **kwargs: Any) -> Any:
            with _Call(span):
                return function(*args, **kwargs)

    return update_wrapper(around, function)  # type: ignore[return-value]


def is_coroutine_function(function: Any) -> bool:
    """True if what a call of `function` returns has to be awaited."""
    return bool(_flags(function) & _COROUTINE)


def _flags(function: Any) -> int:
    """The code flags of the function finally called. Not `inspect`, which takes longer to import than this package."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "__call__", None),  # noqa: B004 - only its code is read
        "__code__",
        None,
    )
    flags: int = getattr(code, "co_flags", 0)
    # `asyncio` and `inspect` mark functions that only return a coroutine in this way.
    marked = hasattr(function, "_is_coroutine_mark") or hasattr(function, "_is_coroutine")
    return flags | (0x80 if marked and not flags & (_GENERATOR | _ASYNC_GENERATOR) else 0)
