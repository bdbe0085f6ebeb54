"""Who comes before whom, who belongs to whom, and whose contributions count: docs/semantics.md, read literally."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from tests.reference.moments import merge
from tests.reference.records import Measured, Segment, Writer
from tests.reference.values import Moments


@dataclass(frozen=True)
class Contribution:
    """What one segment gives to one metric of a unit, or with `sampled` to one table of samples: `lines` are the
    records that have the metric, in file order.
    """

    writer: Writer
    segment: Segment
    metric: str
    lines: tuple[Measured, ...]
    sampled: bool = False

    @property
    def root(self) -> Writer:
        assert self.writer.root is not None
        return self.writer.root

    @cached_property
    def moments(self) -> Moments:
        """All of it, merged in file order."""
        return reduce(merge, (moments for line in self.lines for moments in line.values[self.metric]))

    @cached_property
    def summarised(self) -> bool:
        """Whether a non-empty summary is in it."""
        return any(self.metric in line.summaries for line in self.lines)

    @cached_property
    def binned(self) -> list[tuple[tuple[float, ...], tuple[int, ...]] | None]:
        """The edges and counts of each of its non-empty summaries."""
        return [line.bins[self.metric] for line in self.lines if self.metric in line.summaries]

    @cached_property
    def observed(self) -> list[tuple[float, float]]:
        """Its finite observations (x, weight) in file order."""
        return [pair for line in self.lines for pair in line.observed(self.metric)]


def replica_order(replica: str) -> tuple[int, int, str, str]:
    if is_digits(replica):
        number = replica.lstrip("0")
        return (0, len(number), number, replica)
    return (1, 0, "", replica)


def is_digits(replica: str) -> bool:
    return replica != "" and all(digit in "0123456789" for digit in replica)


def rank_order(writer: Writer) -> tuple[tuple[int, int, str, str], int]:
    return (replica_order(writer.replica), writer.rank)


def rank_name(writer: Writer) -> str:
    return f"{writer.replica}.{writer.rank}"


def merge_order(writer: Writer, segment: Segment) -> tuple[object, ...]:
    return (*rank_order(writer), writer.attempt, writer.t, writer.id, segment.number, writer.file)


def root_of(writer: Writer, crew: Sequence[Writer]) -> Writer:
    """The writer's root ancestor; itself, if the chain of its parents never ends."""
    ancestor, passed = writer, [writer]
    while parent := parent_of(ancestor, crew):
        if any(parent is one for one in passed) or len(passed) > 16:
            return writer
        ancestor = parent
        passed.append(parent)
    return ancestor


def parent_of(writer: Writer, crew: Sequence[Writer]) -> Writer | None:
    named = [other for other in crew if other is not writer and other.id == writer.parent]
    return named[0] if named else None


def submissions(roots: Sequence[Writer], jobs: Mapping[str, Job]) -> dict[int, int]:
    """By `id()` of each of all root writers of one replica, how often the job was submitted again before it."""
    numbers: dict[int, int] = {}
    current: list[Writer] = []

    def follows(root: Writer) -> int:
        """How many jobs of the actor are over for its own."""
        return 0 if root.job is None else sum(other.over_for(jobs[root.job]) for other in jobs.values())

    def submitted(root: Writer) -> tuple[object, ...]:
        return (*((root.t, "") if root.job is None else jobs[root.job].start), root.t, root.id, root.attempt)

    ordered = sorted(roots, key=submitted)
    number = follows(ordered[0]) if ordered else 0
    for root in ordered:
        fell = any(root.attempt < other.attempt and other.t + 60 < root.t for other in current)
        if fell or (current and current[-1].job != root.job):
            number, current = max(number + 1, follows(root)), []
        current.append(root)
        numbers[id(root)] = number
    return numbers


def age(root: Writer, segment: Segment) -> tuple[int, int, float, str, int]:
    return (root.submission, root.attempt, root.t, root.id, segment.number)


def side_by_side(one: Writer, other: Writer) -> bool:
    """Whether two root writers claim one rank at the same time."""
    return one is not other and rank_order(one) == rank_order(other) and overlapping(one, other)


def overlapping(one: Writer, other: Writer) -> bool:
    """Whether one of two writers of a replica is no restart of the other, as both ran at the same time."""
    if one.submission == other.submission and one.attempt != other.attempt:
        return False
    older, newer = sorted((one, other), key=lambda writer: (writer.submission, writer.t, writer.id))
    return max(older.times) > newer.t + 60


@dataclass(frozen=True)
class Job:
    """The root writers of an actor that name one job."""

    name: str
    members: tuple[Writer, ...]

    @property
    def start(self) -> tuple[float, str]:
        return (min(member.t for member in self.members), self.name)

    def over_for(self, other: Job) -> bool:
        """Whether the other job is later, and this one did not go on beside it."""
        newest = max(t for member in self.members for t in member.times)
        return self.start < other.start and newest <= other.start[0] + 60


def jobs_of(crew: Sequence[Writer]) -> dict[str, Job]:
    """All jobs of an actor by name."""
    named = [root for root in crew if root.root is root and root.job is not None]
    return {name: Job(name, tuple(root for root in named if root.job == name)) for root in named if (name := root.job)}


