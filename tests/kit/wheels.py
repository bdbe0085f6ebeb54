"""The wheel of the working tree."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from tests.guards.tree import ROOT


def clean_environment() -> dict[str, str]:
    """The environment without what changes where Python looks or who a writer is."""
    return {name: v for name, v in os.environ.items() if not name.startswith(("PYTHON", "RLSHIP_", "RANK", "WORLD_"))}


def built(folder: Path) -> Path:
    """Build the wheel into `folder`."""
    # Without hatchling beside the tests pip fetches it into a build environment of its own.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "-w", str(folder), str(ROOT)],
        check=True,
        env=clean_environment(),
    )
    (wheel,) = folder.glob("*.whl")
    return wheel
