"""The observations that `record_metric` collected since the last flush, and their records: one for each step.

The caller only appends to a list; sorting and encoding are done later, for many observations at once.
"""

from __future__ import annotations

from .encode import size_of
from .guard import raised_by_signal
from .values import Observations, UnusableError, number, plain, plain_weights, weight_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from .buffer import Buffer, Sized
    from .encode import Encoder
    from .values import Scalar

    Step: TypeAlias = int | None
    # Metric, value or values, step, weight or the encoded weights of the values. An entry without a metric marks
    # the time of the first observation of that step.
    Entry: TypeAlias = tuple[str | None, Any, Step, Any]
    Lost: TypeAlias = tuple[Step, Exception]  # the step of an entry that cannot be encoded, and the error

# A batch is written early at this size, so that a stalled disk cannot let it grow.
MAX_OBSERVATIONS = 1024
# A weight of these types, from 0 to `GREATEST`, needs no further check.
NUMBERS = frozenset((float, int))


def observations(value: Any, weight: Any) -> tuple[list[Scalar], list[str] | None]:
    """The plain values in one call, and the encoded weight of each (None: 1 each). Raises UnusableError."""
    values: list[Scalar]
    if type(value) is float:
        values = [value]
    else:
        found = plain(value)
        # A copy, because it may be the job's own list, which the job may change before it is written.
        values = [*found] if isinstance(found, list) else [found]
        for item in values:
            if type(item) is int:
                number(item)  # raises if no double can hold it
    return values, None if weight is None else _weights(weight, len(values))


def _weights(weight: Any, count: int) -> list[str]:
    found = plain_weights(weight)
    if not isinstance(found, list):
        return [weight_number(found)] * count
    if len(found) != count:
        raise UnusableError(f"{count} values have {len(found)} weights")
    return [*map(weight_number, found)]


_NOWHERE = object()


class Batches:
    """The observations of one Stream that are not lines yet. `add` needs no lock, `move` needs its caller's.

    Calls `lost(step, error)` for each observation that cannot be encoded and is left out.

    `entries` and `marked`, the last marked step, are for callers in a hurry: `if step is not batches.marked:
    batches.mark(step)`, then append to `entries`.
    """

    def __init__(self, clock: Callable[[], float], lost: Callable[[Step, Exception], object]) -> None:
        self.entries: list[Entry] = []
        self.marked: object = _NOWHERE
        self.values = 0  # the observations in arrays; one entry may hold many
        self._clock = clock
        self._tell_lost = lost
        self._lines: list[Sized] = []
        self._lost: list[Lost] = []

    def mark(self, step: Step) -> None:
        """Note the current time as that of the first observation of `step`."""
        self.entries.append((None, self._clock(), step, None))
        self.marked = step

    def add(self, name: str, values: list[Scalar], weights: list[str] | None, step: Step) -> None:
        """Add observations of one metric; `weights` are encoded already, one for each value, or None for 1 each."""
        if step is not self.marked:
            self.mark(step)
        self.entries.append((name, values, step, weights))
        self.values += len(values)

    @property
    def full(self) -> bool:
        """True if it is time to move."""
        return len(self.entries) + self.values >= MAX_OBSERVATIONS

    def holds(self, name: str) -> bool:
        """True if an observation of `name` may still wait to be moved."""
        return bool(self._lines) or any(entry[0] == name for entry in self.entries[:])

    def move(self, upto: int | None, buffer: Buffer, encoder: Encoder) -> None:
        """Move the observations of steps <= `upto` and those without a step, or all if it is None, into the buffer.

        A signal handler may raise in the middle. So data go from one place to the next by plain assignments, with no
        call in between. The next `move` continues where an interrupted one stopped.
        """
        entries = self.entries
        count = len(entries)
        if count:
            due = entries[:count]
            kept: list[Entry] = []
            if upto is not None:
                kept = [entry for entry in due if entry[2] is not None and entry[2] > upto]
                if kept:
                    due = [entry for entry in due if entry[2] is None or entry[2] <= upto]
            lines, lost = self._encoded(due, encoder)
            values = sum(len(entry[1]) for entry in kept if type(entry[1]) is list)
            self._lines += lines
            self._lost += lost
            entries[:count] = kept
            self.values = values
            self.marked = _NOWHERE
        if self._lines:
            buffer.move(self._lines)
        while self._lost:
            self._tell_lost(*self._lost[0])
            del self._lost[0]

    def _encoded(self, due: list[Entry], encoder: Encoder) -> tuple[list[Sized], list[Lost]]:
        """The records of these entries, and those that cannot be encoded: kept, they would block all others forever."""
        try:
            found = _by_step(due, self._clock)
            return [line for step, batch in found.items() for line in batch.lines(step, encoder)], []
        except Exception as error:  # a name's own code may raise anything
            if raised_by_signal(error):
                raise
            if len(due) == 1:
                return [], [(due[0][2], error)]
            together = error
        usable: list[Entry] = []
        lost: list[Lost] = []
        for entry in due:
            found_lost = self._encoded([entry], encoder)[1]
            if found_lost:
                lost += found_lost
            else:
                usable.append(entry)
        if not lost:  # each can be encoded, but not all together
            return [], [(entry[2], together) for entry in due if entry[0] is not None]
        lines, more = self._encoded(usable, encoder)
        return lines, lost + more


