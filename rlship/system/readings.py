"""The results of a look at the machine."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # Names of the catalogue and numbers, or a list of one number for each device.
    Reading: TypeAlias = dict[str, float | int | list[float | int]]


class GpuProcess:
    """The use of one GPU by one process: `device` is the GPU's key, `memory` in bytes, `util` 0..1; None: unknown."""

    __slots__ = ("device", "memory", "pid", "util")

    def __init__(self, device: str, pid: int, memory: int | None, util: float | None) -> None:
        self.device = device
        self.pid = pid
        self.memory = memory
        self.util = util


class GpuReading:
    """One look at all GPUs.

    `figures`: for each GPU by its key ("0"; "0_1" is MIG device 1 of GPU 0) the values that it reported, by their names
    below `gpu/<key>/`. `parents`: for each MIG device its GPU. `processes`: the processes on them. `known`: true if
    there are any GPUs, including lost ones.
    """

    __slots__ = ("figures", "known", "parents", "processes")

    def __init__(self) -> None:
        self.known = False
        self.figures: dict[str, dict[str, float | int]] = {}
        self.parents: dict[str, str] = {}
        self.processes: list[GpuProcess] = []
