"""`python -m rlship` as a real process, and waiting for what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rlship_sidecar.report.status import Status, read_status
from tests.kit.verbs import run_here
from tests.kit.waiting import wait_until
from tests.loopback.backend import isolated

DEADLINE_S = 60.0
NO_SETTINGS: Mapping[str, str] = {}
RLSHIP = (sys.executable, "-m", "rlship")


def environment(home: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The test's variables without the settings of its user, with a home of its own and `settings`. Unless these say
    otherwise there are no verdicts of alerts: the reference that rows are compared with has none.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RLSHIP", "WANDB")) and not name.lower().endswith("_proxy")
    }
    return {**kept, "RLSHIP_ALERTS": "false", **isolated(home), **settings}


def rlship(
    home: Path, *arguments: object, settings: Mapping[str, str] = NO_SETTINGS
) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end, in the folder of `home`, within this process."""
    return run_here(*arguments, cwd=home.parent, env=environment(home, settings))


class Sidecar:
    """One daemon, `rlship watch`. What it says on stderr goes to a file."""

    def __init__(
        self,
        directory: Path,
        sinks: Sequence[str],
        home: Path,
        settings: Mapping[str, str],
        nofile: int | None,
        launch: Sequence[str] = RLSHIP,
    ) -> None:
        self.directory = directory
        env = environment(home, settings)
        self._log = open(home / "sidecar.log", "w+")  # noqa: SIM115 - closed by `close`
        command = [*launch, "watch", str(directory)]
        command += [word for sink in sinks for word in ("--sink", sink)]
        if nofile is not None:
            command = ["/bin/sh", "-c", f'ulimit -n {nofile} && exec "$@"', "sh", *command]
        self.began = time.time()
        self.process = subprocess.Popen(command, cwd=home.parent, env=env, stdout=subprocess.DEVNULL, stderr=self._log)

    def said(self) -> str:
        """Its stderr so far."""
        self._log.seek(0)
        return self._log.read()

    def until(self, ready: Callable[[], bool], timeout_s: float = DEADLINE_S) -> float:
        """Wait until `ready()`, with the daemon alive all the time; returns the seconds it took."""

        def alive_and_ready() -> bool:
            assert self.process.poll() is None, f"the sidecar ended with {self.process.returncode}: {self.said()}"
            return ready()

        return wait_until(alive_and_ready, self.said, timeout_s=timeout_s)

    def until_status(self, ready: Callable[[Status], bool], experiment: Path | None = None) -> Status:
        """Wait until this daemon's `status.json` says so, and return it."""
        state = (experiment or self.directory) / "rlship" / "state"
        found: list[Status] = []

        def told() -> bool:
            status = read_status(state)
            if status is not None and status.t >= self.began and ready(status):
                found.append(status)
            return bool(found)

        self.until(told)
        return found[0]

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        """Make sure that nothing is left."""
        if self.process.poll() is None:
            self.kill()
        self._log.close()


@contextmanager
def watching(
    directory: Path,
    *sinks: str,
    home: Path,
    settings: Mapping[str, str] = NO_SETTINGS,
    nofile: int | None = None,
    launch: Sequence[str] = RLSHIP,
) -> Iterator[Sidecar]:
    """A daemon with these sinks (default: jsonl) on a folder, which is made before if need be. It is killed at the end
    unless it ended before; `nofile` limits its open files, soft and hard; `launch` is the command line up to the verb.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sidecar = Sidecar(directory, sinks or ("jsonl",), home, settings, nofile, launch)
    try:
        yield sidecar
    finally:
        sidecar.close()
