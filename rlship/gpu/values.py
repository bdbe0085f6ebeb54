"""Values that are still on a GPU: copied alongside the job's work, and read when they have arrived."""

from __future__ import annotations

from ..guard import raised_by_signal
from . import cuda

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..encode import Encoder
    from ..stream import Stream

# Pinned memory is scarce. A larger record is read at once.
MAX_BYTES = 8 << 20
_MAX_DEPTH = 20


class Unreadable(Exception):
    """Tensors that cannot be read alongside the job's work; the text gives the reason."""


def defer(stream: Stream, metrics: Any, step: int | None, t: float, weight: Any) -> bool:
    """Take over a record that holds tensors of a device. Returns False if the caller has to write it now."""
    given = metrics if isinstance(metrics, dict) else dict(metrics.items())
    if not on_device(given, weight):
        return False
    torch = cuda.torch_module()
    try:
        if cuda.initialised() is not None and cuda.capturing(torch):
            stream.misuse.refuse(
                "log capture", "a tensor cannot be read while its CUDA graph is captured; it is left out"
            )
            return True
        late = LateValues(stream.encoder, given, step, t, weight, torch)
    except Exception as error:
        if raised_by_signal(error):
            raise
        why = str(error) if isinstance(error, Unreadable) else f"whose copy raised {type(error).__name__}: {error}"
        stream.misuse.tell(
            "log",
            "device",
            f"{', '.join(map(str, given))[:200]}: a tensor {why}, is read at once, and the call waits for it",
        )
        return False
    stream.deferred.add(late)
    return True


def on_device(value: Any, weight: Any) -> bool:
    """True if a value or its weight is, or holds, a tensor of a device."""
    torch = cuda.torch_module()
    return torch is not None and (_holds(value, torch.Tensor, 0) or _holds(weight, torch.Tensor, 0))


def _holds(value: Any, tensor: type, depth: int) -> bool:
    if isinstance(value, tensor):
        return _device_type(value) != "cpu"
    if depth < _MAX_DEPTH:
        if isinstance(value, dict):
            return any(_holds(item, tensor, depth + 1) for item in value.values())
        # A list of numbers may be long; a list that begins with a number holds no tensors.
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (float, int)):
            return any(_holds(item, tensor, depth + 1) for item in value)
    return False


def _device_type(tensor: Any) -> str:
    return str(getattr(getattr(tensor, "device", None), "type", "cpu"))


class LateValues:
    """One record whose tensors are on their way to the host.

    Making it starts the copies, on the current streams. Raises Unreadable, before any copy is started, if a
    synchronisation cannot be avoided.
    """

    def __init__(
        self, encoder: Encoder, metrics: Mapping[Any, Any], step: int | None, t: float, weight: Any, torch: Any
    ) -> None:
        self.step = step
        self._encoder = encoder
        self._t = t
        self._torch = torch
        tensors: list[Any] = []
        _each(metrics, torch.Tensor, tensors.append)
        _each(weight, torch.Tensor, tensors.append)
        _check(tensors, torch)
        copies: dict[int, Any] = {}
        streams: dict[int, Any] = {}
        for tensor in tensors:
            device = tensor.device.index
            stream = streams.get(device)
            if stream is None:
                stream = streams[device] = torch.cuda.current_stream(device)
            source = tensor.detach()
            copies[id(tensor)] = source.to("cpu", non_blocking=True)  # torch makes the copy in pinned memory
            # If another stream made it, its memory could be reused before the copy is made.
            source.record_stream(stream)
        self._marks = [cuda.Mark(torch, timing=False, stream=stream) for stream in streams.values()]
        self._metrics = _replaced(metrics, torch.Tensor, copies)
        self._weight = _replaced(weight, torch.Tensor, copies)

    def ready(self) -> bool:
        """True if all copies are made."""
        while self._marks and self._marks[-1].reached(self._torch):
            self._marks.pop()
        return not self._marks

    def lines(self) -> list[str]:
        """The record."""
        return self._encoder.lines(self._metrics, self.step, self._t, self._weight)


def _check(tensors: list[Any], torch: Any) -> None:
    kinds = {_device_type(tensor) for tensor in tensors}
    if kinds != {"cuda"}:
        raise Unreadable(f"on {' and '.join(sorted(kinds - {'cuda'}))}, not on CUDA")
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", torch.Tensor)):
            raise Unreadable(f"of type {type(tensor).__name__}, not a plain tensor")
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if size > MAX_BYTES:
        raise Unreadable(f"of {size} bytes, more than {MAX_BYTES} at once")


def _each(value: Any, tensor: type, found: Callable[[Any], None]) -> None:
    if isinstance(value, tensor):
        if _device_type(value) != "cpu":
            found(value)
    elif isinstance(value, dict):
        for item in value.values():
            _each(item, tensor, found)
    elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (float, int)):
        for item in value:
            _each(item, tensor, found)


def _replaced(value: Any, tensor: type, copies: Mapping[int, Any]) -> Any:
    """`value` with its tensors' copies, and with new containers: the job may change what it passed.

    A tensor on the host is copied too, because it is read after the call.
    """
    if isinstance(value, tensor):
        copied = copies.get(id(value))
        return value.detach().clone() if copied is None else copied  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {key: _replaced(item, tensor, copies) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_replaced(item, tensor, copies) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    copy = getattr(value, "copy", None)  # an array of numpy
    return copy() if callable(copy) and hasattr(value, "tolist") else value
