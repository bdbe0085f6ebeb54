"""At which step, and on which axis, the values of one call of W&B's `log` belong. Pure."""

from __future__ import annotations

import re

from ..steps import MAX_STEP, whole_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

# W&B's own count of committed calls.
COUNTER = "_step"
# Axes that W&B fills itself with a time.
_TIMES = frozenset(("_timestamp", "_runtime"))
_MAIN = frozenset(("train", "trainer", "training", "actor", "global"))
# Axes of work beside the training: one of them leads a run only if nothing else does.
_BESIDE = frozenset(
    (
        *("eval", "evaluation", "gpu", "inference", "monitor", "perf", "ray", "rollout"),
        *("system", "test", "val", "validation"),
    )
)


class Part:
    """Values of one call that belong together: to a step of an axis, or, with `step` None, to no step (a stream)."""

    __slots__ = ("axis", "step", "values")

    def __init__(self, axis: str | None, step: int | None) -> None:
        self.axis = axis
        self.step = step
        self.values: dict[str, Any] = {}


class Definitions:
    """What the job said by `define_metric`: the step metric of a name, or of all names with a beginning."""

    def __init__(self) -> None:
        self._exact: dict[str, str | None] = {}
        self._globs: dict[str, str | None] = {}
        self._found: dict[str, str | None] = {}
        self.axes: set[str] = set()

    def define(self, name: str, step_metric: str | None, overwrite: bool = False) -> None:
        """Take one call. A call without a step metric leaves an earlier one in place, unless it overwrites."""
        own = None if step_metric == COUNTER else step_metric
        table, key = (self._globs, name[:-1]) if name.endswith("*") else (self._exact, name)
        if own is None and not overwrite and table.get(key) is not None:
            return
        table[key] = own
        self._found.clear()
        self.axes = {axis for found in (self._exact, self._globs) for axis in found.values() if axis is not None}

    def axis_of(self, key: str) -> str | None:
        """The step metric of a key: its own, else that of the longest beginning; None if it has none."""
        if key in self._found:
            return self._found[key]
        if key in self._exact:
            found = self._exact[key]
        else:
            best = max((start for start in self._globs if key.startswith(start)), key=len, default=None)
            found = None if best is None else self._globs[best]
        if len(self._found) < 1 << 14:
            self._found[key] = found
        return found

    def lead(self) -> str | None:
        """The axis that leads the run, if the definitions say so: that of all metrics, else that of the training."""
        if self._globs.get("") is not None:
            return self._globs[""]
        return next((axis for axis in sorted(self.axes) if words(axis) & _MAIN and not words(axis) & _BESIDE), None)

    def leads(self, axis: str) -> bool:
        """True if `axis` may lead a run for which the definitions name no other."""
        return not words(axis) & _BESIDE


def words(name: str) -> set[str]:
    """The words of a name in lower case: `train/global_step` has train, global and step."""
    return {word for word in re.split(r"[^a-z]+", name.lower()) if word}


class Counter:
    """W&B's own steps: a call without `step` ends the row that it is in, unless it says `commit=False`."""

    def __init__(self, start: int = 0) -> None:
        self.at = start
        self.row = start  # the step of the newest row
        self.late = False  # whether the newest call was one for a row that was committed before
        self._row: dict[str, Any] = {}  # the axes' values of the row that is not committed

    def call(self, step: int | None, commit: bool | None, axes: Mapping[str, Any]) -> tuple[int, bool, dict[str, Any]]:
        """The row's step, whether this call ends the row, and the values of all axes in the row so far."""
        if step is not None and step > self.at:
            self.at = step
            self._row = {}
        here = self.at if step is None else step
        ends = commit if commit is not None else step is None
        self.late = here < self.at
        if self.late:  # a row that was committed before: nothing of the one at hand belongs to it
            return here, bool(ends), dict(axes)
        self.row = here
        self._row.update(axes)
        row = self._row
        if ends:
            self.at, self._row = min(here + 1, MAX_STEP), {}
        return here, bool(ends), row


