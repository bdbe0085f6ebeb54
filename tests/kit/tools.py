"""Programs and packages that `make toolchains` installs and `make test` does without."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from types import ModuleType
from typing import NoReturn

import pytest

# The markers of tests that may need them; tests/conftest.py notes whether the running test has one.
MARKERS = ("toolchain", "ray", "long")
_allowed = True  # outside of pytest, as in benchmarks


def allow(allowed: bool) -> None:
    """Note whether the running test is marked as one that needs tools."""
    global _allowed
    _allowed = allowed


def path() -> str:
    """Where tools lie: beside this Python, where packages put theirs, on PATH, or where rustup installs."""
    rust = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
    return os.pathsep.join(
        (os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath), os.path.join(rust, "bin"))
    )


def needed(*tools: str) -> str:
    """The path of the first of `tools` that is there. Without any, the test fails in CI and is skipped elsewhere."""
    _check_marker(tools[0])
    found = next(filter(None, (shutil.which(tool, path=path()) for tool in tools)), None)
    return found or without(tools[0])


def module(name: str) -> ModuleType:
    """A package that the extra `toolchains` brings; without it as `needed`."""
    _check_marker(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        without(name)


def without(tool: str) -> NoReturn:
    """End a test that needs `tool`, which is not installed. pytest folds equal reasons into one line of its summary."""
    why = f"there is no {tool}: run `make toolchains`"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def _check_marker(tool: str) -> None:
    assert _allowed, f"a test that needs {tool} is marked with one of {', '.join(MARKERS)}: `make test` has no tools"
