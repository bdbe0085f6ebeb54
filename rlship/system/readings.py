"""What a look at the machine finds."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # Names of the catalogue and numbers, or a list of one number for each device.
    Reading: TypeAlias = dict[str, float | int | list[float | int]]


class GpuProcess:
    """What one process has on one GPU: `device` is the GPU's key, `memory` in bytes, `util` 0..1; None: not told."""

    __slots__ = ("device", "memory", "pid", "util")

    def __init__(self, device: str, pid: int, memory: int | None, util: float | None) -> None:
        self.device = device
        self.pid = pid
        self.memory = memory
        self.util = util


class GpuReading:
    """One look at all GPUs.

    `figures`: for each GPU by its key ("0"; "0_1" is MIG device 1 of GPU 0) the numbers that it told, by their names
    below `gpu/<key>/`. `parents`: of each MIG device the GPU that it is a part of. `processes`: who is on them.
    `known`: whether there are any, were it lost ones.
    """

    __slots__ = ("figures", "known", "parents", "processes")

    def __init__(self) -> None:
        self.known = False
        self.figures: dict[str, dict[str, float | int]] = {}
        self.parents: dict[str, str] = {}
        self.processes: list[GpuProcess] = []
