"""The programs and schemas of others that check what is deployed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.kit.tools import module, needed


def run(program: str, *arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    command = [needed(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})


def rendered(overlay: Path) -> list[dict[str, Any]]:
    """The objects that a kustomization makes, by kustomize alone or as a part of kubectl."""
    program = needed("kustomize", "kubectl")
    build = "build" if Path(program).name == "kustomize" else "kustomize"
    done = subprocess.run([program, build, overlay], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return [found for found in yaml.safe_load_all(done.stdout) if found is not None]


def validate(found: dict[str, Any]) -> None:
    """Raise ValueError unless an object is right, without unknown fields, for the first version of Kubernetes with
    native sidecars and for the newest that the installed schemas have.
    """
    schemas = module("kubernetes_validate")
    for version in ("1.29", schemas.latest_version()):
        try:
            schemas.validate(found, version, strict=True)
        except schemas.ValidationError as error:
            raise ValueError(f"not of Kubernetes {version}: {error}") from error
