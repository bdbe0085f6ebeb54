"""Modules planted where `python -m` would find them first: no process that rlship starts imports one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlship_sidecar.child_process import import_folders, module_command
from rlship_sidecar.demo.job import Job, clean_environment
from rlship_sidecar.demo.plan import JobPlan
from rlship_sidecar.replay.local import LocalEngine
from rlship_sidecar.sinks.contract import SinkUnavailable
from rlship_sidecar.sinks.wandb.link import ChildLink
from tests.deploy.test_image import said
from tests.endtoend.sidecar import environment
from tests.endtoend.test_messages import an_experiment
from tests.guards.tree import PACKAGES, ROOT, modules

NAMES = ("json", "numpy", "orjson", "pickle", "rlship", "rlship_sidecar", "runpy", "signal", "sitecustomize", "wandb")
PLANTED = (
    "import os\nwith open({witness!r}, 'a') as file:\n    file.write(__name__ + ' ')\n    os.fsync(file.fileno())\n"
)
MAX_WAIT_S = 60


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """The file that names each planted module that ran."""
    return tmp_path / "witness"


@pytest.fixture
def planted(tmp_path: Path, witness: Path) -> Path:
    """An experiment with such modules in it."""
    folder = an_experiment(tmp_path / "job")
    for name in NAMES:
        (folder / f"{name}.py").write_text(PLANTED.format(witness=str(witness)))
    return folder


def test_what_is_planted_is_what_minus_m_runs(planted: Path, witness: Path) -> None:
    """The trap works: a child started with `-m` runs a planted module, from the current folder and from PYTHONPATH."""
    command = [sys.executable, "-m", "rlship_sidecar.replay.worker", "0"]
    for folder, path in ((planted, ""), (planted.parent, str(planted))):
        witness.unlink(missing_ok=True)
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
        assert witness.read_text() != ""


def test_replay_in_the_experiments_folder(planted: Path, witness: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that decode for `rlship replay .` import nothing from there."""
    monkeypatch.chdir(planted)
    engine = LocalEngine(1)
    try:
        while engine.room == 0:
            engine.receive(wait=True)  # it is up
    finally:
        engine.close()
    assert not witness.exists(), witness.read_text()


def test_a_child_in_the_experiments_folder(planted: Path, witness: Path) -> None:
    """Neither the current folder nor PYTHONPATH, absolute or relative, puts a module in front in a child."""
    for path in ("", ".", str(planted)):
        command = module_command("rlship", "--version")
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=planted, env=env, capture_output=True, text=True, timeout=MAX_WAIT_S)
        assert done.returncode == 0 and done.stdout.startswith("rlship "), done.stderr
        assert not witness.exists(), witness.read_text()


@pytest.mark.parametrize("path", ["first", "last"])
def test_a_parent_with_such_a_path_does_not_hand_it_on(
    planted: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The folder of PYTHONPATH, or the current one, that the parent itself has on its path."""
    monkeypatch.setattr(sys, "path", [str(planted), *sys.path] if path == "first" else [*sys.path, str(planted)])
    monkeypatch.setenv("PYTHONPATH", str(planted))
    assert str(planted) not in import_folders()
    monkeypatch.delenv("PYTHONPATH")
    assert str(planted) in import_folders()  # as any folder that an installation put there
    monkeypatch.chdir(planted)
    assert str(planted) not in import_folders()


def test_the_process_that_talks_to_wandb(planted: Path, witness: Path) -> None:
    """It starts in a folder of the state, with the sidecar's variables."""
    link = ChildLink({}, {**os.environ, "PYTHONPATH": str(planted)}, planted, planted / "log", silent_s=30.0)
    try:
        with pytest.raises(SinkUnavailable, match="ended with status 1"):
            link.wait_opened()
    finally:
        link.close(0.0)
    assert "KeyError: 'scratch'" in (planted / "log").read_text()  # it got as far as the order, which says nothing
    assert not witness.exists(), witness.read_text()


def test_the_processes_of_the_demo(planted: Path, witness: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the job, started where the user is."""
    monkeypatch.chdir(planted)
    monkeypatch.setenv("PYTHONPATH", str(planted))
    with Job(planted / "demo", planted / "logs", JobPlan(steps=2)) as job:
        failure = job.wait()
    assert failure is None and not witness.exists()


def test_the_first_process_of_the_image(planted: Path, tmp_path: Path, witness: Path) -> None:
    """It starts in the folder of the experiments; what it starts in turn does so too."""
    program, *words = json.loads(said("ENTRYPOINT")[0])
    assert program == "python"
    done = subprocess.run(
        [sys.executable, *words, "watch", "--once", "--sink", "jsonl", "."],
        cwd=planted,
        env={**environment(tmp_path, {}), "PYTHONPATH": str(planted)},
        capture_output=True,
        text=True,
        timeout=MAX_WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert not witness.exists(), witness.read_text()


def test_an_installation_that_only_pythonpath_names(tmp_path: Path) -> None:
    """rlship's own folders and those of its dependencies are handed on, and a plug-in's; another folder is not."""
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, env=clean_environment(os.environ))
    plugin, other = tmp_path / "plugin", tmp_path / "other"
    for folder, group in ((plugin, "rlship.reductions"), (other, "console_scripts")):
        (folder / "some-1.0.dist-info").mkdir(parents=True)
        (folder / "some-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
        (folder / "some-1.0.dist-info" / "entry_points.txt").write_text(f"[{group}]\nsome.name = some:thing\n")
    own = [str(ROOT), str(ROOT / "sidecar"), str(ROOT / "formats")]
    packages = sorted({os.path.dirname(os.path.dirname(module.__file__ or "")) for module in _dependencies()})
    code = (
        "import json, subprocess; from rlship_sidecar.child_process import import_folders, module_command\n"
        "print(json.dumps(import_folders()), flush=True)\n"
        "subprocess.run(module_command('rlship', '--version'), check=True)\n"
    )
    path = os.pathsep.join([str(other), *own, *packages, str(plugin)])
    env = {**clean_environment(os.environ), "PYTHONPATH": path}
    done = subprocess.run(
        [home / "bin" / "python", "-c", code],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=MAX_WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    folders, version = done.stdout.splitlines()
    found = json.loads(folders)
    assert version.startswith("rlship ")
    assert str(other) not in found and str(plugin) in found
    assert found.index(str(ROOT)) < found.index(packages[0])


def _dependencies() -> list[object]:
    import click
    import msgspec
    import wandb

    return [click, msgspec, wandb]


def test_no_other_place_starts_python() -> None:
    """`module_command` is the one place that makes such a command line; others print one for people. What
    `environments` writes into another Python's folder prints one, too.
    """
    files = modules(*PACKAGES.values())
    printed = re.compile(r"\{sys\.executable\} -m pip install")
    naming = {file.name for file in files if "sys.executable" in printed.sub("", file.read_text(encoding="utf-8"))}
    assert naming == {"child_process.py", "looks.py", "__main__.py", "environments.py"}
