"""Access to torch and CUDA: only if the job has imported and initialised them, and never with a wait.

The writing thread queries events, which has two dangers for the job. A query from a thread without a device would make
a context on device 0. And while one thread captures a graph, CUDA forbids queries in every thread that has not chosen a
capture mode of its own.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def torch_module() -> Any:
    """torch if the job has imported it, else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "Tensor") else None  # otherwise its import is still running


def initialised() -> Any:
    """torch if this process uses CUDA through it, else None."""
    torch = torch_module()
    is_initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return torch if is_initialized is not None and is_initialized() else None


def allocating() -> Any:
    """The part of torch whose allocator this process uses: `torch.cuda` (of HIP too), else `torch.npu`; None if neither
    is initialised.
    """
    torch = torch_module()
    for name in ("cuda", "npu"):
        api = getattr(torch, name, None)
        is_initialized = getattr(api, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            return api
    return None


def why_not() -> str:
    """The reason why `initialised` returns None."""
    return "torch has not initialised CUDA" if torch_module() is not None else "the job has not imported torch"


class Mark:
    """A point on the current stream, recorded now and reached by the GPU later."""

    __slots__ = ("_event", "device")

    def __init__(self, torch: Any, timing: bool = True, stream: Any = None) -> None:
        self._event = torch.cuda.Event(enable_timing=timing)
        if stream is None:
            self.device: int = torch.cuda.current_device()
            self._event.record()
        else:
            self.device = stream.device.index
            self._event.record(stream)

    def reached(self, torch: Any) -> bool:
        """True if the GPU has reached this point."""
        with torch.cuda.device(self.device):
            return bool(self._event.query())

    def seconds_until(self, later: Mark, torch: Any) -> float:
        """GPU time between two marks on one device, both of them reached."""
        with torch.cuda.device(self.device):
            return float(self._event.elapsed_time(later._event)) / 1e3


def capturing(torch: Any) -> bool:
    """True if this thread is capturing a CUDA graph, in which nothing can be timed or read."""
    return bool(torch.cuda.is_current_stream_capturing())


def let_this_thread_look() -> None:
    """Let this thread query events while other threads capture graphs. Only for rlship's own threads."""
    ctypes = sys.modules.get("ctypes")  # torch has imported it
    if ctypes is None:
        return
    try:
        mode = ctypes.c_int(_THREAD_LOCAL)
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    except (OSError, AttributeError):  # another vendor's torch, whose driver has no such rule
        return
