"""The page on what other frameworks' logging can express is whole, and its tests exist."""

from __future__ import annotations

import ast
import re

from tests.guards.tree import ROOT

PAGE = (ROOT / "docs" / "features.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of all tables' rows, without the headings and the lines below them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "there" and not set(row[0]) <= set("-: ")]


def problems(text: str) -> list[str]:
    """Rows that lack something, and tests that do not exist."""
    told = []
    for row in rows(text):
        tests = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[-1])
        if len(row) != 3 or not all(row):
            told.append(f"{row}: three cells, none of them empty")
        elif not tests:
            told.append(f"{row[0]}: names no test")
        told += [f"{row[0]}: no test {path}::{name}" for path, name in tests if name not in defined(path)]
    return told


def defined(path: str) -> set[str]:
    """The names of a module's test functions."""
    file = ROOT / path
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_feature_has_a_call_and_a_test_that_exists() -> None:
    """No cell of the tables is empty, and each row names a test that is there."""
    assert len(rows(PAGE)) > 60
    assert not problems(PAGE), "\n".join(problems(PAGE))


def test_mistakes_in_the_page_are_found() -> None:
    """An empty cell, a row without a test, and a test that does not exist are told."""
    text = """
| there | here | test |
|---|---|---|
| a | b | `tests/guards/test_features.py::test_mistakes_in_the_page_are_found` |
| c |  | `tests/guards/test_features.py::test_mistakes_in_the_page_are_found` |
| d | e | none |
| f | g | `tests/guards/test_features.py::test_that_nobody_wrote` |
| h | i | `tests/nowhere.py::test_at_all` |
"""
    assert [line.rpartition(": ")[2] for line in problems(text)] == [
        "three cells, none of them empty",
        "names no test",
        "no test tests/guards/test_features.py::test_that_nobody_wrote",
        "no test tests/nowhere.py::test_at_all",
    ]
