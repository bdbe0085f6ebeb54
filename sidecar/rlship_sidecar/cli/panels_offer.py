"""The line of `watch` that names `rlship panels`, once for each experiment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlship_sidecar.report.status import Status

OFFERED_FILE = "panels-offered"


class PanelsOffer:
    """Calls `say` with the command once W&B has rows of an experiment. A file in its state outlives this process."""

    def __init__(self, say: Callable[[str], None], state_dir_of: Callable[[Path], Path]) -> None:
        self._say = say
        self._state_dir_of = state_dir_of
        self._done: set[str] = set()

    def __call__(self, status: Status) -> None:
        """Look at a status of an experiment."""
        if status.experiment in self._done or not _has_rows_online(status):
            return
        self._done.add(status.experiment)
        if _is_first(self._state_dir_of(Path(status.experiment)) / OFFERED_FILE):
            self._say(f"for its panels at W&B: rlship panels --push {shlex.quote(status.experiment)}")


def _has_rows_online(status: Status) -> bool:
    return any(
        sink.name == "wandb" and sink.next_row > 0 and sink.where.startswith(("https://", "http://"))
        for sink in status.sinks
    )


def _is_first(file: Path) -> bool:
    """Whether the file was not there; it is from now on, if that is possible."""
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
    except FileExistsError:
        return False
    except OSError:  # a disk that is full, say: then the next process says it again
        return True
    return True
