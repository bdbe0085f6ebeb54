"""What a row says it is made of: section "Coverage" of docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from rlship_sidecar.rows import Coverage
from tests.reference.asking import without_repeats
from tests.reference.order import Contribution, age, jobs_of, lines_of, rank_order, replica_order, side_by_side
from tests.reference.records import Segment, Writer

Having = Mapping[int, Mapping[str, set[tuple[str, int]]]]
"""The ranks that logged a metric, by step and metric."""


def step_coverage(
    crew: Sequence[Writer],
    step: int,
    counting: Sequence[Contribution],
    underivable: Iterable[str],
    having: Having,
    short_window: int,
) -> Coverage:
    """The coverage of a step unit."""
    expected, missing, passed = 0, [], []
    for replica, candidates in candidates_at(crew, step):
        world = max(candidates, key=lambda candidate: age(*candidate))[0].world
        ranks = {root.rank for root, _ in candidates}
        for rank in sorted(ranks):
            if world is None or rank < world:
                expected += 1
                of_rank = [c for c in candidates if c[0].rank == rank]
                if not is_covered(of_rank, step):
                    missing.append((replica, rank))
                if any(barrier_of(root, segment) >= step for root, segment in of_rank):
                    passed.append((replica, rank))
    return Coverage(
        ranks=neighbours(ranks_in(counting)),
        expected=expected,
        missing=neighbours(missing),
        absent=neighbours(absent_at(crew, step)),
        attempts=attempts_of(counting),
        gap=sum(n for writer in crew for n, first, last in writer.gaps if first <= step <= last),
        underivable=tuple(sorted(underivable)),
        lives=lives_of(counting),
        lineage=lineage_of(counting),
        short={f"{crew[0].actor}/{metric}": ranks for metric, ranks in short_of(having, step, passed, short_window)},
    )


def candidates_at(crew: Sequence[Writer], step: int) -> Iterator[tuple[str, list[tuple[Writer, Segment]]]]:
    """The segments of root writers that begin by a step, by replica, without those of jobs that have no part in it."""
    roots = [writer for writer in crew if writer.root is writer]
    outside = without_part(roots, step)
    for replica in sorted({root.replica for root in roots}, key=replica_order):
        candidates = [
            (root, segment)
            for root in roots
            if root.replica == replica and root.job not in outside
            for segment in root.segments
            if begins_by(segment, step)
        ]
        if candidates:
            yield replica, candidates


def without_part(roots: Sequence[Writer], step: int) -> set[str]:
    """The jobs that are over for the latest one that reached a step, or that begin by it and did not reach it yet."""
    jobs = jobs_of(roots)
    there = {root.job for root in roots if root.job for segment in root.segments if begins_by(segment, step)}
    reached = {name for name in there if any(reach_of(root) >= step for root in jobs[name].members)}
    if not there:
        return set()
    latest = jobs[max(reached or there, key=lambda name: jobs[name].start)]
    return {name for name in there if jobs[name].over_for(latest) or latest.over_for(jobs[name])}


def reach_of(root: Writer) -> int:
    """The highest step that a root writer logged or has a barrier of."""
    logged = [line.step for segment in root.segments for line in segment.measured if line.step is not None]
    return max([*logged, *(barrier_of(root, segment) for segment in root.segments)])


def is_alone(crew: Sequence[Writer], step: int) -> bool:
    """Whether the actor has no more than one rank at a step: expected or absent."""
    cover = step_coverage(crew, step, (), (), {}, 0)
    return cover.expected + len(absent_at(crew, step)) <= 1


def absent_at(crew: Sequence[Writer], step: int) -> list[tuple[str, int]]:
    """Ranks below the world that governs a step without a candidate."""
    absent = []
    for replica, candidates in candidates_at(crew, step):
        world = max(candidates, key=lambda candidate: age(*candidate))[0].world
        ranks = {root.rank for root, _ in candidates}
        absent += [(replica, rank) for rank in range(world or 0) if rank not in ranks]
    return absent


def short_of(
    having: Having, step: int, passed: Sequence[tuple[str, int]], window: int
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Of the ranks that passed their barrier of the step, those that are short of a metric."""
    for metric, here in sorted(having.get(step, {}).items()):
        steps = sorted(other for other, metrics in having.items() if metric in metrics and other < step)
        lately = [having[other][metric] for other in steps[-window:]] if window else []
        lacking = [rank for rank in passed if rank not in here and any(rank in ranks for ranks in lately)]
        if lacking:
            yield metric, neighbours(lacking)


