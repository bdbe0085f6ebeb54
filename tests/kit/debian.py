"""What a command needs of Debian: it is listed, and installed with apt before anything else begins."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/libexec/podman:/usr/lib/podman"


class Missing(Exception):
    """Something that the command cannot do without; the text says what, and the way out."""


class Room(NamedTuple):
    """So many free bytes in the filesystem of a folder, which is made."""

    folder: Path
    free: int


def provide(command: str, wanted: Mapping[str, str], root_for: str, room: Room | None = None) -> None:
    """Install what is missing of `wanted`, having said so: each program, and the package of Debian's that has it.
    Raises Missing before anything was done where this machine cannot run the command. `root_for` says what needs root.
    """
    packages = " ".join(sorted(set(wanted.values())))
    disk = f", {room.free >> 30} GB of disk" if room is not None else ""
    needs = f"{command} needs Debian or Ubuntu, root (for {root_for}){disk} and these packages: {packages}"
    if os.geteuid() != 0:
        raise Missing(f"{needs}. You are not root here: sudo {command}")
    if shutil.which("apt-get") is None:
        raise Missing(f"{needs}. There is no apt-get here: run it in a virtual machine with Debian 12 or newer")
    if room is not None:
        room.folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(room.folder).free) < room.free:
            raise Missing(f"{needs}. {room.folder} has {free >> 20} MB")
    lacking = sorted({package for program, package in wanted.items() if shutil.which(program, path=PLACES) is None})
    print(f"{command} needs {packages}", flush=True)
    if not lacking:
        return
    print(f"installing {' '.join(lacking)} with apt-get; they stay installed", flush=True)
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *lacking]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
