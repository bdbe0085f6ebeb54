"""Writers and their segments: which is newer, which supersedes which, in what order they merge. Pure.

The terms are those of docs/semantics.md, "Which contributions count".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from rlship_formats.records import MAX_WORLD, Gap, Open
from rlship_sidecar.rows import Lineage, RankName, name_ranks
from rlship_sidecar.tail.listing import is_foreign

SIDE_BY_SIDE_S = 60.0
RETELLING = ("trainer_state", "ms-swift")  # formats whose metrics W&B's calls have under other names
COPYING = "trl-completions"

Age = tuple[int, int, float, str, int]
MergeKey = tuple[tuple[int, int, str], int, int, float, str, int, str]


@dataclass(slots=True, eq=False)
class Segment:
    """The lines of one file between rollbacks. `begins` is None until a stepped line; `barrier` and `last` are -1 for
    none yet. `since` is the `t` of its first line, the `open` or the rollback.
    """

    writer: Writer
    number: int
    begins: int | None = None
    barrier: int = -1
    last: int = -1
    since: float = math.nan
    merge_key: MergeKey = field(init=False, repr=False)

    def __post_init__(self) -> None:
        opened = self.writer.open
        if math.isnan(self.since):
            self.since = opened.t
        # Moments merge in this order; the file name distinguishes copies of one file.
        self.merge_key = (
            replica_key(opened.replica),
            opened.rank,
            opened.attempt,
            opened.t,
            opened.id,
            self.number,
            self.writer.file,
        )

    def met(self, lowest: int, highest: int) -> None:
        """It has metrics records from one step to another."""
        self.last = max(self.last, highest)
        self.writer.has_part_from(lowest)

    @property
    def age(self) -> Age:
        """Newer segments compare greater; a family's segments of one number are equal."""
        root = self.writer.root
        return (root.submission, root.open.attempt, root.open.t, root.open.id, self.number)

    @property
    def waits_to(self) -> int:
        """The step up to which this segment promises to write nothing more."""
        return max(self.barrier, self.last - 1) if self.writer.implicit else self.barrier

    @property
    def covers_to(self) -> int:
        """The step up to which this segment counts as complete in a row."""
        return max(self.barrier, self.last) if self.writer.implicit else self.barrier


@dataclass(slots=True, eq=False)
class SubmittedJob:
    """The root writers of an actor whose `open` names one job. `start` is the least `t` of their `open` records,
    `newest_t` the greatest of all their lines, `reach` the highest step that any of them logged or has a barrier of.
    `follows` counts the actor's jobs that are over for it.
    """

    id: str
    start: float
    newest_t: float
    reach: int = -1
    follows: int = 0

    @property
    def order(self) -> tuple[float, str]:
        """Later jobs compare greater."""
        return self.start, self.id

    def over_for(self, other: SubmittedJob) -> bool:
        """True if `other` is later and this job did not go on beside it."""
        return self.order < other.order and self.newest_t <= other.start + SIDE_BY_SIDE_S


@dataclass(slots=True)
class End:
    """How a process ended, as its file says. `close_t` is the time of its close in order, `failure` the error that
    ended it. Rows treat one that failed as one that died, but do not wait for its silence.
    """

    close_t: float | None = None
    failure: str = ""


