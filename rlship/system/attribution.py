"""Attributes processes on GPUs to known processes."""

from __future__ import annotations

from .processes import Processes, holds_gpu, in_first_pid_namespace
from .series import PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .processes import Use
    from .readings import GpuProcess

_MAX_REMEMBERED = 10_000


class Attribution:
    """Finds the known process to which a process on a GPU belongs: itself, or the nearest one above it.

    The driver reports pids of the machine's first pid namespace. In another one (of a container) such a number may
    belong to another process or to none. There it counts only if that process is seen to have a GPU open.

    `trusted`: true if pids here are the driver's.
    """

    def __init__(self, processes: Processes, *, root: str = "/") -> None:
        self._processes = processes
        self._root = root
        self.trusted = in_first_pid_namespace(root)
        self._seen: dict[tuple[int, int], bool] = {}

    def owner(self, pid: int, known: Collection[int]) -> int | None:
        """The pid among `known` to which `pid` belongs, or None."""
        processes = self._processes
        if not processes.alive(pid) or not (self.trusted or self._proven(pid)):
            return None
        return processes.above(pid, known)

    def _proven(self, pid: int) -> bool:
        process = (pid, self._processes.started.get(pid, 0))
        if not self._seen.get(process):
            if len(self._seen) > _MAX_REMEMBERED:
                self._seen.clear()
            self._seen[process] = holds_gpu(pid, self._root)
        return self._seen[process]


class Share:
    """The use of one process and those below it, from look to look: metrics by the names of `series.PROCESS`."""

    def __init__(self) -> None:
        self._before: tuple[float, Use] | None = None

    def figures(self, t: float, use: Use, gpus: Sequence[GpuProcess]) -> dict[str, float | int | list[float]]:
        """`use` is their use at the time `t` (of any clock that does not go back), `gpus` their use of GPUs.

        Leaves out unknown values: the CPU at the first look, GPU memory that the driver does not report.
        """
        found: dict[str, float | int | list[float]] = {}
        before, self._before = self._before, (t, use)
        if use.count:
            found["host_mem"] = use.memory
            if before is not None and t > before[0] and before[1].count:
                found["cpu"] = round(use.since(before[1]) / (t - before[0]), 3)
        memory = [one.memory for one in gpus if one.memory is not None]
        if memory:
            found["gpu_mem"] = sum(memory)
        shares: dict[str, float] = {}
        for one in gpus:
            if one.util is not None:
                shares[one.device] = min(1.0, shares.get(one.device, 0.0) + one.util)
        if shares:
            found["gpu_util"] = next(iter(shares.values())) if len(shares) == 1 else [*shares.values()]
        return found


def under(prefix: str, figures: Mapping[str, object]) -> dict[str, object]:
    """The same values below `prefix`."""
    return {f"{prefix}/{name}": figures[name] for name in PROCESS if name in figures}


def memory_of(processes: Iterable[GpuProcess]) -> int:
    """The bytes of these processes on GPUs, as far as the driver reports them."""
    return sum(one.memory for one in processes if one.memory is not None)
