"""The demo's news while the job learns: the reward, from the rows that the sidecar ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlship_sidecar.demo.report import REWARD, final_rows, series

PARTS = 10  # of the job; each ends with a line
BAR = 40  # characters of a reward of 1


class LearningReport:
    """Reads the jsonl sink's file as it grows, and prints the mean reward of each tenth of the steps."""

    def __init__(self, rows_file: Path, steps: int, echo: Callable[[str], object]) -> None:
        self._rows_file = rows_file
        self._steps = steps
        self._echo = echo
        self._read = 0
        self._rewards: dict[int, float] = {}
        self._printed = 0

    def __call__(self) -> None:
        """Print the tenths whose rows have appeared since the last call."""
        self._take_new_rows()
        while (until := self._steps * (self._printed + 1) // PARTS) - 1 in self._rewards:
            rewards = [x for step, x in self._rewards.items() if self._steps * self._printed // PARTS <= step < until]
            reward = sum(rewards) / len(rewards)
            self._echo(f"  step {until:>4} of {self._steps}   {REWARD} {reward:.2f}  {'█' * round(BAR * reward)}")
            self._printed += 1
            if self._printed == PARTS:
                break

    def _take_new_rows(self) -> None:
        if not self._rows_file.is_file():
            return
        with self._rows_file.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._read += len(whole) + 1
            self._rewards.update(series(final_rows(whole.split(b"\n")), REWARD))
