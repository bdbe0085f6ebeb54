"""Experiments that are suspended: the reason, the time of the next attempt, and the messages to people."""

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

MAX_SAID = 2000  # characters of one message

Say = Callable[[str], None]


class Setbacks:
    """The suspended experiments.

    `suspended` maps each experiment to the reason. `any_unusable` is True once any experiment could not be used.
    """

    def __init__(self, config: Config, say: Say) -> None:
        self.suspended: dict[Path, str] = {}
        self.any_unusable = False
        self._config = config
        self._say = say
        self._said: set[str] = set()
        self._retry_at: dict[Path, float] = {}
        self._left: dict[Path, object] = {}  # maps experiments with unusable stores to the identity of that store

    def say_once(self, line: str, more: str = "") -> None:
        """Report a line, unless the same line was reported before; `more` is not compared."""
        if line not in self._said:
            self._said.add(line)
            self._say(line + more)

    def say_clean(self, line: str) -> None:
        """Report a line once, without control characters that a terminal would obey."""
        self.say_once(clean(line, MAX_SAID))

    def put_off(self, path: Path, seconds: float) -> None:
        """Do not try an experiment again for `seconds`."""
        self._retry_at[path] = time.monotonic() + seconds

    def may_try(self, path: Path, now: float) -> bool:
        """True if an experiment is due for another attempt, and its store is not the one that proved unusable."""
        if now < self._retry_at.get(path, 0.0):
            return False
        if path in self._left and self._left[path] != newest_store(state_dir_for(path, self._config)):
            del self._left[path]
        return path not in self._left

    def over(self, path: Path) -> None:
        """Remove an experiment that is open again."""
        self.suspended.pop(path, None)

    def short(self, path: Path, error: BaseException, retry_s: float) -> None:
        """Suspend an experiment for lack of system resources; nothing is wrong with the experiment itself."""
        why = what_to_raise(error)
        self.suspended[path] = f"{path} {why}"
        self.put_off(path, retry_s)
        self.say_once(f"experiments wait: the first one, {path}, {why}; the others go on")

    def unusable(self, path: Path, problem: RlshipError, retry_s: float, *, again: bool) -> None:
        """Suspend an experiment that cannot be used; `again`: it will be tried again."""
        self.any_unusable = True
        self.suspended[path] = problem.message
        self.put_off(path, retry_s)
        more = f"; trying again every {retry_s:.0f} s" if again else ""
        self.say_once(f"{problem.message}. {problem.hint}".rstrip(". "), more)

    def leave_out(self, path: Path, problem: StoreUnusable, *, again: bool) -> None:
        """Leave out an experiment with an unusable store until another store is in its place."""
        self._left[path] = newest_store(state_dir_for(path, self._config))
        self.any_unusable = True
        self.suspended[path] = problem.message
        more = "; it is left out until that is done" if again else ""
        self.say_once(f"{problem.message}. {problem.hint}".rstrip(". "), more)


def problem_of(path: Path, state_dir: Path, error: Exception) -> tuple[RlshipError, bool]:
    """The error that describes an unusable state, and True if the state's folder is gone."""
    # Not Path.exists: it raises if a folder on the way may not be searched.
    gone = not isinstance(error, PermissionError) and not is_shortage(error) and not os.path.exists(state_dir)
    return state_problem(path, state_dir, error, gone=gone), gone
