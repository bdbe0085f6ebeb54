"""`python -m benchmarks.incidents`: judge all incidents and healthy runs of incidents.toml, and print the figures."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.incidents import judging
from benchmarks.incidents.judging import FIRST, LIMIT, WAYS, WHY, Healthy, Judged
from benchmarks.incidents.plan import IncidentType, Plan, RealRuns, plan, reseeded
from benchmarks.incidents.statistics import Share, most
from rlship_sidecar.demo.faults import NONE

SHORT_STEPS, SHORT_HEALTHY = 300, 10
INCIDENTS, HEALTHY_RUNS, PROCESSES = PARTS = ("incidents", "healthy", "processes")
TYPES = "| type | with impact | detected | delay, steps | first three | first | place |"
HEALTHY = (
    "| healthy runs | frames | false episodes | of them of a replica that was away | in 100,000 frames "
    "| at most (95 %) | alarms by z of each metric, in 100,000 |"
)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incidents", description=__doc__)
    parser.add_argument("--short", action="store_true", help="one incident of each type, few and short healthy runs")
    parser.add_argument("--only", choices=PARTS, action="append", help="these parts; may be repeated (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--fresh", metavar="TEXT", help="other seeds, drawn from TEXT (default: as planned)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to FILE as well")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="rlship-incidents-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        parts = options.only or PARTS
        planned = plan() if options.fresh is None else reseeded(plan(), options.fresh)
        incidents, healthy = measure(planned, scratch, options.jobs, parts, short=options.short)
        real = [] if options.short or PROCESSES not in parts else in_processes(planned.real, scratch)
    finally:
        shutil.rmtree(scratch)
    print("\n".join([*report(incidents, healthy), *of_processes(real)]))
    if options.json:
        found = {"incidents": [asdict(one) for one in incidents], "healthy": [asdict(one) for one in healthy]}
        found["real"] = [
            {"judged": one and asdict(one), "episodes": count, "frames": frames} for one, count, frames in real
        ]
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure(
    planned: Plan, scratch: Path, jobs: int, parts: Sequence[str] = PARTS, *, short: bool
) -> tuple[list[Judged], list[Healthy]]:
    """Judge all simulated runs of these parts, or a few short ones."""
    chosen = [(kind, one) for kind in planned.types for one in (kind.incidents[-1:] if short else kind.incidents)]
    runs = planned.healthy[:: len(planned.healthy) // SHORT_HEALTHY] if short else planned.healthy
    chosen, runs = (chosen if INCIDENTS in parts else []), (runs if HEALTHY_RUNS in parts else ())
    steps = SHORT_STEPS if short else planned.healthy_steps
    with ProcessPoolExecutor(jobs) as pool:
        incidents = [pool.submit(judging.incident, kind, one, scratch) for kind, one in chosen]
        healthy = [pool.submit(judging.healthy, one, steps, scratch) for one in runs]
        return [one.result() for one in incidents], [one.result() for one in healthy]


Real = tuple[Judged | None, int, int]


def in_processes(runs: RealRuns, scratch: Path) -> list[Real]:
    """Judge runs of the demo's processes, one after the other: each has nine."""
    chosen = [(fault, seed) for fault in runs.faults for seed in runs.seeds] + [(NONE, seed) for seed in runs.healthy]
    return [judging.real(fault, seed, scratch) for fault, seed in chosen]


def of_processes(real: Sequence[Real]) -> list[str]:
    """The figures of these runs."""
    if not real:
        return []
    lines = ["", TYPES.replace("type", "fault of real processes"), "|---|--:|--:|--:|--:|--:|--:|"]
    every = [one for one, _, _ in real if one is not None]
    by_fault = {fault: [one for one in every if one.incident.type == fault] for fault in plan().real.faults}
    lines += [f"| {fault} | {_cells(own, has_cause=True)} |" for fault, own in by_fault.items()]
    lines.append(f"| **all** | {_cells(every, has_cause=True)} |")
    healthy = [(count, frames) for one, count, frames in real if one is None]
    count, frames = sum(count for count, _ in healthy), sum(frames for _, frames in healthy)
    return [*lines, "", f"{len(healthy)} healthy runs of real processes: {count} false episodes in {frames:,} frames."]


