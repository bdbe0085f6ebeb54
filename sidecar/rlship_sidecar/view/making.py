"""Rows of an experiment that no sidecar has watched, made in a temporary folder while the page is open.

The work is that of a sidecar without sinks, in a process of its own: it follows the files as they grow, and ends with
the server. It writes nothing into the experiment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from rlship_sidecar.child_process import module_command
from rlship_sidecar.config import Config
from rlship_sidecar.launch.command import death_signal

MAX_AT_ONCE = 4
ENDS_S = 5.0


class Making:
    """The processes that make rows, each into its folder below `root`. At most `MAX_AT_ONCE` work; the oldest ends for
    a newer one, and keeps the rows that it made.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._die_with = death_signal(signal.SIGTERM)
        self._running: dict[Path, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def state_dir(self, experiment: Path) -> Path:
        """Where the rows of an experiment are made."""
        return self._root / "state" / experiment.resolve().name

    def has_begun(self, experiment: Path) -> bool:
        """Whether its rows were asked for."""
        return experiment in self._running

    def begin(self, directory: Path, experiment: Path) -> None:
        """See to it that rows are made, with the settings of `directory`. Raises OSError."""
        with self._lock:
            known = self._running.get(experiment)
            if known is not None and known.poll() is None:
                return
            living = [one for one in self._running if self._running[one].poll() is None]
            for oldest in living[: max(0, len(living) - MAX_AT_ONCE + 1)]:
                self._end(self._running[oldest])
            arguments = [os.fspath(directory), os.fspath(experiment), os.fspath(self._root / "state")]
            self._running[experiment] = subprocess.Popen(
                module_command("rlship_sidecar.view.making", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=self._die_with,
            )

    def is_working(self, experiment: Path) -> bool:
        """Whether the process of an experiment still runs."""
        process = self._running.get(experiment)
        return process is not None and process.poll() is None

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            for process in self._running.values():
                self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> None:
    """Make rows until SIGTERM: of the experiment that the command line names, with the settings of a folder."""
    directory, experiment, state = sys.argv[1:4]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rlship_sidecar import config
    from rlship_sidecar.daemon import loop

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=stop.set).start())
    below = None if os.path.realpath(directory) == os.path.realpath(experiment) else Path(experiment)
    settings = config.load(Path(directory), {}, os.environ, ships=False, experiment=below)
    loop.watch(Path(experiment), silent(settings, Path(state)), once=False, stop=stop)


def silent(settings: Config, state: Path) -> Config:
    """The settings of a sidecar that only makes rows, into a folder of its own, and tells no one."""
    off: dict[str, Any] = {"sinks": [], "notify": {}, "own_rows_s": 0.0, "metrics_port": None, "metrics_file": None}
    return msgspec.structs.replace(settings, state_dir=os.fspath(state), **off)


if __name__ == "__main__":
    main()