@dataclass(slots=True, eq=False)
class Writer:
    """One file. Times named `…_at` are seconds of the sidecar's monotonic clock; `newest_t` is Unix seconds from the
    lines.
    `replaced`: another file has its name now, perhaps with the same lines.
    `stream_t` is the least of its stream lines, `point_t` that of the last line that
    became a row of its own.
    `ended`: its file is read to the end, and nothing more is to come.
    `submission` counts how often the job was submitted before it, as far as its replica and jobs show (`submissions`);
    `job` is the one that its `open` names. Both are the root's.
    `lowest` is the lowest step of its metrics and barrier records, -1 for none yet;
    `starts` maps open steps to the byte where this file's first line of them begins.
    """

    file: str
    open: Open
    segments: list[Segment] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    implicit: bool = True
    closed: bool = False
    ended: bool = False
    replaced: bool = False
    lowest: int = -1
    newest_t: float = 0.0
    stream_t: float | None = None
    end: End = field(default_factory=End)
    point_t: float | None = None
    seen_at: float = 0.0
    line_at: float = 0.0
    starts: dict[int, int] = field(default_factory=dict)
    submission: int = 0
    job: SubmittedJob | None = None
    root: Writer = field(init=False)
    rank: RankName = field(init=False)

    def __post_init__(self) -> None:
        self.belong_to(self)
        if not self.segments:
            self.segments = [Segment(self, 0)]

    def belong_to(self, root: Writer) -> None:
        """Its lines count for the rank of `root`: itself, or the ancestor that forked it."""
        self.root = root
        self.rank = RankName(root.open.replica, root.open.rank)

    @property
    def done(self) -> bool:
        """Whether nothing more is to come from it."""
        return self.closed or self.ended or bool(self.end.failure)

    @property
    def retells(self) -> bool:
        """Whether it is a file of transformers, whose figures the process may have logged at W&B itself."""
        return self.open.writer in RETELLING and is_foreign(self.file)

    @property
    def copies(self) -> bool:
        """Whether it is a file of TRL's completions, which the process may have given as samples itself."""
        return self.open.writer == COPYING and is_foreign(self.file)

    @property
    def at_home(self) -> bool:
        """Whether it counts for the rank that its own `open` names."""
        return self.rank == (self.open.replica, self.open.rank)

    @property
    def begins(self) -> int | None:
        """The lowest step at which any segment begins."""
        return min((s.begins for s in self.segments if s.begins is not None), default=None)

    @property
    def reach(self) -> int:
        """The highest step that it logged or has a barrier of, -1 for none yet."""
        return max(max(segment.barrier, segment.last) for segment in self.segments)

    def has_part_from(self, step: int) -> None:
        """Rows from `step` on can have a part of it."""
        if step < self.lowest or self.lowest < 0:
            self.lowest = step

    def segment(self, number: int) -> Segment:
        """The segment of lines that were read again. A file that was changed in place may have more rollbacks now than
        when it was read: those do not count, and their lines are of the last segment that is known.
        """
        return self.segments[min(number, len(self.segments) - 1)]

    def forget_starts(self, still_open: Container[int]) -> None:
        """Keep in `starts` only steps that are still open."""
        if self.starts:
            self.starts = {step: offset for step, offset in self.starts.items() if step in still_open}

    def age_s(self, now: float) -> float:
        """Seconds since its open: by our clock since we saw it, or by its own from its lines, whichever is more."""
        return max(now - self.seen_at, self.newest_t - self.open.t)


class Order(NamedTuple):
    """How the lines of these segments merge: their places in merge order, and what a row says of them."""

    places: tuple[int, ...] | None  # None: they stand in merge order already
    segments: tuple[Segment, ...]
    ranks: tuple[str, ...]
    attempts: tuple[int, ...]
    roots: bool  # none of them is a child's
    lives: int = 1
    lineage: Lineage | None = None


def side_by_side(a: Writer, b: Writer) -> bool:
    """Whether two writers' roots, of one rank, ran at the same time: no restart, but a rank given twice.

    Of one submission only equal attempts are: where attempts differ, the launcher restarted the rank.
    """
    a, b = a.root, b.root
    if a.open.id == b.open.id or (a.submission == b.submission and a.open.attempt != b.open.attempt):
        return False
    older, newer = (a, b) if a.segments[0].age <= b.segments[0].age else (b, a)
    return older.newest_t > newer.open.t + SIDE_BY_SIDE_S


