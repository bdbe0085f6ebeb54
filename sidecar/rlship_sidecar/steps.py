"""A range of steps, in the form of the command line. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlship_formats.records import MAX_STEP
from rlship_sidecar.errors import UsageProblem

_RANGE = re.compile(r"(\d*)(:?)(\d*)")


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps from `first` to `last`, both included."""

    first: int = 0
    last: int = MAX_STEP

    def __contains__(self, step: int) -> bool:
        return self.first <= step <= self.last

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.last == MAX_STEP else self.last}"


def parse_steps(given: str, flag: str = "--step") -> Steps:
    """Parse `A:B`, `A:`, `:B` or a single step. Raises UsageProblem, which names the `flag`."""
    match = _RANGE.fullmatch(given.strip())
    hint = "give the first and the last step, such as 100:110; either may be left out, and 100 is that step alone"
    if match is None or not (match[1] or match[3]):
        raise UsageProblem(f"{flag} {given!r} is not a range of steps", hint)
    first = int(match[1] or 0)
    last = int(match[3]) if match[3] else (MAX_STEP if match[2] else first)
    if first > last:
        raise UsageProblem(f"{flag} {given!r} ends before it begins", hint)
    return Steps(first, last)
