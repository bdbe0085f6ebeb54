"""What happens where a tool is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guards.tree import ROOT
from tests.kit import tools

TESTS = """
import pytest
from tests.kit.tools import module, needed

@pytest.mark.toolchain
@pytest.mark.parametrize("n", range(3))
def test_compiler(n): needed("no-such-compiler", "no-other")

@pytest.mark.ray
def test_package(): module("no_such_package")

@pytest.mark.toolchain
def test_shell(): needed("sh")
"""


def outcome(folder: Path, text: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """pytest on a module with this text, with the project's own settings."""
    (folder / "test_it.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
    options = ["-c", ROOT / "pyproject.toml", f"--rootdir={ROOT}", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, folder / "test_it.py"],
        env={**environment, "PYTHONPATH": str(ROOT), **settings},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_elsewhere_each_missing_tool_is_one_line_of_the_summary(tmp_path: Path) -> None:
    """It names the tool, how many tests lack it, and the command that installs it; the last line is pytest's."""
    done = outcome(tmp_path, TESTS)
    assert done.returncode == 0, done.stdout
    summary = done.stdout.partition("short test summary info")[2].splitlines()
    assert [line.split(" ", 2)[1] for line in summary if line.startswith("SKIPPED")] == ["[3]", "[1]"]
    assert [line.rpartition(": there")[2] for line in summary if line.startswith("SKIPPED")] == [
        " is no no-such-compiler: run `make toolchains`",
        " is no no_such_package: run `make toolchains`",
    ]
    assert "1 passed, 4 skipped" in summary[-1]


@pytest.mark.long
def test_in_ci_a_missing_tool_is_a_failure(tmp_path: Path) -> None:
    """Every test that lacks it fails, and names the tool and the command."""
    done = outcome(tmp_path, TESTS, CI="true")
    assert done.returncode == 1
    assert "4 failed, 1 passed" in done.stdout
    assert done.stdout.count("Failed: there is no no-such-compiler: run `make toolchains`") == 6


def test_an_unmarked_test_gets_no_tool(tmp_path: Path) -> None:
    """Even where the tool is installed the test fails: `make test` would need it on every machine."""
    done = outcome(tmp_path, 'from tests.kit.tools import needed\ndef test_it(): needed("sh")\n')
    assert done.returncode == 1
    assert "a test that needs sh is marked with one of toolchain, ray, long" in done.stdout


def test_a_tool_may_have_other_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first that is there is taken."""
    (tmp_path / "second").write_text("#!/bin/sh\n")
    (tmp_path / "second").chmod(0o755)
    monkeypatch.setattr(tools, "_allowed", True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.needed("no-such-first", "second") == str(tmp_path / "second")
