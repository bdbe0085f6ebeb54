"""Imports point one way: rlship_sidecar -> rlship_formats -> rlship, and wandb is imported by its own child alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.guards.tree import PACKAGES, ROOT, modules, name_of

WANDB_MODULES = {
    PACKAGES["rlship_sidecar"] / "sinks" / "wandb" / "client.py",
    PACKAGES["rlship_sidecar"] / "sinks" / "wandb" / "file.py",
}
# Where a distribution's import name is not its own name.
IMPORT_NAMES = {"nvidia-ml-py": {"pynvml"}, "wandb": {"wandb", "google"}}
# A folder or module of the sidecar may import those before it. The order is that of docs/architecture.md.
ORDER = (
    *(
        "child_process",
        "errors",
        "entrypoint",
        "filesystem",
        "output",
        "pids",
        "plainfiles",
        "shortage",
        "scratch",
        "similar",
        "rows",
    ),
    *("state_file", "steps", "tally"),
    *(
        "tail",
        "decode",
        "align",
        "run_data",
        "ledger",
        "store",
        "reduce",
        "streams",
        "bounded_toml",
        "alerts",
        "why",
        "config",
        "pipeline",
    ),
    *("report", "sinks", "notifiers", "observe", "ownership", "daemon", "replay"),
    *("export", "diff", "tabular", "panels", "checking", "demo", "launch", "doctor", "view", "cli"),
)
# What a worker's package, or the formats, may import inside a function, once it is asked for what needs it, and where.
OPTIONAL = {
    PACKAGES["rlship"] / "system" / "sampler.py": {"psutil", "pynvml"},
    # The public name of the catalogue, which is data of the formats and costs a worker nothing.
    PACKAGES["rlship"] / "metrics.py": {"rlship_formats"},
    # Called by Ray itself.
    PACKAGES["rlship"] / "hook" / "ray.py": {"ray"},
    # What has so many numbers that W&B's own histogram of them, which needs numpy, takes their place.
    PACKAGES["rlship"] / "facade" / "values.py": {"numpy"},
    # The job asks for a frame.
    PACKAGES["rlship"] / "facade" / "public.py": {"pandas"},
    # A process to which a job passed its run imports the package that the job imported.
    PACKAGES["rlship"] / "facade" / "running.py": {"wandb"},
    # Frameworks that call their integration, which has then been imported by them.
    PACKAGES["rlship"] / "integrations" / "trainer.py": {"pandas"},
    # Only where a framework wrote Parquet files.
    PACKAGES["rlship_formats"] / "foreign" / "parquet.py": {"pyarrow"},
    PACKAGES["rlship_formats"] / "foreign" / "zstd.py": {"pyarrow"},
    PACKAGES["rlship"] / "integrations" / "vllm.py": {"vllm"},
    PACKAGES["rlship"] / "integrations" / "torchtitan.py": {"torchtitan"},
}
FORMATS_MAY = {"rlship", "rlship_formats", "orjson", "msgspec", "numpy"}


@cache
def imports(source: str, package: str) -> list[tuple[str, int, bool]]:
    """(imported module, line, whether it happens only when a function runs, or for types) for each import."""
    found = []
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or is_for_types(function)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [package if node.level else node.module or ""]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                names = [str(node.args[0].value)]
        found += [(name, getattr(node, "lineno", 0), id(node) in inside) for name in names]
    return found


def is_for_types(node: ast.AST) -> bool:
    """Whether this is an `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def forbidden(file: Path, package: str, allowed: set[str]) -> list[str]:
    """Imports of `file` that are neither standard library nor `allowed`, as messages."""
    told = []
    for name, line, lazy in imports(file.read_text(encoding="utf-8"), package):
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names or root in allowed:
            continue
        if package == "rlship" and file.name == "__main__.py" and lazy and root == "rlship_sidecar":
            continue
        if lazy and root in OPTIONAL.get(file, ()):
            continue
        told.append(f"{name_of(file)}:{line} imports {name}")
    return told


def declared() -> set[str]:
    """Import names of everything that pyproject.toml asks for."""
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]
    wanted = [
        *project["dependencies"],
        *(spec for extra in project["optional-dependencies"].values() for spec in extra),
    ]
    names = [re.split(r"[^A-Za-z0-9_-]", spec, maxsplit=1)[0] for spec in wanted]
    return {name for dist in names for name in IMPORT_NAMES.get(dist, {dist.replace("-", "_")})}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    """rlship needs the standard library only, rlship_formats little more, the sidecar what pyproject.toml declares."""
    allowed = {
        "rlship": {"rlship"},
        "rlship_formats": FORMATS_MAY,
        "rlship_agents": {*PACKAGES, *declared()},
        "rlship_sidecar": {*PACKAGES, *declared()},
    }[package]
    found = [line for file in modules(PACKAGES[package]) for line in forbidden(file, package, allowed)]
    assert not found, "\n".join(found)


def test_data_flows_one_way_in_the_sidecar() -> None:
    """Each folder and module of the sidecar imports only those that stand before it in the order."""
    top = PACKAGES["rlship_sidecar"]
    place = {"__init__": len(ORDER)} | {name: place for place, name in enumerate(ORDER)}
    found = [
        f"{name_of(file)} imports {name}"
        for file in modules(top)
        for name in sidecar_imports(file.read_text(encoding="utf-8"))
        if place[name] > place[file.relative_to(top).parts[0].removesuffix(".py")]
    ]
    assert not found, "\n".join(found)


def sidecar_imports(source: str) -> Iterator[str]:
    """What stands directly in rlship_sidecar of each import from there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            package, _, rest = node.module.partition(".")
            if package == "rlship_sidecar":
                yield from [rest.partition(".")[0]] if rest else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("rlship_sidecar."))


def test_wandb_is_imported_by_its_own_modules_only() -> None:
    """No module but wandb's child and the reader of its files names wandb in an import."""
    found = [
        f"{name_of(file)}:{line}"
        for file in modules(PACKAGES["rlship_sidecar"])
        if file not in WANDB_MODULES
        for name, line, _ in imports(file.read_text(encoding="utf-8"), "rlship_sidecar")
        if name.partition(".")[0] == "wandb"
    ]
    assert not found, found


def test_importing_the_sidecar_does_not_import_wandb() -> None:
    """With every other module of the sidecar imported, wandb is not."""
    code = (
        "import importlib, pkgutil, sys, rlship_sidecar\n"
        "for module in pkgutil.walk_packages(rlship_sidecar.__path__, 'rlship_sidecar.'):\n"
        "    if module.name.rpartition('.')[2] not in ('child', 'file', '__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "print('wandb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_a_decoding_process_starts_without_numpy() -> None:
    """A process that decodes for a replay does not import what would take long and is of no use to it."""
    code = "import sys, rlship_sidecar.replay.worker; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_entry_points_lead_to_something() -> None:
    """Every console script, sink and reader that pyproject.toml names can be imported, without wandb."""
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]
    groups = project["entry-points"]
    points = [*project["scripts"].values(), *groups["rlship.sinks"].values(), *groups["rlship.formats"].values()]
    code = (
        "import importlib, sys\n"
        "for point in sys.argv[1:]:\n"
        "    module, _, name = point.partition(':')\n"
        "    getattr(importlib.import_module(module), name)\n"
        "print('wandb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *points], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_the_walk_sees_every_kind_of_import() -> None:
    """Plain, from, relative, lazy and dynamic imports are all found."""
    source = """
import a.b
from c import d
from . import e
def f():
    import g
    importlib.import_module("h.i")
"""
    found = [(name, lazy) for name, _, lazy in imports(source, "pkg")]
    assert sorted(found) == [("a.b", False), ("c", False), ("g", True), ("h.i", True), ("pkg", False)]
