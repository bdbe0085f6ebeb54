"""The Makefile and the CI script, as far as they can be tried without installing anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.guards.tree import ROOT
from tests.kit.tools import MARKERS

TARGETS = (
    *(
        "help",
        "demo",
        "test",
        "test-all",
        "lint",
        "check",
        "mutants",
        "bench",
        "toolchains",
        "fuzz",
        "soak",
        "swaps",
        "nfs",
        "containers",
        "systemd",
        "slurm",
        "gpu",
    ),
    *("frameworks", "incidents", "pictures", "clean"),
)


def make(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *args], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def stand_in(folder: Path, lines: str) -> Path:
    """A Python that runs `lines` before what it is given with -c."""
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{lines}; exec(__import__(\'sys\').argv[1])" "$2"\n')
    script.chmod(0o755)
    return script


def test_help_explains_every_target() -> None:
    """`make` alone lists each target with what it does."""
    done = make()
    assert done.returncode == 0
    assert tuple(re.findall(r"^make ([\w-]+) +\S", done.stdout, re.MULTILINE)) == TARGETS


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    """With Python 3.8 make stops before it creates anything, names the version and says how to give another."""
    old = stand_in(tmp_path, "import sys; sys.version_info = (3, 8, 10)")
    done = make("demo", f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert f"rlship needs Python 3.10 or newer, {old} is 3.8" in done.stderr
    assert "make PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_is_named(tmp_path: Path) -> None:
    """Where ensurepip is not installed, make says which package brings it."""
    bare = stand_in(tmp_path, "import sys; sys.modules['ensurepip'] = None")
    done = make("test", f"PYTHON={bare}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert "apt install python3-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_no_python_at_all_is_named(tmp_path: Path) -> None:
    """A PYTHON that does not exist is named."""
    done = make("test", f"PYTHON={tmp_path}/none", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert f"there is no {tmp_path}/none" in done.stderr


def test_nothing_is_installed_twice(tmp_path: Path) -> None:
    """With stamps newer than pyproject.toml, make goes straight to the tests; older ones install again."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    stamp = tmp_path / ".installed-dev"
    stamp.touch()
    assert "pip install" not in make("-n", "test", f"VENV={tmp_path}").stdout
    os.utime(stamp, (0, 0))
    assert "pip install" in make("-n", "test", f"VENV={tmp_path}").stdout


def test_the_demo_shows_what_it_installs(tmp_path: Path) -> None:
    """A first `make demo` says in a line what it does before each step that takes long, and how long that takes. pip's
    pages do not scroll by. It installs what the queries and the page need that the demo prints.
    """
    said = make("-n", "demo", f"VENV={tmp_path}/venv").stdout
    order = [said.index(part) for part in ("virtual environment", "-m venv", "Installing rlship", "pip install")]
    assert order == sorted(order)
    assert said.count("pip install") == said.count("pip install --quiet") == 1
    assert '".[query,view]"' in said and "a minute or two" in said


def test_each_test_is_in_a_target() -> None:
    """What `make test` leaves out is what `make test-all` selects; toolchains are installed for that alone."""
    plain, rest = (make("-n", target).stdout for target in ("test", "test-all"))
    (left_out,) = re.findall(r'-m "not \(([^)]+)\)"', plain)
    assert f'-m "{left_out} or statistical" --all-cases' in rest
    assert set(left_out.split(" or ")) == set(MARKERS)
    installed = {target: make("-n", target, "VENV=/nowhere").stdout for target in ("test", "toolchains")}
    assert '".[dev]"' in installed["test"] and "toolchains" not in installed["test"]
    assert '".[dev,toolchains]"' in installed["toolchains"]


def test_the_ci_script_runs_linters_and_tests() -> None:
    """.ci/run can be executed, is strict bash, calls nothing but make, and lets no test be left out."""
    script = ROOT / ".ci" / "run"
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in text
    assert "\nexport CI=true" in text
    assert re.findall(r"^make ([\w-]+)", text, re.MULTILINE) == ["toolchains", "lint", "test", "test-all"]
    assert subprocess.run(["bash", "-n", script]).returncode == 0
