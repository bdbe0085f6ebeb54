"""Functions of every kind with a span around each call.

The span of a coroutine covers what it awaits; that of a generator goes from its first item to its end, with what its
consumer does in between.
"""

from __future__ import annotations

from functools import partial, update_wrapper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import Any, TypeVar

    from .spans import Entry, Span

    F = TypeVar("F", bound=Callable[..., Any])

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
    """`function` with `span` around each of its calls; what is no function is given back as it is."""
    if isinstance(function, (staticmethod, classmethod)):  # what makes them so has to stay the outermost
        return type(function)(wrapped(span, function.__func__))
    if not callable(function) or isinstance(function, type):
        what = f"the class {function.__name__}" if isinstance(function, type) else f"a {type(function).__name__}"
        span.refuse(f"it is put around {what}, which is no function; put it around the function itself")
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
                    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the generator's
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


def _flags(function: Any) -> int:
    """What kind of function is called in the end. Not `inspect`, which takes longer to import than this package."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "__call__", None),  # noqa: B004 - its code is looked at
        "__code__",
        None,
    )
    flags: int = getattr(code, "co_flags", 0)
    # How `asyncio` and `inspect` mark functions that only give a coroutine back.
    marked = hasattr(function, "_is_coroutine_mark") or hasattr(function, "_is_coroutine")
    return flags | (0x80 if marked and not flags & (_GENERATOR | _ASYNC_GENERATOR) else 0)
