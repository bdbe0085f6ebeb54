"""To which step of which axis the values of a call belong, without any process."""

from __future__ import annotations

from typing import Any

from rlship.facade.axes import COUNTER, Router, flat


def routed(router: Router, data: dict[str, Any], step: Any = None, commit: Any = None) -> dict[Any, Any]:
    parts, _ = router.route(data, step, commit)
    return {(part.axis, part.step): part.values for part in parts}


def defined(*pairs: tuple[str, str | None]) -> Router:
    router = Router()
    for name, axis in pairs:
        router.definitions.define(name, axis)
    return router


def test_a_call_without_any_axis_is_a_step_of_its_own() -> None:
    """Without step and axis, W&B's own count of committed calls is the step; `commit=False` stays in the row."""
    router = Router()
    assert routed(router, {"a": 1}) == {(COUNTER, 0): {"a": 1}}
    assert routed(router, {"a": 2}, commit=False) == {(COUNTER, 1): {"a": 2}}
    assert routed(router, {"b": 3}) == {(COUNTER, 1): {"b": 3}}
    assert routed(router, {"a": 4}) == {(COUNTER, 2): {"a": 4}}


def test_a_step_that_is_passed_moves_the_count() -> None:
    """A call at a later step ends the row before; without `commit` its row stays open; an earlier step is late."""
    router = Router()
    assert routed(router, {"a": 1}, step=5) == {(COUNTER, 5): {"a": 1}}
    assert routed(router, {"b": 2}) == {(COUNTER, 5): {"b": 2}}
    assert router.counter.at == 6
    assert routed(router, {"a": 3}, step=2) == {(COUNTER, 2): {"a": 3}}
    assert router.counter.at == 6
    assert routed(router, {"a": 4}, step=8, commit=True) == {(COUNTER, 8): {"a": 4}}
    assert router.counter.at == 9


def test_the_axis_of_all_metrics_is_the_runs_own() -> None:
    """With `define_metric("*", step_metric=…)` a row that has the axis is at its value, and the axis is no metric."""
    router = defined(("train/global_step", None), ("*", "train/global_step"))
    assert routed(router, {"loss": 1, "train/global_step": 7}) == {("train/global_step", 7): {"loss": 1}}
    assert router.main == "train/global_step"


def test_a_call_without_its_axis_belongs_to_no_step() -> None:
    """Under a step metric, a call that lacks it is a stream line: W&B would copy the last value, a step too early."""
    router = defined(("*", "train/global_step"))
    assert routed(router, {"profiling/x": 1}) == {(None, None): {"profiling/x": 1}}
    assert router.main == "train/global_step"


def test_an_uncommitted_row_shares_its_axis() -> None:
    """What joins a row that is not committed is at the row's step of the axis."""
    router = defined(("*", "s"))
    routed(router, {"s": 3, "a": 1}, commit=False)
    assert routed(router, {"b": 2}) == {("s", 3): {"b": 2}}
    assert routed(router, {"c": 2}) == {(None, None): {"c": 2}}


def test_each_further_axis_has_steps_of_its_own() -> None:
    """One call may hold values of several axes; the training's axis is the run's own, whichever comes first."""
    router = defined(("train/*", "train/step"), ("rollout/*", "rollout/step"), ("eval/*", "eval/step"))
    assert routed(router, {"rollout/r": 1, "rollout/step": 4}) == {("rollout/step", 4): {"rollout/r": 1}}
    assert router.main is None
    found = routed(router, {"train/l": 1, "train/step": 9, "eval/a": 2, "eval/step": 1})
    assert found == {("train/step", 9): {"train/l": 1}, ("eval/step", 1): {"eval/a": 2}}
    assert router.main == "train/step"


