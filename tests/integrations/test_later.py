"""Calls once a framework's module has been imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rlship.integrations.later import after_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package `later_made` with the modules `one` and `two`."""
    folder = tmp_path / "later_made"
    folder.mkdir()
    for name in ("__init__", "one", "two"):
        (folder / f"{name}.py").write_text("LOADER = __loader__\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("later_made", "later_made.one", "later_made.two"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "later_made"


def test_a_module_is_handed_over_once_it_has_run(package: str) -> None:
    """A module that was imported before is handed over at once, others right after they ran. Then the finder leaves."""
    seen: list[tuple[str, bool]] = []

    def note(module: ModuleType) -> None:
        seen.append((module.__name__, hasattr(module, "LOADER")))

    importlib.import_module(f"{package}.one")
    before = list(sys.meta_path)
    after_import({f"{package}.one": note, f"{package}.two": note})
    assert seen == [(f"{package}.one", True)]
    two = importlib.import_module(f"{package}.two")
    assert seen[1:] == [(f"{package}.two", True)]
    assert two.__loader__ is two.__spec__.loader is two.LOADER  # type: ignore[union-attr]
    assert sys.meta_path == before


def test_a_module_that_is_missing_stays_so(package: str) -> None:
    """An import that fails raises what it always raises."""
    after_import({f"{package}.three": lambda module: None})
    with pytest.raises(ModuleNotFoundError, match="three"):
        importlib.import_module(f"{package}.three")
