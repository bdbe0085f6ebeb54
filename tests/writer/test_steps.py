"""The implicit step: who sets it, what the first barrier adopts, and calls of `log` that are counted as steps."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rlship
from tests.writer.reading import NOW, logger_at, metrics, records

WRITING = Path(__file__).parents[2] / "docs" / "writing.md"


def stepped(folder: Path) -> list[tuple[str, int | None]]:
    """Each record that may have a step, as its kind (or name) and its step."""
    kinds = (None, "span", "event", "sample", "barrier")
    return [
        (record.get("name") or record.get("kind") or "log", record.get("step"))
        for record in records(folder)
        if record.get("kind") in kinds and record.get("name") != "rlship_error"
    ]


def test_log_sets_the_implicit_step(tmp_path: Path) -> None:
    """`log(step=n)` goes on to n, never back; inside `with step(n)` it changes nothing."""
    logger = logger_at(tmp_path)
    logger.log({"a": 1}, step=3)
    logger.event("at three")
    logger.log({"a": 1}, step=1)
    logger.event("still at three")
    with logger.step(7):
        logger.log({"a": 1}, step=9)
        logger.event("at seven")
    logger.event("at three again")
    logger.close()
    assert [step for name, step in stepped(tmp_path) if name != "log"] == [3, 3, 7, 3]


def test_a_step_that_log_set_may_be_set_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`set_step` behind what only a `log` named is no mistake."""
    logger = logger_at(tmp_path)
    logger.log({"ahead": 1}, step=12)
    logger.set_step(11)
    logger.log({"a": 1})
    logger.close()
    assert [record["step"] for record in metrics(records(tmp_path))] == [12, 11]
    assert "rlship: " not in capsys.readouterr().err


def test_the_first_barrier_adopts_what_has_no_step(tmp_path: Path) -> None:
    """Only the first one, and only if something without a step stands before it."""
    logger = logger_at(tmp_path)
    with logger.span("rollout"):
        pass
    logger.log({"a": 1}, step=0)
    logger.barrier(0)
    with logger.span("rollout"):
        pass
    logger.barrier(1)
    logger.close()
    found = [record for record in records(tmp_path) if record.get("kind") in ("span", "barrier")]
    assert [(one["kind"], one.get("step"), one.get("adopts")) for one in found] == [
        ("span", None, None),
        ("barrier", 0, True),
        ("span", 1, None),
        ("barrier", 1, None),
    ]


@pytest.mark.parametrize("call", ["log", "span", "event", "sample", "record_metric", "array"])
def test_every_call_without_a_step_is_adopted(tmp_path: Path, call: str) -> None:
    """Whatever is recorded before the first step is known has the barrier adopt it."""
    logger = logger_at(tmp_path)
    if call == "log":
        logger.log({"a": 1})
    elif call == "span":
        logger.span("a").__enter__().__exit__(None, None, None)
    elif call == "event":
        logger.event("a")
    elif call == "sample":
        logger.sample("a", {"x": 1})
    else:
        logger.record_metric("a", 1.0 if call == "record_metric" else [1.0, 2.0])
    logger.barrier(4)
    logger.close()
    (barrier,) = (record for record in records(tmp_path) if record.get("kind") == "barrier")
    assert barrier["adopts"] is True
    assert not any("step" in record for record in records(tmp_path)[1:2])


def test_a_rollback_leaves_nothing_to_adopt(tmp_path: Path) -> None:
    """What stood before a rollback is of a former course of the job."""
    logger = logger_at(tmp_path)
    logger.log({"a": 1})
    logger.rollback(3)
    logger.barrier(3)
    logger.close()
    (barrier,) = (record for record in records(tmp_path) if record.get("kind") == "barrier")
    assert "adopts" not in barrier


def test_a_barrier_is_not_before_the_spans_that_ended_before_it(tmp_path: Path) -> None:
    """Spans have microseconds, barriers milliseconds: a barrier's are rounded up, and whole ones stay."""
    now = [NOW + 0.0004]
    logger = logger_at(tmp_path, clock=lambda: now[0])
    logger.barrier(0)
    now[0] = 1763600001.4
    logger.barrier(1)
    logger.close()
    found = [record["t"] for record in records(tmp_path) if record.get("kind") == "barrier"]
    assert found == [1763600000.126, 1763600001.4]


def test_calls_are_counted_as_steps(tmp_path: Path) -> None:
    """Each `log` without a step is a step and ends it; a span between two calls is of the later one."""
    logger = logger_at(tmp_path)
    logger.steps.count(True)
    for _ in range(3):
        with logger.span("work"):
            pass
        logger.log({"a": 1})
    logger.close()
    assert stepped(tmp_path) == [(what, step) for step in range(3) for what in ("log", "work", "barrier")]


def test_counting_goes_on_from_a_step_that_is_given(tmp_path: Path) -> None:
    """`set_step`, `barrier(n)`, `log(step=n)` and `rollback` say where; `barrier()` repeats what `log` has said."""
    logger = logger_at(tmp_path)
    logger.steps.count(True)
    logger.log({"a": 1})
    logger.barrier()
    logger.log({"a": 1})
    logger.set_step(10)
    logger.log({"a": 1})
    logger.log({"a": 1}, step=12)
    logger.log({"a": 1})
    logger.barrier(20)
    logger.log({"a": 1})
    logger.rollback(5)
    logger.log({"a": 1})
    with logger.step(100):
        logger.log({"a": 1})
    logger.log({"a": 1})
    logger.close()
    assert [step for name, step in stepped(tmp_path) if name == "log"] == [0, 1, 10, 12, 12, 21, 5, 100, 6]
    assert [step for name, step in stepped(tmp_path) if name == "barrier"] == [0, 0, 1, 10, 12, 20, 21, 5, 6]


