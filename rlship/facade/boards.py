"""What a process writes to TensorBoard, for a run that asks for it: `init(sync_tensorboard=True)`."""

from __future__ import annotations

import functools
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Where the classes are, and the package that a job has imported if it may use them.
_WRITERS = (("torch.utils.tensorboard", "torch"), ("tensorboardX", "tensorboardX"))


def follow(log: Callable[[str, Any, Any], object]) -> list[type]:
    """Call `log(tag, value, step)` with each scalar that a SummaryWriter of this process is given from now on.

    Returns the classes that are followed. A class whose package is not there is passed over.
    """
    found = []
    for name, package in _WRITERS:
        if package not in sys.modules:
            continue
        try:
            writer = import_module(name).SummaryWriter
        except Exception:  # noqa: BLE001 - torch without tensorboard raises an error of its own
            continue
        writer.add_scalar = _logging(writer.add_scalar, log)
        found.append(writer)
    return found


def _logging(real: Callable[..., Any], log: Callable[[str, Any, Any], object]) -> Callable[..., Any]:
    @functools.wraps(real)
    def add_scalar(self: Any, tag: Any, scalar_value: Any, global_step: Any = None, *args: Any, **options: Any) -> Any:
        log(tag, scalar_value, global_step)
        return real(self, tag, scalar_value, global_step, *args, **options)

    return add_scalar
