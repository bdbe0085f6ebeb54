"""System metrics of a real GPU and a real driver."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rlship

SIZE = 256 << 20


def _work(seconds: float) -> Any:
    """Memory on the GPU, kept as long as the caller keeps what this returns, and work for so long."""
    import torch

    block = torch.ones(SIZE // 4, device="cuda")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(20):
            block.mul_(1.0)
        torch.cuda.synchronize()
    return block


def _metrics(path: str) -> dict[str, Any]:
    """The last value of each metric in a file."""
    found: dict[str, Any] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found.update(record.get("m", {}) if "kind" not in record else {})
    return found


def the_agent_sees_a_busy_gpu(folder: str) -> None:
    """The agent tells use, memory, power, temperature and clocks of a GPU that works, without a word of trouble."""
    rlship.init(folder, actor="trainer", rank=0, world=1)
    rlship.log({"x": 1.0}, step=0)
    rlship.flush()
    command = [sys.executable, "-m", "rlship", "sysmon", folder, "--gpus", "all", "--interval", "0.5"]
    agent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    kept = _work(6.0)
    agent.terminate()
    _, told = agent.communicate(timeout=20)
    del kept
    rlship.close()
    assert agent.returncode == 0, told
    assert len(told.splitlines()) == 1, told
    (file,) = (Path(folder) / "rlship").glob("node-*.jsonl")
    found = _metrics(str(file))
    print("   " + ", ".join(sorted(name for name in found if name.startswith("gpu/0/"))))
    most: dict[str, float] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        for name, value in record.get("m", {}).items() if "kind" not in record else ():
            if not isinstance(value, list):
                most[name] = max(value, most.get(name, 0.0))
    assert most["gpus"] >= 1, most
    devices = {name.split("/")[1] for name in most if name.startswith("gpu/")}
    assert any(most.get(f"gpu/{key}/mem", 0) >= SIZE for key in devices), most
    assert any(most.get(f"gpu/{key}/util", 0) > 0.2 for key in devices), most
    for name in ("power", "temp", "sm_clock", "mem_clock"):
        assert any(most.get(f"gpu/{key}/{name}", 0) > 0 for key in devices), name
    own = most.get("proc/trainer/r0.0/gpu_mem")
    print(f"   this process's memory as the driver tells it: {own}")
    if own is not None:
        assert own >= SIZE


def a_worker_samples_itself(folder: str) -> None:
    """A worker that asks for system metrics has those of its GPU and of torch's allocator, and no errors."""
    logger = rlship.init(folder, actor="trainer", rank=0, world=1, system_metrics={"interval": 0.2, "gpus": "local"})
    kept = _work(2.0)
    rlship.barrier(0)
    rlship.close()
    del kept
    assert logger.errors == 0
    assert logger.path is not None
    found = _metrics(logger.path)
    assert found["node/gpus"] >= 1, found
    assert found["proc/host_mem"] > 0
    assert SIZE <= found["mem/allocated"] <= found["mem/reserved"] <= found["mem/capacity"], found
    assert max(found["node/gpu_mem"] if isinstance(found["node/gpu_mem"], list) else [found["node/gpu_mem"]]) >= SIZE


CHECKS: tuple[Callable[[str], None], ...] = (the_agent_sees_a_busy_gpu, a_worker_samples_itself)
