"""What is asked of torch and CUDA: only where the job has imported and initialised them, and never to wait.

The writing thread looks at events. Two things are kept from the job there: that a look from a thread without a device
would make a context on device 0, and that CUDA forbids looks in every thread while another one captures a graph, unless
that thread has asked for a mode of its own.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


def torch_module() -> Any:
    """torch, if the job has imported it; else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "Tensor") else None  # else it is being imported at this moment


def initialised() -> Any:
    """torch, if it is there and this process uses CUDA through it; else None."""
    torch = torch_module()
    asked = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    return torch if asked is not None and asked() else None


def why_not() -> str:
    """What is missing where `initialised` gives None."""
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
        """Whether the GPU has come to it."""
        with torch.cuda.device(self.device):
            return bool(self._event.query())

    def seconds_until(self, later: Mark, torch: Any) -> float:
        """GPU time between two marks of one device that are reached."""
        with torch.cuda.device(self.device):
            return float(self._event.elapsed_time(later._event)) / 1e3


def capturing(torch: Any) -> bool:
    """Whether this thread is capturing a CUDA graph, in which nothing can be timed or read."""
    return bool(torch.cuda.is_current_stream_capturing())


def let_this_thread_look() -> None:
    """Let this thread look at events while other threads capture graphs. For threads of our own only."""
    ctypes = sys.modules.get("ctypes")  # torch has imported it
    if ctypes is None:
        return
    try:
        mode = ctypes.c_int(_THREAD_LOCAL)
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    except (OSError, AttributeError):  # another vendor's torch: its own driver has other rules
        return
