"""Writers and their segments: which is newer, which supersedes which, in what order they merge. Pure.

The terms are those of docs/semantics.md, "Which contributions count".
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from rlship_formats.records import Gap, Open
from rlship_sidecar.decode.lines import Adoption
from rlship_sidecar.rows import RankName, name_ranks
from rlship_sidecar.tail.listing import is_foreign

SIDE_BY_SIDE_S = 60.0

Age = tuple[int, float, str, int]
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

    def met(self, lowest: int, highest: int) -> None:
        """It has metrics records from one step to another."""
        self.last = max(self.last, highest)
        if lowest < self.writer.lowest or self.writer.lowest < 0:
            self.writer.lowest = lowest

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
    """One file. Times named `…_at` are seconds of the sidecar's monotonic clock; `newest_t` is Unix seconds from the
    lines.
    `replaced`: another file has its name now, perhaps with the same lines.
    `stream_t` is the least of its stream lines, `close_t` that of its close, `point_t` that of the last line that
    became a row of its own.
    `ended`: its file is read to the end, and nothing more is to come.
    `lowest` is the lowest step of its metrics records, -1 for none yet;
    `adoption` says which of its lines without a step are of one; `stray_t` is the least time of those that its first
    barrier may adopt.
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
    close_t: float | None = None
    point_t: float | None = None
    adoption: Adoption | None = None
    stray_t: float | None = None
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
    def done(self) -> bool:
        """Whether nothing more is to come from it."""
        return self.closed or self.ended

    @property
    def at_home(self) -> bool:
        """Whether it counts for the rank that its own `open` names."""
        return self.rank == (self.open.replica, self.open.rank)

    @property
    def begins(self) -> int | None:
        """The lowest step at which any segment begins."""
        return min((s.begins for s in self.segments if s.begins is not None), default=None)

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


def side_by_side(a: Writer, b: Writer) -> bool:
    """Whether two writers' roots, of one rank and attempt, ran at the same time: no restart, but a rank given twice."""
    a, b = a.root, b.root
    if a.open.id == b.open.id or a.open.attempt != b.open.attempt:
        return False
    older, newer = (a, b) if (a.open.t, a.open.id) <= (b.open.t, b.open.id) else (b, a)
    return older.newest_t > newer.open.t + SIDE_BY_SIDE_S


def counting(segments: Iterable[Segment]) -> list[Segment]:
    """Of the segments of one rank that have a metric at a step, those that no newer one supersedes."""
    candidates = list(segments)
    if len(candidates) == 1:
        return candidates
    ages = [segment.age for segment in candidates]
    # Whoever the newest of all does not supersede ran side by side with it, so with all that opened before it as well;
    # but for segments of the same id, which never do. One look at each, as there may be thousands.
    latest = max(ages)
    latest_of: dict[tuple[int, str], Age] = {}
    for age in ages:
        of = age[0], age[2]
        latest_of[of] = max(age, latest_of.get(of, age))
    return [
        segment
        for segment, age in zip(candidates, ages)
        if age == latest
        or (
            age[0] == latest[0]
            and age == latest_of[age[0], age[2]]
            and segment.writer.root.newest_t > latest[1] + SIDE_BY_SIDE_S
        )
    ]


def newest(segments: Iterable[Segment]) -> set[Segment]:
    """Of segments that have a metric at a step, of whatever ranks, those that count."""
    by_rank: dict[RankName, dict[Segment, None]] = {}
    for segment in seated(segments):
        by_rank.setdefault(segment.writer.rank, {})[segment] = None
    return {segment for found in by_rank.values() for segment in counting(found)}


def seated(segments: Iterable[Segment]) -> list[Segment]:
    """Of segments that have something at a step, those whose rank a later attempt that has it there still knows."""
    found = list(segments)
    if len({segment.writer.root.open.attempt for segment in found}) < 2:
        return found
    worlds: dict[str, dict[int, int]] = {}
    for segment in found:
        opened = segment.writer.root.open
        if opened.world is not None:
            known = worlds.setdefault(opened.replica, {})
            known[opened.attempt] = min(opened.world, known.get(opened.attempt, opened.world))
    least = {replica: _least_after(known) for replica, known in worlds.items()}
    return [segment for segment in found if not _outgrown(segment.writer.root.open, least)]


def _least_after(worlds: dict[int, int]) -> tuple[list[int], list[int]]:
    """Attempts in order, and for each the least world that it or a later one has."""
    attempts = sorted(worlds)
    least = list(accumulate((worlds[attempt] for attempt in reversed(attempts)), min))
    return attempts, least[::-1]


def _outgrown(opened: Open, least: dict[str, tuple[list[int], list[int]]]) -> bool:
    """Whether a later attempt has so small a world that it does not know the rank."""
    attempts, worlds = least.get(opened.replica, ([], []))
    later = bisect_right(attempts, opened.attempt)
    return later < len(worlds) and worlds[later] <= opened.rank


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
        attempts_of(segments),
        all(segment.writer.root is segment.writer for segment in segments),
    )


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
