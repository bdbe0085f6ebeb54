"""rlship in an environment of its own, as pipx or `uv tool` make it, on a job whose Python has nothing of it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.endtoend.sidecar import environment
from tests.guards.tree import ROOT
from tests.kit.wheels import built, clean_environment
from tests.loopback.backend import LoopbackBackend

DEPENDENCIES = (
    *("click", "msgspec", "numpy", "pynvml", "orjson", "prometheus_client", "psutil", "rich", "tensorboardX", "wandb"),
    *("watchdog", "google.protobuf"),
)
# Stands for rlship's facade: what is shown here is which modules the job and the sidecar see.
FACADE = """
import rlship
def patch(module):
    logger = rlship.init(actor="trainer")
    def log(values, step):
        rlship.log(values, step=step)
        rlship.barrier(step)
    module.log = log
"""
JOBS_WANDB = "__version__ = '0.29.0'\ndef log(values, step): raise RuntimeError('the real one')\n"
JOB = """
import importlib.util, time, wandb
print(wandb.__version__, [name for name in NAMES if importlib.util.find_spec(name)])
for step in range(3):
    wandb.log({"loss": 1 / (step + 1)}, step=step)
"""


def venv(home: Path) -> Path:
    """A new environment without pip; returns the folder of its packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, env=clean_environment())
    (packages,) = home.glob("lib/python*/site-packages")
    return packages


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `rlship` of an environment of its own. Its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("tool")
    packages = venv(folder / "venv")
    with zipfile.ZipFile(built(folder)) as wheel:
        wheel.extractall(packages)
    (packages / "rlship" / "facade").mkdir(exist_ok=True)
    (packages / "rlship" / "facade" / "__init__.py").write_text("")
    (packages / "rlship" / "facade" / "wandb.py").write_text(FACADE)
    found = [Path(str(importlib.import_module(name).__file__)).parents[name.count(".") + 1] for name in DEPENDENCIES]
    places = {str(place) for place in found} - {str(ROOT)}
    (packages / "dependencies.pth").write_text("\n".join(sorted(places)) + "\n")
    command = folder / "venv" / "bin" / "rlship"
    command.write_text(f"#!{folder}/venv/bin/python\nfrom rlship.__main__ import main\nmain()\n")
    command.chmod(0o755)
    return command


def test_a_job_with_another_wandb(tool: Path, tmp_path: Path) -> None:
    """The job has its own wandb of another version and none of rlship's dependencies; its rows reach the server by the
    client of the other environment.
    """
    packages = venv(tmp_path / "venv")
    (packages / "wandb").mkdir()
    (packages / "wandb" / "__init__.py").write_text(JOBS_WANDB)
    names = ["rlship", "rlship_sidecar", "rlship_formats", "msgspec", "numpy", "orjson"]
    home = tmp_path / "home"
    with LoopbackBackend() as backend:
        settings = environment(home, {**backend.environment(home), "RLSHIP_SINKS": "wandb"})
        job = [tmp_path / "venv" / "bin" / "python", "-c", JOB.replace("NAMES", repr(names))]
        done = subprocess.run(
            [tool, "run", "--dir", "run", "--watch", "--", *job],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert (done.returncode, done.stdout) == (0, "0.29.0 ['rlship']\n"), done.stderr
        (run,) = backend.runs.values()
        assert [line["trainer/loss"] for line in run.rows() if "trainer/loss" in line] == [1, 1 / 2, 1 / 3]
        assert run.finished, done.stderr
