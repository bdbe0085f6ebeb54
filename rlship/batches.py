"""What `record_metric` has seen since the last flush: one series per step and metric."""

from __future__ import annotations

from .encode import Observations, UnusableError, number, plain, weight_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    found = plain(weight)
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
        """Whether an observation of `name` has not been written yet."""
        return any(name in batch.series for batch in self._open.values())

    def pop(self, upto: int | None = None) -> list[tuple[int | None, Batch]]:
        """Take the batches of steps <= `upto` and that without a step; all of them if `upto` is None."""
        steps = [step for step in self._open if upto is None or step is None or step <= upto]
        found = [(step, self._open.pop(step)) for step in steps]
        self.count -= sum(len(series.values) for _, batch in found for series in batch.series.values())
        return found
