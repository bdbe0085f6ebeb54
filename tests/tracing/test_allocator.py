"""What torch's allocator holds, which the writer fills in at each step by itself."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rlship.facade.track import Track
from rlship.gpu.memory import Allocator
from rlship.logger import Logger
from rlship.metrics import METRICS
from tests.tracing import fake_torch
from tests.writer.reading import NOW, identity, logger_at, metrics, records

WHOLE = {
    "mem/allocated": 225,
    "mem/reserved": 900,
    "mem/frag_ratio": 0.75,
    "mem/capacity": 1000,
    "mem/alloc_retries": 3,
    "mem/ooms": 1,
}


def busy(torch: Any) -> None:
    """Memory on the first device, which was short of it before."""
    torch.cuda.allocate(900)
    torch.cuda.allocate(-675)
    torch.cuda.retries, torch.cuda.ooms = 3, 1


def filled(folder: Path) -> list[tuple[int | None, dict[str, Any]]]:
    """The step and the metrics of each line that has memory in it."""
    return [(one.get("step"), one["m"]) for one in metrics(records(folder)) if any(name in one["m"] for name in WHOLE)]


def asking(folder: Path, **more: Any) -> Logger:
    """A Logger of a process that asked for system metrics."""
    logger = logger_at(folder, **more)
    logger.allocator = Allocator(1.0)
    return logger


def test_each_step_has_it_once(tmp_path: Path, torch: Any) -> None:
    """A barrier has what the allocator holds before it, as numbers at its step, and waits for no device."""
    busy(torch)
    logger = asking(tmp_path)
    for step in (3, 4):
        logger.log({"loss": 1.0}, step=step)
        logger.barrier(step)
        logger.barrier(step)
    logger.close()
    first, *filled_in = filled(tmp_path)
    assert first == (3, WHOLE), "no barrier has come yet, and perhaps none will"
    assert filled_in == [(3, WHOLE), (4, WHOLE)]
    assert torch.synchronisations == torch.queries == 0
    kinds = [one.get("kind") or ("memory" if "mem/ooms" in one["m"] else "loss") for one in records(tmp_path)]
    assert kinds[2:8] == ["loss", "memory", "barrier", "barrier", "loss", "memory"]


def test_the_names_are_in_the_catalogue() -> None:
    """Each of them needs no `define`."""
    assert WHOLE.keys() <= {metric.name for metric in METRICS}


def test_several_devices(tmp_path: Path, torch: Any) -> None:
    """Of several devices that are used each has its number; counts are added up; visible ones that are not used do not
    count and are not asked at each step.
    """
    busy(torch)
    clock = [0.0]
    allocator = Allocator(1.0, lambda: clock[0])
    assert allocator.at(0) == WHOLE
    torch.cuda.asked.clear()
    assert allocator.at(1) == WHOLE
    assert torch.cuda.asked == [0]
    torch.cuda.elsewhere = 500
    assert allocator.at(2) == WHOLE, "it is found within ten seconds"
    clock[0] = 11.0
    found = allocator.at(3)
    assert (found["mem/allocated"], found["mem/capacity"]) == ([225, 500], [1000, 2000])
    assert (found["mem/frag_ratio"], found["mem/alloc_retries"], found["mem/ooms"]) == ([0.75, 0.0], 3, 1)


def test_a_span_on_the_gpu_asks_for_it(tmp_path: Path, torch: Any) -> None:
    """From the first span that is measured on a GPU on each step has it, at its barrier, or where there is no barrier
    at the span's end; a span on the CPU asks for nothing.
    """
    busy(torch)
    logger = logger_at(tmp_path)
    logger.set_step(1)
    with logger.span("cpu"):
        pass
    assert logger.allocator is None
    with logger.span("step", timer="gpu"):
        pass
    torch.cuda.streams[0].run()
    logger.barrier(1)
    logger.barrier(2)
    logger.close()
    assert [step for step, _ in filled(tmp_path)] == [1, 1, 2], "at the first span's end, and at the barriers"


def test_a_job_without_barriers(tmp_path: Path, torch: Any) -> None:
    """Steps that end by themselves have it from their first `log` on."""
    busy(torch)
    logger = asking(tmp_path)
    for step in (0, 0, 1, 2):
        logger.log({"loss": 1.0}, step=step)
    logger.close()
    assert [step for step, _ in filled(tmp_path)] == [0, 1, 2]


def test_steps_that_log_counts(tmp_path: Path, torch: Any) -> None:
    """With `count_steps` each counted step has it."""
    busy(torch)
    logger = asking(tmp_path)
    logger.steps.count(True)
    for _ in range(3):
        logger.log({"loss": 1.0})
    logger.close()
    assert [step for step, _ in filled(tmp_path)] == [0, 1, 2]


def test_calls_without_steps(tmp_path: Path, torch: Any) -> None:
    """A process without steps has it at most once an interval, at its own calls."""
    busy(torch)
    logger = asking(tmp_path)
    for _ in range(50):
        logger.log({"tokens": 1.0})
    logger.close()
    assert filled(tmp_path) == [(None, WHOLE)]


def test_steps_that_are_done_again(tmp_path: Path, torch: Any) -> None:
    """After a rollback a step has it again."""
    busy(torch)
    logger = asking(tmp_path)
    logger.barrier(5)
    logger.rollback(5)
    logger.barrier(5)
    logger.close()
    assert [step for step, _ in filled(tmp_path)] == [5, 5]


def test_nothing_where_nothing_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that has not imported torch, or has not initialised it, has no such metrics, and torch stays out."""
    logger = asking(tmp_path)
    logger.barrier(0)
    assert "torch" not in sys.modules
    module = fake_torch.make()
    busy(module)
    module.cuda.initialised = False
    monkeypatch.setitem(sys.modules, "torch", module)
    logger.barrier(1)
    assert module.cuda.asked == []
    module.cuda.initialised = True
    logger.barrier(2)
    logger.close()
    assert filled(tmp_path) == [(2, WHOLE)]