def report(incidents: Sequence[Judged], healthy: Sequence[Healthy]) -> list[str]:
    """The figures, as tables in Markdown."""
    lines = [*_of_incidents(incidents), *_of_limit(incidents)] if incidents else []
    return [*lines, "", *_of_healthy(healthy)] if healthy else lines


def _of_incidents(incidents: Sequence[Judged]) -> list[str]:
    kinds = {kind.name: kind for kind in plan().types}
    lines = [TYPES, "|---|--:|--:|--:|--:|--:|--:|"]
    for name, kind in kinds.items():
        own = [one for one in incidents if one.incident.type == name]
        lines.append(f"| {name}{_mark(kind)} | {_cells(own, kind.node)} |")
    told = [one for one in incidents if kinds[one.incident.type].node]
    for title, group in (
        ("all with a cause node", told),
        ("kept out", [one for one in told if kinds[one.incident.type].held_out]),
        ("without a cause node", [one for one in incidents if not kinds[one.incident.type].node]),
        ("all", incidents),
    ):
        lines.append(f"| **{title}** | {_cells(group, title not in ('all', 'without a cause node'))} |")
    lines += ["", "| way | first three | first |", "|---|--:|--:|"]
    seen = [one for one in told if one.impact is not None and one.detected[WHY] is not None]
    for way in WAYS:
        ranks = [one.rank[way] for one in seen]
        lines.append(f"| {way} | {_within(ranks, FIRST)} | {_within(ranks, 1)} |")
    unknown = [one.unknown for one in incidents if one.unknown is not None and one.impact is not None]
    right = Share(sum(map(bool, unknown)), len(unknown))
    lines += ["", f"Unknown at the right place, without a cause node: {right}", ""]
    return lines


def _mark(kind: IncidentType) -> str:
    return " (kept out)" if kind.held_out else "" if kind.node else " (no node)"


def _cells(group: Iterable[Judged], has_cause: bool) -> str:
    every = list(group)
    counted = [one for one in every if one.impact is not None]
    seen = [one for one in counted if one.detected[WHY] is not None]
    delays = [_delay(one, WHY) for one in seen]
    delay = f"{median(delays):.0f}" if delays else "–"
    cells = [f"{len(counted)} of {len(every)}", str(Share(len(seen), len(counted))), delay]
    if has_cause:
        ranks = [one.rank[WHY] for one in seen]
        placed = Share(sum(one.placed[WHY] for one in seen), len(seen))
        cells += [str(_within(ranks, FIRST)), str(_within(ranks, 1)), str(placed)]
    else:
        cells += ["", "", ""]
    return " | ".join(cells)


def _delay(one: Judged, way: str) -> int:
    """Steps from the first visible impact to the alert; less than 0 where the alert came first."""
    fired = one.detected[way]
    if fired is None or one.impact is None:
        raise ValueError(f"{one.incident} was not detected, or has no impact")
    return fired - one.impact


def _within(ranks: Sequence[int | None], first: int) -> Share:
    return Share(sum(rank is not None and rank <= first for rank in ranks), len(ranks))


def _of_healthy(healthy: Sequence[Healthy]) -> list[str]:
    lines = [HEALTHY, "|---|--:|--:|--:|--:|--:|--:|"]
    quiet = [one for one in healthy if not one.run.events]
    eventful = [one for one in healthy if one.run.events]
    for title, group in (("quiet", quiet), ("eventful", eventful), ("all", healthy)):
        frames = sum(one.frames for one in group)
        count, explained = sum(len(one.episodes) for one in group), sum(one.explained for one in group)
        rate, alarms = 1e5 / max(1, frames), sum(one.alarms for one in group)
        lines.append(
            f"| {title} ({len(group)}) | {frames:,} | {count} | {explained} | {rate * count:.1f} | "
            f"{rate * most(count):.1f} | {rate * alarms:,.0f} |"
        )
    return [*lines, ""]


def _of_limit(incidents: Sequence[Judged]) -> list[str]:
    counted = [one for one in incidents if one.impact is not None]
    seen = [one for one in counted if one.detected[LIMIT] is not None]
    delay = f"{median(_delay(one, LIMIT) for one in seen):.0f}" if seen else "–"
    share = Share(len(seen), len(counted))
    return [f"A limit on z of each metric detects {share} of the incidents, with a median delay of {delay} steps."]


if __name__ == "__main__":
    main()
