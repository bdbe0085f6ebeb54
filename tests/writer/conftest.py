"""What holds for all tests of the writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spec.schemas import valid_lines


@pytest.fixture(autouse=True)
def every_record_is_valid(tmp_path: Path) -> Iterator[None]:
    """Whatever a test has the writer write is valid by the schemas of the format."""
    yield from valid_lines(tmp_path)
