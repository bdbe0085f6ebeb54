"""The checks: each is a function that raises where a promise does not hold on a real GPU."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlship
from tests.gpu import system

MOST_S = 0.05  # far more than any call may take, far less than the work that is queued


def _torch() -> Any:
    import torch

    torch.cuda.init()
    return torch


def _queue(torch: Any, seconds: float) -> None:
    """Work for the current stream that takes about so long."""
    torch.cuda._sleep(int(seconds * 1.5e9))  # in cycles, of which a GPU makes so many a second, about


def _open(folder: str) -> rlship.Logger:
    return rlship.init(folder, actor="trainer", rank=0, world=1)


def _records(logger: rlship.Logger) -> list[dict[str, Any]]:
    assert logger.path is not None
    return [json.loads(line) for line in Path(logger.path).read_text(encoding="utf-8").splitlines()]


def gpu_time_without_waiting(folder: str) -> None:
    """A span takes the GPU's time, and neither it nor the barrier after it waits for the GPU."""
    torch, logger = _torch(), _open(folder)
    torch.cuda.synchronize()
    began = time.perf_counter()
    with rlship.span("work", timer="gpu"):
        _queue(torch, 1.0)
    rlship.barrier(0)
    took = time.perf_counter() - began
    torch.cuda.synchronize()
    real = time.perf_counter() - began
    rlship.close()
    found = _records(logger)
    (span,) = [record for record in found if record.get("kind") == "span"]
    kinds = [record.get("kind") for record in found]
    assert took < MOST_S, took
    assert abs(span["dur"] - real) < 0.05 * real, (span, real)
    assert kinds.index("span") < kinds.index("barrier"), kinds


def tensors_without_waiting(folder: str) -> None:
    """Tensors on the device are logged without waiting, with their values at the call."""
    torch, logger = _torch(), _open(folder)
    loss = torch.full((), 0.5, device="cuda")
    rewards = torch.arange(4.0, device="cuda")
    rlship.log({"warm": loss}, step=0)  # the first pinned block is allocated, which waits
    torch.cuda.synchronize()
    _queue(torch, 1.0)
    began = time.perf_counter()
    rlship.log({"loss": loss, "g": {"rewards": rewards}}, step=1)
    rlship.set_step(1)
    rlship.record_metric("reward", rewards.mean(), rlship.Reduce.MAX)
    loss.add_(1.0)
    rlship.barrier(1)
    took = time.perf_counter() - began
    torch.cuda.synchronize()
    rlship.close()
    found: dict[str, Any] = {}
    for record in _records(logger):
        found.update(record.get("m", {}) if "kind" not in record else {})
    assert took < MOST_S, took
    assert found == {"warm": 0.5, "loss": 0.5, "g/rewards": [0.0, 1.0, 2.0, 3.0], "reward": 1.5}, found


def memory_of_nested_spans(folder: str) -> None:
    """The peak of the outer span survives what begins inside it."""
    torch, logger = _torch(), _open(folder)
    size = 64 << 20
    with rlship.span("outer", memory=True):
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        del block
        with rlship.span("inner", memory=True):
            block = torch.empty(size // 4, dtype=torch.uint8, device="cuda")
    rlship.close()
    found: dict[str, float] = {}
    for record in _records(logger):
        found.update(record.get("m", {}) if "kind" not in record else {})
    assert found["outer/mem_peak_bytes"] >= size > found["inner/mem_peak_bytes"] >= size // 4, found
    assert found["outer/mem_allocated_bytes"] == block.numel(), found
    assert 0 <= found["outer/mem_frag"] <= 1, found


def graphs_can_be_captured(folder: str) -> None:
    """Looking at events breaks no capture, in its default mode, in another thread; inside it nothing is looked at."""
    torch, logger = _torch(), _open(folder)
    x = torch.zeros(8, device="cuda")
    side = torch.cuda.Stream()
    stop = threading.Event()

    def wake() -> None:
        while not stop.is_set():
            logger.stream.wake()
            time.sleep(0.0005)

    with torch.cuda.stream(side):
        _queue(torch, 3.0)
        for i in range(20):  # late values that the writing thread looks at while the graph is captured
            rlship.log({"late": x}, step=i)
    rlship.barrier(19)
    waker = threading.Thread(target=wake)
    waker.start()
    for _ in range(20):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(50):
                x += 1
            with rlship.span("captured", timer="gpu", memory=True):
                x += 1
        graph.replay()
    stop.set()
    waker.join()
    torch.cuda.synchronize()
    rlship.close()
    assert logger.errors == 0, logger.errors


def no_context_on_the_first_device(folder: str) -> None:
    """A process that works on another device than the first makes no context there (needs two GPUs)."""
    torch, logger = _torch(), _open(folder)
    if torch.cuda.device_count() < 2:
        print("   one GPU only: nothing to see")
        return
    torch.cuda.set_device(1)
    rlship.log({"x": torch.ones((), device="cuda:1")}, step=0)
    with rlship.span("work", timer="gpu"):
        torch.ones(4, device="cuda:1").sum()
    rlship.barrier(0)
    assert rlship.flush()
    assert torch.cuda.memory_reserved(0) == 0
    assert not torch._C._cuda_hasPrimaryContext(0)
    assert logger.errors == 0


def a_forked_child_is_left_alone(folder: str) -> None:
    """A child that is forked while values are late logs on, and the parent loses none."""
    torch, logger = _torch(), _open(folder)
    rlship.log({"parent": torch.ones((), device="cuda")}, step=0)
    pid = os.fork()
    if pid == 0:
        rlship.log({"child": 1.0}, step=0)
        with rlship.span("child", timer="gpu"):
            pass
        os._exit(0 if rlship.flush(5) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    rlship.close()
    assert any(record.get("m") == {"parent": 1.0} for record in _records(logger))


CHECKS: tuple[Callable[[str], None], ...] = (
    gpu_time_without_waiting,
    tensors_without_waiting,
    memory_of_nested_spans,
    graphs_can_be_captured,
    no_context_on_the_first_device,
    a_forked_child_is_left_alone,
    *system.CHECKS,
)
NAMES = tuple(check.__name__ for check in CHECKS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rlship-gpu-") as scratch:
        {check.__name__: check for check in CHECKS}[sys.argv[1]](scratch)
