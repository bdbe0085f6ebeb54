"""Experiments that cannot be worked on just now: why, when to try again, and what a person should hear of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from rlship_sidecar.config import Config, state_dir_for
from rlship_sidecar.daemon.watched import state_problem
from rlship_sidecar.errors import RlshipError
from rlship_sidecar.ownership.inherit import newest_store
from rlship_sidecar.report.terminal import clean
from rlship_sidecar.shortage import is_shortage, what_to_raise
from rlship_sidecar.store.store import StoreUnusable

MAX_SAID = 2000  # characters of a line

Say = Callable[[str], None]


class Setbacks:
    """`suspended` says of each experiment that was given up for now why; `any_unusable`, whether there ever was one."""

    def __init__(self, config: Config, say: Say) -> None:
        self.suspended: dict[Path, str] = {}
        self.any_unusable = False
        self._config = config
        self._say = say
        self._said: set[str] = set()
        self._retry_at: dict[Path, float] = {}
        self._left: dict[Path, object] = {}  # experiments whose stores cannot be used, as these were then

    def say_once(self, line: str, more: str = "") -> None:
        """Tell a person, unless that was told before; `more` is not compared."""
        if line not in self._said:
            self._said.add(line)
            self._say(line + more)

    def say_clean(self, line: str) -> None:
        """Tell a person once, without what a terminal would obey."""
        self.say_once(clean(line, MAX_SAID))

    def put_off(self, path: Path, seconds: float) -> None:
        """Do not try an experiment before so many seconds are over."""
        self._retry_at[path] = time.monotonic() + seconds

    def may_try(self, path: Path, now: float) -> bool:
        """Whether it is time to try an experiment, and its store is not the one that could not be used."""
        if now < self._retry_at.get(path, 0.0):
            return False
        if path in self._left and self._left[path] != newest_store(state_dir_for(path, self._config)):
            del self._left[path]
        return path not in self._left

    def over(self, path: Path) -> None:
        """The experiment is worked on."""
        self.suspended.pop(path, None)

    def short(self, path: Path, error: BaseException, retry_s: float) -> None:
        """The system could not give what the experiment needs: it is tried again, and nothing is wrong with it."""
        why = what_to_raise(error)
        self.suspended[path] = f"{path} {why}"
        self.put_off(path, retry_s)
        self.say_once(f"experiments wait: the first one, {path}, {why}; the others go on")

    def unusable(self, path: Path, problem: RlshipError, retry_s: float, *, again: bool) -> None:
        """The experiment cannot be worked on; `again`: it is tried again."""
        self.any_unusable = True
        self.suspended[path] = problem.message
        self.put_off(path, retry_s)
        more = f"; trying again every {retry_s:.0f} s" if again else ""
        self.say_once(f"{problem.message}. {problem.hint}".rstrip(". "), more)

    def leave_out(self, path: Path, problem: StoreUnusable, *, again: bool) -> None:
        """The store cannot be used: the experiment is left out until another one is in its place."""
        self._left[path] = newest_store(state_dir_for(path, self._config))
        self.any_unusable = True
        self.suspended[path] = problem.message
        more = "; it is left out until that is done" if again else ""
        self.say_once(f"{problem.message}. {problem.hint}".rstrip(". "), more)


def problem_of(path: Path, state_dir: Path, error: Exception) -> tuple[RlshipError, bool]:
    """What keeps an experiment's state from being used, and whether its folder is gone."""
    # Not Path.exists: that raises where a folder on the way may not be searched.
    gone = not isinstance(error, PermissionError) and not is_shortage(error) and not os.path.exists(state_dir)
    return state_problem(path, state_dir, error, gone=gone), gone
