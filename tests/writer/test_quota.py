"""Which samples of a step are kept."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.quota import Quota


def offer(quota: Quota, step: int | None, pri: float, size: int, t: float = 5.0) -> bool:
    """Offer one sample, as the Logger does."""
    kept = quota.admits(step, t, pri)
    if kept:
        quota.spend(step, t, size)
    return kept


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1, exclude_max=True), st.integers(1, 400)), max_size=300))
def test_a_step_keeps_little_more_than_its_budget_and_counts_the_rest(samples: list[tuple[int, float, int]]) -> None:
    """All is kept up to half of the budget, at most one sample goes beyond it, and each other one is counted with the
    smallest `pri`.
    """
    quota = Quota(1000)
    used, dropped = {}, {}  # type: dict[int, int], dict[int, list[float]]
    for step, pri, size in samples:
        before = used.get(step, 0)
        if offer(quota, step, pri, size):
            assert before < 1000
            used[step] = before + size
        else:
            assert before >= 500
            dropped.setdefault(step, []).append(pri)
    told = {one.step: (one.n, one.pri) for one in quota.settle(None)}
    assert told == {step: (len(pris), min(pris)) for step, pris in dropped.items()}
    assert quota.settle(None) == []


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_the_fair_few_come_through(seed: int, size: int) -> None:
    """Of very many samples the few with the smallest `pri` are kept, whenever they came."""
    generator = random.Random(seed)
    quota = Quota(10_000)
    pris = [generator.random() for _ in range(3000)]
    kept = {pri for pri in pris if offer(quota, 1, pri, size)}
    assert set(sorted(pris)[:5]) <= kept


def test_a_barrier_settles_lower_steps_only() -> None:
    """Steps above it and samples without a step go on with what they have used."""
    quota = Quota(100)
    for step in (1, 2, None):
        offer(quota, step, 0.5, 200)
        assert not offer(quota, step, 0.5, 200)
    assert [(one.step, one.n) for one in quota.settle(1)] == [(1, 1)]
    assert not offer(quota, 2, 0.5, 200)
    assert not offer(quota, None, 0.5, 200)
    assert sorted((one.step or 0, one.n) for one in quota.settle(None)) == [(0, 2), (2, 2)]


def test_a_new_step_tells_what_it_leaves_behind() -> None:
    """Lower steps when one begins, the ten seconds before when others begin; each drop is reported once."""
    quota = Quota(100)
    offer(quota, 1, 0.5, 200)
    offer(quota, 1, 0.25, 200)
    assert quota.passed() == []
    offer(quota, 2, 0.5, 200)
    assert [(one.step, one.n, one.pri) for one in quota.passed()] == [(1, 1, 0.25)]
    assert quota.passed() == []
    assert not offer(quota, 1, 0.5, 200)  # it goes on, and its budget is what it was
    offer(quota, None, 0.5, 200, t=9.9)
    offer(quota, None, 0.5, 200, t=9.9)
    assert quota.passed() == []
    assert offer(quota, None, 0.5, 200, t=10.0)
    assert [(one.step, one.n) for one in quota.passed()] == [(None, 1)]
    assert [(one.step, one.n) for one in quota.settle(None)] == [(1, 1)]


def test_memory_is_bounded_and_forgets_nothing_untold() -> None:
    """Of thousands of open steps only the newest are held; what was dropped of the others is reported."""
    quota = Quota(100)
    told = 0
    for step in range(5000, 0, -1):  # downwards, so that no step is passed
        offer(quota, step, 0.5, 200)
        offer(quota, step, 0.5, 200)
        told += sum(one.n for one in quota.passed())
    assert len(quota.uses) <= 65
    assert told + sum(one.n for one in quota.settle(None)) == 5000
