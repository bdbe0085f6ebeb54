"""The commands that the demo prints work as printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rlship_sidecar.demo import looks
from rlship_sidecar.demo.looks import QUESTION, commands


def a_program(folder: Path, name: str) -> Path:
    """A program that prints its arguments, one a line."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Python in a virtual environment below the working directory, not on the PATH."""
    home = tmp_path / ".venv" / "bin"
    monkeypatch.setattr(sys, "executable", str(a_program(home, "python")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not Path("/usr/bin/rlship").exists() else str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return home


def test_programs_on_the_path_are_called_by_name(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the shell finds a program its name is enough; paths with blanks are quoted."""
    for name in ("rlship", "tensorboard", "wandb"):
        a_program(tmp_path / "on-path", name)
    monkeypatch.setenv("PATH", str(tmp_path / "on-path"))
    assert commands(Path("/o/a b"), [Path("/o/tb")], [Path("/o/run")]) == [
        "rlship status '/o/a b'",
        f"rlship query '{QUESTION}' '/o/a b'",
        "rlship export --chrome-trace -o trace.json.gz '/o/a b'  # open it in https://ui.perfetto.dev",
        "tensorboard --logdir /o/tb",
        "wandb sync /o/run  # needs an account",
        "rlship view '/o/a b'  # the page, in a browser",
    ]


def test_programs_beside_python_are_called_by_their_path(python: Path, tmp_path: Path) -> None:
    """Where only the virtual environment has a program, the line has its path as seen from here, and works."""
    a_program(python, "rlship")
    a_program(python, "wandb")
    status, _, _, sync, _ = commands(Path("/o/a b"), [], [Path("/o/run")])
    assert status == ".venv/bin/rlship status '/o/a b'"
    assert sync == ".venv/bin/wandb sync /o/run  # needs an account"
    done = subprocess.run(["sh", "-c", status], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.stdout == "status\n/o/a b\n"


def test_a_program_that_is_not_there_is_installed_first(python: Path, tmp_path: Path) -> None:
    """Where a program is nowhere, the line begins with what installs it beside this Python."""
    (line,) = commands(Path("/o/demo"), [Path("/o/tb")], [])[3:4]
    assert line == ".venv/bin/python -m pip install tensorboard && .venv/bin/tensorboard --logdir /o/tb"


def test_packages_that_a_question_needs_are_installed_first(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this Python lacks DuckDB, the line begins with what installs it and what else is lacking."""
    a_program(python, "rlship")
    monkeypatch.setattr(looks, "find_spec", lambda name: None if name in ("duckdb", "pyarrow") else object())
    question = commands(Path("/o/demo"), [], [])[1]
    assert question == (
        f".venv/bin/python -m pip install duckdb pyarrow && .venv/bin/rlship query '{QUESTION}' /o/demo"
    )


def test_a_python_elsewhere_has_its_whole_path(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from a folder that the environment does not lie below, paths are absolute."""
    a_program(python, "rlship")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    status = commands(Path("/o/demo"), [], [])[0]
    assert shlex.split(status) == [os.fspath(python / "rlship"), "status", "/o/demo"]
