"""What a sidecar in a container made of an experiment, as its files on this host tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rlship_sidecar.report.status import Status, read_status
from rlship_sidecar.rows import Unit
from tests.endtoend.evidence import check_rows, newest, shipped, state_of
from tests.kit.waiting import wait_until

LIMIT_S = 120.0
ACTOR = "trainer"


class Watched:
    """An experiment, and how one sees what its sidecar said when something takes too long."""

    def __init__(self, experiment: Path, explain: Callable[[], str]) -> None:
        self.experiment = experiment
        self._explain = explain

    def count(self) -> int:
        """How many rows `rows.jsonl` has."""
        try:
            return (state_of(self.experiment) / "rows.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def until_rows(self, least: int) -> float:
        """Wait for so many rows; returns the seconds it took."""
        return self.until(lambda: self.count() >= least, f"{least} rows")

    def after(self, act: Callable[[], object], by: int = 20) -> float:
        """Do something that rows come after; returns the seconds until they had come, with those of `act`."""
        least, began = self.count() + by, time.monotonic()
        act()
        self.until_rows(least)
        return time.monotonic() - began

    def until_finished(self) -> float:
        """Wait until every writer has closed and every sink has confirmed every row."""

        def finished() -> bool:
            status = self.status()
            return status is not None and status.finished

        return self.until(finished, "a finished experiment")

    def until(self, condition: Callable[[], object], what: str) -> float:
        """Wait, and say what the sidecar said if that takes too long."""
        return wait_until(condition, lambda: f"{what}; {self.count()} rows; {self._explain()}", timeout_s=LIMIT_S)

    def status(self) -> Status | None:
        """The sidecar's last status."""
        return read_status(state_of(self.experiment))

    def until_seen_since(self, t: float) -> None:
        """Wait for a status that is newer than `t`, in Unix seconds."""

        def seen() -> bool:
            status = self.status()
            return status is not None and status.t > t

        self.until(seen, "a newer status")

    def check(self, steps: int) -> int:
        """Raise AssertionError unless every step of the trainer has its row, and each row is bit by bit what a slow
        reference makes of the files. Returns how many rows there are.
        """
        rows = shipped(self.experiment)
        check_rows(self.experiment, rows)
        have = {unit for unit in newest(rows) if unit.actor == ACTOR and unit.kind == "step"}
        assert have == {Unit(ACTOR, "step", step) for step in range(steps)}, f"{len(have)} of {steps} steps"
        return len(rows)
