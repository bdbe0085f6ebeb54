"""Exceptions inside a call: the writer's own are caught, those of the job's signal handlers pass."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` itself takes a millisecond to import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

    class _Reporting(Protocol):
        def failed(self, where: str, error: Exception) -> None: ...

    P = ParamSpec("P")
    R = TypeVar("R")
    S = TypeVar("S", bound=_Reporting)


def raised_by_signal(error: BaseException) -> bool:
    """True if a signal handler of the job raised the error (a timeout, say), so that it must pass."""
    codes = set()
    for number in range(1, _signal.NSIG):
        handler = _signal.getsignal(number)
        handler = getattr(handler, "func", handler)  # of a functools.partial
        function = handler if hasattr(handler, "__code__") else getattr(handler, "__call__", None)  # noqa: B004
        codes.add(getattr(getattr(function, "__func__", function), "__code__", None))
    codes.discard(None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def safely(report: Callable[[Exception], object], call: Callable[..., R], *args: Any, **options: Any) -> R | None:
    """The result of a call. An error goes to `report` in the job's place, and the result is None."""
    try:
        return call(*args, **options)
    except Exception as error:  # the promise is that logging never crashes the job
        if raised_by_signal(error):
            raise
        report(error)
        return None


def guarded(fallback: R) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Make a Logger's method that never raises into the job: it counts and reports an error, and returns `fallback`."""

    def wrap(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        def safe(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # the promise is that logging never crashes the job
                if raised_by_signal(error):
                    raise
                self.failed(method.__name__, error)
                return fallback

        safe.__name__, safe.__qualname__ = method.__name__, method.__qualname__
        safe.__doc__, safe.__module__ = method.__doc__, method.__module__
        safe.__wrapped__ = method  # type: ignore[attr-defined]
        return safe

    return wrap
