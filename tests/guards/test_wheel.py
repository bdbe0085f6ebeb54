"""What is installed, and that a worker needs no more than the package itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rlship._version import __version__
from tests.guards.tree import PACKAGES, ROOT, files
from tests.kit.wheels import built, clean_environment

LOG = """
import sys
before = sys.modules.keys() | set()  # what the interpreter itself brings, such as a distribution's sitecustomize
import rlship
rlship.init(sys.argv[1], actor="trainer")
rlship.log({"loss": 1.0}, step=0)
rlship.barrier(0)
rlship.close()
roots = {name.partition(".")[0] for name in sys.modules.keys() - before}
print(sorted(roots - sys.stdlib_module_names - {"rlship", "__main__"}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once from the working tree."""
    return built(tmp_path_factory.mktemp("wheel"))


def long_description(folder: Path, url: str) -> str:
    """What the package says about itself, built with this RLSHIP_URL."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import hatch_build as build; "
        "print(build.addresses(sys.argv[2])); "
        "print(build.long_description(Path(sys.argv[1], 'README.md').read_text(), sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), url], check=True, capture_output=True, text=True, cwd=folder
    )
    return done.stdout


def test_the_package_links_to_no_file_beside_it(wheel: Path) -> None:
    """Its long description is README.md without links to files, as long as no address of the project is given."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"rlship-{__version__}.dist-info/METADATA").decode()
    assert "Every process of an RL post-training job" in metadata
    assert "Three verbs" in metadata and "Contributing" in metadata
    assert re.findall(r"\]\((?!https?://)", metadata) == []
    assert "Project-URL" not in metadata


def test_an_address_makes_links_absolute(tmp_path: Path) -> None:
    """With RLSHIP_URL each link of README.md leads below it, pictures to the file; the addresses are named."""
    text = long_description(tmp_path, "https://git.example/rl/rlship")
    assert re.findall(r"\]\((?!https?://)", text) == []
    assert "(https://git.example/rl/rlship/raw/main/docs/images/demo.svg)" in text
    assert "(https://git.example/rl/rlship/blob/main/docs/query.md)" in text
    assert "'Source': 'https://git.example/rl/rlship'" in text


@pytest.fixture(scope="module")
def worker(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel and none of its dependencies."""
    home = tmp_path_factory.mktemp("worker")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, env=clean_environment())
    (site,) = home.glob("lib/python*/site-packages")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--no-compile",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
        env=clean_environment(),
    )
    return home / "bin" / "python"


def test_the_wheel_holds_three_packages(wheel: Path) -> None:
    """Its top-level names are rlship, rlship_formats and rlship_sidecar, and nothing generic."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*PACKAGES, f"rlship-{__version__}.dist-info"}
    assert wheel.name == f"rlship-{__version__}-py3-none-any.whl"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_holds_all_of_a_package(wheel: Path, package: str) -> None:
    """Every file of the package is in the wheel, the mark of its types too."""
    names = set(zipfile.ZipFile(wheel).namelist())
    folder = PACKAGES[package]
    assert {f"{package}/{file.relative_to(folder)}" for file in files(folder)} <= names
    assert f"{package}/py.typed" in names


def test_a_worker_needs_no_dependencies(worker: Path, tmp_path: Path) -> None:
    """Installed with --no-deps, rlship logs to a file and imports nothing outside the standard library."""
    done = subprocess.run(
        [worker, "-c", LOG, tmp_path], capture_output=True, text=True, env=clean_environment(), timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    (file,) = (tmp_path / "rlship").glob("trainer-*.jsonl")
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert records[0]["kind"] == "open"
    assert [record["m"] for record in records if "kind" not in record] == [{"loss": 1.0}]
    assert [record["step"] for record in records if record.get("kind") == "barrier"] == [0]
    assert records[-1]["kind"] == "close"


def test_a_worker_is_told_how_to_get_the_rest(worker: Path) -> None:
    """The command line on such an installation names the command that installs what it lacks."""
    done = subprocess.run(
        [worker, "-m", "rlship", "watch"], capture_output=True, text=True, env=clean_environment(), timeout=60
    )
    assert done.returncode == 1
    assert f"{worker} -m pip install 'click>=" in done.stderr
    assert "pip install rlship" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_rules_of_alerts_are_in_it(wheel: Path) -> None:
    """The package brings the rules that `rlship alerts` reads, and the graph that `rlship why` does."""
    with zipfile.ZipFile(wheel) as packed:
        for name in ("alerts/alerts.toml", "why/graph.toml"):
            assert packed.read(f"rlship_sidecar/{name}") == (PACKAGES["rlship_sidecar"] / name).read_bytes()
