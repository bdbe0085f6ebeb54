"""What every test relies on."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from contextlib import suppress
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings

from tests.kit import cases, tools

ALL_CASES_S = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-all` tries every random case."""
    parser.addoption("--all-cases", action="store_true", help="try all random cases, not some")


def pytest_configure(config: pytest.Config) -> None:
    """Take signals as a terminal gives them: a shell may have them ignored for tests in the background, and every
    process that a test starts would inherit that.
    """
    gc.disable()  # until all tests are collected: nothing of them is garbage
    cases.draw_all(config.getoption("--all-cases"))
    # How fast examples are made depends on what else the machine does. The rest is that of the profile in use.
    patient = settings(
        max_examples=cases.few(settings().max_examples),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("patient", patient)
    settings.load_profile("patient")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Where it is 002, as on some systems, others could write each rlship.toml of a test.
    os.umask(0o022)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of several workers that collect all tests, let each import a share of the modules first.

    pytest compiles each test module anew in a fresh checkout, in every worker at once. So a worker finds the others'
    shares compiled.
    """
    count, number = (os.environ.get(f"PYTEST_XDIST_WORKER{name}", "") for name in ("_COUNT", ""))
    if number and session.config.args == session.config.getini("testpaths"):
        for path in sorted(session.config.rootpath.glob("tests/*/test_*.py"))[int(number[2:]) :: int(count)]:
            with suppress(Exception):  # the collection imports it again and reports what is wrong
                import_module(f"tests.{path.parent.name}.{path.stem}")


def pytest_collection_finish() -> None:
    """Have no garbage collection look through what all of the tests are: thousands of objects that stay to the end."""
    gc.freeze()
    gc.enable()
    # Extension modules look at the very end for what is left of theirs; before, pytest collects ten times.
    atexit.register(gc.unfreeze)


@pytest.hookimpl(tryfirst=True)  # before markers select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that draw examples. Long ones begin first, so that no worker is left alone with one at the end."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.statistical)
            if item.get_closest_marker("timeout") is None:  # all cases of one take half a minute where all else rests
                item.add_marker(pytest.mark.timeout(ALL_CASES_S))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse tools to tests that `make test` runs."""
    tools.allow(any(item.get_closest_marker(name) for name in tools.MARKERS))
