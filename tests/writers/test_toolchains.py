"""What happens where a toolchain is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped

from tests.guards.tree import ROOT
from tests.writers.languages import needed


def test_without_its_tool_a_test_fails_in_ci_and_is_left_out_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both name the tool, and the command that installs it."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Failed, match="there is no no-such-compiler: run `make toolchains`"):
        needed("no-such-compiler")
    monkeypatch.delenv("CI")
    with pytest.raises(Skipped, match="there is no no-such-compiler: run `make toolchains`"):
        needed("no-such-compiler")


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
    missing = "gcc g++ dash busybox bash rustc nodejs npm systemd util-linux kubernetes-client"
    assert done.stderr.strip().endswith(f": {missing}")