def submissions(roots: Iterable[Writer]) -> dict[Writer, int]:
    """The number of each root writer's submission, of all root writers of one replica.

    Attempts count from 0 again when a person submits the job. So the next submission begins with a writer of
    another job, or whose attempt is lower than that of one that opened more than `SIDE_BY_SIDE_S` before it. Within
    that time the attempts are trusted more than the clocks of two hosts.

    A replica may be of a later job only, as unnamed Ray actors are. So no number is less than the count of jobs that
    are over for the writer's own.
    """
    ordered = sorted(roots, key=submitted)
    found: dict[Writer, int] = {}
    number = _follows(ordered[0]) if ordered else 0
    passed, highest = 0, -1  # the `highest` attempt of those of this submission before `passed`
    for root in ordered:
        while ordered[passed].open.t + SIDE_BY_SIDE_S < root.open.t:
            highest = max(highest, ordered[passed].open.attempt)
            passed += 1
        if root.open.attempt < highest or (found and root.job is not ordered[len(found) - 1].job):
            number, passed, highest = max(number + 1, _follows(root)), len(found), -1
        found[root] = number
    return found


def _follows(root: Writer) -> int:
    return 0 if root.job is None else root.job.follows


def submitted(root: Writer) -> tuple[float, str, float, str, int]:
    """The order in which root writers of one replica were submitted: those of one job together."""
    opened = root.open
    start, name = (opened.t, "") if root.job is None else root.job.order
    return start, name, opened.t, opened.id, opened.attempt


def counting(segments: Iterable[Segment]) -> list[Segment]:
    """Of the segments of one rank that have a metric at a step, those that no newer one supersedes."""
    candidates = list(segments)
    if len(candidates) == 1:
        return candidates
    # One look at each, newest first, as there may be thousands.
    kept: set[Segment] = set()
    latest = -math.inf  # the latest open of newer ones
    heads: dict[int, int] = {}  # by submission, the attempt of its newest segment
    seen: set[str] = set()  # ids of newer ones, which their own later segments supersede
    ordered = sorted(candidates, key=lambda segment: segment.age, reverse=True)
    for age, alike in groupby(ordered, lambda segment: segment.age):
        submission, attempt, t, id, _ = age
        head = heads.setdefault(submission, attempt)
        if attempt == head and id not in seen:
            kept.update(one for one in alike if one.writer.root.newest_t > latest + SIDE_BY_SIDE_S)
        seen.add(id)
        latest = max(latest, t)
    return [segment for segment in candidates if segment in kept]


def newest(segments: Iterable[Segment]) -> set[Segment]:
    """Of segments that have a metric at a step, of whatever ranks, those that count."""
    found = list(segments)
    by_rank: dict[RankName, dict[Segment, None]] = {}
    for segment in found:
        by_rank.setdefault(segment.writer.rank, {})[segment] = None
    return {segment for alike in by_rank.values() for segment in counting(alike)}.intersection(still_in_world(found))


def still_in_world(segments: Iterable[Segment]) -> list[Segment]:
    """Of segments that have something at a step, those whose rank is not gone: of those here no writer outgrows
    theirs, and their job is not over for another one.
    """
    found = list(segments)
    living = _of_living_jobs(found)
    least = min((one.writer.root.open.world or MAX_WORLD for one in found), default=MAX_WORLD)
    if all(segment.writer.rank.rank < least for segment in living):
        return living
    worlds = _worlds_of({segment.writer.root: None for segment in found})
    return [
        segment
        for segment in living
        if segment.writer.rank.replica not in worlds
        or not worlds[segment.writer.rank.replica].outgrown(segment.writer.root)
    ]


def _of_living_jobs(found: list[Segment]) -> list[Segment]:
    jobs = {segment.writer.root.job: None for segment in found if segment.writer.root.job is not None}
    if len(jobs) < 2:
        return found
    latest = max(jobs, key=lambda job: job.order)  # what is over for another one is over for this one
    return [
        segment for segment in found if segment.writer.root.job is None or not segment.writer.root.job.over_for(latest)
    ]


