"""The names of the reductions that a metric may request."""

from __future__ import annotations

import enum

TYPE_CHECKING = False  # not from `typing`: importing that costs more than this whole module
if TYPE_CHECKING:
    from collections.abc import Iterable


class Reduce(str, enum.Enum):
    """The function that reduces the observations of one metric, over all ranks of an actor, to one value.

    A plain string of the same name (`"mean"`) is accepted wherever a member is.

    * `MEAN` (the default): weighted mean. `SUM`: weighted sum. `STD`: weighted population standard deviation.
    * `MIN`, `MAX`: of the observations, regardless of their weight.
    * `FIRST`, `LAST`: in the order written, of the lowest rank that has any.
    * `COUNT`: the number of finite observations.
    * `P50`, `P90`, `P95`, `P99`: quantiles of the observations, regardless of weight. `HIST`: their histogram.
    * `RATE`: their sum per second.
    * `SUM_LAST`: of a level (a queue's length, a capacity), the sum over writers of the last one that each logged.

    A name with a dot in it (`"mypkg.trimmed_mean"`) is a reduction of your own, which the sidecar has installed.
    """

    MEAN = "mean"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    STD = "std"
    COUNT = "count"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    HIST = "hist"
    RATE = "rate"
    SUM_LAST = "sum_last"


NAMES = tuple(member.value for member in Reduce)
_MAX_NAME = 100  # what the format allows
_OWN = f"the name of your own reduction with a dot in it and at most {_MAX_NAME} characters"
_MEANT = {"median": " (the median is p50)", "avg": " (that is mean)", "average": " (that is mean)"}
_ALLOWED = f"use one or several of {', '.join(NAMES)}, or {_OWN}"


def reduction_names(reduce: str | Iterable[str]) -> list[str]:
    """The names in `reduce`, a `Reduce`, a string or several of them, without duplicates and in order.

    A name with a dot is passed through: only the sidecar can know whether that reduction exists. Raises ValueError if
    `reduce` is empty, or if a reduction does not exist.
    """
    given = [reduce] if isinstance(reduce, str) or not hasattr(reduce, "__iter__") else list(reduce)
    found: list[str] = []
    for item in given:
        name = item.value if isinstance(item, Reduce) else item
        if name not in NAMES and not (isinstance(name, str) and _is_own(name)):
            raise ValueError(f"reduce={item!r:.200} does not exist{_MEANT.get(str(item), '')}: {_ALLOWED}")
        if name not in found:
            found.append(name)
    if not found:
        raise ValueError(f"reduce={reduce!r:.200} names no reduction: {_ALLOWED}")
    return found


def _is_own(name: str) -> bool:
    """True if this may be the name of an entry point: short, with a dot inside."""
    return "." in name[1:-1] and len(name) <= _MAX_NAME and not any(c.isspace() for c in name)
