"""The settings of the folder that the page shows."""

from __future__ import annotations

import os
from pathlib import Path

from rlship_sidecar import config
from rlship_sidecar.config import Config


def load_settings(directory: Path, state_dir: str | None) -> tuple[Config, bool]:
    """The settings of a folder, and whether a person named the state folder. Raises UsageProblem."""
    settings = config.load(directory, {"state_dir": state_dir}, os.environ, ships=False)
    return settings, bool(state_dir or os.environ.get("RLSHIP_STATE_DIR"))
