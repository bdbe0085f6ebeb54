"""AMD's GPUs, as `amd-smi` prints them as JSON."""

from __future__ import annotations

import json

from .command import CommandFailed, Printed
from .nvml import Device
from .readings import GpuProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .command import Figures, Run

COMMAND = "amd-smi"

_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_SCALES = {"%": 0.01, "W": 1.0, "C": 1.0, "MHz": 1.0}
# Name of a value, and where it may stand: the first place that has a number counts.
_PLACES: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("util", (("usage", "gfx_activity"),)),
    ("mem", (("mem_usage", "used_vram"),)),
    ("mem_limit", (("mem_usage", "total_vram"),)),
    ("power", (("power", "socket_power"),)),
    ("temp", (("temperature", "hotspot"), ("temperature", "edge"))),
    ("mem_temp", (("temperature", "mem"),)),
    ("sm_clock", (("clock", "gfx_0", "clk"),)),
    ("mem_clock", (("clock", "mem_0", "clk"),)),
)


def ask(run: Run) -> Printed:
    """One look at all GPUs. Raises CommandFailed."""
    metrics = run("metric", "--usage", "--power", "--clock", "--temperature", "--mem-usage", "--json")
    return parse(metrics, run("process", "--json"))


def parse(metrics: str, processes: str = "") -> Printed:
    """What `amd-smi metric` and `amd-smi process` printed. Raises CommandFailed if the former has no GPU."""
    found = Printed()
    for gpu, one in _gpus(metrics):
        figures: Figures = {}
        for name, places in _PLACES:
            value = next((value for value in (_value(one, place) for place in places) if value is not None), None)
            if value is not None and not (name == "util" and value > 1):
                figures[name] = value
        found.devices.append(Device(gpu, None, "", "AMD GPU"))
        found.figures[gpu] = figures
    if not found.devices:
        raise CommandFailed("printed no GPUs, or not in a form that is known here")
    for gpu, one in _gpus(processes):
        found.processes += _processes(gpu, one.get("process_list"))
    return found


def _gpus(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of the GPUs by their index. Since ROCm 7 they stand in `gpu_data`."""
    try:
        top = json.loads(text)
    except ValueError:
        return
    if isinstance(top, dict):
        top = top.get("gpu_data")
    for one in top if isinstance(top, list) else ():
        if isinstance(one, dict) and type(one.get("gpu")) is int:
            yield str(one["gpu"]), one


def _processes(gpu: str, listed: Any) -> Iterator[GpuProcess]:
    for one in listed if isinstance(listed, list) else ():
        info = one.get("process_info") if isinstance(one, dict) else None
        if isinstance(info, dict) and type(info.get("pid")) is int:  # a text says that there are no processes
            memory = _value(info, ("memory_usage", "vram_mem"))
            if memory is None:
                memory = _value(info, ("mem_usage",))
            yield GpuProcess(gpu, info["pid"], None if memory is None else int(memory), None)


def _value(one: Any, place: tuple[str, ...]) -> float | int | None:
    """The number at a place, in bytes or as the catalogue has it; None for `"N/A"` and an unknown unit."""
    for name in place:
        one = one.get(name) if isinstance(one, dict) else None
    if not isinstance(one, dict) or type(one.get("value")) not in (int, float):
        return None
    value: float | int = one["value"]
    unit = one.get("unit")
    if not 0 <= value < 1e18:
        return None
    if unit in _BYTES:
        return int(value * _BYTES[unit])
    if unit not in _SCALES:
        return None
    return round(value * _SCALES[unit], 4) if unit == "%" else value
