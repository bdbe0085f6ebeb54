"""The shape of the code: what a class holds and is given, and which modules import one another."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Bases and decorators that make a class a record of fields, or a list of names.
_RECORDS = {"dataclass", "Struct", "NamedTuple", "TypedDict", "Enum", "IntEnum", "Protocol"}


@dataclass(frozen=True)
class Shape:
    """One class: its bases, the attributes that its own body and methods give it, and what its constructor takes."""

    name: str
    bases: tuple[str, ...]
    attributes: frozenset[str]
    parameters: int
    is_plain_data: bool


@dataclass
class _Attributes:
    declared: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)


def classes(source: str) -> list[Shape]:
    """Every class in `source`, nested ones too."""
    return [_shape(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def _shape(node: ast.ClassDef) -> Shape:
    found = _Attributes()
    parameters = 0
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            found.declared.add(member.target.id)
        elif isinstance(member, ast.Assign) and any(ast.unparse(target) == "__slots__" for target in member.targets):
            found.declared |= {str(one.value) for one in ast.walk(member.value) if isinstance(one, ast.Constant)}
        elif isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            found.assigned |= _assigned(member)
            if member.name == "__init__":
                parameters = _parameters(member)
    bases = tuple(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    decorators = {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list}
    return Shape(
        name=node.name,
        bases=bases,
        attributes=frozenset(found.declared | found.assigned),
        parameters=parameters,
        # A record that its own methods change is an object with state, whatever generates its constructor.
        is_plain_data=bool(_RECORDS & {*bases, *decorators}) and not found.assigned,
    )


def _assigned(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Attributes of its first argument that a method sets."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    if not arguments:
        return set()
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == arguments[0].arg
    }


def _parameters(method: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many arguments a constructor takes beside the object itself."""
    arguments = method.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1


def attributes_of(shape: Shape, known: Mapping[str, Shape]) -> frozenset[str]:
    """The attributes of a class and of its bases among `known`: inheriting them makes an object no smaller."""
    inherited = [
        attributes_of(known[base], known) for base in shape.bases if base in known and known[base] is not shape
    ]
    return shape.attributes.union(*inherited)


def import_graph(package: str, top: Path) -> dict[str, set[str]]:
    """For each module below `top`, the modules of the package that it imports, for types and inside functions too."""
    files = {_module(package, file, top): file for file in sorted(top.rglob("*.py"))}
    return {
        name: {
            target
            for wanted in imported(file.read_text(encoding="utf-8"), name, is_package=file.name == "__init__.py")
            if (target := _nearest(wanted, files)) is not None and target != name
        }
        for name, file in files.items()
    }


def imported(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Dotted names that `source`, the text of `module`, imports: `a.b.c` for `from a.b import c`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _module(package: str, file: Path, top: Path) -> str:
    parts = [package, *file.relative_to(top).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _nearest(name: str, files: Mapping[str, Path]) -> str | None:
    """The module that `name` is or lies in."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name or None


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Sets of modules of which each reaches each other one."""
    reach = {name: _reachable(name, graph) for name in graph}
    found: list[set[str]] = []
    for name in graph:
        if name in reach[name] and not any(name in circle for circle in found):
            found.append({other for other in reach[name] if name in reach[other]})
    return found


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen
