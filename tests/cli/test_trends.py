"""Which metrics a screen shows, and what of them."""

from __future__ import annotations

import math
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from rlship_sidecar.report.status import TrendStatus
from rlship_sidecar.report.trends import MAX_POINTS, Trends
from rlship_sidecar.rows import Arrival, Coverage, Row, Unit
from rlship_sidecar.store.changes import Changes
from rlship_sidecar.store.store import Store


def a_row(index: int, values: dict[str, float], *, actor: str = "trainer", kind: str = "step", t: float = 0.0) -> Row:
    return Row(Unit(actor, kind, index), t, {}, values, Coverage(("0.0",), 1), Arrival(index, 0, (), "complete"))


def keys(trends: Trends) -> list[str]:
    return [trend.key for trend in trends.trends()]


def test_reward_loss_and_tokens_are_chosen() -> None:
    """One metric each, by the catalogue's names and those of frameworks, in this order; nothing else."""
    trends = Trends(lead="trainer")
    values = {"trainer/grad_norm": 1.0, "trainer/loss": 2.0, "trainer/throughput(tps)": 3.0, "trainer/loss/max": 9.0}
    trends.note([a_row(0, values)])
    assert keys(trends) == ["trainer/loss", "trainer/throughput(tps)"]
    trends.note([a_row(0, {"reward/total": 0.5, "reward/total/min": 0.1}, actor="reward")])
    assert keys(trends) == ["reward/total", "trainer/loss", "trainer/throughput(tps)"]
    assert keys(Trends()) == []


def test_the_catalogues_name_and_the_lead_come_first() -> None:
    """A loss of the lead goes before another actor's, and `train/loss` before a metric that is only called so."""
    trends = Trends(lead="trainer")
    trends.note([a_row(0, {"critic/loss": 1.0}, actor="critic"), a_row(0, {"trainer/loss": 1.0})])
    assert keys(trends) == ["trainer/loss"]
    trends.note([a_row(1, {"trainer/loss": 1.0, "trainer/train/loss": 1.0})])
    assert keys(trends) == ["trainer/train/loss"]


def test_patterns_choose_instead() -> None:
    """The configured patterns choose in their order, in rows over time too, and each metric comes once."""
    trends = Trends(["*/lag*", "*/loss"])
    trends.note([a_row(0, {"trainer/loss": 1.0, "trainer/reward": 1.0, "trainer/lag_s": 0.5})])
    trends.note([a_row(7, {"clock/generator/lag": 2.0, "clock/generator/x": 1.0}, actor="generator", kind="clock")])
    assert keys(trends) == ["trainer/lag_s", "clock/generator/lag", "trainer/loss"]
    trends.note([a_row(1, {"generator/lag": 2.0}, actor="generator", kind="aligned")])
    assert keys(trends) == ["trainer/lag_s", "generator/lag", "trainer/loss"]


def test_points_are_in_order_of_steps() -> None:
    """A late row and a revision take their places; a value that is not finite is a gap, and the newest may be one."""
    trends = Trends()
    trends.note([a_row(i, {"trainer/loss": float(i)}) for i in range(40) if i != 30])
    trends.note([a_row(30, {"trainer/loss": -1.0}), a_row(35, {"trainer/loss": -2.0})])
    trends.note([a_row(40, {"trainer/loss": math.nan})])
    (trend,) = trends.trends()
    assert trend.points[-12:] == [29.0, -1.0, 31.0, 32.0, 33.0, 34.0, -2.0, 36.0, 37.0, 38.0, 39.0, None]
    assert (trend.value, trend.index, trend.first) == (None, 40, 0)


@pytest.mark.parametrize("steps", [48, 97, 165, 1000, 30_000])
def test_a_curve_is_of_the_whole_run(steps: int) -> None:
    """However long it is, the points go from its first row to its newest, evenly, and what is kept is bounded."""
    trends = Trends()
    for step in range(steps):
        trends.note([a_row(step, {"trainer/loss": step / (steps - 1)})])
    (trend,) = trends.trends()
    assert (len(trend.points), trend.first, trend.index) == (MAX_POINTS, 0, steps - 1)
    values = [value for value in trend.points if value is not None]
    assert (values[0], values[-1]) == (0.0, 1.0)
    gaps = [b - a for a, b in pairwise(values)]
    assert min(gaps[:-1]) > 0 and max(gaps) < 4.5 / MAX_POINTS


