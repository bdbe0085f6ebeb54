"""record_metric's batches: every observation once, in order, with its step and weight, in whatever form it came."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.flusher import Timing
from tests.kit.cases import few
from tests.writer.reading import logger_at, metrics, records, soon

NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0.0, -0.0, 0.1, 1e300, 2**80, True]),
)
CALLS = st.lists(
    st.one_of(
        st.tuples(
            st.just("record"),
            st.sampled_from(["a", "b", "ä %d"]),
            st.one_of(NUMBERS, st.lists(NUMBERS, max_size=4)),
            st.sampled_from([None, None, None, 2, 0.5, 0]),
        ),
        st.tuples(st.just("step"), st.integers(0, 3), st.none(), st.none()),
        st.tuples(st.just("barrier"), st.integers(0, 3), st.none(), st.none()),
        st.tuples(st.just("collect"), st.none(), st.none(), st.none()),
    ),
    max_size=40,
)


def same(a: Any, b: Any) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b) if not isinstance(a, str) else a == b


def shown(value: Any) -> Any:
    """A value as the format shows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@settings(max_examples=few(150), deadline=None)
@given(calls=CALLS)
def test_every_observation_is_written_once(tmp_path_factory: pytest.TempPathFactory, calls: list[Any]) -> None:
    """Of each step and metric all observations are there, bit for bit, in order and with their weights; barriers stand
    after those of their steps.
    """
    folder = tmp_path_factory.mktemp("batches")
    logger = logger_at(folder, timing=Timing(flush=30.0))
    logger.start()
    wanted: dict[tuple[Any, str], list[tuple[Any, Any]]] = {}
    before: list[tuple[int, int]] = []  # of each barrier: its step, and how many observations it comes after
    step = None
    for what, name, value, weight in calls:
        if what == "record":
            logger.record_metric(name, value, weight=weight)
            values = value if isinstance(value, list) else [value]
            wanted.setdefault((step, name), []).extend((shown(v), 1 if weight is None else weight) for v in values)
        elif what == "step":
            step = name
            logger.set_step(name)
        elif what == "barrier":
            before.append((name, sum(len(w) for (s, _), w in wanted.items() if s is None or s <= name)))
            logger.barrier(name)
            step = name + 1
        else:
            logger.stream.collect()
    logger.close()
    found: dict[tuple[Any, str], list[tuple[Any, Any]]] = {}
    barriers = iter(before)
    for record in records(folder):
        if record.get("kind") == "barrier":
            upto, count = next(barriers)
            assert sum(len(w) for (s, _), w in found.items() if s is None or s <= upto) == count
        for name, value in ({} if "kind" in record else record["m"]).items():
            values = value["v"] if isinstance(value, dict) else value if isinstance(value, list) else [value]
            weights = value["w"] if isinstance(value, dict) else [1] * len(values)
            found.setdefault((record.get("step"), name), []).extend(zip(values, weights))
    wanted = {key: pairs for key, pairs in wanted.items() if pairs}
    found = {key: pairs for key, pairs in found.items() if pairs}
    assert found.keys() == wanted.keys()
    for key, pairs in wanted.items():
        assert len(found[key]) == len(pairs)
        assert all(same(a, c) and b == d for (a, b), (c, d) in zip(found[key], pairs)), (found[key], pairs)
    assert (logger.errors, logger.dropped_values, logger.dropped_lines) == (0, 0, 0)


def test_a_batch_has_the_time_of_its_first_observation(tmp_path: Any) -> None:
    """Also where several steps are recorded before anything is written."""
    now = [10.0]
    logger = logger_at(tmp_path, clock=lambda: now[0], timing=Timing(flush=30.0))
    for step in range(3):
        logger.set_step(step)
        for _ in range(2):
            logger.record_metric("a", 1.5)
            now[0] += 1.0
    logger.close()
    assert [(r["step"], r["t"]) for r in records(tmp_path) if "m" in r] == [(0, 10.0), (1, 12.0), (2, 14.0)]


def test_a_list_that_changes_afterwards_was_recorded_as_it_was(tmp_path: Any) -> None:
    """A job may fill the same list again and again; whatever it puts there then, nothing else is lost by it."""
    logger = logger_at(tmp_path, timing=Timing(flush=30.0))
    rewards: list[Any] = [1.5, 2.5]
    logger.record_metric("reward", rewards)
    rewards.clear()
    rewards.append(3.5)
    logger.record_metric("reward", rewards, weight=[2.0])
    rewards[0] = "text"
    logger.record_metric("loss", 0.5)
    logger.barrier(0)
    logger.close()
    assert [r["m"] for r in metrics(records(tmp_path))] == [
        {"reward": {"v": [1.5, 2.5, 3.5], "w": [1, 1, 2.0]}, "loss": 0.5}
    ]
    assert logger.errors == 0


def test_asking_again_after_define_asks_again(tmp_path: Any) -> None:
    """What `define` replaced is asked for by the next record_metric, and each only once."""
    logger = logger_at(tmp_path, timing=Timing(flush=30.0))
    for _ in range(3):
        logger.record_metric("a", 1.5, "mean")
        logger.record_metric("b", 1.5, "max")
    logger.define("a", "sum")
    for _ in range(3):
        logger.record_metric("a", 1.5, "mean")
    logger.close()
    asked = [record["m"] for record in records(tmp_path) if record.get("kind") == "define"]
    assert asked == [
        {"a": {"reduce": "mean"}},
        {"b": {"reduce": "max"}},
        {"a": {"reduce": "sum"}},
        {"a": {"reduce": ["sum", "mean"]}},
    ]


def test_many_observations_are_written_before_the_time_comes(tmp_path: Any) -> None:
    """A loop that records without end is written in parts, as lines of a bounded size."""
    logger = logger_at(tmp_path)
    for i in range(5000):
        logger.record_metric("a", i + 0.25)
    soon(tmp_path, lambda found: len(metrics(found)) >= 4)
    logger.close()
    values = [value for record in metrics(records(tmp_path)) for value in json.loads(json.dumps(record["m"]["a"]))]
    assert values == [i + 0.25 for i in range(5000)]


def test_many_observations_wake_the_writing_thread(tmp_path: Path) -> None:
    """A job that records much fills no buffer while the writing thread sleeps."""
    logger = logger_at(tmp_path, timing=Timing(flush=3600.0))
    logger.set_step(1)
    for call in range(4000):
        logger.record_metric("a", [call + 0.5] * 100)
    soon(tmp_path, lambda found: sum(len(record["m"]["a"]) for record in found if "m" in record) >= 300_000)
    logger.close()
    assert logger.dropped_lines == 0
