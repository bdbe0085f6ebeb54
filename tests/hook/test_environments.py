"""`rlship hook install|remove|status`: files in the environment of a Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlship_sidecar.launch import environments
from tests.endtoend.sidecar import RLSHIP
from tests.hook.jobs import CLEAN


@pytest.fixture
def python(bare: str) -> Iterator[str]:
    """The Python of an environment without the hook. What a test leaves there is removed."""
    yield bare
    environments.remove(environments.environment_of(bare, CLEAN))


def hook(action: str, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environ = {**CLEAN, "PATH": path} if path else CLEAN
    return subprocess.run(
        [*RLSHIP, "hook", action, *arguments], env=environ, capture_output=True, text=True, timeout=60
    )


def test_what_is_written_and_removed(python: str) -> None:
    """Two files, which all users can read; `remove` leaves none of them, and may be called again."""
    packages = environments.environment_of(python, CLEAN).packages
    before = sorted(file.name for file in packages.iterdir() if file.name != "__pycache__")
    assert hook("install", "--python", python).returncode == 0
    added = {file for file in packages.iterdir() if file.name not in (*before, "__pycache__")}
    assert {file.name: file.stat().st_mode & 0o777 for file in added} == {
        "rlship_hook.pth": 0o644,
        "_rlship_start.py": 0o644,
    }
    assert (packages / "rlship_hook.pth").read_text() == (
        'import os; os.environ.get("RLSHIP_DIR") and __import__("_rlship_start").start()\n'
    )
    for _ in range(2):
        assert hook("remove", "--python", python).returncode == 0
    assert sorted(file.name for file in packages.iterdir() if file.name != "__pycache__") == before


def test_the_status(python: str) -> None:
    """It says whether the hook is there, whose it is, and whether what it leads to exists."""
    said = hook("status", "--python", python)
    assert said.returncode == 0 and "no hook in" in said.stdout
    hook("install", "--python", python)
    assert "hook of this rlship" in hook("status", "--python", python).stdout
    found = json.loads(hook("status", "--json", "--python", python).stdout)
    assert (found["installed"], found["is_current"], found["works"]) == (True, True, True)
    module = Path(found["packages"]) / "_rlship_start.py"
    module.write_text(module.read_text().replace(found["leads_to"], "/nowhere/interception.py"))
    said = hook("status", "--python", python)
    assert "leads to /nowhere/interception.py, which is gone: rlship hook remove --python" in said.stdout


def test_an_rlship_that_is_gone_is_reported(python: str, tmp_path: Path) -> None:
    """After rlship was uninstalled the job runs, and with RLSHIP_DIR one line says how the hook is removed."""
    hook("install", "--python", python)
    packages = environments.environment_of(python, CLEAN).packages
    module = packages / "_rlship_start.py"
    module.write_text(module.read_text().replace(environments.HOOK, "/nowhere/interception.py"))
    for settings, lines in (({}, 0), ({"RLSHIP_DIR": str(tmp_path)}, 1)):
        done = subprocess.run(
            [python, "-c", "print(1)"], env={**CLEAN, **settings}, capture_output=True, text=True, timeout=60
        )
        assert (done.stdout, len(done.stderr.splitlines())) == ("1\n", lines), done.stderr
    assert f"`rlship hook remove --python {python}` removes the hook" in done.stderr


def test_without_a_folder_nothing_is_imported(python: str) -> None:
    """Without RLSHIP_DIR the line in the environment reads one variable and imports nothing. Python itself may need an
    encoding to read the file.
    """
    code = "import sys; print([name for name in sorted(sys.modules) if not name.startswith('encodings')])"
    before = subprocess.run([python, "-c", code], env=CLEAN, capture_output=True, text=True, check=True).stdout
    hook("install", "--python", python)
    assert subprocess.run([python, "-c", code], env=CLEAN, capture_output=True, text=True, check=True).stdout == before


def test_the_first_python_on_the_path(python: str) -> None:
    """Without --python it is the one that `python` starts."""
    said = hook("status", path=str(Path(python).parent))
    assert said.stdout.startswith(f"{python}: ")
    said = hook("status", path="/nowhere")
    assert said.returncode == 2 and "there is no program python or python3" in said.stderr


def test_a_program_that_is_no_python() -> None:
    """Another program is refused with its name."""
    said = hook("status", "--python", "/bin/false")
    assert said.returncode == 2 and "/bin/false does not run as Python: it ended with exit code 1\n" in said.stderr


def test_an_old_python_is_refused(tmp_path: Path) -> None:
    """The writer runs from Python 3.10 on."""
    state = environments.HookState("python3.9", (3, 9, 2), tmp_path, False, "", False, False)
    with pytest.raises(environments.UsageProblem, match=r"3\.9\.2"):
        environments.install(state)
    assert [*tmp_path.iterdir()] == []


def test_a_python_with_start_files(tmp_path: Path) -> None:
    """From Python 3.15 on a `.start` file names the same function, and then the `.pth` file's line is not run."""
    state = environments.HookState("python3.15", (3, 15, 0), tmp_path, False, "", False, False)
    environments.install(state)
    assert (tmp_path / "rlship_hook.start").read_text() == "_rlship_start:start\n"
    assert (tmp_path / "rlship_hook.pth").exists()
    environments.remove(state)
    assert [*tmp_path.iterdir()] == []


def test_an_environment_that_cannot_be_changed(tmp_path: Path) -> None:
    """The message names the folder and the ways out."""
    (tmp_path / "file").write_text("")
    state = environments.HookState("python3", (3, 11, 0), tmp_path / "file", False, "", False, False)
    with pytest.raises(environments.RlshipError, match="cannot be changed: Not a directory"):
        environments.install(state)
