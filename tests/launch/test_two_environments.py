"""rlship in an environment of its own, as pipx or `uv tool` make it, on a job whose Python has nothing of it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
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
NAME = re.compile(r"[\w.-]+")
SHARED = ("google", "opentelemetry")
JOB = """
import importlib.util, os, wandb
run = wandb.init(project="grpo", name="tiny", config={"lr": 0.5})
print([name for name in NAMES if importlib.util.find_spec(name)])
for step in range(3):
    wandb.log({"loss": 1 / (step + 1)}, step=step)
run.summary["best"] = 0.25
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
    found = [Path(str(importlib.import_module(name).__file__)).parents[name.count(".") + 1] for name in DEPENDENCIES]
    places = {str(place) for place in found} - {str(ROOT)}
    (packages / "dependencies.pth").write_text("\n".join(sorted(places)) + "\n")
    command = folder / "venv" / "bin" / "rlship"
    command.write_text(f"#!{folder}/venv/bin/python\nfrom rlship.__main__ import main\nmain()\n")
    command.chmod(0o755)
    return command


def link(packages: Path, name: str) -> None:
    """Let an environment have a distribution of this one, with all that it needs."""
    waiting, linked = [name], set[str]()
    while waiting:
        try:
            found = distribution(waiting.pop())
        except PackageNotFoundError:  # needed on another system, or for an extra
            continue
        if found.name in linked:
            continue
        linked.add(found.name)
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            share(Path(str(found.locate_file(top))), packages / top)
        waiting += [
            match[0] for needed in found.requires or [] if "extra ==" not in needed and (match := NAME.match(needed))
        ]


def share(source: Path, target: Path) -> None:
    """Link a package; one that several distributions share, such as `google`, becomes a folder of links."""
    if source.name in SHARED:
        target.mkdir(exist_ok=True)
        for entry in source.iterdir():
            share(entry, target / entry.name)
    elif not target.exists():
        target.symlink_to(source)


@pytest.mark.long
def test_a_job_that_has_wandb_only(tool: Path, tmp_path: Path) -> None:
    """The job's environment has W&B's package and nothing of rlship nor of what its sidecar needs; its rows, name,
    config and summary reach the server by the client of the other environment.
    """
    packages = venv(tmp_path / "venv")
    link(packages, "wandb")
    names = ["rlship", "rlship_sidecar", "rlship_formats", "msgspec", "numpy", "orjson", "tensorboardX"]
    home = tmp_path / "home"
    with LoopbackBackend() as backend:
        settings = environment(home, {**backend.environment(home), "RLSHIP_SINKS": "wandb"})
        job = [str(tmp_path / "venv" / "bin" / "python"), "-c", JOB.replace("NAMES", repr(names))]
        done = subprocess.run(
            [tool, "run", "--dir", "run", "--watch", "--", *job],
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert (done.returncode, done.stdout) == (0, "['rlship']\n"), done.stderr
        (run,) = backend.runs.values()
        assert [line["loss"] for line in run.rows() if "loss" in line] == [1, 1 / 2, 1 / 3], done.stderr
        assert (run.project, run.display_name, run.finished) == ("grpo", "tiny", True), done.stderr
        assert (run.config["lr"], run.summary["best"]) == ({"value": 0.5}, 0.25)
