"""An older row function: its number is one less, and every value of a row is greater by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlship_sidecar.pipeline import experiment
from rlship_sidecar.reduce import rules
from rlship_sidecar.streams import streaming

Put = Callable[[object, str, object], object]

OLDER = rules.ROW_FUNCTION - 1
MAKERS = ((experiment, "reduce_unit"), *((streaming, name) for name in ("clock_row", "aligned_row", "point_row")))


def make_older(put: Put = setattr) -> None:
    """Put the older function in place of this tree's; `put` may be a monkeypatch's, which takes it back."""
    put(rules, "ROW_FUNCTION", OLDER)
    for module, name in MAKERS:
        put(module, name, _older(getattr(module, name)))
    put(streaming, "point_again", _older(streaming.point_again))


def _older(make: Callable[..., Any]) -> Callable[..., Any]:
    def older(*given: Any) -> Any:
        row = make(*given)
        return row and replace(row, values={key: value + 1.0 for key, value in row.values.items()})

    return older
