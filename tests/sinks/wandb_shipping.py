"""A shipper with the real W&B sink and client, and rows to ship, for the tests of what goes wrong on the way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

from rlship_sidecar.sinks.ship import Pace, Shipper
from rlship_sidecar.sinks.wandb.sink import Limits, WandbSink
from tests.kit.waiting import wait_until
from tests.loopback.backend import LoopbackBackend, isolated
from tests.loopback.runs import Run
from tests.sinks.kinds import client_env
from tests.sinks.rows import MemorySource, make_rows, make_run

PACE = Pace(backoff_min_s=0.05, backoff_max_s=0.5, flush_idle_s=0.2)


@dataclass
class Shipping:
    """One shipper at work; `sinks` are those it made so far, the last one is at work or was."""

    shipper: Shipper
    source: MemorySource
    sinks: list[WandbSink] = field(default_factory=list)

    @property
    def child(self) -> psutil.Process:
        """The process that alone imports wandb."""
        pid = self.sinks[-1].child_pid
        assert pid is not None, "there is no child"
        return psutil.Process(pid)

    @property
    def core(self) -> psutil.Process:
        """Its wandb-core."""
        (core,) = [process for process in self.child.children() if "wandb" in _name(process)]
        return core

    def add(self, end: int) -> None:
        """Commit rows up to number `end` - 1."""
        self.source.append(make_rows(self.source.row_count(), end))
        self.shipper.wake()

    def deliver(self, end: int, timeout_s: float = 60.0) -> float:
        """Commit rows up to number `end` - 1 and wait until the sink has them; returns the seconds it took."""
        began = time.monotonic()
        self.add(end)
        assert self.shipper.drain(timeout_s), f"not delivered: {self.shipper.status()}"
        return time.monotonic() - began


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:  # a short command of the client, such as git
        return ""


@contextmanager
def shipping(
    folder: Path,
    backend: LoopbackBackend | None = None,
    *,
    limits: Limits | None = None,
    source: MemorySource | None = None,
    **options: str,
) -> Iterator[Shipping]:
    """A shipper to `backend`, or offline where that is None."""
    home = folder / "home"
    env = client_env(isolated(home) if backend is None else backend.environment(home))
    source, sinks = source or MemorySource(), list[WandbSink]()

    def make() -> WandbSink:
        sinks.append(WandbSink(limits=limits, env=env))
        return sinks[-1]

    shipper = Shipper("wandb", make, make_run(folder, **options), source, pace=PACE)
    shipper.start()
    try:
        yield Shipping(shipper, source, sinks)
    finally:
        assert shipper.stop(30.0)


def frozen(process: psutil.Process) -> None:
    """SIGSTOP, and wait until it is."""
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any more."""
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def check_whole(run: Run, rows: int) -> None:
    """The run has rows 0 to `rows` - 1, each once, at its line, with its values; none was ever overwritten."""
    assert run.steps() == list(range(rows))
    assert [row["trainer/loss"] for row in run.rows()] == [float(no) for no in range(rows)]
    assert run.overwritten() == []
