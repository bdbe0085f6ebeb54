"""What a worker imports is the standard library and nothing else."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import rlship

PACKAGE = Path(rlship.__file__).parent


def alone(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run `source` where nothing but the standard library and a copy of `rlship` can be imported."""
    place = tmp_path / "only"
    shutil.copytree(PACKAGE, place / "rlship", ignore=shutil.ignore_patterns("__pycache__"))
    source = f"import sys; sys.path.append({str(place)!r})\n{source}"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, str(tmp_path / "run")], capture_output=True, text=True, timeout=60
    )


def test_logging_needs_only_the_standard_library(tmp_path: Path) -> None:
    """Import, log and exit work without any site-packages, and no module from elsewhere is loaded."""
    done = alone(
        tmp_path,
        """
import rlship
rlship.init(sys.argv[1], "trainer")
rlship.log({"loss": 0.5, "lengths": [1, 2], "g": {"x": 1}, "bad": "text"}, step=1)
rlship.record_metric("r", 1.0, rlship.Reduce.MEAN, weight=2)
rlship.event("e", a=object()); rlship.sample("t", {"text": "x" * 2_000_000}); rlship.mlogger.log({"a": 1})
rlship.define("x", "max"); rlship.barrier(1); assert rlship.flush()
foreign = {name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"rlship", "__main__"}
print(sorted(foreign))
""",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    (path,) = (tmp_path / "run" / "rlship").iterdir()
    assert [json.loads(line).get("kind") for line in path.read_text().splitlines()][-1] == "close"


def test_importing_loads_nothing_slow(tmp_path: Path) -> None:
    """Modules that cost more than the whole package are not loaded by importing it."""
    done = alone(
        tmp_path,
        """
import rlship
slow = ("json", "logging", "socket", "dataclasses", "typing", "re", "asyncio", "subprocess", "inspect", "tempfile",
        "random", "multiprocessing", "hashlib", "pathlib", "warnings_", "rlship.mlogger")
print([name for name in slow if name in sys.modules])
""",
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_package_imports_one_way(tmp_path: Path) -> None:
    """The writer never reaches for the sidecar or the formats; only the command and the catalogue do, when used. The
    hook names the sidecar to leave its processes alone.
    """
    named = {
        path.name
        for path in PACKAGE.rglob("*.py")
        if "rlship_sidecar" in path.read_text() or "rlship_formats" in path.read_text()
    }
    assert named == {"__main__.py", "metrics.py", "interception.py"}


def test_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    """`python -m rlship` on a worker that has the writer only names the one command to run, and fails."""
    done = alone(tmp_path, "import runpy; runpy.run_module('rlship', run_name='__main__')")
    assert done.returncode == 1
    assert "only the writer is installed. What the command needs: " in done.stderr
    assert "pip install rlship" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_says_so_where_other_packages_brought_click(tmp_path: Path) -> None:
    """An environment of a job has click, and not msgspec: the same words, for each verb, and no traceback."""
    place = tmp_path / "job"
    for package in ("rlship_sidecar", "rlship_formats", "click"):
        found = importlib.util.find_spec(package)
        assert found is not None and found.origin is not None
        (place / package).parent.mkdir(exist_ok=True)
        (place / package).symlink_to(Path(found.origin).parent)
    about = place / "rlship-0.1.0.dist-info" / "METADATA"
    about.parent.mkdir()
    about.write_text("Metadata-Version: 2.1\nName: rlship\nVersion: 0.1.0\nRequires-Dist: msgspec>=0.19\n")
    (tmp_path / "run" / "rlship").mkdir(parents=True)
    for verb in ("status", "replay", "watch"):
        call = f"sys.path.append({str(place)!r}); sys.argv[1:] = [{verb!r}, sys.argv[1]]\n"
        done = alone(
            tmp_path / verb,
            f"import os; os.makedirs(sys.argv[1] + '/rlship'); {call}import rlship.__main__ as it; it.main()",
        )
        assert done.returncode == 1, (verb, done.stderr)
        assert "only the writer is installed. What the command needs: " in done.stderr
        assert done.stderr.endswith("-m pip install 'msgspec>=0.19'\n"), done.stderr
    here = tmp_path / "here"
    here.mkdir()
    for words in (["doctor"], ["run", "--watch", "--", "touch", "started"]):
        call = f"sys.path.append({str(place)!r}); os.chdir({str(here)!r}); sys.argv[1:] = {words!r}\n"
        done = alone(tmp_path / words[0], f"import os; {call}import rlship.__main__ as it; it.main()")
        assert done.returncode == 1, (words, done.stderr)
        assert "only the writer is installed. What the command needs: " in done.stderr
        assert "Traceback" not in done.stderr
        assert list(here.iterdir()) == []


def test_the_module_shows_its_functions() -> None:
    """`__all__` is what there is, and every public function says what it does."""
    for name in rlship.__all__:
        assert getattr(rlship, name) is not None
        if name not in ("__version__",):
            assert getattr(rlship, name).__doc__
