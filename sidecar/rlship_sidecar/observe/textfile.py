"""Metrics in a file, for node_exporter's textfile collector: for hosts where no port may be opened, such as login
nodes.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from rlship_sidecar import state_file
from rlship_sidecar.observe.exposition import Exposition
from rlship_sidecar.observe.pulse import Pulse

EVERY_S = 15.0


class Textfile:
    """Writes the file every `every_s` seconds and at the end.

    A reader sees the old or the new file, never half of one, and any user may read it. When writes begin to fail, one
    message reports it.
    """

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._say = say
        self._every_s = every_s
        self._clock = clock
        self._exposition: Exposition | None = None
        self._next = 0.0
        self._failing = False

    def __call__(self, pulse: Pulse, last: bool) -> None:
        """Write the file if it is due, after each report of the loop."""
        now = self._clock()
        if now < self._next and not last:
            return
        self._next = now + self._every_s
        self._exposition = self._exposition or Exposition(pulse)
        try:
            self._write(self._exposition.text()[0])
            self._failing = False
        except OSError as problem:
            if not self._failing:
                self._say(f"the metrics cannot be written to {self._path}: {problem.strerror}; trying again")
            self._failing = True

    def _write(self, text: bytes) -> None:
        # A rename would replace a device, /dev/stdout or a FIFO by a file, for the whole machine.
        if os.path.lexists(self._path) and not stat.S_ISREG(os.lstat(self._path).st_mode):
            raise OSError(errno.EINVAL, "something is there that is no regular file")
        # Not durable, because it is outdated after 15 s anyway. Readable for all, because the collector is another
        # user.
        with state_file.replacing(self._path, durable=False, mode=0o644) as file:
            file.write(text)
