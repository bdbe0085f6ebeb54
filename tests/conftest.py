"""What every test relies on."""

from __future__ import annotations

import signal

import pytest


def pytest_configure() -> None:
    """Take signals as a terminal gives them: whoever runs the tests in the background may have them ignored, and that
    is inherited by every process a test starts.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


LONGEST = ("test_five_steady_minutes", "test_a_campaign_loses_nothing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that nobody waits for them alone at the end."""
    items.sort(key=lambda item: not any(name in item.nodeid for name in LONGEST))
