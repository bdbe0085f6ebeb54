"""Workers and sidecars on the two clients, seen from the machine that is their file server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.endtoend.job import CLEAN, ROOT, Worker
from tests.endtoend.sidecar import Sidecar, environment

SERVED = Path("/srv/share")  # what the server has
MOUNTED = Path("/mnt/share")  # where both clients see it
_PATHS = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


class Host:
    """A client: its own network, name and mounts. `number` is 1 or 2."""

    def __init__(self, number: int) -> None:
        self.number = number
        pid = Path(f"/run/client{number}").read_text().strip()
        self.prefix = ["nsenter", "-t", pid, "-n", "-u", "-m", "--"]

    def run(self, *command: str) -> str:
        """Run a command there; returns its output, raises CalledProcessError."""
        done = subprocess.run([*self.prefix, *command], check=True, stdout=subprocess.PIPE, text=True, timeout=120)
        return done.stdout

    def cut(self) -> None:
        """No packet reaches the server any more."""
        subprocess.run(["ip", "link", "set", f"server{self.number}", "down"], check=True)

    def join(self) -> None:
        """Undo `cut`."""
        subprocess.run(["ip", "link", "set", f"server{self.number}", "up"], check=True)


class RemoteWorker(Worker):
    """A `Worker` on a host."""

    def __init__(self, host: Host, folder: str, actor: str, **facts: Any) -> None:
        self._unanswered = 0
        self.host = host
        self.process = subprocess.Popen(
            [*host.prefix, sys.executable, "-m", "tests.endtoend.worker"],
            cwd=ROOT,
            env={**CLEAN, **environment(Path("/root"), {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.tell("start", str(MOUNTED / folder), actor, **facts)


class RemoteSidecar(Sidecar):
    """A `Sidecar` on a host, whose experiment is looked at on the server."""

    def __init__(self, host: Host, folder: str, settings: Mapping[str, str]) -> None:
        self.directory = SERVED / folder
        home = Path(f"/tmp/home-{time.monotonic_ns()}")
        env = environment(home, settings)
        self._log = open(home / "sidecar.log", "w+")  # noqa: SIM115 - closed by `close`
        command = [*host.prefix, sys.executable, "-m", "rlship", "watch", str(MOUNTED / folder), "--sink", "jsonl"]
        self.began = time.time()
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=self._log)
