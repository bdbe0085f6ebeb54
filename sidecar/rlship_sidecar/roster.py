"""Who writes for an actor: segments and their age, who is expected at a step, who covers it, who is missing. Pure.

The terms are those of docs/semantics.md, "Which contributions count" and "Coverage".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from rlship_formats.records import Gap, Open
from rlship_sidecar.rows import RankName, name_ranks

SIDE_BY_SIDE_S = 60.0

Age = tuple[int, float, str, int]
MergeKey = tuple[tuple[int, int, str], int, int, float, str, int, str]


@dataclass(slots=True, eq=False)
class Segment:
    """The lines of one file between rollbacks. `begins` is None until a stepped line; `barrier` and `last` are -1 for none yet."""

    writer: Writer
    number: int
    begins: int | None = None
    barrier: int = -1
    last: int = -1
    merge_key: MergeKey = field(init=False, repr=False)

    def __post_init__(self) -> None:
        opened = self.writer.open
        # Partials merge in this order; the file name parts copies of one file.
        self.merge_key = (
            replica_key(opened.replica),
            opened.rank,
            opened.attempt,
            opened.t,
            opened.id,
            self.number,
            self.writer.file,
        )

    @property
    def age(self) -> Age:
        """Newer segments compare greater; a family's segments of one number are equal."""
        opened = self.writer.root.open
        return (opened.attempt, opened.t, opened.id, self.number)

    @property
    def waits_to(self) -> int:
        """The step up to which this segment promises to write nothing more."""
        return max(self.barrier, self.last - 1) if self.writer.implicit else self.barrier

    @property
    def covers_to(self) -> int:
        """The step up to which this segment counts as complete in a row."""
        return max(self.barrier, self.last) if self.writer.implicit else self.barrier


@dataclass(slots=True, eq=False)
class Writer:
    """One file. Times named `…_at` are seconds of the sidecar's monotonic clock; `newest_t` is Unix seconds from the lines.
    `lowest` is the lowest step of its metrics records, -1 for none yet;
    `starts` maps open steps to the byte where this file's first line of them begins.
    """

    file: str
    open: Open
    segments: list[Segment] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    implicit: bool = True
    closed: bool = False
    lowest: int = -1
    newest_t: float = 0.0
    seen_at: float = 0.0
    line_at: float = 0.0
    starts: dict[int, int] = field(default_factory=dict)
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
    def begins(self) -> int | None:
        """The lowest step at which any segment begins."""
        return min((s.begins for s in self.segments if s.begins is not None), default=None)

    def age_s(self, now: float) -> float:
        """Seconds since its open: by our clock since we saw it, or by its own clock from its lines, whichever is more."""
        return max(now - self.seen_at, self.newest_t - self.open.t)


class Place(NamedTuple):
    """One rank of a replica at a step: its candidates, newest first, and those of them that are expected."""

    rank: int
    candidates: tuple[Segment, ...]
    expected: tuple[Segment, ...]


class Seats(NamedTuple):
    """A replica at a step: expected ranks, and the world that governs (None: unknown)."""

    world: int | None
    places: tuple[Place, ...]


class Waiting(NamedTuple):
    """What keeps a step from being complete: writers, and whether ranks that never opened may still come."""

    writers: tuple[Writer, ...]
    unopened: bool

    @property
    def over(self) -> bool:
        """Whether nothing is waited for."""
        return not self.writers and not self.unopened


class Order(NamedTuple):
    """How the lines of these segments merge: their places in merge order, and what a row says of them."""

    places: tuple[int, ...] | None  # None: they stand in merge order already
    segments: tuple[Segment, ...]
    ranks: tuple[str, ...]
    attempts: tuple[int, ...]


@dataclass(slots=True)
class _Replica:
    roots: dict[int, list[Writer]] = field(default_factory=dict)
    joining: list[Writer] = field(default_factory=list)  # roots that have not shown yet where they begin
    settled: Seats | None = None  # the answer for every step from `settled_from` on, until something changes
    settled_from: int = 0