def test_a_revision_of_an_old_row_changes_the_curve() -> None:
    """The point that is held of it is replaced, or dropped where the row lacks the metric now."""
    trends = Trends()
    trends.note([a_row(step, {"trainer/loss": 1.0}) for step in range(1000)])
    trends.note([a_row(step, {"trainer/loss": 2.0}) for step in range(500)])
    (trend,) = trends.trends()
    assert set(trend.points[:23]) == {2.0} and set(trend.points[25:]) == {1.0}
    trends.note([a_row(step, {"trainer/grad_norm": 2.0}) for step in range(500)])
    (trend,) = trends.trends()
    assert set(trend.points) == {1.0} and trend.first == 512


def test_the_last_finite_value_is_kept() -> None:
    """However many rows without one follow, the trend has the newest finite value and its step, and the curve."""
    trends = Trends()
    trends.note([a_row(step, {"trainer/loss": 1.0 + step}) for step in range(20)])
    trends.note([a_row(step, {"trainer/loss/nonfinite": 2.0}) for step in range(20, 300)])
    (trend,) = trends.trends()
    assert (trend.value, trend.index, trend.finite, trend.finite_index) == (None, 299, 20.0, 19)
    assert trend.points[0] == 1.0 and any(value is not None for value in trend.points[1:])
    trends.note([a_row(300, {"trainer/loss": 5.0})])
    assert trends.trends()[0].finite is None


@pytest.mark.parametrize("every", [1, 10])
def test_a_new_sidecar_has_the_curve_of_the_whole_run(every: int, tmp_path: Path) -> None:
    """It reads some rows of the store again, also of a metric that few rows have, and not nearly all."""
    with closing(Store(tmp_path / "store.db", local=True)) as store:
        rows = [
            a_row(step, {"trainer/loss": 1.0, **({"trainer/reward": step / 2000} if not step % every else {})})
            for step in range(2001)
        ]
        store.commit(Changes(rows=rows))
        trends = Trends()
        trends.seed(store)
        asked = len(trends._units_before(store))
    reward = next(trend for trend in trends.trends() if trend.key == "trainer/reward")
    known = [value for value in reward.points if value is not None]
    assert known[0] < 0.05 and known[-1] == 1.0 and known == sorted(known) and len(known) > 30
    assert asked <= 2 * (MAX_POINTS + 1)


@pytest.mark.parametrize("rows", range(180, 190))
def test_a_new_sidecar_has_the_first_row_in_its_curve(rows: int, tmp_path: Path) -> None:
    """However many rows there are, evenly chosen ones begin with the first, so that `steps 0..179` is said of all."""
    with closing(Store(tmp_path / "store.db", local=True)) as store:
        store.commit(Changes(rows=[a_row(step, {"trainer/loss": 1.0 + step}) for step in range(rows)]))
        trends = Trends()
        trends.seed(store)
    (trend,) = trends.trends()
    assert (trend.first, trend.points[0], trend.index) == (0, 1.0, rows - 1)


@pytest.mark.parametrize("seldom", ["loss", "reward"])
def test_a_metric_of_few_rows_keeps_its_points(seldom: str) -> None:
    """However many rows lack it, the trend has its newest value, the step of that, and how many rows came since."""
    trends = Trends()
    for step in range(3 * MAX_POINTS + 1):
        logged = {f"trainer/{seldom}": float(step)} if not step % MAX_POINTS else {}
        trends.note([a_row(step, {"trainer/grad_norm": 1.0, **logged})])
        (trend,) = trends.trends()
        assert trend.key == f"trainer/{seldom}"
        assert (trend.index, trend.rows_since) == (step - step % MAX_POINTS, step % MAX_POINTS)
        assert trend.points == [float(at) for at in range(0, step + 1, MAX_POINTS)]


