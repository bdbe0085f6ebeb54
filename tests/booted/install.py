"""What docs/systemd.md says to do, done: its commands are taken from the page, one after the other."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.booted.machine import Machine
from tests.guards.tree import ROOT

OUTPUTS = "/data/outputs"
USER = "alice"
HOME = f"/home/{USER}"
# What the build of the package needs, and the units.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py", "rlship", "formats", "sidecar", "systemd")
NO_INDEX: Mapping[str, str] = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def project(folder: Path) -> Path:
    """A copy of the project that can be built and installed."""
    made = folder / "project"
    made.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, made / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, made / name)
    return made


def commands(heading: str) -> list[str]:
    """The lines of the first shell block below a heading of the page."""
    page = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")
    below = page.partition(f"\n## {heading}\n")[2]
    found = re.search(r"```sh\n(.*?)```", below, re.DOTALL)
    assert found is not None, heading
    return [line for line in found[1].splitlines() if line.strip()]


def drop_ins() -> list[str]:
    """The drop-ins of the page, in order."""
    page = (ROOT / "docs" / "systemd.md").read_text(encoding="utf-8")
    return re.findall(r"```ini\n(.*?)```", page, re.DOTALL)


def prepare(machine: Machine) -> None:
    """A user, a folder of experiments for the group of the service, and an empty file for the key."""
    machine.sh(f"useradd --create-home {USER} && loginctl enable-linger {USER}")
    machine.sh("cp -r /mounted/project /src && chmod -R a+rX /src && : > /src/key")
    number = machine.sh(f"id -u {USER}")
    machine.sh(f"until systemctl is-active --quiet user@{number}; do sleep 0.1; done")


def with_root(machine: Machine) -> None:
    """The commands below "With root", but for the last, which shows the status."""
    *lines, last = commands("With root")
    assert "systemctl status" in last
    for line in lines:
        machine.sh(f"cd /src; {line}", environment=NO_INDEX)
    machine.sh(f"usermod -aG rlship {USER}")  # who logs there, as the page says
    machine.sh(f"cd /src; {last}")


def without_root(machine: Machine) -> None:
    """The commands below "Without root", but for `wandb login`, which asks W&B: without a key runs are offline."""
    given = " ".join(f"{name}={value}" for name, value in NO_INDEX.items())
    machine.sh(f"install -d {HOME}/outputs", user=USER)
    # Read by that user: a build leaves files in the sources.
    machine.sh(f"cp -r /src {HOME}/src && chown -R {USER} {HOME}/src")
    for line in commands("Without root"):
        if "wandb login" not in line:
            # A login, of which systemd knows.
            machine.sh(f"su -l {USER} -c {shlex.quote(f'cd {HOME}/src; export {given}; {line}')}")
