"""A stand-in for torch with CUDA, for machines without: it keeps the order and the rules that events have.

What is recorded goes onto a stream, which the test lets run: `run(n)` finishes the next n things on it. A copy has its
values only once the stream got there, and asking too early for a time is an error, as it is in torch.
"""

from __future__ import annotations

import types
from typing import Any


class Stream:
    """Work in order. `done` counts what is finished; `at` is the time, in ms, at which it was."""

    def __init__(self, index: int = 0) -> None:
        self.device = types.SimpleNamespace(type="cuda", index=index)
        self.recorded = 0
        self.done = 0
        self.stuck = False
        self.copies: list[tuple[int, Tensor, Any]] = []

    def record(self) -> int:
        """One more thing to do; its number."""
        self.recorded += 1
        return self.recorded

    def run(self, count: int | None = None) -> None:
        """Finish the next `count` things, or all."""
        self.done = self.recorded if count is None else min(self.recorded, self.done + count)
        for number, copy, value in self.copies:
            if number <= self.done:
                copy.value = value


class Tensor:
    """A tensor on the host or on a device."""

    def __init__(self, value: Any, device: str = "cpu", index: int | None = None) -> None:
        self.value = value
        self.device = types.SimpleNamespace(type=device, index=index)
        self.recorded_on: list[Stream] = []

    torch: Any = None
    ndim = 0

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.value)

    def numel(self) -> int:
        return len(self.value) if isinstance(self.value, list) else 1

    def element_size(self) -> int:
        return 4

    def record_stream(self, stream: Stream) -> None:
        self.recorded_on.append(stream)

    def to(self, device: str, non_blocking: bool = False) -> Tensor:
        assert device == "cpu"
        assert non_blocking, "a copy that waits"
        cuda = self.torch.cuda
        copy = Tensor("not copied yet")
        stream = cuda.current_stream(self.device.index)
        stream.copies.append((stream.record(), copy, self.value))
        return copy

    def tolist(self) -> Any:
        if self.device.type != "cpu":
            self.torch.synchronisations += 1
            if self.torch.cuda.is_current_stream_capturing():
                raise RuntimeError("operation not permitted when stream is capturing")
        assert self.value != "not copied yet", "read before it was copied"
        return self.value

    def item(self) -> Any:
        return self.tolist()


class Event:
    """A CUDA event."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._timing = enable_timing
        self._number = 0
        self._stream: Stream | None = None

    torch: Any = None

    def record(self, stream: Stream | None = None) -> None:
        self._stream = stream or self.torch.cuda.current_stream(self.torch.cuda.current_device())
        self._number = self._stream.record()
        self.at_ms = self.torch.clock_ms

    def query(self) -> bool:
        self.torch.queries += 1
        if self.torch.failing:
            raise RuntimeError("CUDA error: device-side assert triggered")
        assert self._stream is not None
        assert self.torch.cuda.current == self._stream.device.index, "a context on another device"
        return not self._stream.stuck and self._number <= self._stream.done

    def elapsed_time(self, end: Event) -> float:
        assert self._timing and end._timing
        if not (self.query() and end.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return end.at_ms - self.at_ms

    def synchronize(self) -> None:
        raise AssertionError("a synchronisation")


class Cuda:
    """`torch.cuda`: one current stream for each device, memory statistics that the test sets."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.initialised = True
        self.capturing = False
        self.streams = {index: Stream(index) for index in range(2)}
        self.current = 0
        self.allocated = 0
        self.reserved = 0
        self.peak = 0
        self.retries = 0
        self.ooms = 0
        self.elsewhere = 0  # bytes on the second device
        self.asked: list[int] = []  # devices whose statistics were asked for
        event = type("Event", (Event,), {"torch": torch})
        self.Event = event

        class OnDevice:
            def __init__(self, index: int) -> None:
                self.index = index

            def __enter__(inner) -> None:  # noqa: N805
                inner.before, self.current = self.current, inner.index

            def __exit__(inner, *_: object) -> None:  # noqa: N805
                self.current = inner.before

        self.device = OnDevice

    def is_initialized(self) -> bool:
        return self.initialised

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_device(self) -> int:
        return self.current

    def current_stream(self, device: int | None = None) -> Stream:
        return self.streams[self.current if device is None else device]

    def synchronize(self) -> None:
        raise AssertionError("a synchronisation")

    def allocate(self, size: int) -> None:
        """Allocate, or free if negative."""
        self.allocated += size
        self.reserved = max(self.reserved, self.allocated)
        self.peak = max(self.peak, self.allocated)

    def device_count(self) -> int:
        return len(self.streams)

    def get_device_properties(self, device: int) -> Any:
        return types.SimpleNamespace(total_memory=1000 * (device + 1))

    def memory_stats(self, device: int) -> dict[str, int]:
        self.asked.append(device)
        own = device == 0
        return {
            "allocated_bytes.all.current": self.allocated if own else self.elsewhere,
            "allocated_bytes.all.peak": self.peak if own else self.elsewhere,
            "reserved_bytes.all.current": self.reserved if own else self.elsewhere,
            "num_alloc_retries": self.retries if own else 0,
            "num_ooms": self.ooms if own else 0,
        }

    def reset_peak_memory_stats(self, device: int) -> None:
        self.peak = self.allocated


def make() -> Any:
    """A module `torch`, to be put into sys.modules."""
    torch: Any = types.ModuleType("torch")
    torch.Tensor = type("Tensor", (Tensor,), {"torch": torch})
    torch.queries = 0
    torch.synchronisations = 0
    torch.failing = False
    torch.clock_ms = 0.0
    torch.cuda = Cuda(torch)
    torch.on_gpu = lambda value, index=0: torch.Tensor(value, "cuda", index)
    return torch
