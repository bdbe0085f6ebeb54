"""The final rows of an experiment, slowly: docs/semantics.md from "Partials" on, read literally.

Nothing here is shared with the pipeline but the result type. Worth knowing while reading the results: only lines that
yield something ask for reductions; dead lines and lines of unknown kind leave no trace, not even their `t`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import TypeVar

from rlship_sidecar.rows import Coverage, Row, Unit
from tests.reference.lines import Measured, Partial, Segment, Writer, read_file

Item = TypeVar("Item")
NO_OVERRIDES: Mapping[str, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True)
class Contribution:
    """What one segment gives to one metric at one step: `lines` are the records that have the metric, in file order."""

    writer: Writer
    root: Writer
    segment: Segment
    metric: str
    lines: tuple[Measured, ...]


def final_rows(files: Mapping[str, bytes], reductions: Mapping[str, Sequence[str]] = NO_OVERRIDES) -> dict[Unit, Row]:
    """The row of every step unit. `reductions`: the configuration's, by `<actor>/<metric>`, failing that `<metric>`."""
    writers = [writer for writer in (read_file(name, files[name]).writer for name in sorted(files)) if writer]
    rows = {}
    for actor in sorted({writer.actor for writer in writers}):
        crew = [writer for writer in writers if writer.actor == actor]
        for step in sorted({line.step for writer in crew for line in lines_of(writer)}):
            row = row_of(crew, step, reductions)
            rows[row.unit] = row
    return rows


def dead_letters(files: Mapping[str, bytes]) -> list[tuple[str, int, str, str | None]]:
    """(file, byte where its line begins, reason, metric or None for a whole line), by file and offset."""
    return [(name, *dead) for name in sorted(files) for dead in read_file(name, files[name]).dead]


def exactly(rows: Mapping[Unit, Row]) -> dict[str, str]:
    """The rows as text in which every bit of a float shows, so that 0.0 and -0.0 differ; for comparing with `==`."""
    return {
        f"{unit.actor}/{unit.kind}/{unit.index}": f"t={float(row.t).hex()} x={row.x} "
        + " ".join(f"{key}={float(figure).hex()}" for key, figure in sorted(row.figures.items()))
        + f" {row.coverage}"
        for unit, row in sorted(rows.items())
    }


def lines_of(writer: Writer) -> list[Measured]:
    return [line for segment in writer.segments for line in segment.measured]


# --- partials ---


def merge(a: Partial, b: Partial) -> Partial:
    """a, then b."""
    if b.n == 0:
        return replace(a, nonfinite=a.nonfinite + b.nonfinite)
    if a.n == 0:
        return replace(b, nonfinite=a.nonfinite + b.nonfinite)
    return Partial(
        n=a.n + b.n,
        w=a.w + b.w,
        sum=None if a.sum is None or b.sum is None else a.sum + b.sum,
        m2=merged_m2(a, b),
        min=None if a.min is None or b.min is None else b.min if b.min < a.min else a.min,
        max=None if a.max is None or b.max is None else b.max if b.max > a.max else a.max,
        first=a.first,
        last=b.last,
        nonfinite=a.nonfinite + b.nonfinite,
    )


def merged_m2(a: Partial, b: Partial) -> float | None:
    if a.m2 is None or b.m2 is None or a.sum is None or b.sum is None:
        return None
    if a.w == 0 or b.w == 0:
        return a.m2 + b.m2
    d = b.sum / b.w - a.sum / a.w
    return a.m2 + b.m2 + d * d * (a.w * b.w / (a.w + b.w))


def segment_partial(contribution: Contribution) -> Partial:
    return reduce(merge, (partial for line in contribution.lines for partial in line.values[contribution.metric]))


