"""podman with a store of its own: what the machine's podman has is neither seen nor touched, and nothing is left."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

LIMIT_S = 600.0
SAID = 4000  # characters of what failed
ENOUGH = 16_384  # files and processes


class Failed(Exception):
    """A command of podman's that failed; the text is what it said."""


class Engine:
    """`engine("run", …)` is `podman run …`. Use as a context manager: at the end every container, image and volume
    of it is removed.
    """

    def __init__(self, folder: Path) -> None:
        """Images and volumes are kept below `folder` meanwhile."""
        self._storage = Path(tempfile.mkdtemp(prefix="storage-", dir=folder))
        self._run = Path(tempfile.mkdtemp(prefix="rlship-podman-"))  # short: the paths of sockets are in it
        files, processes = (_most(which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
        # crun wants one version of cgroups; nothing may ask for higher limits than this process may set.
        settings = [
            "[containers]",
            f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]',
            'log_driver = "k8s-file"',
            "[engine]",
            'runtime = "runc"',
            'cgroup_manager = "cgroupfs"',
            'events_logger = "file"',
            'lock_type = "file"',
        ]
        (self._run / "containers.conf").write_text("\n".join(settings) + "\n")
        self._environment = {**os.environ, "CONTAINERS_CONF": str(self._run / "containers.conf")}

    def __enter__(self) -> Engine:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it is removed then, too
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        for words in (("pod", "rm", "-af", "-t", "0"), ("rm", "-af", "-t", "0"), ("volume", "rm", "-af")):
            self.tried(*words)
        self.tried("rmi", "-af")
        for folder in (self._storage, self._run):
            shutil.rmtree(folder, ignore_errors=True)

    def __call__(self, *words: object, given: str = "", limit_s: float = LIMIT_S) -> str:
        """What it prints; raises Failed."""
        done = self.tried(*words, given=given, limit_s=limit_s)
        if done.returncode:
            said = f"{done.stdout}{done.stderr}".strip()[-SAID:]
            raise Failed(f"`podman {' '.join(map(str, words))}` ended with {done.returncode}: {said}")
        return done.stdout.strip()

    def tried(self, *words: object, given: str = "", limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """The same, whatever its exit code."""
        return subprocess.run(
            [*self._command(), *map(str, words)],
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )

    def inspect(self, name: str, kind: str = "container") -> dict[str, Any]:
        """All that it knows of a container, or of another kind of thing."""
        (found,) = json.loads(self(kind, "inspect", name))
        return dict(found)

    def logs(self, name: str) -> str:
        """What a container has said so far, on both streams."""
        done = self.tried("logs", name)
        return done.stdout + done.stderr

    def _command(self) -> list[str]:
        return ["podman", "--root", str(self._storage), "--runroot", str(self._run / "run"), "--tmpdir", str(self._run)]


def _most(which: int) -> int:
    limit = resource.getrlimit(which)[1]
    return ENOUGH if limit == resource.RLIM_INFINITY else min(limit, ENOUGH)
