"""A run that grows by a day's rows under an open page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import page

pytestmark = [pytest.mark.toolchain, pytest.mark.long]


def test_a_days_rows_come_under_an_open_page(tmp_path: Path) -> None:
    """86,400 steps in half a minute, while the page turns from panel to panel: it ends at the last of them and threw
    nothing, and server and tab stay within their memory. `python -m benchmarks view:day` takes ten minutes for it.
    """
    findings = {one.figure: one for one in page.day(tmp_path, page.DAY_ROWS, 30.0, ranks=8)}
    for name in ("memory of the server, a day's rows", "memory of the tab, at most"):
        assert findings[name].reached, findings[name]
