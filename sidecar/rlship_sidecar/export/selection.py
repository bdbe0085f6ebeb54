"""Which part of an experiment goes into a trace: a range of steps, and metrics as counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlship_formats.records import Open
from rlship_sidecar.steps import Steps, parse_steps

__all__ = ["STEP_AXIS", "Selection", "StepWindow", "Steps", "parse_steps"]

STEP_AXIS = "global_step"


@dataclass(slots=True)
class StepWindow:
    """The time of the kept steps, in µs of the common clock. It selects records without a step of that axis.

    `lowest` and `highest` cover all steps of that axis, kept or not.
    """

    start: int | None = None
    end: int | None = None
    lowest: int | None = None
    highest: int | None = None

    def there_is(self, step: int) -> None:
        """Record that a step exists."""
        self.lowest = step if self.lowest is None else min(self.lowest, step)
        self.highest = step if self.highest is None else max(self.highest, step)

    def widen(self, start: int, end: int) -> None:
        """Extend the window by a record of a kept step."""
        self.start = start if self.start is None else min(self.start, start)
        self.end = end if self.end is None else max(self.end, end)

    def touches(self, start: int, end: int) -> bool:
        """Whether an interval overlaps that time."""
        return self.start is not None and self.end is not None and start <= self.end and end >= self.start


@dataclass(slots=True)
class Selection:
    """What is kept. `steps` None keeps everything; `counters` are names of metrics, with or without the actor's.

    `metrics` collects the names of all metrics that could be counters.
    """

    steps: Steps | None = None
    counters: tuple[str, ...] = ()
    window: StepWindow = field(default_factory=StepWindow)
    metrics: set[str] = field(default_factory=set)

    def keeps(self, opened: Open, step: int | None, start: int, end: int) -> bool:
        """Whether a record is kept: by its step if its actor counts steps of the common axis, otherwise by its time."""
        if self.steps is None:
            return True
        if step is not None and opened.axis == STEP_AXIS:
            return step in self.steps
        return self.window.touches(start, end)

    def counts(self, actor: str, metric: str) -> bool:
        """Whether a metric is drawn as a counter."""
        self.metrics.add(metric)
        return metric in self.counters or f"{actor}/{metric}" in self.counters
