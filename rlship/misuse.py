"""Calls that cannot be carried out as written: each kind is reported once, on stderr and in the file."""

from __future__ import annotations

import os
import sys

from .definitions import clashes, disagreements, misspelt
from .values import ALLOWED, READING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .definitions import Entries
    from .encode import LeftOut
    from .notices import Notices

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# If one call has so many values that cannot be metrics, it is a configuration or something else, not metrics.
_MIN_FOREIGN = 5
_SHOWN = 3


def caller() -> str:
    """The place in the job that called, such as "train.py:12"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class Misuse:
    """Reports each topic the first time and counts it every time. `report(where, message)` writes it into the file.

    Attributes: `dropped_values`, the number of values left out.
    """

    def __init__(
        self, notices: Notices, report: Callable[[str, str], object], refused: Callable[[int | None], object]
    ) -> None:
        self.dropped_values = 0
        self._notices = notices
        self._report = report
        self._refused = refused
        self._places: dict[str, str] = {}

    def tell(self, where: str, topic: str, message: str) -> None:
        """Report `message` unless `topic` was reported before. `where` is the call, or its subject."""
        if self._notices.once(topic, message):
            self._report(where, message)

    def refuse(self, call: str, message: str, kind: str = "") -> None:
        """Leave out a line that cannot be made: report it once for each call and kind of reason, and count it."""
        self.tell(call, f"refused {call} {kind}", message)
        self._refused(None)

    def unusable(self, name: str, value: Any, why: str) -> None:
        """Leave out a value that cannot be a metric: report it once for each name and kind of reason, and count it."""
        self.dropped_values += 1
        # The first words of a reason: what follows them is of the value, which may be another one each time.
        kind = " ".join(why.lstrip("0123456789 ").split()[:2]) if why else _type_name(value)
        # Other reasons are of a name, a weight or a size, and say themselves what is allowed.
        by_value = not why or why.startswith(READING)
        if not why:
            why = f"has a value of type {_type_name(value)} that is no metric; it is left out"
        else:
            why = f"is left out: {why}"
        message = f"{name[:200]!r} {why}"
        if by_value:
            message += f". Allowed: {ALLOWED}"
        if by_value and isinstance(value, str):
            message += ". float() makes a number of a text; event() and sample() take texts as they are"
        self.tell("value", f"value {name[:200]} {kind}", message)

    def renamed(self, key: Any) -> None:
        """Report a name that is no text: it is written as one."""
        self.tell(
            "name",
            f"name of type {_type_name(key)}",
            f"the name {key!r:.40} is of type {_type_name(key)}, and is written as {str(key)[:40]!r}: names of metrics "
            f"are texts",
        )

    def several(self, left_out: list[LeftOut]) -> list[LeftOut]:
        """Report all values that are no metrics together, if one call has so many that it is not a call of metrics.

        Returns those that it did not report.
        """
        kinds = [(name, value) for name, value, why in left_out if not why]
        if len(kinds) < _MIN_FOREIGN:
            return left_out
        self.dropped_values += len(kinds)
        some = ", ".join(f"{name[:60]!r} ({_type_name(value)})" for name, value in kinds[:_SHOWN])
        self.tell(
            "value",
            "values",
            f"{len(kinds)} values of one call are no metrics, such as {some}; they are left out. A configuration "
            f"belongs into config(…), texts into sample(). Allowed: {ALLOWED}",
        )
        return [one for one in left_out if one[2]]

    def compare(self, before: Entries, entries: Entries, by: str) -> None:
        """Report metrics for which `by`, a call of the job, declares other reductions than an earlier call did."""
        here = f"{by} at {caller()}"
        for name, earlier, later in disagreements(before, entries):
            effect = "from here on the later one holds"
            if by != "define":
                more = " and ".join(f"{name[:60]}/{one}" for one in later[1:])
                effect = f"both are kept, {name[:60]!r} is the {later[0]} and {more} beside it"
            self.tell(
                by,
                f"reductions {name[:200]}",
                f"{name[:200]!r} is declared twice differently: {' and '.join(earlier)} by "
                f"{self._places.get(name, 'an earlier call')}, {' and '.join(later)} after {here}; {effect}. Ask for "
                f"the same in both places, or for all in one define()",
            )
        for name in entries:
            self._places.setdefault(name, here)

    def clash(self, entries: Entries, logged: set[str]) -> None:
        """Report metrics that are logged under the key of a reduction that the job asks for."""
        for name, reduction, other in clashes(entries, logged):
            self.tell(
                "define",
                f"clash {other[:200]}",
                f"the {reduction} of {name[:200]!r}, which {self._places.get(name, 'a define')} asks for, would have "
                f"the key of the metric {other[:200]!r}, which is logged too: rows have the metric, and lack the "
                f"{reduction}. Give one of the two another name",
            )

    def undefined(self, entries: Entries, logged: set[str]) -> None:
        """Report names of `define` that are probably misspelt."""
        for name, twin in misspelt(entries, logged):
            self.tell(
                "define",
                f"misspelt {name[:200]}",
                f"{name[:200]!r} is declared by {self._places.get(name, 'define')} but not logged, and "
                f"{twin[:200]!r} is logged but not declared: if they are the same metric, give both the same name",
            )

    def back(self, call: str, step: int, promised: int, before: int | None = None) -> None:
        """Report a step that goes back behind the barrier `promised`, or only behind `before`, the step that was set.

        Repeating the same barrier is allowed.
        """
        if step < promised or (step == promised and call != "barrier"):
            after = f"barrier({promised})"
        elif before is not None and step < before:
            after = f"set_step({before})"
        else:
            return
        self.tell(
            call,
            "back",
            f"{call}({step}) goes back behind {after}: call rollback({step}) first if the job resumed from an older "
            f"checkpoint; to add to an earlier step, use log(…, step={step}) or `with step({step})`",
        )

    def forward(self, step: int, newest: int) -> None:
        """Report a rollback to a step that the process has not come to."""
        if 0 <= newest < step - 1:  # the checkpoint of step n may be the one from which step n + 1 begins
            self.tell(
                "rollback",
                "forward",
                f"rollback({step}) goes forward: the step of this process is {newest}. It is carried out. A "
                f"rollback names the step of the checkpoint that the job went back to; to go on at a later step, call "
                f"set_step({step})",
            )

    def after_barrier(self, call: str, step: int, *, counted: bool) -> None:
        """Report a call for `step` that comes right after its barrier, before any `log` of the next step.

        `counted`: a counted call of `log` passed that barrier.
        """
        if counted:
            self.tell(
                call,
                "after the barrier",
                f"{call}({'…, step=' if call == 'log' else ''}{step}) comes after the call that counted as step "
                f"{step}: nothing is lost, but a row of a step may appear without it and be revised later. With "
                f"count_steps a call of log is a whole step: log what belongs to a step in one call, or pass step= to "
                f"each call and call barrier(step) after the last one",
            )
            return
        self.tell(
            call,
            "after the barrier",
            f"{call}({'…, step=' if call == 'log' else ''}{step}) comes right after barrier({step}): nothing is lost, "
            f"but a row of a step may appear without it and be revised later. If a callback logs after the one that "
            f"calls barrier, or more than once a step (transformers calls on_log after on_step_end, and again after "
            f"an evaluation), call barrier({step}) at the start of the next step (transformers: in on_step_begin), and "
            f"that of the last step at the end (on_train_end)",
        )

    def step_on_device(self, step: Any, call: str) -> None:
        """Report a step that has to be read from a GPU."""
        if getattr(step, "is_cuda", False):
            self.tell(
                call,
                "step on a GPU",
                f"{call}: the step is a tensor on a GPU, and reading it waits for the device each time: count steps "
                f"with an int",
            )


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
