"""Guards against code that is hard to change: branches, circles, objects that hold too much, one name for two."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.guards.known import (
    COMPLEX,
    IN_A_CIRCLE,
    MANY_ATTRIBUTES,
    MANY_PARAMETERS,
    MAX_ATTRIBUTES,
    MAX_COMPLEXITY,
    MAX_PARAMETERS,
    SHARED_NAMES,
)
from tests.guards.shape import Shape, attributes_of, circles, classes, import_graph, imported
from tests.guards.tree import PACKAGES, ROOT, modules, name_of


def above(found: Mapping[str, int], limit: int, known: Mapping[str, int]) -> dict[str, int]:
    """What exceeds the limit, and its known number where it has one."""
    return {name: number for name, number in found.items() if number > max(limit, known.get(name, limit))}


@cache
def shapes() -> dict[str, Shape]:
    """All classes of the packages by file and name."""
    return {
        f"{name_of(file)} {shape.name}": shape
        for file in modules(*PACKAGES.values())
        for shape in classes(file.read_text(encoding="utf-8"))
    }


def complexities(limit: int, *paths: Path) -> dict[str, int]:
    """What ruff finds above `limit` in `paths`, by file and function; lists of exceptions do not count."""
    options = ["--isolated", "--no-cache", "--output-format=json", "--select=C901", "--config"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *options, f"lint.mccabe.max-complexity={limit}", *paths],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    found = {}
    for one in json.loads(done.stdout):
        function = one["message"].split("`")[1]
        found[f"{name_of(Path(one['filename']))} {function}"] = int(one["message"].rpartition("(")[2].split()[0])
    return found


def test_functions_are_simple() -> None:
    """No function has more than 15 branches, but those known, and these grow no further."""
    assert above(complexities(MAX_COMPLEXITY, ROOT), MAX_COMPLEXITY, COMPLEX) == {}


def test_branches_are_counted() -> None:
    """The measure sees functions in every folder, with a limit that all exceed."""
    found = complexities(0, Path(__file__), *PACKAGES.values())
    assert len(found) > 1000
    assert f"{name_of(Path(__file__).resolve())} above" in found


def test_constructors_take_few_parameters() -> None:
    """A class that is no plain data is made from at most eight things."""
    found = {name: shape.parameters for name, shape in shapes().items() if not shape.is_plain_data}
    assert above(found, MAX_PARAMETERS, MANY_PARAMETERS) == {}


def test_objects_hold_few_attributes() -> None:
    """A class that is no plain data has at most twenty attributes, with those of its bases."""
    found = shapes()
    by_name = {shape.name: shape for shape in found.values()}
    counts = {name: len(attributes_of(one, by_name)) for name, one in found.items() if not one.is_plain_data}
    assert above(counts, MAX_ATTRIBUTES, MANY_ATTRIBUTES) == {}


def test_attributes_and_parameters_are_counted() -> None:
    """Slots, annotations and assignments count once each; a record counts as an object where a method changes it."""
    source = """
class Base:
    __slots__ = ("a", "b")
    def __init__(self, a, *, b=1): self.a, self.c = a, b
class Child(Base):
    d: int
    def grow(this): this.e += 1
@dataclass(frozen=True)
class Record:
    x: int
    def doubled(self): return self.x * 2
@dataclass
class Counter:
    n: int = 0
    def add(self): self.n += 1
"""
    found = {shape.name: shape for shape in classes(source)}
    assert found["Base"].parameters == 2
    assert sorted(attributes_of(found["Base"], found)) == ["a", "b", "c"]
    assert sorted(attributes_of(found["Child"], found)) == ["a", "b", "c", "d", "e"]
    assert [name for name, shape in found.items() if shape.is_plain_data] == ["Record"]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_have_no_circle(package: str) -> None:
    """No module reaches itself by imports, those for types and those inside functions included."""
    found = set().union(*circles(import_graph(package, PACKAGES[package])))
    assert found <= IN_A_CIRCLE.get(package, set())


def test_circles_are_found() -> None:
    """A circle of two, one of one, and no other module; relative and type-only imports are arrows."""
    assert circles({"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"d"}}) == [{"a", "b"}, {"d"}]
    source = "from .x import y\nif TYPE_CHECKING:\n    from ..z import w\ndef f():\n    import p.q\n"
    assert list(imported(source, "p.a.b")) == ["p.a.x.y", "p.z.w", "p.q"]
    assert next(imported(source, "p.a", is_package=True)) == "p.a.x.y"


def test_a_class_has_a_name_of_its_own() -> None:
    """No two classes of the sidecar share a name, so that a name leads to one place."""
    counts = Counter(name.partition(" ")[2] for name in shapes() if name.startswith("sidecar/rlship_sidecar/"))
    assert above(counts, 1, SHARED_NAMES) == {}


def test_decoders_are_made_when_their_module_is_loaded() -> None:
    """`decode(…, type=T)` takes the type apart at its first call, and the process dies where two threads do so at one
    time: the second one finds it half done. An import is done by one thread.
    """
    texts = {name_of(file): file.read_text(encoding="utf-8") for file in modules(*PACKAGES.values())}
    found = [
        f"{name}:{call.lineno}"
        for name, text in texts.items()
        if "type=" in text
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "decode"
        if any(one.arg == "type" for one in call.keywords)
    ]
    assert found == []
