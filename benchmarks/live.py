"""The sidecar beside a large job that logs a step a second, some of it weighted and one value NaN."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.load import Load, flatness
from benchmarks.report import Finding, Result
from benchmarks.watching import watching

METHOD = (
    "`rlship watch --sink jsonl` as a process of its own, with its defaults, on a local disk. One process plays all "
    "ranks: once a second, each rank's file gets one write of a metrics line and its barrier, all in a row, as at the "
    "end of a step. The lines are prepared ({bodies} bodies in turn), so that the load itself costs little; its CPU is "
    "shown. Mixed: {plain} plain metrics and {weights} weighted ones; on the last rank one plain metric is NaN "
    "at every step. {warm} steps of warm-up, then {steps} steps. CPU from /proc/<pid>/stat, as % of a core; resident "
    "memory once a second. Lag: from just before the last rank's write to when another connection to the store first "
    "sees the complete row, looking every 5 ms; a step that has no row a second after the last one counts with its age "
    "then, and as behind."
)
PLAIN, WEIGHTS = 100, 10


@dataclass(frozen=True, slots=True)
class Case:
    """One size of a job, and its aims; None is no aim."""

    ranks: int
    mixed: bool = True
    most_cpu: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    memory_mb: float | None = None


CASES: Mapping[str, Case] = {
    "256": Case(256),
    "1024": Case(1_024, most_cpu=15.0, p99_s=0.5),
    "4096": Case(4_096, most_cpu=60.0, p99_s=1.5, memory_mb=250.0),
    "10000": Case(10_000),
    "1024-plain": Case(1_024, mixed=False, most_cpu=10.0, p50_s=0.15),
    "10000-plain": Case(10_000, mixed=False, p99_s=2.0),
}
PARTS = tuple(CASES)


def measure(folder: Path, quick: bool, parts: Sequence[str] = PARTS) -> Result:
    """Run these cases in `folder`, one after the other."""
    warm, steps = (1, 3) if quick else (10, 30)
    findings: list[Finding] = []
    for part in parts:
        case = CASES[part]
        ranks = case.ranks // 64 if quick else case.ranks
        findings += _measured(folder / part, case, ranks, warm, steps)
        shutil.rmtree(folder / part)  # gigabytes, which the disk must not be writing during the next case
    method = METHOD.format(bodies=16, plain=PLAIN, weights=WEIGHTS, warm=warm, steps=steps)
    return Result("a large job, a step a second", method, findings)


def _measured(experiment: Path, case: Case, ranks: int, warm: int, steps: int) -> Iterator[Finding]:
    weights = WEIGHTS if case.mixed else 0
    with (
        Load(experiment, ranks, plain=PLAIN, weights=weights, nan=case.mixed) as load,
        watching(experiment) as watcher,
    ):
        watcher.wait_until(lambda status: len(status.writers) == ranks, f"reading {ranks} files")
        load.run(watcher, warm)
        found = load.run(watcher, steps)
    name = f"{ranks:,} ranks, {'mixed' if case.mixed else 'plain'}"
    early, late = flatness(found.memory)
    cpu = _judged(f"{name}: CPU", found.cpu, "%", case.most_cpu)
    yield replace(cpu, reached=cpu.reached and not found.behind)  # little of it is no merit then
    yield _judged(f"{name}: lag, p50", found.lag(0.5), "s", case.p50_s)
    yield _judged(f"{name}: lag, p99", found.lag(0.99), "s", case.p99_s)
    yield Finding(f"{name}: steps behind at the end", found.behind, "", aim="0", reached=found.behind == 0)
    limit = case.memory_mb
    yield Finding(
        *(f"{name}: memory, last third", late, "MB", "first third", early, late / early),
        *(("", None) if limit is None else (f"< {limit:.0f} MB, flat", late < limit and late < 1.1 * early)),
    )
    yield Finding(f"{name}: CPU of the load itself", found.load_cpu, "%")


def _judged(figure: str, value: float, unit: str, limit: float | None) -> Finding:
    aim, reached = ("", None) if limit is None else (f"<= {limit:g} {unit}", value <= limit)
    return Finding(figure, value, unit, aim=aim, reached=reached)
