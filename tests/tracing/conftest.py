"""A stand-in for torch in sys.modules, for as long as a test runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spec.schemas import valid_lines
from tests.tracing import fake_torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, with CUDA initialised and nothing on its streams."""
    module = fake_torch.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture(autouse=True)
def every_record_is_valid(tmp_path: Path) -> Iterator[None]:
    """Whatever a test has the writer write is valid by the schemas of the format."""
    yield from valid_lines(tmp_path)
