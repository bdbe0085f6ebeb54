"""Finds the rank that the others wait for, from the times of the barrier records in the writers' files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rlship_formats.reading import Barrier, FileReader
from rlship_formats.records import Open
from rlship_sidecar.rows import rank_words, split_rank


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that is usually late. `name` is its actor and its rank, as people read it: `trainer r2`.

    `extra_s` is how much later its barrier was than the median of the other ranks', as a median over steps. `share`, 0
    to 1, is the share of the `steps` compared steps in which it was last.
    """

    name: str
    extra_s: float
    share: float
    steps: int


def read_files(experiment: Path) -> dict[str, bytes]:
    """The writers' files of an experiment, by name."""
    return {path.name: path.read_bytes() for path in sorted((experiment / "rlship").glob("*.jsonl"))}


def barrier_times(files: Mapping[str, bytes], actor: str) -> dict[int, dict[str, float]]:
    """Step -> rank (`<replica>.<rank>`) -> the time of its last barrier line for that step, in Unix seconds."""
    times: dict[int, dict[str, float]] = defaultdict(dict)
    for data in files.values():
        reader = FileReader()
        for line in data.split(b"\n")[:-1]:  # the sidecar reports lines that cannot be used
            record = reader.read(line)
            if isinstance(record, Open) and record.actor != actor:
                break
            if isinstance(record, Barrier) and reader.opened is not None:
                rank = f"{reader.opened.replica}.{reader.opened.rank}"
                times[record.step][rank] = max(record.t, times[record.step].get(rank, record.t))
    return dict(times)


def find_straggler(files: Mapping[str, bytes], actor: str = "trainer", *, least_s: float = 0.005) -> Straggler | None:
    """The rank of `actor` that is last in more than half of the steps, by a median of at least `least_s` seconds.

    None without such a rank. Steps for which a rank has no barrier are skipped, because their last rank is unknown.
    `least_s` is about as much as scheduling noise.
    """
    times = barrier_times(files, actor)
    ranks = {rank for of_step in times.values() for rank in of_step}
    if len(ranks) < 2:
        return None
    steps = [of_step for of_step in times.values() if len(of_step) == len(ranks)]
    late: dict[str, list[float]] = defaultdict(list)
    last: dict[str, int] = defaultdict(int)
    for of_step in steps:
        last[max(of_step, key=lambda rank: (of_step[rank], rank))] += 1
        for rank in ranks:
            late[rank].append(of_step[rank] - median(t for other, t in of_step.items() if other != rank))
    for rank, count in last.items():
        extra_s = median(late[rank])
        if 2 * count > len(steps) and extra_s >= least_s:
            replicas = {part[0] for part in map(split_rank, ranks) if part is not None}
            return Straggler(f"{actor} {rank_words([rank], replicas)[0]}", extra_s, count / len(steps), len(steps))
    return None
