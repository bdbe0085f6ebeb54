"""Rules that every file of the project keeps, whoever adds it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.guards.tree import PACKAGES, ROOT, files, modules, name_of

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "processor", "processors", "misc", "common"}
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".sh",
    ".c",
    ".h",
    ".rs",
    ".go",
    ".js",
    ".mjs",
    ".ts",
    ".json",
    ".yaml",
    ".yml",
    ".service",
    "",
}
# Written so that this file does not contain them.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|Not" r"ImplementedError|lorem ip" r"sum)\b")
FOREIGN = re.compile(
    "/" + r"work/(main|shared)|\bDES" r"IGN(\.md| sections?)\b|clau" r"de|anth" r"ropic|chat" r"gpt|co" r"pilot", re.I
)
NOT_RUN = {"skip", "skipif", "importorskip", "xfail"}


def test_the_walk_finds_the_project() -> None:
    """The guards see all three packages, the tests and the CI script, and no caches."""
    seen = {name_of(file) for file in files()}
    for name in ("rlship/__init__.py", "pyproject.toml", ".ci/run", "Makefile", name_of(Path(__file__).resolve())):
        assert name in seen
    assert not [name for name in seen if "__pycache__" in name or name.startswith((".venv", ".git"))]


@pytest.mark.parametrize("folder", ["sidecar", "formats"])
def test_no_python_beside_the_packages(folder: str) -> None:
    """sidecar/ and formats/ are no packages themselves, so no generic name can be imported."""
    assert not [file.name for file in (ROOT / folder).iterdir() if file.suffix == ".py"]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    """Each package says that it carries its types."""
    assert (PACKAGES[package] / "py.typed").is_file()
    assert (PACKAGES[package] / "__init__.py").is_file()


def test_the_store_owns_its_sql() -> None:
    """Other folders ask the store by name. The tables of a ledger are read and changed nowhere else."""
    own = PACKAGES["rlship_sidecar"] / "store"
    asking = re.compile(r"\.(ask|change)\(")
    assert not [
        name_of(file)
        for file in modules(PACKAGES["rlship_sidecar"])
        if own not in file.parents and asking.search(file.read_text(encoding="utf-8"))
    ]


def test_modules_are_named_for_what_they_are() -> None:
    """No module has a name under which anything could be put."""
    assert not [name_of(f) for f in modules(ROOT) if VAGUE_NAMES & set(re.split(r"[^a-z]+", f.stem.lower()))]


class Facts(NamedTuple):
    """What the guards ask of a module, which is parsed once for all of them: places in it, by line and name."""

    says_what_for: bool
    silent_names: list[str]
    silent_tests: list[str]
    not_run: list[str]


@cache
def facts(file: Path) -> Facts:
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    place = name_of(file)
    tests, not_run = [], []
    for node in ast.walk(tree) if ROOT / "tests" in file.parents else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test_") and not ast.get_docstring(node):
                tests.append(f"{place}:{node.lineno} {node.name}")
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in NOT_RUN
            and (getattr(node.value, "id", "") == "pytest" or getattr(node.value, "attr", "") == "mark")
        ):
            not_run.append(f"{place} {node.attr}")
    names = [f"{place}:{node.lineno} {node.name}" for node in _public(tree) if not ast.get_docstring(node)]
    return Facts(not source.strip() or bool(ast.get_docstring(tree)), names, tests, not_run)


def test_modules_say_what_they_are_for() -> None:
    """Every module but an empty one begins with a docstring."""
    assert [name_of(file) for file in modules(ROOT) if not facts(file).says_what_for] == []


def test_public_names_are_explained() -> None:
    """Every public function and class of the packages has a docstring."""
    silent = [name for file in modules(*PACKAGES.values()) for name in facts(file).silent_names]
    assert not silent, "\n".join(silent)


def test_every_test_states_a_fact() -> None:
    """Every test has a docstring."""
    silent = [test for file in modules(ROOT / "tests") for test in facts(file).silent_tests]
    assert not silent, "\n".join(silent)


def test_no_test_is_left_out() -> None:
    """No test is skipped or expected to fail, but where a tool is missing, outside CI."""
    left_out = [name for file in modules(ROOT / "tests") for name in facts(file).not_run]
    assert left_out == ["tests/kit/tools.py skip"]


def test_nothing_is_unfinished_or_speaks_of_elsewhere() -> None:
    """No file holds marks of unfinished work, paths of one machine or documents that are not in the project."""
    found = []
    for file in files():
        if file.suffix not in TEXT or file.name == "LICENSE":
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if not UNFINISHED.search(text) and not FOREIGN.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found += [
                f"{name_of(file)}:{number}: {hit.group()}"
                for hit in (UNFINISHED.search(line), FOREIGN.search(line))
                if hit
            ]
    assert not found, "\n".join(found)


def _public(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public definitions at the top of a module; methods often only keep a contract that is explained elsewhere."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
