"""Integrations open the Logger of the process, so each test has a process's state of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlship import registry
from rlship.integrations import source
from rlship.notices import Notices


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Logger of another test, and no setting of the user."""
    for name in ("RLSHIP_DIR", "RLSHIP_ACTOR", "RLSHIP_DISABLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(registry, "_default", None)
    monkeypatch.setattr(registry, "_loggers", {})
    monkeypatch.setattr(source, "_opened", [])
    monkeypatch.setattr(source, "_notices", Notices())
    yield
    for logger in [*registry._loggers.values()]:
        logger.close()
