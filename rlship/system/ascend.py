"""Huawei's Ascend processors, as `npu-smi info` prints them.

Two lines for each chip: of the first its power and temperature count, of the second the use of its AI cores and its
memory. The lines above them name the columns, which differ between products.
"""

from __future__ import annotations

import re

from .command import CommandFailed, Printed
from .nvml import Device
from .readings import GpuProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .command import Figures, Run

COMMAND = "npu-smi"

_MIB = 1 << 20  # the tool says MB: 65536 of them are the 64 GiB of a chip


def ask(run: Run) -> Printed:
    """One look at all chips. Raises CommandFailed."""
    return parse(run("info"))


def parse(text: str) -> Printed:
    """What `npu-smi info` printed. Raises CommandFailed if it is another table than is known."""
    found = Printed()
    table = _Table(found)
    for line in text.splitlines():
        if line.startswith("|"):
            table.take([cell.strip() for cell in line.strip().strip("|").split("|")])
    if not table.known:
        raise CommandFailed("printed another table than is known here, or none")
    return found


class _Table:
    """Takes the lines of the tables one by one: chips first, then processes."""

    def __init__(self, found: Printed) -> None:
        self.known = False
        self._found = found
        self._first: list[str] = []  # the columns of a chip's first line
        self._second: list[str] = []
        self._ids: list[str] = []  # what identifies a chip in its second line
        self._upper: list[str] | None = None  # a chip's first line
        self._processes = False
        self._keys: dict[tuple[str, str], str] = {}

    def take(self, cells: list[str]) -> None:
        if any(cell == "Process id" for cell in cells):
            self._processes = True
        elif self._processes:
            self._process(cells)
        elif len(cells) != 3:
            return  # the line with the versions
        elif cells[0].startswith("NPU"):
            self._first = cells[2].split()
        elif cells[0].startswith("Chip"):
            self._ids, self._second = cells[0].split(), cells[2].split()
            self.known = "AICore(%)" in self._second
        elif self.known and self._upper is None:
            self._upper = cells
        elif self.known and self._upper is not None:
            self._chip(self._upper, cells)
            self._upper = None

    def _chip(self, upper: list[str], lower: list[str]) -> None:
        npu, _, name = upper[0].partition(" ")
        ids = dict(zip(self._ids, lower[0].split()))
        chip = ids.get("Chip", "0")
        # The number of the chip in the whole machine, where the tool prints it.
        key = ids.get("Phy-ID") or ids.get("Device") or (npu if chip == "0" else f"{npu}_{chip}")
        values = {**_values(self._first, upper[2]), **_values(self._second, lower[2])}
        figures: Figures = {}
        use = _number(values.get("AICore(%)"))
        if use is not None and use <= 100:
            figures["sm_active"] = round(use / 100, 4)
        memory = _used_of(values.get("HBM-Usage(MB)")) or _used_of(values.get("Memory-Usage(MB)"))
        if memory is not None:
            figures["mem"], figures["mem_limit"] = memory
        power, temperature = _number(values.get("Power(W)")), _number(values.get("Temp(C)"))
        if power is not None:
            figures["power"] = power
        if temperature is not None:
            figures["temp"] = temperature
        self._keys[npu, chip] = key
        bus = lower[1] if ":" in lower[1] else ""
        self._found.devices.append(Device(key, None, bus, name.strip()))
        self._found.figures[key] = figures

    def _process(self, cells: list[str]) -> None:
        where = cells[0].split()
        if len(cells) < 4 or len(where) != 2 or not cells[1].isdigit():
            return  # "No running processes found in NPU 0"
        key = self._keys.get((where[0], where[1]))
        memory = _number(cells[3])
        if key is not None:
            used = None if memory is None else int(memory * _MIB)
            self._found.processes.append(GpuProcess(key, int(cells[1]), used, None))


def _values(names: list[str], cell: str) -> dict[str, str]:
    """The values of a cell by the names of its columns; {} if their numbers differ."""
    found = re.sub(r"\s*/\s*", "/", cell).split()
    return dict(zip(names, found)) if len(found) == len(names) else {}


def _number(text: str | None) -> float | int | None:
    """A number, None for `-` and `NA`."""
    try:
        found = float(text or "")
    except ValueError:
        return None
    if not 0 <= found < 1e12:
        return None
    return int(found) if found == int(found) else found


def _used_of(text: str | None) -> tuple[int, int] | None:
    """Used and total bytes of `used/total`; None where there is no such memory."""
    used, _, total = (text or "").partition("/")
    found = _number(used), _number(total)
    if found[0] is None or not found[1]:
        return None
    return int(found[0] * _MIB), int(found[1] * _MIB)
