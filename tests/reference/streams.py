"""Units of lines without a step: the last sections of docs/semantics.md on rows, read literally."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from rlship_sidecar.rows import Coverage, Unit
from tests.reference.asking import Keys, asked_for
from tests.reference.coverage import attempts_of, lives_of, neighbours, ranks_in
from tests.reference.experiment import Experiment
from tests.reference.figures import Figures, histogram, no_rate, rate_over
from tests.reference.order import (
    Contribution,
    age,
    contributions_of,
    jobs_of,
    lines_of,
    making_up,
    rank_order,
    succeeds,
)
from tests.reference.records import Measured, Segment, Writer
from tests.reference.returns import return_figures
from tests.reference.rows import ReferenceRow
from tests.reference.samples import TAGS
from tests.reference.unit import POLICY, Reduced, exact_of, finished, policy_lag, reduced


@dataclass(frozen=True)
class Stretch:
    """A stretch of the file server's time: a step of the lead, from its start (not included) to its end (included), or
    one clock unit, from its start (included) to its end (not included).
    """

    index: int
    start: float
    end: float


# --- which units there are ---


@dataclass(frozen=True)
class Ended:
    """A step of the lead: when it ended, by which segment of which file, and when it began at the earliest."""

    end: float
    step: int
    begin: float
    segment: tuple[str, int]


def timeline_of(experiment: Experiment) -> list[Stretch]:
    """The lead's steps in the order in which they end."""
    roots = [writer for writer in experiment.crew(experiment.settings.lead) if writer.root is writer]
    steps = {at for root in roots for segment in root.segments for at, _ in segment.barriers}
    ended = sorted((last_of(experiment, roots, step) for step in steps), key=lambda one: (one.end, one.step))
    timeline: list[Stretch] = []
    for i, one in enumerate(ended):
        start = one.begin
        if i:
            before = ended[i - 1]
            goes_on = before.step == one.step - 1 and before.segment == one.segment
            start = before.end if goes_on else max(before.end, one.begin)
        timeline.append(Stretch(one.step, start, one.end))
    return timeline


def last_of(experiment: Experiment, roots: Sequence[Writer], step: int) -> Ended:
    """How the step ended: by the lowest rank that has its barrier."""
    having = [
        (root, segment) for root in roots for segment in root.segments if any(at == step for at, _ in segment.barriers)
    ]
    jobs = jobs_of(roots)
    latest = max((jobs[root.job].start for root, _ in having if root.job), default=None)
    having = [one for one in having if latest is None or (one[0].job and jobs[one[0].job].start == latest)]
    lowest = min(rank_order(root) for root, _ in having)
    root, segment = max((one for one in having if rank_order(one[0]) == lowest), key=lambda one: age(*one))
    place = [at for at, _ in segment.barriers].index(step)
    end = segment.barriers[place][1]
    begin = segment.barriers[place - 1][1] if place else segment.t
    server_time = experiment.clocks.server_time
    return Ended(server_time(root, end), step, server_time(root, begin), (root.file, segment.number))


def stream_rows(experiment: Experiment, crew: Sequence[Writer]) -> list[ReferenceRow]:
    """All aligned, clock and point units of one actor."""
    lines = [line for _, _, line in lines_of(crew) if line.step is None]
    timeline = timeline_of(experiment)
    window = experiment.settings.window
    steps = [step for step in timeline if any(covers(step, line.time) for line in lines)]
    windows = sorted({math.floor(line.time / window) for line in lines})
    return [
        *(aligned_row(experiment, crew, step) for step in steps),
        *(clock_row(experiment, crew, timeline, Stretch(i, i * window, (i + 1) * window)) for i in windows),
        *(point_row(experiment, *point) for point in points_of(experiment, crew)),
    ]


def covers(step: Stretch, time: float) -> bool:
    return step.start < time <= step.end


# --- aligned and clock units ---


def aligned_row(experiment: Experiment, crew: Sequence[Writer], step: Stretch) -> ReferenceRow:
    """What an actor's streams held during one step of the lead."""
    actor = crew[0].actor
    stepped = {metric for _, _, line in lines_of(crew) if line.step is not None for metric in line.values}
    axis = experiment.lead_axis()
    assert axis is not None
    return stretch_row(
        experiment,
        crew,
        step,
        Keys(actor, suffixed=frozenset(stepped)),
        unit=Unit(actor, "aligned", step.index),
        x={axis: step.index},
        within=lambda time: covers(step, time),
        seconds=step.end - step.start,
        now=step.index,
    )


def clock_row(
    experiment: Experiment, crew: Sequence[Writer], timeline: Sequence[Stretch], stretch: Stretch
) -> ReferenceRow:
    """What an actor's streams held during one window of the clock."""
    actor, window = crew[0].actor, experiment.settings.window
    now = [step.index for step in timeline if covers(step, stretch.end)]
    now = now or [step.index for step in timeline if step.end <= stretch.end][-1:]
    return stretch_row(
        experiment,
        crew,
        stretch,
        Keys(actor, prefix="clock/"),
        unit=Unit(actor, "clock", stretch.index),
        x={"clock/elapsed_s": max(0.0, stretch.start - first_open(experiment))},
        within=lambda time: math.floor(time / window) == stretch.index,
        seconds=covered_seconds(experiment, crew, stretch),
        now=now[0] if now else None,
    )


