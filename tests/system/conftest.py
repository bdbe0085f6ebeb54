"""The driver library of the tests, for pynvml in this process and in others."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.system.driver import Driver, build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Building the library takes a compiler."""
    for item in items:
        if {"library", "old_library"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("toolchain")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a driver of today."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a driver that lacks what came later."""
    return build(tmp_path_factory.mktemp("old-nvml"), "-DOLD_DRIVER")


def _loaded(library: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    # As pynvml's own loading leaves it, from another place.
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return pynvml


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """What either library answers."""
    found = Driver(tmp_path / "gpus.txt")
    found.gpus()
    monkeypatch.setenv("FAKE_NVML", str(found.file))
    return found


@pytest.fixture
def nvml(library: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """pynvml on the driver of today."""
    yield _loaded(library, monkeypatch)


@pytest.fixture
def old_nvml(old_library: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """pynvml on the old driver."""
    yield _loaded(old_library, monkeypatch)