@pytest.mark.parametrize("key", ["trainer/loss", "trainer/loss/mean"])
def test_what_is_not_finite_is_no_older_value(key: str) -> None:
    """A row without a finite observation has no value at its place, and one with some says how many are left out."""
    trends = Trends()
    trends.note([a_row(0, {key: 0.5}), a_row(1, {key: 0.25, "trainer/loss/nonfinite": 1.0})])
    (trend,) = trends.trends()
    assert (trend.index, trend.value, trend.nonfinite) == (1, 0.25, 1)
    trends.note([a_row(2, {"trainer/loss/nonfinite": 2.0})])
    (trend,) = trends.trends()
    assert (trend.index, trend.value, trend.nonfinite, trend.points) == (2, None, 2, [0.5, 0.25, None])
    trends.note([a_row(2, {key: 0.125})])
    assert trends.trends()[0].points == [0.5, 0.25, 0.125]
    later = Trends()
    later.note([a_row(0, {"trainer/loss/nonfinite": 1.0})])
    assert [(one.key, one.value) for one in later.trends()] == [("trainer/loss", None)]


def test_a_trend_has_the_unit_of_the_catalogue() -> None:
    """Everything that a screen draws of a metric."""
    trends = Trends()
    trends.note([a_row(3, {"trainer/perf/tokens_per_s": 10.0})])
    assert trends.trends() == [
        TrendStatus("trainer/perf/tokens_per_s", "trainer", "step", 3, 10.0, [10.0], "tokens/s", first=3)
    ]


def test_the_rate_of_steps() -> None:
    """Steps a second over the newest rows, by their own times; unknown before the second row."""
    trends = Trends()
    assert trends.steps_per_s("trainer") is None
    trends.note([a_row(0, {"trainer/loss": 1.0}, t=100.0)])
    assert trends.steps_per_s("trainer") is None
    trends.note([a_row(5, {"trainer/loss": 1.0}, t=110.0)])
    assert trends.steps_per_s("trainer") == 0.5


def test_the_rate_falls_once_no_step_follows() -> None:
    """While steps come at their pace it is that of the rows; without a next one it goes to zero. A clock behind the
    rows changes nothing.
    """
    trends = Trends()
    trends.note([a_row(step, {"trainer/loss": 1.0}, t=100.0 + 2.0 * step) for step in range(0, 60, 2)])
    for at in (90.0, 216.0, 218.0, 219.9):
        assert trends.steps_per_s("trainer", at) == pytest.approx(0.5)
    slower = [trends.steps_per_s("trainer", 216.0 + wait) or 0.0 for wait in (10.0, 40.0, 100.0, 840.0)]
    assert slower == sorted(slower, reverse=True)
    assert slower[0] < 0.5
    assert slower[-1] == pytest.approx(2 / 840)


def test_single_lines_and_the_sidecars_own_rows_are_not_followed() -> None:
    """Neither is a metric of the job over its steps."""
    trends = Trends(["*"])
    trends.note([a_row(0, {"rlship/loss": 1.0}, actor="rlship"), a_row(0, {"point/eval/loss": 1.0}, kind="point")])
    assert keys(trends) == []


def test_steps_that_are_done_again_are_the_newest() -> None:
    """Far behind the rows that there are, too: the value, the curve and the rate are of what is done again; once it has
    passed them, of all.
    """
    trends = Trends(lead="trainer")
    trends.note([a_row(i, {"trainer/loss": 1.0}, t=float(i)) for i in range(1000)])
    trends.note([a_row(i, {"trainer/loss": 2.0 + i}, t=5000.0 + 2 * i) for i in range(3)])
    (trend,) = trends.trends({"trainer": 2})
    assert (trend.index, trend.value, trend.points, trend.rows_since) == (2, 4.0, [2.0, 3.0, 4.0], 0)
    assert trends.steps_per_s("trainer", behind={"trainer": 2}) == 0.5
    (trend,) = trends.trends()
    assert (trend.index, trend.value, len(trend.points)) == (999, 1.0, MAX_POINTS)
