"""What was seen of the sidecar while the job went on, and what follows from it. Times are Unix seconds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

WARM_SHARE = 0.1  # of the time, at the beginning, is not judged; the end is compared with as much after it
BEFORE_OUTAGE_S, AFTER_OUTAGE_S = 5.0, 20.0  # rows on their way then are not judged: clients back off


class Sample(NamedTuple):
    """A look at the processes: resident memory, in MB, and open files of the sidecar, and the memory of what it started
    for W&B.
    """

    t: float
    memory_mb: float
    files: int
    wandb_mb: float


class Growth(NamedTuple):
    """The median after the warm-up, and at the end."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """1.0: flat."""
        return self.after / self.before if self.before else float("inf")


@dataclass(slots=True)
class Course:
    """`ended[step]`: when its last barrier was; `stored[step]`: when its row was first seen in the store, `arrived`:
    at the server. `outages`: when the server was away, from and to.
    """

    samples: list[Sample] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)
    stored: dict[int, float] = field(default_factory=dict)
    arrived: dict[int, float] = field(default_factory=dict)
    outages: list[tuple[float, float]] = field(default_factory=list)

    def growth(self, of: str) -> Growth:
        """How a field of the samples grew."""
        values = [float(getattr(sample, of)) for sample in self.samples]
        part = max(1, int(len(values) * WARM_SHARE))
        return Growth(statistics.median(values[part : 2 * part]), statistics.median(values[-part:]))

    def stored_lags(self) -> list[float]:
        """Seconds from a step's last barrier to its row in the store, of every step after the warm-up, ascending."""
        return sorted(self.stored[step] - t for step, t in self._judged())

    def arrival_lags(self) -> list[float]:
        """Seconds from a step's last barrier to its row at the server, outside outages, ascending."""
        calm = ((step, t) for step, t in self._judged() if not self._in_outage(t))
        return sorted(self.arrived[step] - t for step, t in calm)

    def missing(self) -> list[int]:
        """Steps without a row in the store or at the server."""
        return [step for step in self.ended if step not in self.stored or step not in self.arrived]

    def _judged(self) -> list[tuple[int, float]]:
        begin, end = min(self.ended.values()), max(self.ended.values())
        return [(step, t) for step, t in self.ended.items() if t >= begin + WARM_SHARE * (end - begin)]

    def _in_outage(self, t: float) -> bool:
        return any(begin - BEFORE_OUTAGE_S <= t <= end + AFTER_OUTAGE_S for begin, end in self.outages)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of values in ascending order."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(course: Course) -> str:
    """The figures, for docs/campaigns.md."""
    memory, files, wandb = (course.growth(of) for of in ("memory_mb", "files", "wandb_mb"))
    lines = ["| | after the warm-up | at the end | ratio |", "|---|---|---|---|"]
    for name, found, unit in (("memory of the sidecar", memory, " MB"), ("its open files", files, "")):
        lines.append(f"| {name} | {found.before:.1f}{unit} | {found.after:.1f}{unit} | {found.ratio:.3f} |")
    lines.append(f"| memory of the W&B client | {wandb.before:.1f} MB | {wandb.after:.1f} MB | {wandb.ratio:.3f} |")
    lines += ["", "| from a step's last barrier | p50 | p99 | longest | steps |", "|---|---|---|---|---|"]
    for name, lags in (
        ("to its row in the store", course.stored_lags()),
        ("to its row at the server, outside outages", course.arrival_lags()),
    ):
        p50, p99 = quantile(lags, 0.5), quantile(lags, 0.99)
        lines.append(f"| {name} | {p50:.3f} s | {p99:.3f} s | {lags[-1]:.3f} s | {len(lags):,} |")
    lines += ["", f"{len(course.ended):,} steps, {len(course.outages)} outages, {len(course.missing())} rows missing."]
    return "\n".join(lines)