def covered_seconds(experiment: Experiment, crew: Sequence[Writer], stretch: Stretch) -> float:
    """How long the streams ran in a window; the window where that is not known, and 0 for less than half of it."""
    window, lives = experiment.settings.window, []
    for writer in crew:
        if has_streamed(experiment, writer, stretch):
            begin = experiment.clocks.server_time(writer, writer.t)
            end = experiment.clocks.server_time(writer, max(writer.times) if writer.closed is None else writer.closed)
            end = min(end, succeeded_at(experiment, crew, root_of(writer)))
            if begin <= stretch.end and end >= stretch.start:
                lives.append((begin, end))
    begin, end = min((life[0] for life in lives), default=0.0), max((life[1] for life in lives), default=0.0)
    if begin > end or not lives or (begin <= stretch.start and end >= stretch.end):
        return window
    covered = min(end, stretch.end) - max(begin, stretch.start)
    return covered if covered >= window / 2 else 0.0


def has_streamed(experiment: Experiment, writer: Writer, stretch: Stretch) -> bool:
    """Whether a file has a stream line by the end of the stretch, by the least `t` of them."""
    t = first_streamed(experiment, writer)
    return t < math.inf and experiment.clocks.server_time(writer, t) <= stretch.end


def first_streamed(experiment: Experiment, writer: Writer) -> float:
    """The least `t` of a file's stream lines, infinite without any."""
    if id(writer) not in experiment.streamed:
        times = (line.t for _, _, line in lines_of([writer]) if line.step is None)
        experiment.streamed[id(writer)] = min(times, default=math.inf)
    return experiment.streamed[id(writer)]


def stretch_row(
    experiment: Experiment,
    crew: Sequence[Writer],
    stretch: Stretch,
    keys: Keys,
    *,
    unit: Unit,
    x: dict[str, int | float],
    within: Callable[[float], bool],
    seconds: float,
    now: int | None,
) -> ReferenceRow:
    """The row of one stretch of time. Nothing is superseded, as times say which is newer; but lines of a writer that
    goes on although another one succeeded it do not count.
    """
    over = {
        id(line) for writer, _, line in lines_of(crew) if line.time > succeeded_at(experiment, crew, root_of(writer))
    }

    def belongs(line: Measured) -> bool:
        return line.step is None and within(line.time)

    counting = contributions_of(crew, lambda line: belongs(line) and id(line) not in over)
    present = making_up(counting) or [one for one in lines_of(crew) if belongs(one[2])]
    giving = {id(root_of(writer)) for writer, _, line in lines_of(crew) if belongs(line) and id(line) not in over}
    rate = rate_over(seconds)
    result = reduced(experiment, counting, keys, rate, alone=is_alone(experiment, crew, stretch, giving))
    lag = policy_lag(experiment, counting, rate, now)
    if lag is not None:
        result.add(keys.of("policy_lag", like=POLICY), lag)
    if not keys.suffixed:
        first = [
            one
            for one in lines_of(crew)
            if belongs(one[2]) and id(one[2]) not in over and one[2].t == first_streamed(experiment, one[0])
        ]
        for name, figure in return_figures(crew, counting, first).items():
            result.add(keys.of(name), figure)
    expected, missing = waited_for(experiment, crew, stretch, giving)
    lost = [n for writer in crew for n, t in writer.lost if within(experiment.clocks.server_time(writer, t))]
    cover = Coverage(
        ranks=neighbours(ranks_in(counting)),
        expected=len(expected),
        missing=neighbours([rank for rank in missing if rank not in ranks_in(counting)]),
        attempts=attempts_of(counting),
        lives=lives_of(counting),
        gap=sum(lost),
        underivable=tuple(sorted(result.underivable)),
    )
    return finished(experiment, result, counting, unit=unit, t=max(line.t for _, _, line in present), x=x, cover=cover)


def root_of(writer: Writer) -> Writer:
    assert writer.root is not None
    return writer.root


def succeeded_at(experiment: Experiment, crew: Sequence[Writer], root: Writer) -> float:
    """When the first of the writers opened that succeed a root writer in the streams of its actor."""
    if id(root) not in experiment.succeeded:
        streaming = {
            id(root_of(writer)): root_of(writer) for writer in crew if first_streamed(experiment, writer) < math.inf
        }
        jobs = jobs_of(crew)
        begins = [
            experiment.clocks.server_time(other, other.t) for other in streaming.values() if succeeds(other, root, jobs)
        ]
        experiment.succeeded[id(root)] = min(begins, default=math.inf)
    return experiment.succeeded[id(root)]


def has_left(
    experiment: Experiment, crew: Sequence[Writer], root: Writer, stretch: Stretch, giving: Collection[int]
) -> bool:
    """Whether another writer succeeded it by the end of the stretch, in which no line of its family counts."""
    return succeeded_at(experiment, crew, root) <= stretch.end and id(root) not in giving


