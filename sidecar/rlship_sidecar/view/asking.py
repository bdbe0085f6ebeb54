"""The parameters of a request, checked."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import cast

from rlship_sidecar.errors import UsageProblem
from rlship_sidecar.view.charts import Span
from rlship_sidecar.view.contract import Axis

MAX_STEP = 2**53
Parameters = Mapping[str, str]


def only(given: Parameters, allowed: Collection[str]) -> None:
    """Raise UsageProblem for a parameter that the request does not have."""
    for name in given:
        if name not in allowed:
            raise UsageProblem(
                f"there is no parameter {name[:100]!r} here", f"there are {', '.join(allowed)}" if allowed else ""
            )


def integer(given: Parameters, name: str, usual: int, low: int, high: int) -> int:
    """A whole number within bounds."""
    text = given.get(name, "")
    if not text:
        return usual
    found = _number(name, text)
    if found != int(found) or not low <= found <= high:
        raise UsageProblem(f"{name}={text[:40]}: a whole number from {low} to {high} is needed", f"such as {usual}")
    return int(found)


def step(given: Parameters, name: str) -> int | None:
    """A step, None if it is not given."""
    return integer(given, name, 0, 0, MAX_STEP) if given.get(name) else None


def real(given: Parameters, name: str) -> float | None:
    """A finite number, None if it is not given."""
    text = given.get(name, "")
    return _number(name, text) if text else None


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise UsageProblem(f"{name}={text[:40]}: a number is needed", "leave it out for the usual one")
    return found


def words(given: Parameters, name: str, most: int) -> list[str]:
    """A list with commas between its items."""
    found = [one for one in given.get(name, "").split(",") if one]
    if len(found) > most:
        raise UsageProblem(f"{name} has {len(found)} items, and {most} are allowed", "ask several times")
    return found


def axis(given: Parameters) -> Axis:
    """The axis of a chart."""
    text = given.get("axis", "step")
    if text not in ("step", "time"):
        raise UsageProblem(f"axis={text[:40]}: a chart has steps or times", "axis=step or axis=time")
    return cast(Axis, text)


def span(given: Parameters, usual: int, most: int) -> Span:
    """The part of a chart that is asked for."""
    low, high = real(given, "from"), real(given, "to")
    if low is not None and high is not None and low > high:
        raise UsageProblem(f"from={low:g} is behind to={high:g}", "the lesser one first")
    bound = 2.0**62
    low, high = (None if one is None else max(-bound, min(bound, one)) for one in (low, high))
    return Span(axis(given), low, high, integer(given, "points", usual, 1, most))
