"""The implicit step: the step of a `log` that is called without one."""

from __future__ import annotations

from contextvars import ContextVar, Token

from .guard import raised_by_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, SupportsIndex

MAX_STEP = 2**53 - 1


def whole_step(step: SupportsIndex | float) -> int:
    """`step` as an integer in 0..2^53-1. Raises ValueError with the allowed values.

    Integers of any type and floats with an integral value (`3.0`) are accepted, also as a scalar of numpy, torch or
    jax; booleans are not.
    """
    found = None if isinstance(step, (bool, str)) else _integer(step)
    if found is None or not 0 <= found <= MAX_STEP:
        raise ValueError(f"step={step!r:.200} is not a step: use an integer from 0 to 2**53-1, or None for no step")
    return found


def _integer(step: Any) -> int | None:
    if isinstance(step, float):
        return int(step) if step.is_integer() else None
    try:
        return int(step.__index__())
    except (AttributeError, TypeError):
        pass  # not an integer; perhaps a scalar that holds an integral number
    item = getattr(step, "item", None)
    try:
        found = item() if callable(item) else None
    except (TypeError, ValueError, RuntimeError) as error:  # an array of several elements
        if raised_by_signal(error):
            raise
        return None
    return int(found) if isinstance(found, float) and found.is_integer() else None


class Steps:
    """The implicit step of one Logger: one for the process, and one for each task inside `with step(n)`.

    `counts` is the `count_steps` of `init`: True if each `log()` without `step=` is a step of its own, False if the job
    has no steps on purpose, None if it did not say. `stepless` counts the calls of `log` for which no step is known.
    `logged` is the step of the last `log`. `by_log` means that a `log` set the process's step, behind which `set_step`
    may go. `counted` is the newest step that a call of `log` counted as.
    """

    def __init__(self) -> None:
        self.process: int | None = None
        self.task: ContextVar[int | None] = ContextVar("rlship_step", default=None)
        self.counts: bool | None = None
        self.stepless = 0
        self.logged: int | None = None
        self.by_log = False
        self.counted: int | None = None

    def count(self, counts: bool) -> None:
        """Count calls of `log` as steps, from 0 on if no step is known, or do not count them on purpose."""
        self.counts = counts
        if counts and self.process is None:
            self.process = 0

    def current(self) -> int | None:
        """The step of this task if it is inside `with step(n)`, else the process's, else None."""
        own = self.task.get()
        return self.process if own is None else own

    def outside(self) -> int | None:
        """The process's step; None inside `with step(n)`, where any step may be set."""
        return self.process if self.task.get() is None else None

    def reach(self, step: int) -> None:
        """Go on to a step that `log` named. It never goes back, and changes nothing inside `with step(n)`."""
        if (self.process is None or step > self.process) and self.task.get() is None:
            self.process = step
            self.by_log = True

    def put(self, step: int) -> None:
        """Set the step: of this task if it is inside `with step(n)`, and of the process otherwise."""
        if self.task.get() is None:
            self.process = step
            self.by_log = False
        else:
            self.task.set(step)


class StepScope:
    """`with step(n)`: see `rlship.step`."""

    def __init__(self, steps: Steps, step: int | None) -> None:
        self._steps = steps
        self._step = step
        self._entered: list[tuple[Token[int | None], int | None]] = []

    def __enter__(self) -> int | None:
        before = self._steps.task.get()
        self._entered.append((self._steps.task.set(self._step), before))
        return self._step

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, before = self._entered.pop()
        try:
            self._steps.task.reset(token)
        except ValueError:  # left in another context than entered (an async generator closed elsewhere)
            self._steps.task.set(before)