def waited_for(
    experiment: Experiment, crew: Sequence[Writer], stretch: Stretch, giving: Collection[int]
) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """The ranks that are expected in a stretch of time, and those of them that are missing, in merge order."""
    roots = sorted((writer for writer in crew if writer.root is writer), key=rank_order)
    writers = [
        root
        for root in roots
        if is_expected(experiment, root, stretch) and not has_left(experiment, crew, root, stretch, giving)
    ]
    expected, missing = [], []
    for order in sorted({rank_order(writer) for writer in writers}):
        own = [writer for writer in writers if rank_order(writer) == order]
        expected.append((own[0].replica, own[0].rank))
        of_rank = [root for root in roots if rank_order(root) == order]
        if not any(newest(experiment, root) > stretch.end for root in of_rank) and not all(
            writer.closed is not None or succeeded_at(experiment, crew, writer) <= stretch.end for writer in own
        ):
            missing.append((own[0].replica, own[0].rank))
    return expected, missing


def is_expected(experiment: Experiment, root: Writer, stretch: Stretch) -> bool:
    """Whether it has streamed by the end of the stretch, and had not closed when it began."""
    if root.closed is not None and experiment.clocks.server_time(root, root.closed) < stretch.start:
        return False
    return has_streamed(experiment, root, stretch)


def is_alone(experiment: Experiment, crew: Sequence[Writer], stretch: Stretch, giving: Collection[int]) -> bool:
    """Whether those that have streamed by the end of the stretch, children too, are of one rank in a world of one."""
    streamed = [
        root_of(writer)
        for writer in crew
        if has_streamed(experiment, writer, stretch)
        and not has_left(experiment, crew, root_of(writer), stretch, giving)
    ]
    return len({rank_order(root) for root in streamed}) <= 1 and all(root.world in (None, 1) for root in streamed)


def newest(experiment: Experiment, root: Writer) -> float:
    """When it wrote the line with the greatest t."""
    return experiment.clocks.server_time(root, max(root.times))


def first_open(experiment: Experiment) -> float:
    """The least t of an `open`, of those that have one."""
    return min((writer.t for writer in experiment.writers if writer.t > 0), default=0.0)


# --- units without lines ---


def empty_row(experiment: Experiment, unit: Unit) -> ReferenceRow:
    """What an aligned or clock unit has that had lines and lost them all."""
    index, window = unit.index, experiment.settings.window
    if unit.kind == "clock":
        end, x = (index + 1) * window, {"clock/elapsed_s": max(0.0, index * window - first_open(experiment))}
    else:
        ends = [step.end for step in timeline_of(experiment) if step.index == index]
        end, x = ends[0] if ends else first_open(experiment), {experiment.lead_axis() or "global_step": index}
    return ReferenceRow(unit, max(0.0, end), x, values={}, coverage=Coverage(ranks=(), expected=0))


# --- points ---


def points_of(experiment: Experiment, crew: Sequence[Writer]) -> Iterable[tuple[Writer, Segment, Measured]]:
    """The stream lines that are units of their own: per file so many a second, and fewer in large worlds."""
    for writer in crew:
        before = -math.inf
        for _, segment, line in lines_of([writer]):
            late = line.t - before
            if (
                (line.step is None or line.adopted)
                and streaming(line)
                and (late >= max(1, (writer.world or 1) / 16) or late < -60)
            ):
                before = line.t
                yield writer, segment, line


def streaming(line: Measured) -> list[str]:
    """The metrics of the line that are declared to be shown one by one."""
    return [metric for metric in line.values if metric in line.defined and line.defined[metric].stream]


def point_row(experiment: Experiment, writer: Writer, segment: Segment, line: Measured) -> ReferenceRow:
    """One line, with the first reductions of what is declared."""
    keys = Keys(writer.actor, prefix="point/")
    making = Figures(experiment.settings, no_rate, experiment.crew)
    result = Reduced()
    shown = [Contribution(writer, segment, metric, (line,)) for metric in streaming(line)]
    for contribution in shown:
        if contribution.metric == TAGS:
            continue
        key = keys.of(contribution.metric)
        first = asked_for([contribution], experiment.overrides, experiment.settings)[0]
        try:
            hist = histogram([contribution]) if first == "hist" else None
            figure = making.of([contribution], first) if first != "hist" else None
        except ArithmeticError:
            result.underivable.add(key)
            continue
        if hist is not None:
            result.hists[key] = hist
        if figure is not None:
            result.values[key] = figure
            result.sketched |= exact_of({key: [contribution]}, first)
    return ReferenceRow(
        unit=Unit(writer.actor, "point", line.place, writer.id),
        t=line.t,
        x={"clock/elapsed_s": max(0.0, line.t - first_open(experiment))},
        values=result.values,
        coverage=Coverage(
            ranks=neighbours(ranks_in(shown)),
            expected=1,
            attempts=(writer.attempt,),
            underivable=tuple(sorted(result.underivable)),
        ),
        hists=result.hists,
        sketched=result.sketched,
    )
