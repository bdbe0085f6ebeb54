"""When a change began: before the frame in which its detector is sure."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlship_sidecar.alerts.episodes import RESOLVED, Episode, Moment
from rlship_sidecar.why.asking import together_with
from rlship_sidecar.why.onset import LEAST, began


def noise(seed: int, count: int, memory: float = 0.6) -> list[float]:
    """Noise that remembers its last value, with outliers."""
    chance, last, found = random.Random(seed), 0.0, []
    for _ in range(count):
        last = memory * last + chance.gauss(0, 1) * (3 if chance.random() < 0.02 else 1)
        found.append(last)
    return found


@pytest.mark.parametrize("down", [False, True])
def test_a_step_is_dated_to_its_frame(down: bool) -> None:
    """Looked back upon from 15 frames later, through noise that remembers: half of the dates are exact, and nine of ten
    are at most three frames away, the tolerance of the ranking.
    """
    errors = []
    for seed in range(60):
        values = [10 + one + (12 if at >= 100 else 0) for at, one in enumerate(noise(seed, 115))]
        errors.append(abs(began([-one for one in values] if down else values, 30, down=down) - 100))
    assert median(errors) <= 1 and sorted(errors)[53] <= 3


def test_a_slow_growth_is_dated_near_its_beginning() -> None:
    """A detector of growth is sure after 45 of 60 frames; the date is at most 15 frames behind the beginning."""
    errors = []
    for seed in range(40):
        values = [100 + one + max(0, at - 100) * 0.8 for at, one in enumerate(noise(seed, 146))]
        errors.append(began(values, 60, down=False) - 100)
    assert -5 <= median(errors) <= 15 and sorted(map(abs, errors))[35] <= 15


def test_a_healthy_trend_is_no_part_of_a_change() -> None:
    """A curve that rises all the time and then jumps has changed at the jump."""
    values = [0.01 * at + 0.002 * one for at, one in enumerate(noise(1, 110))]
    assert began([value + (0.5 if at >= 104 else 0) for at, value in enumerate(values)], 30, down=False) == 104


def test_one_outlier_before_is_soon_forgotten() -> None:
    """The sum grows by no more than a few spreads for one value."""
    values = [*noise(2, 80), 40.0, *noise(3, 24), *[20.0] * 4]
    assert began(values, 40, down=False) == 105


def test_too_few_values_say_nothing() -> None:
    """Then a change began where its detector says so."""
    assert began([1.0] * LEAST + [9.0], 20, down=False) == LEAST
    assert began([9.0], 20, down=False) == 0


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=90), st.integers(0, 70), st.booleans())
def test_any_values_have_a_date(values: list[float], back: int, down: bool) -> None:
    """It is one of the last `back` values, whatever they are."""
    found = began(values, back, down=down)
    assert max(0, len(values) - 1 - back) <= found <= len(values) - 1


def an_episode(rule: str, first: int, last: int, lineage: tuple[int, int, int] = (0, 0, 0)) -> Episode:
    begin, end = Moment(first, float(first)), Moment(last, float(last))
    return Episode(rule, "warning", RESOLVED, "", lineage, begin, begin, end, end, ())


def test_episodes_that_hang_together() -> None:
    """Each began while the next one went on, or not long before. Long before, or of another lineage: by itself."""
    far, near, on = an_episode("far", 10, 20), an_episode("near", 80, 90), an_episode("on", 110, 200)
    other, chosen = an_episode("other", 100, 160, (0, 0, 1)), an_episode("chosen", 150, 210)
    assert together_with(chosen, [chosen, far, other, on, near]) == [near, on, chosen]
    assert together_with(far, [chosen, far, on]) == [far]
