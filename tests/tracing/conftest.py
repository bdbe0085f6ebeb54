"""A stand-in for torch in sys.modules, for as long as a test runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tracing import fake_torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, with CUDA initialised and nothing on its streams."""
    module = fake_torch.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module
