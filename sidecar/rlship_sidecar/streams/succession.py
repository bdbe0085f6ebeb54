"""Up to when stream lines count of writers that others succeed: a later submission, or a later process of their rank.
Pure.

The rule: docs/semantics.md, "Two submissions in streams". It is that of steps ("Which contributions count"), with a
time in place of the steps that are logged again, but for attempts of one submission, which do not overlap.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, groupby
from typing import NamedTuple

from rlship_formats.records import MAX_WORLD
from rlship_sidecar.align.lineage import SIDE_BY_SIDE_S, SubmittedJob, Writer

Begins = Mapping[Writer, float]
"""When root writers opened, on the common clock."""


def counting_until(writers: Iterable[Writer], corrected: Callable[[str, float], float]) -> dict[Writer, float]:
    """By root writer, the time after which stream lines of its family do not count: the least `open` of those that
    succeed it. Writers that no other one succeeds are not in it.

    `writers` are those of one actor that have stream lines; `corrected` gives a host's time on the common clock.
    """
    begins = {writer.root: 0.0 for writer in writers}
    if len(begins) < 2:
        return {}
    for root in begins:
        begins[root] = corrected(root.open.host, root.open.t)
    found: dict[Writer, float] = {}
    for rule in (_of_rank, _of_worlds, _of_jobs):
        for root, until in rule(begins):
            found[root] = min(until, found.get(root, math.inf))
    return found


def _of_rank(begins: Begins) -> Iterator[tuple[Writer, float]]:
    """Later processes of equal attempt, and later submissions, of a writer's own rank."""
    by_rank: dict[object, list[Writer]] = {}
    for root in begins:
        by_rank.setdefault(root.rank, []).append(root)
    for alike in by_rank.values():
        if len(alike) > 1:
            for _, submitted in groupby(sorted(alike, key=_life), lambda root: root.submission):
                yield from _of_submission(list(submitted), begins)
            if len({root.submission for root in alike}) > 1:
                yield from _of_later_submissions(alike, begins)


def _life(root: Writer) -> tuple[int, int, float, str]:
    return root.submission, root.open.attempt, root.open.t, root.open.id


def _of_submission(ordered: list[Writer], begins: Begins) -> Iterator[tuple[Writer, float]]:
    """Of one submission of a rank, in the order of their age: one of equal attempt that opened later and beside which
    the writer did not go on. A launcher starts a higher attempt once the process before it has ended: what that seems
    to have logged later is an error of clocks, and counts.
    """
    for _, group in groupby(ordered, lambda root: root.open.attempt):
        alike = list(group)
        ages = [(root.open.t, root.open.id) for root in alike]
        least = _least_from(begins[root] for root in alike)
        for root, age in zip(alike, ages):
            until = least[max(_beside(root.newest_t, alike), bisect_right(ages, age))]
            if until < math.inf:
                yield root, until


def _of_later_submissions(alike: list[Writer], begins: Begins) -> Iterator[tuple[Writer, float]]:
    ordered = sorted(alike, key=lambda root: root.open.t)
    shift = min(begins[root] - root.open.t for root in alike)
    for root in alike:
        until = math.inf
        for place in range(_beside(root.newest_t, ordered), len(ordered)):
            later = ordered[place]
            if until <= later.open.t + shift:
                break
            if later.submission > root.submission:
                until = min(until, begins[later])
        if until < math.inf:
            yield root, until


def _of_worlds(begins: Begins) -> Iterator[tuple[Writer, float]]:
    """Starts of a replica without the writer's rank."""
    by_replica: dict[str, list[Writer]] = {}
    for root in begins:
        by_replica.setdefault(root.open.replica, []).append(root)
    for roots in by_replica.values():
        least = min(root.open.world or MAX_WORLD for root in roots)
        beyond = [root for root in roots if root.open.rank >= least]
        if beyond:
            starts = _starts([root for root in roots if root.open.world is not None], begins)
            for root in beyond:
                until = min((_outgrown_from(root, start) for start in starts), default=math.inf)
                if until < math.inf:
                    yield root, until


class _Start(NamedTuple):
    """The writers of one submission and attempt of a replica that name one world, in the order of their `open`.

    `least[i]` is the least begin from place i on.
    """

    world: int
    submission: int
    attempt: int
    writers: list[Writer]
    ages: list[tuple[float, str]]
    least: list[float]


def _starts(roots: list[Writer], begins: Begins) -> list[_Start]:
    found: dict[tuple[int, int, int], list[Writer]] = {}
    for root in roots:
        found.setdefault((root.open.world or 0, root.submission, root.open.attempt), []).append(root)
    starts = []
    for of, alike in found.items():
        alike.sort(key=_life)
        ages = [(root.open.t, root.open.id) for root in alike]
        starts.append(_Start(*of, alike, ages, _least_from(begins[root] for root in alike)))
    return starts


def _outgrown_from(root: Writer, start: _Start) -> float:
    """The least begin of the writers of a start that outgrow a writer (`lineage.outgrows`)."""
    if start.world > root.open.rank or start.submission < root.submission:
        return math.inf
    if start.submission > root.submission:
        return start.least[_beside(root.newest_t, start.writers)]
    if start.attempt != root.open.attempt:
        return math.inf
    if (root.open.world or 0) <= start.world:
        return math.inf
    age = root.open.t, root.open.id
    return start.least[max(_beside(root.newest_t, start.writers), bisect_right(start.ages, age))]


def _beside(t: float, ordered: list[Writer]) -> int:
    """Of writers in the order of their `open`, the first that a line at `t` does not show to run side by side."""
    return bisect_left(ordered, t, key=lambda root: root.open.t + SIDE_BY_SIDE_S)


def _of_jobs(begins: Begins) -> Iterator[tuple[Writer, float]]:
    """Later jobs beside which the writer's own did not go on."""
    of_jobs: dict[SubmittedJob, float] = {}
    for root, begin in begins.items():
        if root.job is not None:
            of_jobs[root.job] = min(begin, of_jobs.get(root.job, math.inf))
    if len(of_jobs) < 2:
        return
    ordered = sorted(of_jobs, key=lambda job: job.order)
    least = _least_from(of_jobs[job] for job in ordered)
    until: dict[SubmittedJob, float] = {}
    for place, job in enumerate(ordered):
        after = bisect_left(ordered, job.newest_t, key=lambda one: one.start + SIDE_BY_SIDE_S)
        until[job] = least[max(after, place + 1)]
    for root in begins:
        if root.job is not None and until[root.job] < math.inf:
            yield root, until[root.job]


def _least_from(times: Iterable[float]) -> list[float]:
    """Of each place on, the least of the times; after the last one infinity."""
    return list(accumulate(reversed([*times, math.inf]), min))[::-1]