def figure_of(contributions: Sequence[Contribution], reduction: str) -> float | None:
    """One figure of one metric; None where there is none to give.

    ArithmeticError if there should be one but an unknown field or an overflow keeps it from being derived.
    """
    partials = [segment_partial(contribution) for contribution in contributions]
    whole = reduce(merge, partials)
    if reduction == "count":
        return float(whole.n)
    if whole.n == 0:
        return None
    if reduction in ("first", "last"):
        lowest = min(rank_order(c.root) for c, partial in zip(contributions, partials) if partial.n > 0)
        of_rank = reduce(merge, (p for c, p in zip(contributions, partials) if rank_order(c.root) == lowest))
        figure = of_rank.first if reduction == "first" else of_rank.last
    elif reduction == "min":
        figure = whole.min
    elif reduction == "max":
        figure = whole.max
    elif reduction == "sum":
        figure = whole.sum
    elif whole.w == 0:
        return None
    elif reduction == "mean":
        figure = None if whole.sum is None else whole.sum / whole.w
    else:
        figure = None if whole.m2 is None else math.sqrt(whole.m2 / whole.w)
    if figure is None or not math.isfinite(figure):
        raise ArithmeticError(f"{reduction} cannot be derived")
    return figure


# --- orders, families and ages ---


def replica_order(replica: str) -> tuple[int, int, str, str]:
    if replica and all(digit in "0123456789" for digit in replica):
        number = replica.lstrip("0")
        return (0, len(number), number, replica)
    return (1, 0, "", replica)


def rank_order(writer: Writer) -> tuple[tuple[int, int, str, str], int]:
    return (replica_order(writer.replica), writer.rank)


def merge_order(writer: Writer, segment: Segment) -> tuple[object, ...]:
    return (*rank_order(writer), writer.attempt, writer.t, writer.id, segment.number, writer.file)


def root_of(writer: Writer, crew: Sequence[Writer]) -> Writer:
    """The writer's root ancestor; itself, if the chain of its parents never ends."""
    ancestor, passed = writer, [writer]
    while parent := parent_of(ancestor, crew):
        if parent in passed:
            return writer
        ancestor = parent
        passed.append(parent)
    return ancestor


def parent_of(writer: Writer, crew: Sequence[Writer]) -> Writer | None:
    named = [other for other in crew if other is not writer and other.id == writer.parent]
    return named[0] if named else None


def age(root: Writer, segment: Segment) -> tuple[int, float, str, int]:
    return (root.attempt, root.t, root.id, segment.number)


def side_by_side(one: Writer, other: Writer) -> bool:
    """Whether two root writers claim one rank at the same time."""
    if one is other or rank_order(one) != rank_order(other) or one.attempt != other.attempt:
        return False
    older, newer = sorted((one, other), key=lambda writer: (writer.t, writer.id))
    return older.newest_t > newer.t + 60


# --- one unit ---


def row_of(crew: Sequence[Writer], step: int, reductions: Mapping[str, Sequence[str]]) -> Row:
    counting = without_superseded(contributions_at(crew, step))
    figures, underivable = figures_of(counting, reductions)
    present = [
        (writer, segment, line)
        for writer in crew
        for segment in writer.segments
        for line in segment.measured
        if line.step == step
    ]
    if counting:
        present = [(c.writer, c.segment, line) for c in counting for line in c.lines]
    actor = crew[0].actor
    leading = min(present, key=lambda p: merge_order(p[0], p[1]))[0]
    return Row(
        unit=Unit(actor, "step", step),
        t=max(line.t for _, _, line in present),
        x={leading.axis: step},
        figures=figures,
        coverage=coverage_of(crew, step, counting, underivable),
    )


def contributions_at(crew: Sequence[Writer], step: int) -> list[Contribution]:
    """Every segment's contribution to every metric that it has at the step, in merge order."""
    contributions = []
    pairs = [(writer, segment) for writer in crew for segment in writer.segments]
    for writer, segment in sorted(pairs, key=lambda pair: merge_order(*pair)):
        lines = [line for line in segment.measured if line.step == step]
        for metric in sorted({metric for line in lines for metric in line.values}):
            having = tuple(line for line in lines if metric in line.values)
            contributions.append(Contribution(writer, root_of(writer, crew), segment, metric, having))
    return contributions


def without_superseded(contributions: Sequence[Contribution]) -> list[Contribution]:
    return [one for one in contributions if not any(supersedes(other, one) for other in contributions)]


def supersedes(new: Contribution, old: Contribution) -> bool:
    return (
        new.metric == old.metric
        and rank_order(new.root) == rank_order(old.root)
        and age(new.root, new.segment) > age(old.root, old.segment)
        and not side_by_side(new.root, old.root)
    )


