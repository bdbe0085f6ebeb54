"""The names of the reductions a metric may ask for."""

from __future__ import annotations

import enum

TYPE_CHECKING = False  # not from `typing`: importing that costs more than this whole module
if TYPE_CHECKING:
    from collections.abc import Iterable


class Reduce(str, enum.Enum):
    """How the observations of one metric, over all ranks of an actor, become one figure.

    A plain string of the same name (`"mean"`) is accepted wherever a member is.

    * `MEAN` (the default): weighted mean. `SUM`: weighted sum. `STD`: weighted population standard deviation.
    * `MIN`, `MAX`: of the observations, whatever their weight.
    * `FIRST`, `LAST`: in the order written, of the lowest rank that has any.
    * `COUNT`: how many finite observations there are.
    """

    MEAN = "mean"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    STD = "std"
    COUNT = "count"


NAMES = tuple(member.value for member in Reduce)


def reduction_names(reduce: str | Iterable[str]) -> list[str]:
    """The names in `reduce`, a `Reduce`, a string or several of them, without duplicates and in order.

    Raises ValueError where there is none, or one that does not exist.
    """
    given = [reduce] if isinstance(reduce, str) else list(reduce)
    found: list[str] = []
    for item in given:
        name = item.value if isinstance(item, Reduce) else item
        if name not in NAMES:
            raise ValueError(f"reduce={item!r} does not exist: use one or several of {', '.join(NAMES)}")
        if name not in found:
            found.append(name)
    if not found:
        raise ValueError(f"reduce={reduce!r} names no reduction: use one or several of {', '.join(NAMES)}")
    return found