class Roster:
    """All writers of one actor."""

    def __init__(self) -> None:
        self.writers: dict[str, Writer] = {}
        self._by_id: dict[str, Writer] = {}
        self._replicas: dict[str, _Replica] = {}
        self._children: list[Writer] = []
        self.gaps = False  # some writer had to drop lines
        self.orders: dict[
            tuple[Segment, ...], Order | None
        ] = {}  # how rows of a block merge: reduce's memory, per roster
        self.layered = False  # some rank has more than one segment, so that completeness is not monotone in steps

    def add(self, writer: Writer) -> list[Writer]:
        """Take in a writer; returns those already here that have another root now (children that came before their parent)."""
        self.orders.clear()
        self.gaps = self.gaps or bool(writer.gaps)
        self.writers[writer.file] = writer
        same = self._by_id.get(writer.open.id)
        if same is None or writer.file < same.file:
            self._by_id[writer.open.id] = writer
        if writer.open.parent is not None:
            self._children.append(writer)
            writer.belong_to(self._root(writer))
        moved = []
        if any(child.open.parent == writer.open.id for child in self._children):
            for child in self._children:
                root = self._root(child)
                if root is not child.root:
                    child.belong_to(root)
                    moved.append(child)
        if moved:
            self._replicas = {}
            for other in self.writers.values():
                self._seat(other)
        else:
            self._seat(writer)
        return [child for child in moved if child is not writer]

    def _seat(self, writer: Writer) -> None:
        if writer.root is writer:
            replica = self._replicas.setdefault(writer.open.replica, _Replica())
            roots = replica.roots.setdefault(writer.open.rank, [])
            roots.append(writer)
            replica.joining.append(writer)
            replica.settled = None
            self.layered = self.layered or len(roots) > 1 or len(writer.segments) > 1

    def _root(self, writer: Writer) -> Writer:
        seen = {writer.open.id}
        at = writer
        while at.open.parent is not None:
            parent = self._by_id.get(at.open.parent)
            if parent is None or parent is at:
                return at
            if parent.open.id in seen:
                return writer
            seen.add(parent.open.id)
            at = parent
        return at

    def changed(self, writer: Writer) -> None:
        """A segment of this writer began, or two ran side by side: forget settled answers of its replica."""
        self.layered = self.layered or len(writer.segments) > 1
        self._replicas[writer.root.open.replica].settled = None

    def unaffected_to(self, segment: Segment, step: int) -> int:
        """The step up to which rows stay as they are when `segment` begins at `step`: its rank is covered there with or without it."""
        opened = segment.writer.open
        replica = self._replicas[opened.replica]
        begun = [s for roots in replica.roots.values() for w in roots for s in w.segments if s.begins is not None]
        if any(s.writer.open.world != opened.world for s in begun):
            return step - 1
        same_rank = [
            s for s in begun if s.writer.open.rank == opened.rank and s.begins is not None and s.begins <= step
        ]
        return max((s.covers_to for s in same_rank), default=step - 1)

    def rivals(self, writer: Writer) -> Iterator[Writer]:
        """Other root writers of the same rank and attempt."""
        if writer.root is writer:
            for other in self._replicas[writer.open.replica].roots[writer.open.rank]:
                if other is not writer and other.open.attempt == writer.open.attempt:
                    yield other

    def shared_places(self) -> list[list[Writer]]:
        """Root writers of each rank that more than one of them names."""
        return [
            writers for replica in self._replicas.values() for writers in replica.roots.values() if len(writers) > 1
        ]

    def seats(self, replica_name: str, step: int) -> Seats:
        """Candidates and expected segments of every rank of a replica at a step."""
        replica = self._replicas[replica_name]
        if replica.settled is not None and step >= replica.settled_from:
            return replica.settled
        newest: Segment | None = None
        by_rank: list[tuple[int, list[Segment]]] = []
        settled_from = 0
        for rank in sorted(replica.roots):
            candidates: list[Segment] = []
            for writer in replica.roots[rank]:
                for segment in writer.segments:
                    if segment.begins is None:
                        continue
                    settled_from = max(settled_from, segment.begins)
                    if segment.begins <= step:
                        candidates.append(segment)
            if candidates:
                candidates.sort(key=lambda s: (s.age, s.writer.file), reverse=True)
                by_rank.append((rank, candidates))
                if newest is None or candidates[0].age > newest.age:
                    newest = candidates[0]
        world = newest.writer.open.world if newest is not None else None
        places = tuple(
            Place(rank, tuple(candidates), tuple(_expected(candidates)))
            for rank, candidates in by_rank
            if world is None or rank < world
        )
        answer = Seats(world, places)
        if step >= settled_from:
            replica.settled, replica.settled_from = answer, settled_from
        return answer

    def waiting(self, step: int, now: float, *, closed_any: bool, join_s: float) -> Waiting:
        """Who is still waited for at a step. `closed_any`: the actor has a row, so a new writer is waited for only `join_s` seconds."""
        waited: list[Writer] = []
        unopened = False
        for name, replica in self._replicas.items():
            world, places = self.seats(name, step)
            for place in places:
                for segment in place.expected:
                    if segment.waits_to < step and not segment.writer.closed:
                        waited.append(segment.writer)
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
        return Waiting(tuple(waited), unopened)

    def expected_covering(self, step: int) -> bool:
        """Whether any expected writer is done with the step: its barrier starts the clock of `max_wait_s`."""
        return any(
            segment.waits_to >= step
            for name in self._replicas
            for place in self.seats(name, step).places
            for segment in place.expected
        )

    def coverage(self, step: int) -> tuple[int, list[RankName], list[tuple[str, int, int]]]:
        """(number of expected ranks, missing ranks, absent ranks as runs (replica, first, last)), in merge order."""
        expected = 0
        missing: list[RankName] = []
        absent: list[tuple[str, int, int]] = []
        for name in sorted(self._replicas, key=replica_key):
            world, places = self.seats(name, step)
            expected += len(places)
            for place in places:
                if not _covered(place, step):
                    missing.append(RankName(name, place.rank))
            if world is not None and len(places) < world:
                at = 0
                for place in places:
                    if place.rank > at:
                        absent.append((name, at, place.rank - 1))
                    at = place.rank + 1
                if at < world:
                    absent.append((name, at, world - 1))
        return expected, missing, absent

    def gap(self, step: int) -> int:
        """Lines that writers dropped and that may have been of this step."""
        if not self.gaps:
            return 0
        return sum(
            gap.n
            for writer in self.writers.values()
            for gap in writer.gaps
            if gap.first is not None and gap.last is not None and gap.first <= step <= gap.last
        )


