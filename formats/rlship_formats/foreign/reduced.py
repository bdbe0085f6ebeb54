"""Lines of values that a framework has reduced over its ranks itself. A row shows each of them as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlship_formats.foreign.contract import Record
from rlship_formats.foreign.parsing import is_number

_MAX_DEPTH = 8


def as_it_is(metric: str) -> str:
    """The reduction of values: the last one of a step counts, since a restart may log it again in the same file."""
    return "last"


def reduced(
    values: Mapping[str, Any], step: int | None, t: float | None = None, how: Callable[[str], str] = as_it_is
) -> list[Record]:
    """The records of a line: a metric for each number, with the reduction that `how` returns. Lists of numbers are
    observations and get the usual reductions; objects are folders of names. Texts, null and anything nested deeper
    than 8 are left out. A line without a number has no records.
    """
    metrics = dict(_flat(values, "", _MAX_DEPTH))
    if not metrics:
        return []
    record: Record = {} if t is None else {"t": t}
    if step is not None:
        record["step"] = step
    record["m"] = metrics
    single = {name: {"reduce": how(name)} for name, value in metrics.items() if not isinstance(value, list)}
    return [{"kind": "define", "m": single}, record] if single else [record]


def _flat(values: Mapping[str, Any], folder: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            if depth > 1:
                yield from _flat(value, f"{folder}{name}/", depth - 1)
        elif not name:
            continue
        elif isinstance(value, bool) or is_number(value) or _are_numbers(value):
            yield f"{folder}{name}", value


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(is_number(item) or item is None for item in value)
