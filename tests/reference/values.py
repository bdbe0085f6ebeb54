"""What a metric's value becomes: section 6 of formats/SPEC.md, read literally."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

LAST_STEP = 2**53 - 1
NON_FINITE = ("NaN", "Infinity", "-Infinity")


class DeadLetterError(Exception):
    """The line, or one value, is a dead letter of this reason."""


@dataclass(frozen=True)
class Moments:
    """The page's nine. Where n > 0, None is unknown; where n = 0, min, max, first and last mean nothing."""

    n: int
    w: float
    sum: float | None
    m2: float | None
    min: float | None
    max: float | None
    first: float | None
    last: float | None
    nonfinite: int


def partials_of(value: Any) -> list[Moments]:
    """One moments per observation, in order, or that of the one summary."""
    if isinstance(value, list):
        return observations(value, [1.0] * len(value))
    if not isinstance(value, dict):
        return observations([value], [1.0])
    if "v" not in value:
        return summary(value)
    v, w = value["v"], value.get("w")
    if not (isinstance(v, list) and isinstance(w, list) and len(v) == len(w)):
        raise DeadLetterError("bad value")
    if not all(is_finite(weight) and weight >= 0 for weight in w):
        raise DeadLetterError("bad value")
    return observations(v, [float(weight) for weight in w])


def observations(v: list[Any], w: list[float]) -> list[Moments]:
    partials = []
    for x, weight in zip(v, w):
        if x is None:
            continue
        if isinstance(x, (int, float)):
            partials.append(observation(float(x), weight))
        elif isinstance(x, str) and x in NON_FINITE:
            partials.append(Moments(0, 0.0, 0.0, 0.0, None, None, None, None, nonfinite=0 if weight == 0 else 1))
        else:
            raise DeadLetterError("bad value")
    return partials


def observation(x: float, w: float) -> Moments:
    return Moments(n=1, w=w, sum=w * x, m2=0.0, min=x, max=x, first=x, last=x, nonfinite=0)


def summary(value: dict[str, Any]) -> list[Moments]:
    if not is_integer(value.get("n"), least=0):
        raise DeadLetterError("bad value")
    known = {name: value[name] for name in ("w", "sum", "min", "max", "first", "last", "m2") if name in value}
    if not all(is_finite(number) for number in known.values()) or known.get("w", 0) < 0 or known.get("m2", 0) < 0:
        raise DeadLetterError("bad value")
    if value["n"] == 0:
        return []
    given = {name: float(number) for name, number in known.items()}
    return [
        Moments(
            n=value["n"],
            w=given.get("w", float(value["n"])),
            sum=given.get("sum"),
            m2=given.get("m2") if "sum" in given else None,
            min=given.get("min"),
            max=given.get("max"),
            first=given.get("first"),
            last=given.get("last"),
            nonfinite=0,
        )
    ]


def bins(value: Any) -> tuple[tuple[float, ...], tuple[int, ...]] | None:
    """The edges and counts of a summary that has some that can be used."""
    if not isinstance(value, dict) or "v" in value:
        return None
    edges, counts = value.get("edges"), value.get("counts")
    if not isinstance(edges, list) or not isinstance(counts, list) or len(counts) < 1 or len(edges) != len(counts) + 1:
        return None
    if not all(is_finite(edge) for edge in edges) or not all(is_integer(count, least=0) for count in counts):
        return None
    if sorted(edges) != edges or sum(counts) != value["n"]:
        return None
    return tuple(float(edge) + 0.0 for edge in edges), tuple(counts)


def is_integer(value: Any, least: int | None = None) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def is_step(value: Any) -> TypeGuard[int]:
    return is_integer(value, least=0) and value <= LAST_STEP


def is_finite(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""