def contributions_of(crew: Sequence[Writer], belongs: Callable[[Measured], bool]) -> list[Contribution]:
    """Every segment's contribution to every metric and table of the unit to which such lines belong, in merge order."""
    contributions = []
    pairs = [(writer, segment) for writer in crew for segment in writer.segments]
    for writer, segment in sorted(pairs, key=lambda pair: merge_order(*pair)):
        lines = [line for line in segment.measured if belongs(line)]
        for metric in sorted({metric for line in lines for metric in line.values}):
            having = tuple(line for line in lines if metric in line.values)
            contributions.append(Contribution(writer, segment, metric, having))
        for table in sorted({line.sample.table for line in lines if line.sample}):
            having = tuple(line for line in lines if line.sample and line.sample.table == table)
            contributions.append(Contribution(writer, segment, table, having, sampled=True))
    return contributions


def without_superseded(contributions: Sequence[Contribution], crew: Sequence[Writer]) -> list[Contribution]:
    jobs = jobs_of(crew)
    contributions = [
        one for one in contributions if not (is_retold(one, contributions) or is_copied(one, contributions))
    ]
    rivals: dict[tuple[str, bool], list[Contribution]] = {}
    for one in contributions:
        rivals.setdefault((one.metric, one.sampled), []).append(one)
    return [
        one
        for one in contributions
        if not any(supersedes(other, one, jobs) for other in rivals[one.metric, one.sampled])
    ]


def is_retold(one: Contribution, contributions: Sequence[Contribution]) -> bool:
    """Whether a file of transformers repeats what a file of its rank, which is no such file, has of W&B's calls."""
    return retells(one.writer) and any(
        other.metric == at_wandb(one.metric) and not other.sampled and not one.sampled
        for other in contributions
        if rank_order(other.root) == rank_order(one.root) and not retells(other.writer)
    )


def is_copied(one: Contribution, contributions: Sequence[Contribution]) -> bool:
    """Whether a file of TRL's completions repeats what its rank has as samples of an evaluation."""
    copy = "/" in one.writer.file and one.writer.made_by == "trl-completions"
    return (copy and one.sampled and one.metric == "completions") and any(
        other.sampled and other.metric == "eval_completions" and rank_order(other.root) == rank_order(one.root)
        for other in contributions
    )


def retells(writer: Writer) -> bool:
    return "/" in writer.file and writer.made_by in ("trainer_state", "ms-swift")


def at_wandb(metric: str) -> str:
    """What transformers calls a metric of its history where it gives it to W&B. Results it gives to the summary only:
    what it logs beside them is the epoch.
    """
    if metric in ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"):
        return "train/epoch"
    if metric.startswith(("eval_", "test_")):
        return metric[:4] + "/" + metric[5:]
    return "train/" + metric


def supersedes(new: Contribution, old: Contribution, jobs: Mapping[str, Job]) -> bool:
    """Of two contributions to one metric, or to one table."""
    rewritten = (
        rank_order(new.root) == rank_order(old.root)
        and age(new.root, new.segment) > age(old.root, old.segment)
        and not side_by_side(new.root, old.root)
    )
    return rewritten or has_no_rank_for(new.root, old.root, jobs)


def is_next_start(new: Writer, old: Writer) -> bool:
    """Whether a writer of the same replica is of a later attempt; or of a later submission, or of a smaller world and
    opened later, where the old one does not go on beside it.
    """
    if new.submission != old.submission:
        return new.submission > old.submission and not overlapping(new, old)
    if new.attempt != old.attempt:
        return new.attempt > old.attempt
    smaller = new.world is not None and old.world is not None and new.world < old.world
    return smaller and (new.t, new.id) > (old.t, old.id) and not overlapping(new, old)


def has_no_rank_for(new: Writer, old: Writer, jobs: Mapping[str, Job]) -> bool:
    """Whether the new one is newer and its world is too small for the old one's rank, or the old one's job is over."""
    outgrown = (
        new.replica == old.replica and new.world is not None and new.world <= old.rank and is_next_start(new, old)
    )
    both_named = new.job is not None and old.job is not None
    return outgrown or (both_named and jobs[old.job or ""].over_for(jobs[new.job or ""]))


def succeeds(new: Writer, old: Writer, jobs: Mapping[str, Job]) -> bool:
    """Whether stream lines that the new root writer logs count instead of the old one's from its open on: as with
    steps, but for a later attempt of one submission, before which a launcher has ended the earlier one.
    """
    if new.replica == old.replica and new.submission == old.submission and new.attempt != old.attempt:
        return new.job is not None and old.job is not None and jobs[old.job].over_for(jobs[new.job])
    later_life = (
        rank_order(new) == rank_order(old)
        and (new.submission, new.attempt, new.t, new.id) > (old.submission, old.attempt, old.t, old.id)
        and not side_by_side(new, old)
    )
    return later_life or has_no_rank_for(new, old, jobs)


# --- lines with whose they are ---


def lines_of(crew: Sequence[Writer]) -> list[tuple[Writer, Segment, Measured]]:
    return [(writer, segment, line) for writer in crew for segment in writer.segments for line in segment.measured]


def making_up(counting: Sequence[Contribution]) -> list[tuple[Writer, Segment, Measured]]:
    """The lines that make up a unit, with whose they are."""
    return [(c.writer, c.segment, line) for c in counting for line in c.lines]
