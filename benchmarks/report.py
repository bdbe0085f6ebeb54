"""Findings, the machine of the measurement, and the table that shows both."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rlship_sidecar.filesystem import filesystem_of

_HEADINGS = ("figure", "ours", "beside", "", "ours/beside", "aim", "reached")
_COMPARED = ("orjson", "numpy", "wandb", "tensorboardX", "polars", "duckdb")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table. `ratio`: ours / beside, the median over rounds; `reached`: None without an aim."""

    figure: str
    ours: float
    unit: str
    beside_name: str = ""
    beside: float | None = None
    ratio: float | None = None
    aim: str = ""
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The findings of one benchmark, and its `method` in sentences."""

    title: str
    method: str
    findings: Sequence[Finding]


def median(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return statistics.median(values)


def ratio(ours: Sequence[float], beside: Sequence[float]) -> float:
    """The median of the rounds' ratios, so that a slow round cancels out."""
    return median([a / b for a, b in zip(ours, beside)])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def table(findings: Sequence[Finding]) -> str:
    """Findings as columns of text."""
    rows = [_HEADINGS, *(cells(finding) for finding in findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def machine(folder: Path) -> list[str]:
    """The processor, kernel, versions and the disk of `folder`, as lines."""
    disk = filesystem_of(os.path.realpath(folder))
    lines = [
        f"{_processor()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, {_memory()} of memory",
        f"Linux {platform.release()}, {platform.python_implementation()} {platform.python_version()}",
        ", ".join(f"{name} {_version(name)}" for name in _COMPARED),
        f"files and store on {disk.type} ({folder})",
    ]
    if disk.type in ("tmpfs", "ramfs"):
        lines.append(
            "NOTE: that is memory, not a disk: latency looks better than it is; give another folder with --dir"
        )
    return lines


def load() -> str:
    """The load of the machine: load averages of 1, 5 and 15 minutes."""
    return "load average " + " ".join(f"{value:.2f}" for value in os.getloadavg())


def complain(text: str) -> None:
    """Print a message that is not part of the results."""
    sys.stderr.write(text + "\n")


def cells(finding: Finding) -> tuple[str, ...]:
    """One line of a table."""
    beside = "" if finding.beside is None else f"{_figure(finding.beside)} {finding.unit}"
    reached = {None: "", True: "yes", False: "NO"}[finding.reached]
    return (
        finding.figure,
        f"{_figure(finding.ours)} {finding.unit}",
        beside,
        finding.beside_name,
        "" if finding.ratio is None else _figure(finding.ratio),
        finding.aim,
        reached,
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
