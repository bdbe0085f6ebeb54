"""Filesystems of Debian's packages, from the mirrors that apt uses here, and the wheels that go into them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.kit.debian import Missing

# In place of python:3.12-slim, which is at a registry.
PYTHON = ("python3", "python3-venv", "python-is-python3", "ca-certificates", "media-types")
FIELDS = "$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)"


def built(tarball: Path, packages: Sequence[str]) -> Path:
    """The tarball with these packages, made unless it is there."""
    if not tarball.exists():
        suite, mirrors = sources()
        part = tarball.with_suffix(".part")
        command = ["mmdebstrap", "--quiet", "--format=tar", "--variant=minbase", f"--include={','.join(packages)}"]
        _run([*command, suite, str(part), *mirrors])
        part.rename(tarball)
    return tarball


def sources() -> tuple[str, list[str]]:
    """The suite of this Debian, and the lines that say where apt takes its packages from. Raises Missing."""
    told = _run(["apt-get", "indextargets", "--format", FIELDS, "Created-By: Packages"])
    found = sorted({tuple(line.split("|")) for line in told.splitlines()})
    debian = [one for one in found if one[0] == "Debian"]
    suites = [release for _, codename, release, _, _ in debian if release == codename]
    if not suites:
        raise Missing("apt-get has no package lists of Debian here: run `apt-get update`, on Debian")
    return suites[0], [f"deb {address} {release} {part}" for _, _, release, address, part in debian]


def wheels(folder: Path, version: str, requirements: Sequence[Path]) -> Path:
    """The folder with the wheels of these requirements for Python `version`, fetched by the pip that runs this, as it
    is configured. So the build of the image needs no network, and no mirror gets into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", version, "--dest", str(folder)]
    for file in requirements:
        command += ["--requirement", str(file)]
    _run(command)
    return folder


def _run(command: list[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"`{' '.join(command)}` failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
