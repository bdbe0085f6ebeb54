"""Who writes for an actor: who is expected at a step, who covers it, who is missing. Pure.

The terms are those of docs/semantics.md, "Coverage".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlship_formats.records import MAX_STEP, MAX_WORLD
from rlship_sidecar.align.lineage import (
    SIDE_BY_SIDE_S,
    Order,
    Segment,
    SubmittedJob,
    Writer,
    left_over,
    order_of,
    outgrows,
    past_lives,
    replica_key,
    side_by_side,
    still_in_world,
    submissions,
    submitted,
)
from rlship_sidecar.rows import RankName
from rlship_sidecar.tail.listing import is_foreign

MAX_GENERATIONS = 16  # of a family: who has more ancestors is its own root
_MAX_OUTSIDE = 1024  # steps of which is kept which jobs have no part in them
_MAX_ORDERS, _MAX_ORDERED = 256, 1 << 17  # orders that are kept, and segments in them
_NOT_SEEN = Order(None, (), (), (), False)


class RankAtStep(NamedTuple):
    """One rank of a replica at a step: its candidates, newest first, and those of them that are expected."""

    rank: int
    candidates: tuple[Segment, ...]
    expected: tuple[Segment, ...]


class ReplicaAtStep(NamedTuple):
    """A replica at a step: expected ranks, and the world that governs (None: unknown)."""

    world: int | None
    places: tuple[RankAtStep, ...]


class Waiting(NamedTuple):
    """What keeps a step from being complete: writers, and whether ranks that never opened may still come. `how`
    is why a row appears once nothing is waited for: "end" if some file would be waited for that was cut or is gone,
    "partial" if some process would be that failed.
    """

    writers: tuple[Writer, ...]
    unopened: bool
    how: str = "complete"

    @property
    def over(self) -> bool:
        """Whether nothing is waited for."""
        return not self.writers and not self.unopened


@dataclass(slots=True)
class _Submission:
    """One submission of a replica, as far as a writer that joins it has to know.

    `first` is its first writer in the order of `submissions`, `is_first` says that no other one was before it. `opened`
    maps each attempt to its first and last open.
    """

    job: SubmittedJob | None
    number: int
    first: Writer
    is_first: bool
    opened: dict[int, tuple[float, float]] = field(default_factory=dict)

    def takes_in(self, writer: Writer) -> bool:
        """True if `writer`, which no later submission begins before, is of this one and changes no number: the attempts
        of those that opened long before it are not above its own, and those long after it are not below.
        """
        if writer.job is not self.job or (not self.is_first and submitted(writer) < submitted(self.first)):
            return False
        attempt, t = writer.open.attempt, writer.open.t
        return all(
            attempt == other or (last <= t + SIDE_BY_SIDE_S if other < attempt else t <= first + SIDE_BY_SIDE_S)
            for other, (first, last) in self.opened.items()
        )

    def add(self, writer: Writer) -> None:
        """Take in a writer."""
        t = writer.open.t
        first, last = self.opened.get(writer.open.attempt, (t, t))
        self.opened[writer.open.attempt] = min(first, t), max(last, t)


@dataclass(slots=True)
class _Replica:
    roots: dict[int, list[Writer]] = field(default_factory=dict)
    joining: list[Writer] = field(default_factory=list)  # roots that have not shown yet where they begin
    # By how many of `begins` a step has passed, and which jobs have no part in it.
    answers: dict[tuple[int, frozenset[SubmittedJob]], ReplicaAtStep] = field(default_factory=dict)
    begins: list[int] | None = None  # where segments begin, ascending; None: to be worked out anew
    newest_first: list[tuple[int, list[Segment]]] = field(default_factory=list)
    jobs: set[SubmittedJob | None] = field(default_factory=set)
    worlds: set[int | None] = field(default_factory=set)
    submissions: list[_Submission] = field(default_factory=list)
    least_world: int = MAX_WORLD

    def seat(self, writer: Writer) -> list[Writer]:
        """Take in a root writer. Returns the others whose submission has another number because of it."""
        opened = writer.open
        self.roots.setdefault(opened.rank, []).append(writer)
        self.joining.append(writer)
        self.jobs.add(writer.job)
        self.worlds.add(opened.world)
        self.least_world = min(self.least_world, opened.world or MAX_WORLD)
        self.forget()
        # Thousands of writers join one submission, so that none of them looks at all others.
        joined = self._submission_of(writer)
        if joined is not None and joined.takes_in(writer):
            writer.submission = joined.number
            joined.add(writer)
            return []
        return [root for root in self.renumber() if root is not writer]

    def _submission_of(self, writer: Writer) -> _Submission | None:
        """The last submission that does not begin behind a writer; None if there is no submission yet."""
        for one in reversed(self.submissions):
            if one.is_first or submitted(one.first) <= submitted(writer):
                return one
        return None

    def unseat(self, writer: Writer) -> list[Writer]:
        """Take out a writer that gets another root. Returns the others whose submission has another number now."""
        roots = self.roots[writer.open.rank]
        roots.remove(writer)
        if not roots:
            del self.roots[writer.open.rank]
        if writer in self.joining:
            self.joining.remove(writer)
        self.forget()
        writer.submission = 0
        if len(self.submissions) == 1 and len(self.submissions[0].opened) == 1:
            return []  # of one attempt, the others stay one submission
        return self.renumber()

    def renumber(self) -> list[Writer]:
        """Find the submission of each root writer. Returns those whose number is another one now."""
        numbers = submissions(self.each())
        self.submissions = _each_submission(numbers)
        moved = [root for root, number in numbers.items() if root.submission != number]
        for root in moved:
            root.submission = numbers[root]
        return moved

    def each(self) -> Iterator[Writer]:
        """All root writers."""
        for roots in self.roots.values():
            yield from roots

    def forget(self) -> None:
        """Something changed in who writes."""
        self.begins = None

    def remember(self) -> list[int]:
        """Sort all segments once; between two places where one begins, the answer is the same for every step with the
        same jobs.
        """
        if self.begins is None:
            self.answers.clear()
            self.newest_first = []
            for rank in sorted(self.roots):
                segments = [s for writer in self.roots[rank] for s in writer.segments if s.begins is not None]
                segments.sort(key=lambda s: (s.age, not s.writer.replaced, s.writer.file), reverse=True)
                self.newest_first.append((rank, segments))
            self.begins = sorted(
                {s.begins for _, segments in self.newest_first for s in segments if s.begins is not None}
            )
        return self.begins


class Roster:
    """All writers of one actor."""

    def __init__(self) -> None:
        self.writers: dict[str, Writer] = {}
        self._by_id: dict[str, Writer] = {}
        self._replicas: dict[str, _Replica] = {}
        self._jobs: dict[str, SubmittedJob] = {}
        # The steps at which jobs begin, in the order of the jobs; None: to be worked out anew.
        self._begun: list[tuple[int, SubmittedJob]] | None = []
        self._outside: dict[int, frozenset[SubmittedJob]] = {}  # by step, see `_without_part`
        self._children: dict[str, list[Writer]] = {}  # by the id that they name as their parent's
        self.gaps = False  # some writer had to drop lines
        self.retold = False  # some writer is a file that may repeat under other names what its rank logs
        self._orders: dict[tuple[Segment, ...], Order | None] = {}
        # Of segments in any order: how they merge, and the place of each.
        self._merged: dict[frozenset[Segment], tuple[Order | None, dict[Segment, int]]] = {}
        self.layered = False  # some rank has more than one segment, so that completeness is not monotone in steps

    def add(self, writer: Writer) -> list[Writer]:
        """Take in a writer; returns those already here that have another root now (children that came before their
        parent), or that another age or job makes count otherwise.
        """
        self._forget_orders()
        self.gaps = self.gaps or bool(writer.gaps)
        self.retold = self.retold or writer.retells
        self.layered = self.layered or len(writer.segments) > 1  # of children too, as they were when they were read
        self.writers[writer.file] = writer
        same = self._by_id.get(writer.open.id)
        if same is None or writer.file < same.file:
            self._by_id[writer.open.id] = writer
        if writer.open.parent is not None:
            self._children.setdefault(writer.open.parent, []).append(writer)
            writer.belong_to(self._root(writer))
        regarded = self._seat(writer)
        moved = []
        for child in self._descendants(writer):
            root = self._root(child)
            if root is not child.root:
                regarded |= self._unseat(child)
                child.belong_to(root)
                regarded |= self._seat(child)
                moved.append(child)
        if regarded:
            moved += [one for one in self.writers.values() if one.root in regarded and one not in moved]
        return [one for one in moved if one is not writer]

    def _descendants(self, writer: Writer) -> list[Writer]:
        """Children of a writer, and theirs, as far as families go."""
        found: dict[str, Writer] = {}
        generation = [writer]
        for _ in range(MAX_GENERATIONS + 1):
            named = {parent.open.id for parent in generation}
            generation = [child for id in named for child in self._children.get(id, ()) if child.file not in found]
            if not generation:
                break
            found.update((child.file, child) for child in generation)
        return list(found.values())

    def _seat(self, writer: Writer) -> set[Writer]:
        """Give a root writer its place. Returns other root writers that count otherwise because of it."""
        if writer.root is not writer:
            return set()
        replica = self._replicas.setdefault(writer.open.replica, _Replica())
        # Its job first, as submissions go by the start of jobs.
        regarded = self._hire(writer, writer.open.job) if writer.open.job is not None else set()
        regarded.update(replica.seat(writer))
        self.layered = self.layered or len(replica.roots[writer.open.rank]) > 1 or len(self._jobs) > 1
        return regarded

    def _unseat(self, writer: Writer) -> set[Writer]:
        """Take a writer out of its place, as it gets another root. Returns others that count otherwise then."""
        if writer.root is not writer:
            return set()
        replica, job = self._replicas[writer.open.replica], writer.job
        regarded = set(replica.unseat(writer))
        if not replica.roots:
            del self._replicas[writer.open.replica]
        if job is not None:
            writer.job = None
            members = [one for one in self._roots() if one.job is job]
            if members:
                job.reach = max(one.reach for one in members)
                start = min(one.open.t for one in members)
                newest_t = max(max(one.open.t, one.newest_t) for one in members)
                regarded |= self._settle(job, start, newest_t)
            else:
                del self._jobs[job.id]
                regarded.update(one for one in self._roots() if one.job is not None)
                regarded |= self._count_followed()
            self._begun = None
        return regarded

    def _hire(self, writer: Writer, name: str) -> set[Writer]:
        """Add a root writer to its job. Returns the writers of all jobs if one of them is over or not because of it."""
        newest_t = max(writer.open.t, writer.newest_t)
        job = self._jobs.get(name)
        self._begun = None
        if job is None:
            writer.job = self._jobs[name] = SubmittedJob(name, writer.open.t, newest_t, writer.reach)
            return self._count_followed()
        writer.job = job
        job.reach = max(job.reach, writer.reach)
        return self._settle(job, min(job.start, writer.open.t), max(job.newest_t, newest_t))

    def _settle(self, job: SubmittedJob, start: float, newest_t: float) -> set[Writer]:
        """Set the times of a job. Returns the root writers that count otherwise because of it."""
        before, moved = self._relations(job), job.start != start
        job.start, job.newest_t = start, newest_t
        found: set[Writer] = set()
        if self._relations(job) != before:
            self._outside.clear()
            found.update(one for one in self._roots() if one.job is not None)
            found |= self._count_followed()
        if moved:
            self._begun = None
            for replica in self._replicas.values():
                if job in replica.jobs and len(replica.jobs) > 1:
                    found.update(replica.renumber())
                    replica.forget()
        return found

    def _count_followed(self) -> set[Writer]:
        """Count anew which jobs are over for which. Returns the root writers whose submission has another number."""
        changed = set()
        for job in self._jobs.values():
            follows = sum(other.over_for(job) for other in self._jobs.values())
            if follows != job.follows:
                job.follows = follows
                changed.add(job)
        found: set[Writer] = set()
        for replica in self._replicas.values():
            if not changed.isdisjoint(replica.jobs):
                found.update(replica.renumber())
                replica.forget()
        return found

    def _relations(self, job: SubmittedJob) -> list[tuple[bool, bool, bool]]:
        return [
            (job.over_for(other), other.over_for(job), job.order < other.order)
            for other in self._jobs.values()
            if other is not job
        ]

    def _roots(self) -> Iterator[Writer]:
        for replica in self._replicas.values():
            yield from replica.each()

    def _root(self, writer: Writer) -> Writer:
        seen = {writer.open.id}
        at = writer
        while at.open.parent is not None:
            parent = self._by_id.get(at.open.parent)
            if parent is None or parent is at:
                return at
            if parent.open.id in seen or len(seen) > MAX_GENERATIONS:
                return writer
            seen.add(parent.open.id)
            at = parent
        return at

    def changed(self, writer: Writer) -> None:
        """A segment of this writer began, or two ran side by side: forget settled answers of its replica."""
        self.layered = self.layered or len(writer.segments) > 1
        self._forget_orders()
        self._replicas[writer.root.open.replica].forget()
        if writer.root.job is not None:
            self._begun = None

    def reaches(self, writer: Writer) -> tuple[int, int] | None:
        """A writer has new lines. Returns which step its job had reached and which it has now, if another job may have
        no part any more, or part again, in the steps in between.
        """
        job = writer.job
        if writer.root is not writer or job is None:
            return None
        before, job.reach = job.reach, max(job.reach, writer.reach)
        if before == job.reach or len(self._jobs) < 2:
            return None
        self._outside.clear()
        return before, job.reach

    def unaffected_to(self, segment: Segment, step: int) -> int:
        """The step up to which rows stay as they are when `segment` begins at `step`: its rank is covered there with or
        without it.
        """
        opened = segment.writer.open
        replica = self._replicas[opened.replica]
        if len(self._jobs) > 1 or len(replica.worlds) > 1:
            return step - 1
        roots = replica.roots[opened.rank]
        same_rank = [s for root in roots for s in root.segments if s.begins is not None and s.begins <= step]
        return max((s.covers_to for s in same_rank), default=step - 1)

    def _forget_orders(self) -> None:
        self._orders.clear()
        self._merged.clear()

    def order(self, owners: tuple[Segment, ...]) -> Order | None:
        """How lines of these segments merge, where each rank has no more than one of them and no rank was dropped."""
        order = self._orders.get(owners, _NOT_SEEN)
        if order is _NOT_SEEN:
            _make_room(self._orders, owners)
            order = self._orders[owners] = self._order_as_they_came(owners)
        return order

    def _order_as_they_came(self, owners: tuple[Segment, ...]) -> Order | None:
        """Files are seldom read in one order, so only their places are found anew."""
        alike = frozenset(owners)
        if len(alike) < len(owners):
            return None
        if alike not in self._merged:
            _make_room(self._merged, owners)
            # A child merges at its own place but counts for its root's rank, which `first` and `last` go by.
            ranks = {owner.writer.rank for owner in owners if owner.writer.at_home}
            alone = len(ranks) == len(owners) == len(still_in_world(owners))
            merged = order_of(tuple(sorted(alike, key=lambda segment: segment.merge_key))) if alone else None
            of_segments = {} if merged is None else {segment: place for place, segment in enumerate(merged.segments)}
            self._merged[alike] = merged, of_segments
        order, place_of = self._merged[alike]
        if order is None:
            return None
        found = [place_of[owner] for owner in owners]
        places = tuple(sorted(range(len(owners)), key=found.__getitem__))
        return order if places == tuple(range(len(owners))) else order._replace(places=places)

    def goes_on(self, writer: Writer, newest_t: float) -> set[Writer]:
        """A writer has a line of a later time. Returns the root writers that count otherwise because it turned out to
        run beside newer ones, itself among them.
        """
        rivals = {}
        if self._may_have_rivals(writer):
            rivals = {rival: _regards(writer, rival) for rival in self._rivals(writer, newest_t)}
        writer.newest_t = newest_t
        beside = {rival for rival, before in rivals.items() if _regards(writer, rival) != before}
        if beside:
            beside.add(writer)
        job = writer.job
        if job is not None and newest_t > job.newest_t:
            beside |= self._settle(job, job.start, newest_t)
        if beside:
            self.changed(writer)
        return beside

    def _may_have_rivals(self, writer: Writer) -> bool:
        """Whether another root writer names its rank, or a world without it: mostly none does."""
        if writer.root is not writer:
            return False
        replica, rank = self._replicas[writer.open.replica], writer.open.rank
        return len(replica.roots[rank]) > 1 or replica.least_world <= rank

    def _rivals(self, writer: Writer, newest_t: float) -> Iterator[Writer]:
        """Other root writers that a restart of its rank, or of the replica with fewer ranks, may have opened."""
        if writer.root is not writer:
            return
        replica, opened = self._replicas[writer.open.replica], writer.open
        if newest_t > opened.t + SIDE_BY_SIDE_S:  # enough to run beside a later one
            for other in replica.roots[opened.rank]:
                if other is not writer and (
                    other.open.attempt == opened.attempt or other.submission != writer.submission
                ):
                    yield other
        if replica.least_world <= opened.rank:
            for rank, roots in replica.roots.items():
                if rank != opened.rank:
                    yield from (other for other in roots if (other.open.world or MAX_WORLD) <= opened.rank)

    def gone_before(self, writer: Writer) -> float | None:
        """The greatest `t` of the lines of a root writer's earlier attempts, in its submission; None without any."""
        if writer.root is not writer or is_foreign(writer.file):
            return None
        times = [
            max(one.open.t, one.newest_t)
            for one in self._of_rank(writer)
            if one.open.attempt < writer.open.attempt and one.submission == writer.submission
        ]
        return max(times, default=None)

    def later_attempts(self, writer: Writer) -> list[Writer]:
        """Root writers of its rank for which it may be the life before."""
        if writer.root is not writer or is_foreign(writer.file):
            return []
        return [one for one in self._of_rank(writer) if one.open.attempt > writer.open.attempt]

    def _of_rank(self, writer: Writer) -> list[Writer]:
        roots = self._replicas[writer.open.replica].roots[writer.open.rank]
        return [one for one in roots if not is_foreign(one.file)] if len(roots) > 1 else []

    def jobs(self) -> list[SubmittedJob]:
        """All jobs that root writers name."""
        return list(self._jobs.values())

    def past_lives(self) -> set[Writer]:
        """Root writers of which the job awaits nothing more, closed or not."""
        return past_lives(self._roots())

    def left_over(self) -> list[Writer]:
        """Root writers that count although a later start has no such rank: they run beside it."""
        return left_over(self._roots())

    def has_closed(self, writer: Writer) -> bool:
        """Whether a root writer of its rank has closed."""
        replica = self._replicas.get(writer.rank.replica)
        return replica is not None and any(other.closed for other in replica.roots.get(writer.rank.rank, ()))

    def shared_places(self) -> list[list[Writer]]:
        """Root writers of each rank that more than one of them names."""
        return [
            writers for replica in self._replicas.values() for writers in replica.roots.values() if len(writers) > 1
        ]

    def at_step(self, replica_name: str, step: int) -> ReplicaAtStep:
        """Candidates and expected segments of every rank of a replica at a step."""
        replica = self._replicas[replica_name]
        outside = self._without_part(step)
        passed = bisect_right(replica.remember(), step), outside
        answer = replica.answers.get(passed)
        if answer is None:
            answer = replica.answers[passed] = _at_step(replica.newest_first, step, outside)
        return answer

    def _without_part(self, step: int) -> frozenset[SubmittedJob]:
        """The jobs that have no part in a step: those that are over for the latest job that reached it, and later ones
        that did not reach it yet.
        """
        if len(self._jobs) < 2:
            return frozenset()
        if self._begun is None:
            begins: dict[SubmittedJob, int] = {}
            for root in self._roots():
                if root.job is not None and root.begins is not None:
                    begins[root.job] = min(root.begins, begins.get(root.job, MAX_STEP))
            self._begun = sorted(((begin, job) for job, begin in begins.items()), key=lambda one: one[1].order)
            self._outside.clear()
        found = self._outside.get(step)
        if found is None:
            there = [job for begin, job in self._begun if begin <= step]
            reached = [job for job in there if job.reach >= step]
            latest = (reached or there)[-1] if there else None
            found = self._outside[step] = frozenset(
                [job for job in there if latest is not None and (job.over_for(latest) or latest.over_for(job))]
            )
            if len(self._outside) > _MAX_OUTSIDE:
                self._outside = {step: found}
        return found

    def waiting(self, step: int, now: float, *, closed_any: bool, join_s: float) -> Waiting:
        """Who is still waited for at a step. `closed_any`: the actor has a row, so a new writer is waited for only
        `join_s` seconds.
        """
        waited: list[Writer] = []
        unopened = False
        for name, replica in self._replicas.items():
            world, places = self.at_step(name, step)
            for place in places:
                # Most have a barrier, which is quicker to see than how far else they are.
                waited += [
                    s.writer for s in place.expected if s.barrier < step and s.waits_to < step and not s.writer.closed
                ]
            if replica.joining:
                replica.joining = [writer for writer in replica.joining if writer.begins is None]
                for writer in replica.joining:
                    if writer.closed or writer.open.world is None:
                        continue
                    if not closed_any or writer.age_s(now) < join_s:
                        waited.append(writer)
            if world is not None and len(replica.roots) < world:
                first = min((w for writers in replica.roots.values() for w in writers), key=lambda w: w.seen_at)
                opened = sum(1 for rank in replica.roots if rank < world)
                unopened = unopened or (opened < world and first.age_s(now) < join_s)
        living = tuple(writer for writer in waited if not writer.done)
        if len(living) == len(waited):
            return Waiting(living, unopened)
        return Waiting(living, unopened, "end" if any(writer.ended for writer in waited) else "partial")

    def expected_covering(self, step: int) -> bool:
        """Whether any expected writer is done with the step: its barrier starts the clock of `max_wait_s`."""
        return any(
            segment.waits_to >= step
            for name in self._replicas
            for place in self.at_step(name, step).places
            for segment in place.expected
        )

    def coverage(self, step: int) -> tuple[int, list[RankName], list[tuple[str, int, int]]]:
        """(number of expected ranks, missing ranks, absent ranks as runs (replica, first, last)), in merge order."""
        expected = 0
        missing: list[RankName] = []
        absent: list[tuple[str, int, int]] = []
        for name in sorted(self._replicas, key=replica_key):
            world, places = self.at_step(name, step)
            expected += len(places)
            missing += [RankName(name, place.rank) for place in places if not _covered(place, step)]
            if world is not None and len(places) < world:
                at = 0
                for place in places:
                    if place.rank > at:
                        absent.append((name, at, place.rank - 1))
                    at = place.rank + 1
                if at < world:
                    absent.append((name, at, world - 1))
        return expected, missing, absent

    def passed(self, step: int) -> frozenset[RankName]:
        """The ranks that are expected at a step and have a barrier at or after it."""
        return frozenset(
            [
                RankName(name, place.rank)
                for name in self._replicas
                for place in self.at_step(name, step).places
                if place.candidates[0].covers_to >= step
                or any(segment.covers_to >= step for segment in place.candidates)
            ]
        )

    def gap(self, step: int) -> int:
        """Lines that writers dropped and that may have been of this step."""
        if not self.gaps:
            return 0
        dropped = sum(
            gap.n
            for writer in self.writers.values()
            for gap in writer.gaps
            if gap.first is not None and gap.last is not None and gap.first <= step <= gap.last
        )
        return min(dropped, MAX_STEP)  # an absurd count must still be a JSON integer


