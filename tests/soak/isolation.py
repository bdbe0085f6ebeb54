"""Namespaces of its own for a campaign, where the system gives them: mounts for disks that can be filled, host names
for sidecars that believe to be elsewhere, and process ids, so that nothing outlives it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MARK = "SOAK_ISOLATED"
_RENAMED = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
# A shell as the first process of the namespace: it reaps what loses its parent.
_FIRST = ("/bin/sh", "-c", '"$@"; exit "$?"', "sh")


def command() -> list[str] | None:
    """What to put before a command so that it runs in namespaces of its own; None where the system allows none."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    given = [unshare, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
    if os.geteuid() != 0:
        given.insert(1, "--map-root-user")
    tried = subprocess.run([*given, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()], capture_output=True)
    return given if tried.returncode == 0 else None


def enter(arguments: Sequence[str]) -> None:
    """Become the same program with `arguments` in namespaces of its own; returns where that cannot be, or is so."""
    if MARK in os.environ or (given := command()) is None:
        return
    os.environ[MARK] = "1"
    os.execv(given[0], [*given, *_FIRST, sys.executable, "-m", "tests.soak", *arguments])


def isolated() -> bool:
    """Whether `enter` has done it: only then may anything be mounted."""
    return MARK in os.environ


def elsewhere(host: str, argv: Sequence[str]) -> list[str]:
    """The command under another host name; only where `isolated`."""
    return ["unshare", "--uts", sys.executable, "-c", _RENAMED, host, *argv]


class Disk:
    """A small filesystem in memory at `folder`, which must be empty."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._filler = folder / ".filler"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)

    def fill(self) -> int:
        """Leave no byte free; returns how many there were."""
        filled = 0
        fd = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (1 << 20, 1 << 12):
                block = bytes(size)
                while True:
                    written = os.write(fd, block)
                    filled += written
                    if written < size:
                        break
        except OSError:
            pass  # full
        finally:
            os.close(fd)
        return filled

    def empty(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it, also while something in it is still open."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