class Router:
    """Decides for each call of one run to which steps of which axes its values belong.

    `main` is the axis of the run's own file, None as long as no line was written there.
    """

    def __init__(self, start: int = 0) -> None:
        self.definitions = Definitions()
        self.counter = Counter(start)
        self.main: str | None = None
        self._explicit = False  # whether `log` was ever called with `step=`
        self._fractional: set[str] = set()

    def route(
        self, values: Mapping[str, Any], step: int | None, commit: bool | None, *, counts: bool = True
    ) -> tuple[list[Part], bool]:
        """The parts of one call, and whether it ends a row of W&B's own steps.

        `values` are flat. Without `counts`, a call without step and axis belongs to no step, as in a child process,
        which does not know where the count of its parent is.
        """
        self._explicit = self._explicit or step is not None
        axes = {key: value for key, value in values.items() if key in self.definitions.axes}
        here, ends, row = self.counter.call(step, commit, axes)
        if not self.definitions.axes:
            self.main = self.main or COUNTER
            part = Part(COUNTER, here) if counts or step is not None else Part(None, None)
            part.values.update(values)
            return [part], ends
        steps = {axis: found for axis, value in row.items() if (found := self._step_of(axis, value)) is not None}
        if step is not None or (counts and self.definitions.lead() is None):
            steps[COUNTER] = here
        parts: dict[str | None, Part] = {}
        for key, value in values.items():
            if key not in axes:
                self._place(key, value, row, steps, parts)
        self._place_axes(axes, steps, parts)
        return [*parts.values()], ends

    def _place(
        self,
        key: str,
        value: Any,
        row: Mapping[str, Any],
        steps: Mapping[str, int],
        parts: dict[str | None, Part],
    ) -> None:
        """Put one value into the part to which it belongs."""
        axis = self.definitions.axis_of(key)
        if axis is None:
            axis = self._usual(steps)
        elif axis in row and axis not in steps:
            self._part(parts, None, steps).values[axis] = row[axis]  # a time or a fraction: kept as a value
        self._part(parts, axis, steps).values[key] = value

    def _place_axes(self, axes: Mapping[str, Any], steps: Mapping[str, int], parts: dict[str | None, Part]) -> None:
        """An axis' own value is the step of its part. One that no other value uses shows that its step was reached."""
        for axis, value in axes.items():
            if axis in parts or (None in parts and axis in parts[None].values):
                continue
            if axis in steps and (not parts or axis in (self.main, self.definitions.lead())):
                self._part(parts, axis, steps)
            else:
                self._part(parts, self._usual(steps), steps).values[axis] = value

    def _usual(self, steps: Mapping[str, int]) -> str | None:
        """The axis of a value without an axis of its own; None: a stream."""
        lead = self.main if self.main not in (None, COUNTER) else self.definitions.lead()
        if lead in steps:
            return lead
        return COUNTER if COUNTER in steps else None

    def _part(self, parts: dict[str | None, Part], axis: str | None, steps: Mapping[str, int]) -> Part:
        """The part of an axis; of the stream, if the row does not say at which step of it it is."""
        where = axis if axis in steps else None
        if where not in parts:
            parts[where] = Part(where, None if where is None else steps[where])
            self._begin(where)
        return parts[where]

    def _begin(self, axis: str | None) -> None:
        """Decide which axis is the run's own, once one has a line."""
        lead = self.definitions.lead()
        if self.main is None:
            if axis is None:
                self.main = lead or COUNTER
            elif axis in (COUNTER, lead) or (lead is None and self.definitions.leads(axis)):
                self.main = axis
        elif self.main == COUNTER and axis is not None and axis == lead and not self._explicit:
            self.main = axis  # the job logged a little before it named its axis

    def _step_of(self, axis: str, value: Any) -> int | None:
        """The step that an axis' value is; None for a time or a fraction, from the first one on."""
        if axis in self._fractional or axis in _TIMES:
            return None
        try:
            return whole_step(value)
        except Exception:  # noqa: BLE001 - the value's own code may raise anything; it is no step then
            self._fractional.add(axis)
            return None


def flat(data: Mapping[str, Any], is_group: Callable[[Any], bool]) -> dict[str, Any]:
    """`data` with the members of nested dicts under names joined by a dot, as W&B names them."""
    found: dict[str, Any] = {}
    waiting = [("", data, 0)]
    while waiting:
        prefix, group, depth = waiting.pop()
        for key, value in group.items():
            name = f"{prefix}{key}"
            if depth < _MAX_DEPTH and is_group(value):
                waiting.append((f"{name}.", value, depth + 1))
            else:
                found[name] = value
    return found


_MAX_DEPTH = 30
