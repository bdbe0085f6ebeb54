"""Tests that draw random cases: some of them in `make test`, all of them in `make test-all`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import HealthCheck, settings

Test = TypeVar("Test", bound=Callable[..., Any])
Case = TypeVar("Case")

# Of so many cases one is drawn in `make test`.
SHARE = 40
# The same of a test that leaves the number to Hypothesis.
QUICK_SHARE = 8
_all_cases = False


def draw_all(wanted: bool) -> None:
    """Note whether `--all-cases` was given, before test modules are imported."""
    global _all_cases
    _all_cases = wanted


def statistical(count: int, **more: Any) -> Callable[[Test], Test]:
    """Mark a test with `given` as one of `count` cases; `more` are settings of Hypothesis."""
    slow = (HealthCheck.too_slow, HealthCheck.data_too_large)
    drawn = settings(**{"max_examples": number(count), "deadline": None, "suppress_health_check": slow, **more})
    return lambda test: pytest.mark.statistical(drawn(test))


def number(count: int) -> int:
    """How many of `count` cases this run tries."""
    return count if _all_cases else max(1, count // SHARE)


def few(examples: int) -> int:
    """How many of `examples` this run tries of a test that is quick and names no number of cases."""
    return examples if _all_cases else max(1, examples // QUICK_SHARE)


def some(cases: Sequence[Case], share: int = SHARE) -> Sequence[Case]:
    """The cases that this run tries, all or one in `share`: for a test that is marked as statistical and draws none."""
    return cases if _all_cases else cases[::share]


def long(*values: object) -> list[ParameterSet]:
    """Parameters of which each one's test is marked as long."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]
