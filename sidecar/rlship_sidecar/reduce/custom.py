"""Reductions of other packages: entry points of the group `rlship.reductions`, with a dot in their names.

docs/reductions.md explains how to write one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from numbers import Real
from typing import Any, Protocol

from rlship_formats.values import is_custom
from rlship_sidecar.decode.lines import excerpt_of
from rlship_sidecar.reduce.values import UNDEFINED, ReducedValue

GROUP = "rlship.reductions"

_MAX_PROBLEMS = 100
_OPERATIONS = ("add", "merge", "value", "state", "from_state")
# Other people's code must not stop the sidecar: a module with a missing dependency may call `sys.exit`.
_ANY = (Exception, SystemExit)


class Accumulator(Protocol):
    """One metric's observations, as far as a reduction needs them. A new one is empty.

    Splitting the observations between two accumulators and merging them must give the same value, apart from rounding.
    """

    def add(self, x: float, weight: float) -> None:
        """Add a finite observation; its weight is >= 0, and 1.0 where the writer gave no weight."""

    def merge(self, other: Any) -> None:
        """Add the observations of another accumulator of this kind; they come after those here."""

    def value(self) -> float | None:
        """The value, a finite number; None if these observations have no value."""

    def state(self) -> Any:
        """The whole state as JSON: `from_state` makes an accumulator of it that continues from here."""

    @classmethod
    def from_state(cls, state: Any) -> Any:
        """The inverse of `state`."""


Observed = Iterable[tuple[float, float]]  # (x, weight) in file order


class Customs:
    """The installed reductions, each loaded when it is first used.

    A reduction that fails makes only its own value underivable; `problems` describes each failure once.
    """

    def __init__(self, points: Iterable[EntryPoint] | None = None) -> None:
        """`points` replaces the installed entry points."""
        found = entry_points(group=GROUP) if points is None else points
        self._points = {point.name: point for point in found if is_custom(point.name)}
        self._factories: dict[str, Callable[[], Accumulator] | None] = {}
        self.problems: dict[str, str] = {}

    def installed(self) -> dict[str, str]:
        """Where each reduction is defined, and which release of which distribution provides it."""
        return {
            name: f"{point.value} {point.dist.name} {point.dist.version}" if point.dist else point.value
            for name, point in sorted(self._points.items())
        }

    def value_of(self, name: str, parts: Iterable[Observed]) -> ReducedValue:
        """The value that a reduction gives for the parts of a unit, in merge order. Parts without observations do not
        count.
        """
        filled = [part for part in (list(part) for part in parts) if part]
        if not filled:
            return UNDEFINED
        make = self._factory(name)
        if make is None:
            return None
        try:
            return self._checked(name, _accumulated(make, filled).value())
        except _ANY as error:
            self._failed(name, f"raised {type(error).__name__}: {error}")
            return None

    def _checked(self, name: str, value: object) -> ReducedValue:
        if value is None:
            return UNDEFINED
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
            self._failed(name, f"gave {value!r}, which is no finite number")
            return None
        return float(value)

    def _factory(self, name: str) -> Callable[[], Accumulator] | None:
        if name in self._factories:
            return self._factories[name]
        make: Callable[[], Accumulator] | None = None
        point = self._points.get(name)
        if point is None:
            self._failed(
                name,
                f"is not installed where the sidecar runs: no entry point of the group {GROUP} has this name there",
            )
            return None
        try:
            make = point.load()
        except _ANY as error:
            self._failed(name, f"cannot be loaded from {point.value}: {type(error).__name__}: {error}")
        self._factories[name] = make
        return make

    def _failed(self, name: str, what: str) -> None:
        if name not in self.problems and len(self.problems) < _MAX_PROBLEMS:
            report = excerpt_of(what.encode("utf-8", "replace"))
            self.problems[name] = f"reduction {excerpt_of(name.encode('utf-8', 'replace'))} {report}"


def _accumulated(make: Callable[[], Accumulator], parts: Sequence[Observed]) -> Accumulator:
    merged: Accumulator | None = None
    for part in parts:
        accumulator = make()
        for x, weight in part:
            accumulator.add(x, weight)
        if merged is None:
            merged = accumulator
        else:
            merged.merge(accumulator)
    assert merged is not None
    return merged


def check(make: Callable[[], Accumulator], observations: Sequence[tuple[float, float]], *, rel: float = 1e-9) -> None:
    """For the tests of a reduction: raise AssertionError if its value depends on how the observations are split.

    It compares values within `rel`. A part may be merged itself, or be restored from its state.
    """
    lacking = [name for name in _OPERATIONS if not callable(getattr(make(), name, None))]
    if lacking:
        raise AssertionError(
            f"a reduction needs {', '.join(f'{name}()' for name in _OPERATIONS)}; lacking: {', '.join(lacking)}"
        )
    whole = _accumulated(make, [observations]).value()
    for cut in range(1, len(observations)):
        parts = [observations[:cut], observations[cut:]]
        merged = _accumulated(make, parts)
        first, second = (_accumulated(make, [part]) for part in parts)
        kind: Any = type(first)
        again = kind.from_state(json.loads(json.dumps(first.state(), allow_nan=False)))
        again.merge(kind.from_state(json.loads(json.dumps(second.state(), allow_nan=False))))
        for how, found in (("merged", merged.value()), ("merged from states", again.value())):
            same = found == whole if found is None or whole is None else math.isclose(found, whole, rel_tol=rel)
            if not same:
                raise AssertionError(f"{how} after {cut} of {len(observations)}: {found}, at once: {whole}")
