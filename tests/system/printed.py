"""What vendors' commands print, with the place of each layout. Numbers were changed where a test needs other ones.

No command here ran on a device: the layouts are those that the named pages and reports show.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

# Huawei's manual of npu-smi 25.2.0 for the Atlas 200I A2, "npu-smi info":
# https://www.hiascend.com/document/detail/zh/Atlas%20200I%20A2/2520/re/npu/npusmi_007.html
ATLAS_200I_A2 = """\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                                       Version: 25.2.0                                   |
+-------------------------------+-----------------+------------------------------------------------------+
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 0       xxx                   | OK              | 10.4          66                15    / 15           |
| 0       0                     | NA              | 0            957   / 10810                           |
+===============================+=================+======================================================+
"""
# npu-smi 24.1.0 on a server with processors of the 910 series, as in vllm-project/vllm-ascend issue 1047; the table of
# processes as in issue 12980.
ATLAS_A2 = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910ProB             | OK            | 278.4       58                0    / 0             |
| 0                         | 0000:C1:00.0  | 87          2387 / 13553      30759/ 32768         |
+===========================+===============+====================================================+
| 1     910ProB             | OK            | 75.8        38                0    / 0             |
| 0                         | 0000:81:00.0  | 0           1840 / 15665      8    / 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | PID           | python3.1                | 197                     |
+===========================+===============+====================================================+
| No running processes found in NPU 1                                                            |
+===========================+===============+====================================================+
"""
# npu-smi 24.1.rc3.7 on an Atlas A3, whose processors have two chips each: vllm-project/vllm-ascend issue 2035; the
# table of processes of npu-smi 26 as in issue 12980.
ATLAS_A3 = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc3.7               Version: 24.1.rc3.7                                           |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 178.8       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 17          0    / 0          3397 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           36                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 3           0    / 0          3186 / 65536         |
+===========================+===============+====================================================+
| 1     Ascend910           | Warning       | 185.4       36                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3415 / 65536         |
+------------------------------------------------------------------------------------------------+
+---------------------------+---------------+----------------------------------------------------------------------+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| 0       1                 | 632268        | python3.1          | 197                   | NA                      |
+===========================+===============+======================================================================+
| No running processes found in NPU 1                                                                              |
+===========================+===============+======================================================================+
"""


def _of(value: float, unit: str) -> dict[str, Any]:
    """A number as amd-smi prints it since ROCm 6.2: "Added units of measure to JSON output" in its changelog."""
    return {"value": value, "unit": unit}


def _not_available(count: int) -> list[str]:
    return ["N/A"] * count


# amd-smi of ROCm 6.3: the form of `metric --json` in the changelog of AMD SMI for ROCm 6.3.0
# (https://github.com/ROCm/amdsmi/blob/rocm-6.3.0/CHANGELOG.md), which prints the part `power`; the part `usage` as in
# henrygd/beszel issue 737, the names of the others as in the same file and in docs/how-to/amdsmi-cli-tool.md.
AMD_6 = [
    {
        "gpu": 0,
        "usage": {
            "gfx_activity": _of(42, "%"),
            "umc_activity": _of(1, "%"),
            "mm_activity": _of(0, "%"),
            "vcn_activity": [_of(0, "%"), *_not_available(3)],
        },
        "power": {
            "socket_power": _of(550, "W"),
            "gfx_voltage": _of(6, "mV"),
            "soc_voltage": _of(918, "mV"),
            "mem_voltage": _of(1250, "mV"),
            "power_management": "ENABLED",
            "throttle_status": "UNTHROTTLED",
        },
        "clock": {"gfx_0": {"clk": _of(2100, "MHz"), "min_clk": _of(500, "MHz")}, "mem_0": {"clk": _of(1300, "MHz")}},
        "temperature": {"edge": "N/A", "hotspot": _of(61, "C"), "mem": _of(50, "C")},
        "mem_usage": {"total_vram": _of(196592, "MB"), "used_vram": _of(98296, "MB"), "free_vram": _of(98296, "MB")},
    }
]
# amd-smi of ROCm 7.0.2 with an MI300X in two partitions: ROCm/amdsmi issue 134. All GPUs stand in `gpu_data`, and the
# second partition lacks most values.
AMD_7 = {
    "gpu_data": [
        {**AMD_6[0], "usage": {"gfx_activity": _of(7, "%"), "umc_activity": _of(0, "%"), "mm_activity": "N/A"}},
        {"gpu": 1, "usage": "N/A", "power": {"socket_power": "N/A"}, "temperature": {"edge": _of(44, "C")}},
    ]
}
# `amd-smi process --json`: the changelog of AMD SMI for ROCm 6.3.0 ("is now in a new valid json format").
AMD_PROCESSES = [
    {
        "gpu": 0,
        "process_list": [
            {"process_info": {"name": "TransferBench", "pid": 420157, "mem_usage": _of(0, "B")}},
            {
                "process_info": {
                    "name": "python",
                    "pid": 420315,
                    "memory_usage": {"gtt_mem": _of(0, "B"), "cpu_mem": _of(0, "B"), "vram_mem": _of(4096, "B")},
                }
            },
        ],
    },
    {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]},
]


def command(folder: Path, name: str, script: str) -> Path:
    """A command of the vendor's name in `folder`, a real process: `script` is what its shell runs."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def prints(text: str) -> str:
    """A shell command that prints this."""
    return f"printf %s {shlex.quote(text)}"


def amd(metrics: object, processes: object = ()) -> str:
    """What an `amd-smi` does that answers with these."""
    return (
        f'case "$1" in metric) {prints(json.dumps(metrics))};; '
        f"process) {prints(json.dumps(processes))};; *) exit 1;; esac"
    )