def _make_room(orders: dict[Any, Any], owners: tuple[Segment, ...]) -> None:
    """Empty a cache of orders where one of these segments would be too many."""
    if len(orders) >= min(_MAX_ORDERS, max(2, _MAX_ORDERED // (len(owners) + 1))):
        orders.clear()


def _each_submission(numbers: Mapping[Writer, int]) -> list[_Submission]:
    """The submissions of a replica, given the number of each root writer in the order of `submissions`."""
    found: list[_Submission] = []
    for root, number in numbers.items():
        if not found or number != found[-1].number:
            found.append(_Submission(root.job, number, root, is_first=not found))
        found[-1].add(root)
    return found


def _at_step(
    newest_first: list[tuple[int, list[Segment]]], step: int, outside: Collection[SubmittedJob]
) -> ReplicaAtStep:
    newest: Segment | None = None
    by_rank: list[tuple[int, list[Segment]]] = []
    for rank, segments in newest_first:
        candidates = [
            segment
            for segment in segments
            if segment.begins is not None and segment.begins <= step and segment.writer.job not in outside
        ]
        if candidates:
            by_rank.append((rank, candidates))
            if newest is None or candidates[0].age > newest.age:
                newest = candidates[0]
    world = newest.writer.open.world if newest is not None else None
    return ReplicaAtStep(
        world,
        tuple(
            RankAtStep(rank, tuple(candidates), tuple(_expected(candidates)))
            for rank, candidates in by_rank
            if world is None or rank < world
        ),
    )


def _regards(writer: Writer, rival: Writer) -> tuple[bool, bool]:
    return side_by_side(writer, rival), outgrows(rival, writer)


def _expected(candidates: list[Segment]) -> Iterator[Segment]:
    """Of candidates, newest first: the newest, and the newest of each root that runs side by side with it."""
    newest = candidates[0]
    yield newest
    seen = {newest.writer.file}
    for segment in candidates[1:]:
        if segment.writer.file not in seen and side_by_side(segment.writer, newest.writer):
            seen.add(segment.writer.file)
            yield segment


def _covered(place: RankAtStep, step: int) -> bool:
    """Whether a rank is done with a step: it passed a barrier of it or a later one, or all of its writers closed."""
    if place.candidates[0].barrier >= step:  # true of most ranks, and quick to see
        return True
    for segment in place.candidates:
        if segment.barrier >= step or segment.covers_to >= step:
            return True
    # A file that was cut or replaced before its close is not waited for, but what came after the cut is lost.
    writers = [s.writer for s in place.expected if not s.writer.replaced or s.writer.end.close_t is not None]
    return bool(writers) and all(writer.closed for writer in writers)
