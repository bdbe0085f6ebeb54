"""A Python of its own for the job: that of the tests has rlship."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hook.jobs import CLEAN, Place


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment without any package."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, env=CLEAN)
    return str(home / "bin" / "python")


@pytest.fixture
def place(tmp_path: Path, bare: str) -> Place:
    """A job's folder, with a Python that has neither rlship nor a hook."""
    return Place(tmp_path, bare)