class _Batch:
    """The observations of one step; `t` is when the first one came."""

    __slots__ = ("first", "several", "t", "weights")

    def __init__(self, t: float) -> None:
        self.t = t
        self.first: dict[str, Scalar] = {}  # each metric's only value, or any value where `several` has its values
        self.several: dict[str, list[Scalar]] = {}
        self.weights: dict[str, list[str]] = {}

    def add(self, name: str, value: Any, weight: Any) -> None:
        """Add any entry."""
        array = type(value) is list
        values = value if array else [value]
        series = self.several.get(name)
        if series is None:
            series = self.several[name] = [self.first[name]] if name in self.first else []
        if weight is not None and name not in self.weights:
            self.weights[name] = ["1"] * len(series)
        if name in self.weights:
            if weight is None:
                self.weights[name] += ["1"] * len(values)
            else:
                self.weights[name] += weight if array else [weight_number(weight)]
        series += values
        self.first.setdefault(name, None)

    def lines(self, step: Step, encoder: Encoder) -> list[Sized]:
        """The records of this step."""
        if not self.several:
            line = encoder.line(self.first, step, self.t)
            if line is not None:
                return [(line, size_of(line), step)]
        found: dict[str, str | Observations] = {}
        for name, value in self.first.items():
            values = self.several.get(name)
            if values is None:
                found[name] = number(value)
            else:
                texts = _floats(values) or [*map(number, values)]
                weights = self.weights.get(name)
                found[name] = texts[0] if weights is None and len(texts) == 1 else Observations(texts, weights)
        return [(line, size_of(line), step) for line in encoder.pack(found, step, self.t)]


def _by_step(entries: list[Entry], clock: Callable[[], float]) -> dict[Step, _Batch]:
    found: dict[Step, _Batch] = {}
    batch = _Batch(0.0)
    first = batch.first
    current: object = _NOWHERE
    for name, value, step, weight in entries:
        if step is not current:
            current = step
            if step not in found:
                # A step has no mark if another thread was moving entries when this one was added.
                found[step] = _Batch(value if name is None else clock())
            batch = found[step]
            first = batch.first
        if name is None:
            continue
        if weight is not None or type(value) is list or batch.weights:
            batch.add(name, value, weight)
        elif name not in first:
            first[name] = value
        elif name in batch.several:
            batch.several[name].append(value)
        else:
            batch.add(name, value, None)
    return {step: batch for step, batch in found.items() if batch.first}


def _floats(values: list[Scalar]) -> list[str] | None:
    """Many observations as JSON at once; None unless all are finite floats other than zero.

    The first one decides which form they take: see `Encoder._learn`.
    """
    if len(values) == 1 or {*map(type, values)} != {float} or 0.0 in values:
        return None
    total: Any = sum(values)
    if total - total != 0:
        return None
    if len(repr(values[0])) <= 16:
        return [*map(float.__repr__, values)]
    return ("%.17g," * len(values) % (*values,)).split(",")[:-1]