def _expected(candidates: list[Segment]) -> Iterator[Segment]:
    """Of candidates, newest first: the newest, and the newest of each root that runs side by side with it."""
    newest = candidates[0]
    yield newest
    seen = {newest.writer.file}
    for segment in candidates[1:]:
        if segment.writer.file not in seen and side_by_side(segment.writer, newest.writer):
            seen.add(segment.writer.file)
            yield segment


def _covered(place: Place, step: int) -> bool:
    for segment in place.candidates:
        if segment.barrier >= step or segment.covers_to >= step:
            return True
    return all(segment.writer.closed for segment in place.expected)


def side_by_side(a: Writer, b: Writer) -> bool:
    """Whether two writers' roots, of one rank and attempt, ran at the same time: no restart, but a rank given twice."""
    a, b = a.root, b.root
    if a is b or a.open.attempt != b.open.attempt:
        return False
    older, newer = (a, b) if (a.open.t, a.open.id) <= (b.open.t, b.open.id) else (b, a)
    return older.newest_t > newer.open.t + SIDE_BY_SIDE_S


def counting(segments: Iterable[Segment]) -> list[Segment]:
    """Of the segments of one rank that have a metric at a step, those that no newer one supersedes."""
    candidates = list(segments)
    if len(candidates) == 1:
        return candidates
    ages = [segment.age for segment in candidates]
    return [
        segment
        for segment, age in zip(candidates, ages)
        if not any(
            other_age > age and not side_by_side(segment.writer, other.writer)
            for other, other_age in zip(candidates, ages)
        )
    ]


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
        rank_names({segment.writer.rank for segment in segments}),
        tuple(sorted({segment.writer.open.attempt for segment in segments})),
    )


def rank_names(ranks: Iterable[RankName]) -> tuple[str, ...]:
    """Names of ranks, in merge order, runs collapsed."""
    ordered = sorted(ranks, key=lambda rank: (replica_key(rank.replica), rank.rank))
    return name_ranks((rank.replica, rank.rank, rank.rank) for rank in ordered)