def test_torch_on_npus(tmp_path: Path, torch: Any) -> None:
    """Where torch uses Ascend's processors, those of `torch.npu` count."""
    busy(torch)
    torch.npu, torch.cuda = torch.cuda, fake_torch.Cuda(torch)
    torch.cuda.initialised = False
    logger = asking(tmp_path)
    logger.barrier(0)
    logger.close()
    assert filled(tmp_path) == [(0, WHOLE)]


def test_an_allocator_that_fails(tmp_path: Path, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported once and not asked again; barriers are written."""
    busy(torch)

    def fails(device: int) -> dict[str, int]:
        torch.cuda.asked.append(device)
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    torch.cuda.memory_stats = fails
    logger = asking(tmp_path)
    for step in range(3):
        logger.barrier(step)
    logger.close()
    assert torch.cuda.asked == [0]
    assert [one["step"] for one in records(tmp_path) if one.get("kind") == "barrier"] == [0, 1, 2]
    assert capsys.readouterr().err.count("device memory") == 1


def test_only_threads_of_the_job_ask(tmp_path: Path, torch: Any) -> None:
    """The allocator answers under a lock that may be held for as long as a device hangs, so no thread of rlship's asks
    it: writing, flushing and sampling go on.
    """
    busy(torch)
    askers: set[int] = set()
    stats = torch.cuda.memory_stats

    def noted(device: int) -> Any:
        askers.add(threading.get_ident())
        return stats(device)

    torch.cuda.memory_stats = noted
    logger = asking(tmp_path)
    for step in range(20):
        logger.log({"loss": 1.0}, step=step)
        logger.barrier(step)
        logger.flush()
    logger.close()
    assert askers == {threading.get_ident()}


def test_torch_is_never_imported(tmp_path: Path) -> None:
    """System metrics of a process that does not use torch do not import it, though it is installed."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    code = (
        "import sys, time, rlship\n"
        "rlship.init(sys.argv[1], actor='trainer', system_metrics=0.1)\n"
        "for step in range(3):\n    rlship.log({'x': 1.0}, step=step); time.sleep(0.1); rlship.barrier(step)\n"
        "rlship.close(); assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_runs_of_wandb(tmp_path: Path, torch: Any) -> None:
    """In the file of a recorded run each step has it once, at its first call, which the job makes."""
    busy(torch)
    track = Track(str(tmp_path), identity(), axis="step", labels={}, opened=NOW, quiet_s=10.0)
    track.allocator = Allocator(1.0)
    for step in (0, 0, 1):
        track.put({"x": 1.0}, step, NOW)
    track.put({"y": 1.0}, None, NOW)
    track.close()
    assert [step for step, _ in filled(tmp_path)] == [0, 1]