def figures_of(
    counting: Sequence[Contribution], overrides: Mapping[str, Sequence[str]]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """The figures, and the keys of those that cannot be derived."""
    by_metric: dict[str, list[Contribution]] = {}
    for contribution in counting:
        by_metric.setdefault(contribution.metric, []).append(contribution)

    figures: dict[str, float] = {}
    underivable = set()
    for key, (metric, reduction) in owners(by_metric, overrides).items():
        if reduction == "nonfinite":
            figures[key] = float(nonfinite(by_metric[metric]))
            continue
        try:
            figure = figure_of(by_metric[metric], reduction)
        except ArithmeticError:
            underivable.add(key)
        else:
            if figure is not None:
                figures[key] = figure
    return figures, tuple(sorted(underivable))


def owners(
    by_metric: Mapping[str, Sequence[Contribution]], overrides: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, str]]:
    """Which metric's which reduction each key stands for: first reductions before all others, then by name."""
    firsts: dict[str, tuple[str, str]] = {}
    others: dict[str, tuple[str, str]] = {}
    for metric in sorted(by_metric):
        actor = by_metric[metric][0].writer.actor
        first, *more = asked_for(actor, metric, by_metric[metric], overrides)
        firsts[f"{actor}/{metric}"] = (metric, first)
        for reduction in more:
            others.setdefault(f"{actor}/{metric}/{reduction}", (metric, reduction))
        if nonfinite(by_metric[metric]) > 0:
            others.setdefault(f"{actor}/{metric}/nonfinite", (metric, "nonfinite"))
    return {**others, **firsts}


def asked_for(
    actor: str, metric: str, contributions: Sequence[Contribution], overrides: Mapping[str, Sequence[str]]
) -> list[str]:
    for name in (f"{actor}/{metric}", metric):
        if name in overrides:
            return without_repeats(overrides[name])
    return without_repeats(
        reduction for contribution in contributions for line in contribution.lines for reduction in line.asked[metric]
    )


def without_repeats(names: Iterable[Item]) -> list[Item]:
    return list(dict.fromkeys(names))


def nonfinite(contributions: Sequence[Contribution]) -> int:
    return reduce(merge, map(segment_partial, contributions)).nonfinite


# --- coverage ---


def coverage_of(
    crew: Sequence[Writer], step: int, counting: Sequence[Contribution], underivable: tuple[str, ...]
) -> Coverage:
    roots = [writer for writer in crew if root_of(writer, crew) is writer]
    expected, missing, absent = 0, [], []
    for replica in sorted({root.replica for root in roots}, key=replica_order):
        candidates = [
            (root, segment)
            for root in roots
            if root.replica == replica
            for segment in root.segments
            if begins_by(segment, step)
        ]
        if not candidates:
            continue
        world = max(candidates, key=lambda candidate: age(*candidate))[0].world
        ranks = {root.rank for root, _ in candidates}
        for rank in sorted(ranks):
            if world is None or rank < world:
                expected += 1
                if not is_covered([c for c in candidates if c[0].rank == rank], step):
                    missing.append((replica, rank))
        if world is not None:
            absent += [(replica, rank) for rank in range(world) if rank not in ranks]
    return Coverage(
        ranks=neighbours(
            without_repeats((c.root.replica, c.root.rank) for c in sorted(counting, key=lambda c: rank_order(c.root)))
        ),
        expected=expected,
        missing=neighbours(missing),
        absent=neighbours(absent),
        attempts=tuple(sorted({c.writer.attempt for c in counting})),
        gap=sum(n for writer in crew for n, first, last in writer.gaps if first <= step <= last),
        underivable=underivable,
    )


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
    return all(root.closed for root in expected)


def barrier_of(root: Writer, segment: Segment) -> int:
    """The highest step that the segment is done with; -1 for none."""
    explicit = any(other.barriers for other in root.segments)
    steps = segment.barriers if explicit else [line.step for line in segment.measured]
    return max([*steps, -1 if segment.rolled_back_to is None else segment.rolled_back_to - 1])
