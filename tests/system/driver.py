"""The driver library that tests have in place of NVIDIA's, built from fake_nvml.c, and what it is to answer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.kit.tools import needed

SOURCE = Path(__file__).with_name("fake_nvml.c")
NAME = "libnvidia-ml.so.1"

# A GPU that tells everything.
WHOLE: dict[str, float] = {
    "util": 83,
    "mem": 60e9,
    "mem_total": 80e9,
    "mem_reserved": 600e6,
    "power_mw": 512_300,
    "power_limit_mw": 700_000,
    "temp": 64,
    "mem_temp": 80,
    "sm_clock": 1755,
    "mem_clock": 2619,
    "reasons": 0x4 | 0x40,
    "ecc_corrected": 3,
    "ecc_uncorrected": 0,
    "pcie_tx": 1_000_000,
    "pcie_rx": 2_000_000,
    "nvlink_tx_kib": 1_000,
    "nvlink_rx_kib": 2_000,
    "gpm": 1,
    "sm_active": 71.25,
    "tensor_active": 40,
    "dram_active": 55.5,
    "graphics_active": 90,
}


def build(folder: Path, *flags: str) -> Path:
    """The library in `folder`; what builds it has to be there."""
    compiler = needed("gcc", "cc")
    made = folder / NAME
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", *flags, f"-Wl,-soname,{NAME}"]
    subprocess.run([*command, "-o", str(made), str(SOURCE)], check=True, timeout=60)
    return made


class Driver:
    """What the library answers: `figures` by their keys, written for it by `tell`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.figures: dict[str, object] = {}

    def gpus(self, *gpus: Mapping[str, object]) -> None:
        """Have these GPUs and nothing else."""
        self.figures = {"gpus": len(gpus)}
        for index, gpu in enumerate(gpus):
            self.figures |= {f"{index}.{name}": value for name, value in gpu.items()}
        self.tell()

    def tell(self, **more: object) -> None:
        """Answer so from now on; a None takes an answer back. In names `__` stands for a dot."""
        for name, value in more.items():
            self.put(name.replace("__", ".").removeprefix("_"), value)
        self.write()

    def put(self, name: str, value: object) -> None:
        """Change one answer, to be written by `write`."""
        if value is None:
            self.figures.pop(name, None)
        else:
            self.figures[name] = value

    def write(self) -> None:
        """Let the library see it, at once or not at all."""
        new = self.file.with_suffix(".new")
        new.write_text("".join(f"{name} {value}\n" for name, value in self.figures.items()))
        os.replace(new, self.file)