class _Worlds:
    """The worlds that writers of one replica name, and the newest of those that name each."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[int, int], int] = {}  # by world and submission, the highest attempt
        self._opens: dict[tuple[int, int, int], tuple[float, str]] = {}  # by world, submission and attempt, the latest
        self._least = MAX_WORLD

    def add(self, root: Writer, world: int) -> None:
        """A root writer that names its world."""
        self._least = min(self._least, world)
        place, opened = (world, root.submission), root.open
        self._attempts[place] = max(opened.attempt, self._attempts.get(place, 0))
        alike = (*place, opened.attempt)
        self._opens[alike] = max((opened.t, opened.id), self._opens.get(alike, (-math.inf, "")))

    def outgrown(self, root: Writer) -> bool:
        """Whether one of these writers `outgrows` the root writer of a rank."""
        if root.open.rank < self._least:
            return False
        submission, attempt, rank = root.submission, root.open.attempt, root.open.rank
        if any(
            world <= rank and its == submission and highest > attempt
            for (world, its), highest in self._attempts.items()
        ):
            return True
        return any(root.newest_t <= t + SIDE_BY_SIDE_S for t in self._later_starts(root))

    def beside(self, root: Writer) -> bool:
        """Whether a root writer counts although a later start is too small for its rank, as it runs beside that."""
        if root.open.rank < self._least:
            return False
        return any(True for _ in self._later_starts(root)) and not self.outgrown(root)

    def _later_starts(self, root: Writer) -> Iterator[float]:
        """When later starts without the writer's rank opened, as `outgrows` has it; not those of a higher attempt."""
        submission, attempt, rank = root.submission, root.open.attempt, root.open.rank
        for (world, its, one), latest in self._opens.items():
            if world <= rank and (
                its > submission
                or (
                    (its, one) == (submission, attempt)
                    and (root.open.world or 0) > world
                    and (root.open.t, root.open.id) < latest
                )
            ):
                yield latest[0]


def _worlds_of(roots: Iterable[Writer]) -> dict[str, _Worlds]:
    """What root writers of one actor say of their worlds, by replica."""
    found: dict[str, _Worlds] = {}
    for root in roots:
        if root.open.world is not None:
            found.setdefault(root.open.replica, _Worlds()).add(root, root.open.world)
    return found


def left_over(roots: Iterable[Writer]) -> list[Writer]:
    """Of the root writers of one actor, those that count beside a later start without their rank."""
    every = list(roots)
    worlds = _worlds_of(every)
    return [root for root in every if root.open.replica in worlds and worlds[root.open.replica].beside(root)]


def past_lives(roots: Iterable[Writer]) -> set[Writer]:
    """Of the root writers of one actor, those of which the job awaits nothing more, closed or not.

    Their rank began a later life (a later attempt or submission, or a process of equal attempt that they do not run
    beside), or the job goes on without their rank, or their job is over for a later one.
    """
    every = list(roots)
    by_rank: dict[RankName, list[Writer]] = {}
    for root in every:
        by_rank.setdefault(root.rank, []).append(root)
    worlds = _worlds_of(every)
    jobs = {root.job: None for alike in by_rank.values() for root in alike if root.job is not None}
    latest = max(jobs, key=lambda job: job.order, default=None)
    found: set[Writer] = set()
    for rank, alike in by_rank.items():
        newest = max(alike, key=lambda root: root.segments[0].age)
        of_replica = worlds.get(rank.replica)
        for root in alike:
            if (
                (root is not newest and not _still_beside(root, newest))
                or (of_replica is not None and of_replica.outgrown(root))
                or (latest is not None and root.job is not None and root.job.over_for(latest))
            ):
                found.add(root)
    return found


def _still_beside(root: Writer, newest: Writer) -> bool:
    same_start = (root.submission, root.open.attempt) == (newest.submission, newest.open.attempt)
    return same_start and side_by_side(root, newest)