def having_of(crew: Sequence[Writer]) -> Having:
    """The ranks that logged each metric, superseded or not, but for the metrics of events."""
    having: dict[int, dict[str, set[tuple[str, int]]]] = {}
    for writer, _, line in lines_of(crew):
        assert writer.root is not None
        for metric in line.values:
            if line.step is not None and not metric.startswith("event/"):
                ranks = having.setdefault(line.step, {}).setdefault(metric, set())
                ranks.add((writer.root.replica, writer.root.rank))
    return having


def attempts_of(counting: Sequence[Contribution]) -> tuple[int, ...]:
    """The attempts of the counting writers; section "Attempts of foreign files" for those with a path as their name."""
    found = {c.writer.attempt for c in counting if "/" not in c.writer.file}
    foreign = [c for c in counting if "/" in c.writer.file]
    for rank in without_repeats(rank_order(c.root) for c in foreign):
        lives = {id(c.segment): (c.root, c.segment) for c in foreign if rank_order(c.root) == rank}
        segments = sorted(lives.values(), key=lambda pair: age(*pair))
        number = segments[0][0].attempt
        found.add(number)
        for (older, _), (newer, _) in pairwise(segments):
            number = max(newer.attempt, number if side_by_side(older, newer) else number + 1)
            found.add(number)
    return tuple(sorted(found))


def lives_of(counting: Sequence[Contribution]) -> int:
    """The most root writers of one rank, submissions of one replica, or jobs, of counting contributions. Files of
    other frameworks are left out where their rank has own ones among them.
    """
    every = list({id(contribution.root): contribution.root for contribution in counting}.values())
    native = [rank_order(root) for root in every if "/" not in root.file]
    roots = [root for root in every if "/" not in root.file or rank_order(root) not in native]
    processes = [{root.id for root in roots if rank_order(root) == rank} for rank in map(rank_order, roots)]
    submitted = [{root.submission for root in roots if root.replica == one.replica} for one in roots]
    return max(map(len, [*processes, *submitted, {root.job for root in roots}]), default=1) or 1


def lineage_of(counting: Sequence[Contribution]) -> tuple[int, int, int] | None:
    """Submission, attempt and rollbacks of the newest counting segment, if it is of a later submission or went back."""
    if not counting:
        return None
    submission, attempt, _, _, rollbacks = max(age(c.root, c.segment) for c in counting)
    return None if submission == rollbacks == 0 else (submission, attempt, rollbacks)


def ranks_in(counting: Sequence[Contribution]) -> list[tuple[str, int]]:
    """The ranks that contribute, in merge order."""
    roots = sorted((contribution.root for contribution in counting), key=rank_order)
    return without_repeats((root.replica, root.rank) for root in roots)


def neighbours(ranks: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Names of ranks, two or more neighbouring ranks of a replica as one."""
    runs: list[tuple[str, list[int]]] = []
    for replica, rank in ranks:
        if runs and runs[-1][0] == replica and runs[-1][1][-1] == rank - 1:
            runs[-1][1].append(rank)
        else:
            runs.append((replica, [rank]))
    return tuple(f"{replica}.{run[0]}" + (f"-{run[-1]}" if len(run) > 1 else "") for replica, run in runs)


def begins_by(segment: Segment, step: int) -> bool:
    begins = segment.first_stepped if segment.rolled_back_to is None else segment.rolled_back_to
    return begins is not None and begins <= step


def is_covered(candidates: Sequence[tuple[Writer, Segment]], step: int) -> bool:
    """Whether one rank, given by its candidates, is done with the step."""
    if any(barrier_of(root, segment) >= step for root, segment in candidates):
        return True
    newest = max(candidates, key=lambda candidate: age(*candidate))[0]
    expected = [newest, *(root for root, _ in candidates if side_by_side(root, newest))]
    return all(root.closed is not None for root in expected)


def barrier_of(root: Writer, segment: Segment) -> int:
    """The highest step that the segment is done with; -1 for none."""
    explicit = any(other.barriers for other in root.segments)
    if explicit:
        steps = [at for at, _ in segment.barriers]
    else:
        steps = [line.step for line in segment.measured if line.step is not None]
    return max([*steps, -1 if segment.rolled_back_to is None else segment.rolled_back_to - 1])