def test_init_counts_steps(tmp_path: Path) -> None:
    """The argument of `init` reaches the Logger."""
    logger = rlship.init(tmp_path, actor="trainer", rank=0, count_steps=True)
    rlship.log({"a": 1})
    rlship.log({"a": 2})
    assert rlship.close()
    assert [record["step"] for record in metrics(records(tmp_path))] == [0, 1]
    assert logger.steps.counts is True


def test_an_explicit_step_beside_counted_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is logged for the step just counted is kept, and the report fits a job that calls no barrier. A step ahead
    takes the next counted call in, a step behind changes nothing.
    """
    logger = logger_at(tmp_path)
    logger.steps.count(True)
    for call in ({"loss": 1.0}, {"loss": 2.0}, {"eval": 3.0, "step": 1}, {"loss": 4.0}, {"loss": 5.0, "step": 9}):
        logger.log({name: value for name, value in call.items() if name != "step"}, step=call.get("step"))
    logger.log({"eval": 6.0})
    logger.log({"eval": 7.0}, step=0)
    logger.log({"loss": 8.0})
    logger.close()
    assert [step for name, step in stepped(tmp_path) if name == "log"] == [0, 1, 1, 2, 9, 9, 0, 10]
    assert [step for name, step in stepped(tmp_path) if name == "barrier"] == [0, 1, 2, 9, 10]
    told = capsys.readouterr().err
    assert told.count("comes after the call that counted as step 1: nothing is lost") == 1
    assert "log what belongs to a step in one call, or pass step= to each call and call barrier(step)" in told
    assert "callback" not in told


def test_many_calls_without_a_step_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, on stderr, with the calls that mend it; not in the file, because a process may have no steps."""
    logger = logger_at(tmp_path)
    for _ in range(9):
        logger.log({"a": 1})
    assert "without a step" not in capsys.readouterr().err
    for _ in range(20):
        logger.log({"a": 1})
    logger.close()
    told = capsys.readouterr().err
    assert told.count("without a step") == 1
    assert "pass step= to log(), or count_steps=True to init()" in told
    assert not any(record.get("kind") == "event" for record in records(tmp_path))


@pytest.mark.parametrize("case", ["on purpose", "another rank", "steps are known"])
def test_calls_without_a_step_that_are_not_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """A process that says so, ranks but the first, and calls whose step is known."""
    logger = logger_at(tmp_path, rank=1 if case == "another rank" else 0)
    if case == "on purpose":
        logger.steps.count(False)
    if case == "steps are known":
        logger.set_step(0)
    for _ in range(20):
        logger.log({"a": 1})
    logger.close()
    assert "without a step" not in capsys.readouterr().err


@pytest.mark.parametrize("call", ["log", "set_step"])
def test_a_callback_that_logs_after_the_barrier(tmp_path: Path, capsys: pytest.CaptureFixture[str], call: str) -> None:
    """The report names the order of callbacks and the way out, once, and not `rollback`; the values are kept."""
    logger = logger_at(tmp_path)
    for step in range(3):
        logger.barrier(step)
        if call == "log":
            logger.log({"loss": 1}, step=step)
        else:
            logger.set_step(step)
            logger.log({"loss": 1})
    logger.close()
    told = capsys.readouterr().err
    assert told.count("rlship: ") == 1
    assert "comes right after barrier(0)" in told
    assert "transformers calls on_log after on_step_end, and again after an evaluation" in told
    assert "call barrier(0) at the start of the next step (transformers: in on_step_begin)" in told
    assert "rollback" not in told
    assert [record["step"] for record in metrics(records(tmp_path))] == [0, 1, 2]


def test_adding_to_an_earlier_step_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once something of the next step was logged, `log(step=n)` adds to a step on purpose."""
    logger = logger_at(tmp_path)
    logger.log({"a": 1}, step=0)
    logger.barrier(0)
    logger.log({"a": 1}, step=1)
    logger.log({"eval": 1}, step=0)
    logger.close()
    assert "rlship: " not in capsys.readouterr().err


def test_the_order_of_a_trainer_with_callbacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The documented callbacks cause no report where transformers logs a step twice, and again at the end."""
    code = re.search(r"class Rlship\(.*?(?=```)", WRITING.read_text(), re.DOTALL)
    assert code
    names: dict[str, Any] = {"rlship": rlship, "transformers": SimpleNamespace(TrainerCallback=object)}
    exec(code[0], names)
    callback, state = names["Rlship"](), SimpleNamespace(global_step=0)
    rlship.init(tmp_path, actor="trainer", rank=0)
    for step in range(1, 4):
        callback.on_step_begin(None, state, None)
        state.global_step = step
        callback.on_log(None, state, None, logs={"loss": 1.0, "text": "no metric"})
        callback.on_log(None, state, None, logs={"eval_loss": 2.0})
    callback.on_log(None, state, None, logs={"train_runtime": 3.0})
    callback.on_train_end(None, state, None)
    assert rlship.close()
    assert "right after barrier" not in capsys.readouterr().err
    assert stepped(tmp_path) == [
        ("barrier", 0),
        *[("log", 1), ("log", 1), ("barrier", 1)],
        *[("log", 2), ("log", 2), ("barrier", 2)],
        *[("log", 3), ("log", 3), ("log", 3), ("barrier", 3)],
    ]