def outgrows(new: Writer, old: Writer) -> bool:
    """Whether a root writer says that the job goes on without the rank of an older one of its replica.

    Where it has no higher attempt, it says so only if the older one does not go on beside it: ranks of one start may
    name different worlds.
    """
    world = new.open.world
    if world is None or world > old.open.rank:
        return False
    if new.submission == old.submission and new.open.attempt != old.open.attempt:
        return new.open.attempt > old.open.attempt
    if new.submission != old.submission:
        later = new.submission > old.submission
    else:
        later = (old.open.t, old.open.id) < (new.open.t, new.open.id) and (old.open.world or 0) > world
    return later and old.newest_t <= new.open.t + SIDE_BY_SIDE_S


@lru_cache(4096)
def replica_key(replica: str) -> tuple[int, int, str]:
    """Replicas of digits sort as numbers and first, others by code point."""
    if replica.isascii() and replica.isdigit():
        return (0, int(replica) if len(replica) <= 4000 else 0, replica)
    return (1, 0, replica)


def order_of(owners: tuple[Segment, ...]) -> Order:
    """The merge order of segments, of which each may stand here several times."""
    places = tuple(sorted(range(len(owners)), key=lambda place: owners[place].merge_key))
    segments = tuple(dict.fromkeys(owners[place] for place in places))
    return Order(
        None if places == tuple(range(len(owners))) else places,
        segments,
        rank_names(dict.fromkeys([segment.writer.rank for segment in segments])),  # in order already, mostly
        attempts_of(segments),
        all(segment.writer.root is segment.writer for segment in segments),
        lives_of({segment.writer.root for segment in segments}),
        lineage_of(segments),
    )


def lives_of(roots: Collection[Writer]) -> int:
    """How often the job was started of which root writers of an actor are: the most processes of one rank, submissions
    of one replica, or jobs. A file of another framework is no start beside the rank's own.
    """
    starts = {(root.job, root.submission) for root in roots}
    if len(starts) < 2 and len({root.rank for root in roots}) == len(roots):
        return 1  # mostly it is so, and quick to see
    native = {root.rank for root in roots if not is_foreign(root.file)}
    roots = [root for root in roots if root.rank not in native or not is_foreign(root.file)]
    of_ranks: dict[RankName, set[str]] = {}
    of_replicas: dict[str, set[int]] = {}
    for root in roots:
        of_ranks.setdefault(root.rank, set()).add(root.open.id)
        of_replicas.setdefault(root.open.replica, set()).add(root.submission)
    jobs = len({root.job for root in roots})
    return max(jobs, *map(len, of_ranks.values()), *map(len, of_replicas.values()))


def lineage_of(segments: Collection[Segment]) -> Lineage | None:
    """The submission, attempt and rollbacks of the newest segment. None in the first submission without rollbacks: then
    the greatest attempt says it all.
    """
    submission, attempt, _, _, rollbacks = max((segment.age for segment in segments), default=(0, 0, 0.0, "", 0))
    return (submission, attempt, rollbacks) if submission or rollbacks else None


def attempts_of(segments: Iterable[Segment]) -> tuple[int, ...]:
    """The attempts of segments, ascending. Files of other frameworks do not say which attempt they are of: where a row
    has several segments of such a rank, each later one is of another life of it, and has the next number.
    """
    found: set[int] = set()
    foreign: dict[RankName, list[Segment]] = {}
    for segment in segments:
        if is_foreign(segment.writer.file):
            foreign.setdefault(segment.writer.rank, []).append(segment)
        else:
            found.add(segment.writer.open.attempt)
    for of_rank in foreign.values():
        number, older = -1, None
        for segment in sorted(of_rank, key=lambda one: one.age):
            together = older is not None and side_by_side(older.writer, segment.writer)
            number = max(segment.writer.open.attempt, number if together else number + 1)
            found.add(number)
            older = segment
    return tuple(sorted(found))


def rank_names(ranks: Iterable[RankName]) -> tuple[str, ...]:
    """Names of ranks, in merge order, runs collapsed."""
    ordered = sorted(ranks, key=lambda rank: (replica_key(rank.replica), rank.rank))
    return name_ranks((rank.replica, rank.rank, rank.rank) for rank in ordered)
