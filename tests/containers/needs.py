"""What `make containers` and `make systemd` need of Debian, and of the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.kit import debian
from tests.kit.debian import Room

# Each program, and the package of Debian's that has it.
ENGINE: Mapping[str, str] = {
    "podman": "podman",
    "runc": "runc",
    "conmon": "conmon",
    "catatonit": "catatonit",
    "netavark": "netavark",
    "mmdebstrap": "mmdebstrap",
}
FREE_BYTES = 6 << 30


def provide(command: str, wanted: Mapping[str, str], folder: Path) -> None:
    """Install what is missing, as `debian.provide` does, if `folder` has room for images."""
    debian.provide(command, wanted, "mounts and for apt-get", Room(folder, FREE_BYTES))
