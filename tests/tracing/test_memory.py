"""GPU memory of spans: what each of them, nested or beside one another, says of its own time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlship.gpu import memory as cuda_memory
from tests.kit.cases import few
from tests.tracing import fake_torch
from tests.writer.reading import lines, logger_at, metrics, records


def test_memory_of_a_span(tmp_path: Path, torch: Any) -> None:
    """Allocated and reserved at the end, the most allocated inside, and the unused share of what is reserved."""
    logger = logger_at(tmp_path)
    logger.set_step(1)
    torch.cuda.allocate(900)
    torch.cuda.allocate(-900)  # what was before does not count
    with logger.span("step", memory=True):
        torch.cuda.allocate(600)
        torch.cuda.allocate(-375)
    logger.close()
    own, of_span = metrics(records(tmp_path))
    assert own["m"]["mem/allocated"] == 225
    assert [of_span] == [
        {
            "step": 1,
            "m": {
                "step/mem_allocated_bytes": 225,
                "step/mem_reserved_bytes": 900,
                "step/mem_peak_bytes": 600,
                "step/mem_frag": 0.75,
            },
        }
    ]
    assert [line for line in lines(tmp_path) if "define" in line] == [
        '{"kind":"define","m":{"step/mem_allocated_bytes":{"reduce":"max","unit":"bytes"},'
        '"step/mem_reserved_bytes":{"reduce":"max","unit":"bytes"},'
        '"step/mem_peak_bytes":{"reduce":"max","unit":"bytes"},"step/mem_frag":{"reduce":"max"}}}'
    ]


def test_what_the_job_declared_stays(tmp_path: Path, torch: Any) -> None:
    """A definition of the job's own for such a metric is not replaced."""
    logger = logger_at(tmp_path)
    logger.define("s/mem_peak_bytes", "mean")
    with logger.span("s", memory=True):
        pass
    logger.close()
    assert len([line for line in lines(tmp_path) if '"s/mem_peak_bytes":{"reduce"' in line]) == 1


SPANS = st.lists(st.one_of(st.sampled_from(["enter", "exit"]), st.integers(-500, 500)), max_size=40)


@settings(max_examples=few(200), deadline=None)
@given(actions=SPANS)
def test_nested_spans_keep_their_peaks(actions: list[Any]) -> None:
    """The peak of each span is the most that was allocated at any moment of it, whatever began and ended inside."""
    torch = fake_torch.make()
    still: list[tuple[cuda_memory.Watch, list[int]]] = []
    for action in actions:
        if action == "enter":
            still.append((cuda_memory.begin(torch), [torch.cuda.allocated]))
        elif action == "exit":
            if still:
                watch, seen = still.pop()
                assert watch.end(torch, "x")["x/mem_peak_bytes"] == max(seen)
        else:
            torch.cuda.allocate(max(action, -torch.cuda.allocated))
            for _, seen in still:
                seen.append(torch.cuda.allocated)
    while still:
        watch, seen = still.pop(0)  # in any order
        assert watch.end(torch, "x")["x/mem_peak_bytes"] == max(seen)
    assert cuda_memory._open == []


def test_threads_do_not_take_each_others_peak(tmp_path: Path, torch: Any) -> None:
    """A span that begins in another thread resets the allocator's peak, not that of the spans that are open."""
    logger = logger_at(tmp_path)

    def other() -> None:
        with logger.span("other", memory=True):
            torch.cuda.allocate(10)

    with logger.span("outer", memory=True):
        torch.cuda.allocate(500)
        torch.cuda.allocate(-500)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    logger.close()
    found = {name: value for record in metrics(records(tmp_path)) for name, value in record["m"].items()}
    assert (found["other/mem_peak_bytes"], found["outer/mem_peak_bytes"]) == (10, 500)


def test_a_failing_allocator_costs_nothing_but_its_figures(
    tmp_path: Path, torch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where torch cannot say, the span is recorded by the CPU's clock, and the error is reported once."""
    torch.cuda.memory_stats = None
    logger = logger_at(tmp_path)
    for _ in range(2):
        with logger.span("x", memory=True, timer="gpu"):
            pass
    logger.close()
    assert [record["lane"] for record in records(tmp_path) if record.get("kind") == "span"] == ["main", "main"]
    assert capsys.readouterr().err.count("internal error in span on the GPU") == 1
