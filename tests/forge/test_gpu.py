"""Forge's tracer on a GPU: times between points of the stream, and memory in GiB, without waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlship.forge.perf as perf
from rlship.forge.recording import Current
from tests.tracing.conftest import torch  # noqa: F401 - a fixture
from tests.writer.reading import kinds, logger_at, metrics, records

GIB = 1 << 30


@pytest.fixture
def logger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The Logger to which Forge's calls write."""
    found = logger_at(tmp_path)
    now = Current()
    now.expect_lead(lambda: found)
    monkeypatch.setattr(perf, "current", now)
    found.set_step(4)
    yield found
    found.close()


def test_durations_of_the_gpu(tmp_path: Path, logger: Any, torch: Any) -> None:  # noqa: F811
    """Each step has the time between two events of the stream, and the barrier waits for it."""
    tracer = perf.Tracer("loop", timer="gpu")
    tracer.start()
    for milliseconds in (250.0, 500.0):
        torch.clock_ms += milliseconds
        tracer.step("mm")
    tracer.stop()
    logger.barrier(4)
    torch.cuda.current_stream().run()
    logger.close()
    found = records(tmp_path)
    lines = metrics(found)
    assert {line["step"] for line in lines} == {4}
    assert [line["m"] for line in lines] == [
        {"loop/mm/duration_avg_s": 0.25, "loop/mm/duration_max_s": 0.25},
        {"loop/mm/duration_avg_s": 0.5, "loop/mm/duration_max_s": 0.5},
        {"loop/total_duration_avg_s": 0.75, "loop/total_duration_max_s": 0.75},
    ]
    assert kinds(found).index("barrier") > max(n for n, kind in enumerate(kinds(found)) if kind == "metrics")
    defined = {
        name: entry["reduce"] for one in found if one.get("kind") == "define" for name, entry in one["m"].items()
    }
    assert (defined["loop/mm/duration_avg_s"], defined["loop/total_duration_max_s"]) == ("mean", "max")


def test_memory_is_in_gib(tmp_path: Path, logger: Any, torch: Any) -> None:  # noqa: F811
    """The growth from start to stop, and the most that was allocated in between."""
    torch.cuda.allocate(GIB)
    with perf.trace(prefix="step", track_memory=True):
        torch.cuda.allocate(3 * GIB)
        torch.cuda.allocate(-2 * GIB)
    logger.close()
    (line,) = metrics(records(tmp_path))
    figures = {name: value for name, value in line["m"].items() if "memory" in name}
    assert figures == {"step/memory_delta_end_start_avg_gb": 1, "step/memory_peak_max_gb": 4}


def test_the_variable_chooses_the_timer(tmp_path: Path, logger: Any, torch: Any, monkeypatch: Any) -> None:  # noqa: F811
    """METRIC_TIMER_USES_GPU overrides the argument; DISABLE_PERF_METRICS makes the tracer do nothing."""
    monkeypatch.setenv("METRIC_TIMER_USES_GPU", "true")
    with perf.trace("a", timer="cpu"):
        torch.clock_ms += 250.0
    monkeypatch.setenv("METRIC_TIMER_USES_GPU", "0")
    with perf.trace("b", timer="gpu"):
        torch.clock_ms += 250.0
    monkeypatch.setenv("DISABLE_PERF_METRICS", "1")
    with perf.trace("c"):
        pass
    torch.cuda.current_stream().run()
    logger.close()
    found = {name: value for line in metrics(records(tmp_path)) for name, value in line["m"].items()}
    assert found["a/total_duration_avg_s"] == 0.25
    assert found["b/total_duration_avg_s"] < 0.25
    assert not [name for name in found if name.startswith("c/")]
