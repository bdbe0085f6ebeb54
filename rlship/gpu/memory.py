"""What torch's allocator holds: of a span, and of this process at the end of a step.

The allocator counts on the host, so no call here waits for a device. But it answers under a lock that a thread keeps
while it asks the driver for memory, and torch does not let other Python threads run meanwhile. So only the job's own
threads ask, in their own calls: a thread of rlship's could stop the others for as long as a device hangs.
"""

from __future__ import annotations

import time

from .. import threads
from . import cuda

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_CURRENT = "allocated_bytes.all.current"
_PEAK = "allocated_bytes.all.peak"
_RESERVED = "reserved_bytes.all.current"
_RETRIES = "num_alloc_retries"
_OOMS = "num_ooms"
# Seconds after which devices that were not used are looked at again.
_SCAN_S = 10.0

# Open spans whose memory is measured, of all threads. The allocator has one peak for each device, which the beginning
# of a span resets. So the old peak is first taken into all open spans.
_open: list[Watch] = []
_lock = threads.lock()
_PATIENCE_S = 0.05


class Watch:
    """The memory of one span on the device that was current when it began."""

    __slots__ = ("device", "peak")

    def __init__(self, device: int) -> None:
        self.device = device
        self.peak = 0

    def end(self, torch: Any, name: str) -> dict[str, float]:
        """The span's metrics, in bytes and as a share."""
        stats = torch.cuda.memory_stats(self.device)
        _fold(self.device, stats)
        with _Held():
            if self in _open:
                _open.remove(self)
        now = _shares(stats)
        return {
            f"{name}/mem_allocated_bytes": now["allocated"],
            f"{name}/mem_reserved_bytes": now["reserved"],
            f"{name}/mem_peak_bytes": max(self.peak, now["allocated"]),
            f"{name}/mem_frag": now["frag_ratio"],
        }


def begin(torch: Any) -> Watch:
    """Watch the current device's memory from here on."""
    device = torch.cuda.current_device()
    stats = torch.cuda.memory_stats(device)
    _fold(device, stats)
    torch.cuda.reset_peak_memory_stats(device)
    watch = Watch(device)
    watch.peak = int(stats.get(_CURRENT, 0))
    with _Held():
        _open.append(watch)
    return watch


def definitions(name: str) -> dict[str, dict[str, Any]]:
    """The reductions of these metrics: the greatest over ranks and spans."""
    sizes = ("mem_allocated_bytes", "mem_reserved_bytes", "mem_peak_bytes")
    return {
        **{f"{name}/{size}": {"reduce": ["max"], "unit": "bytes"} for size in sizes},
        f"{name}/mem_frag": {"reduce": ["max"]},
    }


class Allocator:
    """What the allocator holds for this process, under the catalogue's names: once for each step, and for calls without
    a step at most once in `interval_s` seconds. `step` is the last one that has them, -1 for none; `failed` ends it.
    """

    __slots__ = ("_clock", "_due", "_interval_s", "_scan_at", "_used", "failed", "step")

    def __init__(self, interval_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self.step = -1
        self.failed = False
        self._due = float("-inf")
        self._scan_at = float("-inf")
        self._used: list[int] = []

    def at(self, step: int | None) -> dict[str, Any]:
        """The metrics to log at `step`; {} if the step has them, or if this process holds no memory through torch.

        With several devices each size is a list with a number for each device that is used. Counts are of all devices.
        """
        now = self._clock()
        if step is None:
            if now < self._due:
                return {}
            self._due = now + self._interval_s
        elif step == self.step:
            return {}
        api = None if self.failed else cuda.allocating()
        found = {} if api is None else self._look(api, now)
        if found and step is not None:
            self.step = step
        return found

    def _look(self, api: Any, now: float) -> dict[str, Any]:
        devices = self._used
        if now >= self._scan_at:  # most processes use one of several visible devices
            self._scan_at, devices = now + _SCAN_S, [*range(int(api.device_count()))]
        every = {device: api.memory_stats(device) for device in devices}
        self._used = [device for device, stats in every.items() if stats.get(_RESERVED, 0) or stats.get(_OOMS, 0)]
        if not self._used:
            self._scan_at = float("-inf")
            return {}
        columns: dict[str, list[float]] = {}
        for device in self._used:
            for name, value in _shares(every[device]).items():
                columns.setdefault(f"mem/{name}", []).append(value)
            columns.setdefault("mem/capacity", []).append(int(api.get_device_properties(device).total_memory))
        return {
            **{name: column[0] if len(column) == 1 else column for name, column in columns.items()},
            "mem/alloc_retries": sum(int(every[device].get(_RETRIES, 0)) for device in self._used),
            "mem/ooms": sum(int(every[device].get(_OOMS, 0)) for device in self._used),
        }


def _shares(stats: Mapping[str, Any]) -> dict[str, float]:
    allocated, reserved = int(stats.get(_CURRENT, 0)), int(stats.get(_RESERVED, 0))
    fragmented = (reserved - allocated) / reserved if reserved else 0.0
    return {"allocated": allocated, "reserved": reserved, "frag_ratio": fragmented}


def _fold(device: int, stats: Any) -> None:
    peak = int(stats.get(_PEAK, 0))
    with _Held():
        for watch in _open:
            if watch.device == device and watch.peak < peak:
                watch.peak = peak


def after_fork() -> None:
    """In a forked child: forget all spans. CUDA is not usable here, and another thread may have held the lock."""
    global _lock
    _lock = threads.lock()
    _open.clear()


class _Held:
    """Takes the lock, with a short limit: a signal handler may run while its own thread holds it."""

    __slots__ = ("_got",)

    def __enter__(self) -> None:
        self._got = _lock.acquire(timeout=_PATIENCE_S)

    def __exit__(self, *_: object) -> None:
        if self._got:
            _lock.release()
