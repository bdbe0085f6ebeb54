"""The rows of a table that is logged again and again, without those that were logged before. Pure."""

from __future__ import annotations

import weakref

from ..steps import whole_step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_STEPS = ("step", "global_step")
_SCORES = ("reward", "rewards", "score", "total_reward")
_MAX_TABLES = 1000


class Tables:
    """What was logged of each table by its key, as fingerprints of its rows.

    A job may log a table that grows, or make a new one each time with all rows so far. Both begin with the rows that
    were logged before. A table that begins otherwise is new as a whole. So is an equal one in another object, as a
    later evaluation may have the same answers, unless it is of the same step.
    """

    def __init__(self) -> None:
        self._logged: dict[str, tuple[weakref.ref[Any], list[int], int | None]] = {}

    def new_rows(self, key: str, table: Any, step: int | None = None) -> Sequence[Sequence[Any]]:
        """The rows of `table` that were not logged under `key` before. Without a step of the call, that counts which
        all rows name.
        """
        rows = list(table.data)
        at = step_in(column_names(table), rows) if step is None else step
        marks = [_mark(row) for row in rows]
        logged = self._logged.get(key)
        before = logged[1] if logged is not None else []
        again = logged is not None and (logged[0]() is table or (at is not None and logged[2] == at))
        grown = len(before) < len(marks) or again
        known = len(before) if before and grown and marks[: len(before)] == before else 0
        if key in self._logged or len(self._logged) < _MAX_TABLES:
            self._logged[key] = weakref.ref(table), marks, at
        return rows[known:]


def _mark(row: Any) -> int:
    """A number that is the same for equal rows, and hardly ever for two others."""
    return hash(tuple([cell if type(cell) is str else _text(cell) for cell in row]))


def _text(cell: Any) -> str:
    digest = getattr(cell, "_sha256", None)
    return f"{type(cell).__name__} {digest}" if isinstance(digest, str) else repr(cell)


def column_names(table: Any) -> list[str]:
    """The names of a table's columns; of equal ones all but the first are numbered."""
    found: list[str] = []
    for column in table.columns:
        name = str(column) or "_"
        found.append(name if name not in found else f"{name}.{len(found)}")
    return found


def step_in(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> int | None:
    """The one step that all rows name in their column `step` or `global_step`, else None."""
    place = next((place for place, name in enumerate(names) if name.lower() in _STEPS), None)
    if place is None:
        return None
    try:
        found = {whole_step(row[place]) for row in rows}
    except Exception:  # noqa: BLE001 - a cell's own code may raise anything; it names no step then
        return None
    return found.pop() if len(found) == 1 else None


def score_of(row: dict[str, Any]) -> float | None:
    """The number by which rows of a table are ranked: that of the first column that is called a reward or a score."""
    for name, value in row.items():
        if name.lower() in _SCORES and type(value) in (int, float) and value - value == 0:
            return float(value)
    return None
