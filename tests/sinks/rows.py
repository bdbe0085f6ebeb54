"""Rows for the tests of sinks, and a store that keeps them in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from rlship_sidecar.run_data.merging import RunData
from rlship_sidecar.sinks.contract import Run

T0 = 1763600000.0


def make_row(
    no: int,
    *,
    actor: str = "trainer",
    step: int | None = None,
    values: dict[str, float] | None = None,
    missing: tuple[str, ...] = (),
    revision: int = 0,
    changed: tuple[str, ...] = (),
    axis: str = "global_step",
) -> Row:
    """Row `no` of an actor with two ranks; its step is its number unless given, and so is its loss."""
    at = no if step is None else step
    return Row(
        Unit(actor, "step", at),
        T0 + no,
        {axis: at},
        {f"{actor}/loss": float(no)} if values is None else values,
        Coverage(("0.0-1",), 2 + len(missing), missing=missing, attempts=(0,)),
        Arrival(no, revision, changed, "complete"),
    )


def make_rows(first: int, end: int) -> list[Row]:
    """The rows first..end-1."""
    return [make_row(no) for no in range(first, end)]


def make_run(folder: Path, *, store_id: str = "store1", rows: int = 0, **options: Any) -> Run:
    """An experiment in `folder`, with the state folder that the sidecar makes before it opens a sink."""
    (folder / "rlship" / "state").mkdir(parents=True, exist_ok=True)
    return Run("grpo", folder, folder / "rlship" / "state", store_id, rows, options)


class MemorySource:
    """A RowSource over a list; `append` commits rows."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows = list(rows)
        self.cursors: dict[str, int] = {}
        self.run: tuple[int, RunData] = (0, RunData())
        self._lock = threading.Lock()

    def append(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self.rows.extend(rows)

    def row_count(self) -> int:
        with self._lock:
            return len(self.rows)

    def read_rows(self, first: int, limit: int) -> list[Row]:
        with self._lock:
            return self.rows[first : first + limit]

    def say(self, **data: Any) -> None:
        """Commit other data of the run."""
        with self._lock:
            self.run = (self.run[0] + 1, RunData(**{"actors": ["trainer"], **data}))

    def run_version(self) -> int:
        with self._lock:
            return self.run[0]

    def read_run(self) -> RunData:
        with self._lock:
            return self.run[1]

    def load_cursor(self, key: str) -> int:
        with self._lock:
            return self.cursors.get(key, 0)

    def save_cursor(self, key: str, row_number: int) -> None:
        with self._lock:
            self.cursors[key] = row_number
