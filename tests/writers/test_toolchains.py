"""What `make toolchains` says where it cannot install."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.guards.tree import ROOT


def test_what_cannot_be_installed_is_named(tmp_path: Path) -> None:
    """Where there is no package manager that it knows, `make toolchains` fails and names what is missing."""
    done = subprocess.run(
        ["/bin/sh", ROOT / "tests" / "writers" / "toolchains.sh", tmp_path],
        env={"PATH": "/nowhere", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    missing = "gcc g++ openssl dash busybox bash rustc nodejs npm python3-torch systemd util-linux"
    missing += " chromium fonts-dejavu-core prometheus-alertmanager kubernetes-client"
    assert done.stderr.strip().endswith(f": {missing}")
