"""Ended spans on their way into the buffer: records of how long things took."""

from __future__ import annotations

from . import lanes
from .encode import size_of
from .guard import raised_by_signal
from .records import span_form, span_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from .buffer import Buffer, Sized, Staged
    from .misuse import Misuse

    # Start, duration, step, name, lane, error. Steps and names are as the job gave them.
    Ended: TypeAlias = tuple[float, float, int | None, str, Any, str | None]

# When so many wait, spans are turned into lines early, so that a stalled disk cannot let them grow.
MAX_WAITING = 1024
MAX_NAME = 500
UNNAMED = "unnamed"
_MAX_FORMS = 1024


class Spans:
    """The ended spans of one Stream that are not lines yet. Adding to `waiting` needs no lock; `move` needs one.

    Calls `lost(step, error)` for each span that cannot be encoded and is left out.
    """

    def __init__(self, misuse: Misuse, lost: Callable[[int | None, Exception], object]) -> None:
        self._misuse = misuse
        self._tell_lost = lost
        self.waiting: list[Ended] = []
        self._staged: list[Staged] = []
        self._lines: list[Sized] = []
        self._lost: list[tuple[int | None, Exception]] = []
        self._forms: dict[str, str] = {}

    def move(self, buffer: Buffer) -> None:
        """Move all waiting spans into the buffer. An exception of a signal handler loses or doubles none."""
        waiting, staged = self.waiting, self._staged
        if waiting:
            count = len(waiting)
            lines, steps, lost = self._usable(waiting[:count])
            item = (lines, steps, sum(map(len if all(map(str.isascii, lines)) else size_of, lines)))
            # No call in between: see `Batches.move`.
            staged += (item,)
            self._lost += lost
            del waiting[:count]
        if staged and not buffer.extend(staged):  # nearly full: line by line, so that it counts the drops
            single = [(line, size_of(line), step) for lines, steps, _ in staged for line, step in zip(lines, steps)]
            self._lines += single
            del staged[:]
        if self._lines:
            buffer.move(self._lines)
        while self._lost:
            self._tell_lost(*self._lost[0])
            del self._lost[0]

    def metrics(self) -> set[str]:
        """The names of the metrics that the newest spans stand for."""
        return {f"{name}_s" for name in [*self._forms]}

    def line(
        self, t: float, dur: float, step: int | None, name: str, lane: Any, err: str | None, suffix: str = ""
    ) -> str:
        """One span's record; `suffix` is added to the name of its lane."""
        form = self._forms.get(name) or self._learn(name)
        return span_line(form, t, dur, step, lanes.text(lane, suffix), err)

    def _usable(self, spans: list[Ended]) -> tuple[list[str], list[int | None], list[tuple[int | None, Exception]]]:
        """Lines, their steps, and spans that cannot be encoded: kept, they would block all others forever."""
        try:
            return *self._encoded(spans), []
        except Exception as error:  # the code of a name or of a task may raise anything
            if raised_by_signal(error):
                raise
            if len(spans) == 1:
                return [], [], [(spans[0][2], error)]
        lines: list[str] = []
        steps: list[int | None] = []
        lost: list[tuple[int | None, Exception]] = []
        for span in spans:
            own_lines, own_steps, own_lost = self._usable([span])
            lines += own_lines
            steps += own_steps
            lost += own_lost
        return lines, steps, lost

    def _encoded(self, spans: list[Ended]) -> tuple[list[str], list[int | None]]:
        lines: list[str] = []
        steps: list[int | None] = []
        forms = self._forms
        known: Any = None
        where = ""
        for t, dur, step, name, lane, err in spans:
            steps.append(step)
            if step is None or err is not None:
                lines.append(self.line(t, dur, step, name, lane, err))
                continue
            if lane is not known:
                known, where = lane, lanes.text(lane)
            form = forms.get(name)
            if form is None:
                form = self._learn(name)
            lines.append(form % (t, dur, step, where))
        return lines, steps

    def _learn(self, name: str) -> str:
        if not 0 < len(name) <= MAX_NAME:
            wrong = f"has {len(name)} characters, {MAX_NAME} are allowed: it is shortened"
            if not name:
                wrong = f"is empty: {UNNAMED!r} stands in its place"
            self._misuse.tell("span", f"span name {name[:200]}", f"span({name[:40]!r}): the name {wrong}")
        form = span_form(name[:MAX_NAME] or UNNAMED)
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        self._forms[name] = form
        return form
