"""What `record_metric` has seen since the last flush: one series per step and metric."""

from __future__ import annotations

from .encode import UnusableError, number, plain, plain_weights, size_of, weight_number
from .observations import Observations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .buffer import Buffer, Sized
    from .encode import Scalar

# A batch is written early at this size, so that a stalled disk cannot let it grow.
MOST_OBSERVATIONS = 1024


def observations(value: Any, weight: Any) -> tuple[list[Scalar], list[str] | None]:
    """What one call observes: plain values, and for each its encoded weight (None: 1 each). Raises UnusableError."""
    values: list[Scalar]
    if type(value) is float:
        values = [value]
    else:
        found = plain(value)
        values = found if isinstance(found, list) else [found]
        for item in values:
            if type(item) is int:
                number(item)  # raises for one that no double can hold
    return values, None if weight is None else _weights(weight, len(values))


def _weights(weight: Any, count: int) -> list[str]:
    found = plain_weights(weight)
    if not isinstance(found, list):
        return [weight_number(found)] * count
    if len(found) != count:
        raise UnusableError(f"{count} values have {len(found)} weights")
    return [*map(weight_number, found)]


class _Series:
    __slots__ = ("values", "weights")

    def __init__(self) -> None:
        self.values: list[Scalar] = []
        self.weights: list[str] | None = None


class Batch:
    """The series of one step; `t` is when its first observation came."""

    __slots__ = ("series", "t")

    def __init__(self, t: float) -> None:
        self.t = t
        self.series: dict[str, _Series] = {}

    def encoded(self) -> dict[str, str | Observations]:
        """Each series as a value of a metrics record: a number, an array, or values with weights."""
        found: dict[str, str | Observations] = {}
        for name, series in self.series.items():
            texts = [*map(number, series.values)]
            if series.weights is None and len(texts) == 1:
                found[name] = texts[0]
            else:
                found[name] = Observations(texts, series.weights)
        return found


class Batches:
    """The open batches of one Stream. Its caller holds the Stream's lock."""

    def __init__(self) -> None:
        self._open: dict[int | None, Batch] = {}
        self._leaving: list[tuple[int | None, Batch]] = []
        self._lines: list[Sized] = []
        self.count = 0

    def add(self, name: str, values: list[Scalar], weights: list[str] | None, step: int | None, t: float) -> None:
        """Add observations of one metric; `weights` are encoded already, one for each value, or None for 1 each."""
        batch = self._open.get(step)
        if batch is None:
            batch = self._open[step] = Batch(t)
        series = batch.series.get(name)
        if series is None:
            series = batch.series[name] = _Series()
        if weights is not None and series.weights is None:
            series.weights = ["1"] * len(series.values)
        series.values += values
        if series.weights is not None:
            series.weights += ["1"] * len(values) if weights is None else weights
        self.count += len(values)

    def holds(self, name: str) -> bool:
        """Whether an observation of `name` may not have been moved yet."""
        return bool(self._leaving or self._lines) or any(name in batch.series for batch in self._open.values())

    def move(
        self,
        upto: int | None,
        buffer: Buffer,
        pack: Callable[[dict[str, str | Observations], int | None, float], list[str]],
    ) -> None:
        """Move the batches of steps <= `upto` and that without a step, or all if it is None, into the buffer.

        A signal handler may raise in the middle. So what is moved goes from one place to the next by plain assignments
        with no call in between, and the next `move` goes on with what an interrupted one left.
        """
        due = {step: batch for step, batch in self._open.items() if upto is None or step is None or step <= upto}
        kept = {step: batch for step, batch in self._open.items() if step not in due}
        leaving = [*due.items()]
        count = sum(len(series.values) for batch in kept.values() for series in batch.series.values())
        self._leaving += leaving
        self._open = kept
        self.count = count
        buffer.move(self._lines)
        while self._leaving:
            step, batch = self._leaving[0]
            lines = [(line, size_of(line), step) for line in pack(batch.encoded(), step, batch.t)]
            self._lines += lines
            del self._leaving[0]
            buffer.move(self._lines)