def test_steps_that_are_passed_lead_a_run_whose_other_axes_are_beside_the_training() -> None:
    """A monitor's axis does not become the run's own, even if it logs first."""
    router = defined(("ray/*", "ray/ray_step"))
    assert routed(router, {"ray/mem": 1, "ray/ray_step": 0}, commit=False) == {("ray/ray_step", 0): {"ray/mem": 1}}
    assert router.main is None
    assert routed(router, {"train/loss": 1}, step=1) == {(COUNTER, 1): {"train/loss": 1}}
    assert router.main == COUNTER


def test_an_only_axis_leads_the_run() -> None:
    """A run whose only axis is an epoch has that as its own."""
    router = defined(("loss", "epoch"))
    assert routed(router, {"loss": 1.0, "epoch": 0}) == {("epoch", 0): {"loss": 1.0}}
    assert router.main == "epoch"


def test_times_and_fractions_are_no_steps() -> None:
    """A value of the axis that is no whole number is kept as a value of a stream line, from the first one on."""
    router = defined(("*", "step"), ("inference/*", "_timestamp"), ("val/*", "epoch"))
    assert routed(router, {"inference/x": 1}) == {(None, None): {"inference/x": 1}}
    assert routed(router, {"val/a": 1, "epoch": 1.5}) == {(None, None): {"val/a": 1, "epoch": 1.5}}
    assert routed(router, {"val/a": 1, "epoch": 2.0}) == {(None, None): {"val/a": 1, "epoch": 2.0}}
    assert routed(router, {"a": 1, "step": 2.0}) == {("step", 2): {"a": 1}}


def test_a_row_of_the_axis_alone_shows_that_the_step_was_reached() -> None:
    """A call with the axis and nothing else is a record without metrics."""
    router = defined(("*", "s"))
    assert routed(router, {"s": 3}) == {("s", 3): {}}


def test_an_axis_that_no_other_value_uses_is_a_value() -> None:
    """`eval/step` in a row of the training is logged like any other number."""
    router = defined(("train/*", "train/step"), ("eval/*", "eval/step"))
    found = routed(router, {"train/l": 1, "train/step": 9, "eval/step": 2})
    assert found == {("train/step", 9): {"train/l": 1, "eval/step": 2}}


def test_of_axes_alone_the_first_one_of_the_call_leads() -> None:
    """In the order of the job's call, so that each start of the job has the same rows."""
    for number in range(12):
        first, second = f"a{number}/at", f"b{number}/at"
        for one, other in ((first, second), (second, first)):
            router = defined((f"a{number}/*", first), (f"b{number}/*", second))
            assert routed(router, {one: 1, other: 2}) == {(one, 1): {other: 2}}


def test_an_axis_that_is_named_late_takes_over() -> None:
    """A job that logs a little before it names its axis has that axis as its own afterwards."""
    router = Router()
    assert routed(router, {"setup": 1}) == {(COUNTER, 0): {"setup": 1}}
    router.definitions.define("*", "train/global_step")
    assert routed(router, {"loss": 1, "train/global_step": 1}) == {("train/global_step", 1): {"loss": 1}}
    assert router.main == "train/global_step"


def test_the_longest_beginning_decides() -> None:
    """An exact name wins over a glob, a longer glob over a shorter one; `overwrite` takes an axis away."""
    router = defined(("*", "a"), ("x/*", "b"), ("x/y", "c"))
    definitions = router.definitions
    assert [definitions.axis_of(key) for key in ("q", "x/q", "x/y")] == ["a", "b", "c"]
    definitions.define("x/y", None)
    assert definitions.axis_of("x/y") == "c"
    definitions.define("x/y", None, overwrite=True)
    assert definitions.axis_of("x/y") is None
    assert definitions.axes == {"a", "b"}


def test_groups_are_joined_by_a_dot() -> None:
    """Nested dicts have the names that W&B gives them."""
    assert flat({"a": {"b": {"c": 1}, "d": 2}, "e": {}}, lambda value: isinstance(value, dict) and bool(value)) == {
        "a.b.c": 1,
        "a.d": 2,
        "e": {},
    }
