"""GPU memory of spans: allocated and reserved bytes at the end, and the most allocated inside."""

from __future__ import annotations

from .. import threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CURRENT = "allocated_bytes.all.current"
_PEAK = "allocated_bytes.all.peak"
_RESERVED = "reserved_bytes.all.current"

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
        allocated, reserved = int(stats.get(_CURRENT, 0)), int(stats.get(_RESERVED, 0))
        return {
            f"{name}/mem_allocated_bytes": allocated,
            f"{name}/mem_reserved_bytes": reserved,
            f"{name}/mem_peak_bytes": max(self.peak, allocated),
            f"{name}/mem_frag": (reserved - allocated) / reserved if reserved else 0.0,
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
