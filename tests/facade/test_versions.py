"""The facade on other versions of W&B's package than that of the tests: all that are supported, and the newest one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.facade.jobs import ROOT, run
from tests.facade.test_frameworks import FRAMEWORKS, compare

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(300)]

VERSIONS = ("0.29.0", "0.30.0", "newest")


@pytest.fixture(scope="module", params=VERSIONS)
def packages(request: pytest.FixtureRequest) -> str:
    """A path for PYTHONPATH with this version before all others. pytest's cache keeps it, but for the newest."""
    version: str = request.param
    assert request.config.cache is not None
    folder = Path(request.config.cache.mkdir("wandb")) / version
    if version == "newest" or not (folder / "wandb").is_dir():
        asked = "wandb" if version == "newest" else f"wandb=={version}"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        done = subprocess.run([*command, "--target", str(folder), asked], capture_output=True, text=True)
        assert done.returncode == 0, f"{asked} cannot be installed, is there a package index? {done.stderr[-1000:]}"
    return os.pathsep.join((str(folder), str(ROOT)))


def test_the_version_is_the_one_that_was_asked_for(tmp_path: Path, packages: str) -> None:
    """The facade takes over the package of this version, from its own folder."""
    job = run(tmp_path, "print(wandb.__version__, wandb.__file__, wandb._rlship is not None)", PYTHONPATH=packages)
    version, file, taken = job.out.split()
    assert file.startswith(packages.partition(os.pathsep)[0]) and taken == "True"
    assert version in packages or "newest" in packages


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_calls_of(tmp_path: Path, packages: str, name: str) -> None:
    """Rows, config, tables and files of each framework's calls are those of W&B's own file by this version."""
    compare(tmp_path, FRAMEWORKS[name], PYTHONPATH=packages)
