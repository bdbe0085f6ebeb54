"""Fixtures of the sink tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.loopback.backend import LoopbackBackend


@pytest.fixture(scope="module")
def backend() -> Iterator[LoopbackBackend]:
    """A healthy W&B server for the tests of one module; each uses a project of its own."""
    with LoopbackBackend() as server:
        yield server
