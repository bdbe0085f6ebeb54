"""Collects the facts about a running experiment into a `Status`. Read-only."""

from __future__ import annotations

import heapq
import os
import socket
from collections.abc import Collection, Iterable, Mapping

import orjson

from rlship._version import __version__
from rlship_formats.reading import WRONG_USE
from rlship_sidecar.alerts.episodes import CRITICAL, FIRING
from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import Writer, rank_names
from rlship_sidecar.pids import has_ended
from rlship_sidecar.pipeline.alert_book import AlertBook
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.pipeline.source import NOT_THERE, Source, is_document
from rlship_sidecar.reduce.logged import decode_logged
from rlship_sidecar.reduce.rank_sets import decode_ranks
from rlship_sidecar.report.claims import shared_ranks
from rlship_sidecar.report.run import run_status
from rlship_sidecar.report.silence import Present
from rlship_sidecar.report.status import (
    MAX_WRITERS,
    ActorStatus,
    AlertStatus,
    ClockStatus,
    DeadLetterStatus,
    ShortSpan,
    ShortStatus,
    SinkStatus,
    Status,
    WriterStatus,
)
from rlship_sidecar.report.streams import lacking_status, nonfinite_statuses, stream_notes, stream_statuses
from rlship_sidecar.report.terminal import REPORTED_TO_JOB, counted
from rlship_sidecar.report.trends import Trends
from rlship_sidecar.report.waits import waits
from rlship_sidecar.rows import STEP, RankName, Row, Unit, count_ranks, each_rank
from rlship_sidecar.steps import Steps
from rlship_sidecar.store.logged_steps import LoggedSteps
from rlship_sidecar.store.made_with import MadeWith
from rlship_sidecar.store.store import Store
from rlship_sidecar.tail.listing import WRITERS_FOLDER, is_foreign
from rlship_sidecar.tally import observes

MAX_LISTED = 200
GONE_AFTER_S = 5.0  # of silence a process is looked for
MAX_SHORT = 20  # newest rows from which the ranks that are short of a metric are named
MAX_ACTORS = 1000


def _alerts(book: AlertBook) -> list[AlertStatus]:
    """The episodes that go on: those that fire, the critical ones first, then the newest."""
    order = sorted(book.going_on(), key=lambda one: (one.state != FIRING, one.severity != CRITICAL, -one.fired.t))
    found = []
    for one in order[:MAX_LISTED]:
        rule = book.rule(one.rule)
        found.append(
            AlertStatus(
                *(one.id, one.rule, one.severity, one.state, one.place),
                *(one.first.step, one.fired.step, one.fired.t, one.last.step, dict(one.evidence)),
                *(rule.about, rule.look),
            )
        )
    return found


def survey(
    experiment: Experiment,
    sinks: Iterable[SinkStatus],
    *,
    now: float,
    wall: float,
    trends: Trends | None = None,
    last: bool = False,
) -> Status:
    """The status at `now` (monotonic seconds, the experiment's clock) and `wall` (Unix seconds). In the `last` one
    every process is looked for, however lately it wrote: no later status can say that it is gone.
    """
    store = experiment.store
    trends = trends or Trends()
    clocks = experiment.streaming.clocks
    present = Present(now, clocks.corrected(socket.gethostname(), wall), clocks)
    latest = heapq.nlargest(MAX_ACTORS, experiment.actors.values(), key=lambda actor: actor.metrics_at)
    living = {actor.name: _living(actor) for actor in latest}
    behind = {name: step for name, found in living.items() if (step := _behind(experiment.actors[name], found)) >= 0}
    awaited = {writer.file for writer in experiment.awaited()}
    writers = [
        _writer(source, present.silent_s(source), awaited=source.name in awaited)
        for source in _first(experiment.sources.values())
    ]
    for one in writers:
        looked_for = one.awaited and (last or one.silent_s >= GONE_AFTER_S)
        one.gone = looked_for and _is_gone(experiment, experiment.sources[one.file])
    gone = {one.file for one in writers if one.gone}
    actors = [
        _actor(actor, _newest(store, actor, behind), living[actor.name], now, gone)
        for actor in sorted(latest, key=lambda actor: actor.name)
    ]
    for actor in actors:
        roster = experiment.actors[actor.actor].roster
        # Where every process has ended no step is late: the rate stays that of the rows.
        at = None
        if not all(writer.done for writer in roster.writers.values()):
            at = present.by_clock_of(experiment.sources[file] for file in roster.writers)
        actor.steps_per_s = trends.steps_per_s(actor.actor, at, behind)
    streams = stream_statuses(experiment, present, experiment.patience.grace_s)
    lost = {stream.actor: stream.missing for stream in streams}
    for actor in actors:
        if actor.step is None:  # for an actor without steps, rows over time can lack ranks
            actor.missing = lost.get(actor.actor, [])
    dead, shipping = store.dead_counts(), list(sinks)
    dead_letters = sum(count for _, _, is_value, count, _, _ in dead if not is_value)
    dead_values = sum(count for _, _, is_value, count, _, _ in dead if is_value)
    claims, restarts = shared_ranks(experiment)
    book, made = experiment.run_book, experiment.streaming.config.steps or Steps()
    lacking = [lacking_status(found, experiment.streaming) for found in store.lacking()]
    return Status(
        experiment=os.fsencode(experiment.directory).decode("utf-8", "replace"),
        t=wall,
        store_id=store.store_id,
        filesystem=experiment.filesystem.type + ("" if experiment.filesystem.local else " (polled)"),
        rows=store.row_count(),
        complete=not (
            lacking
            or dead_letters
            or dead_values
            or claims
            or WRITERS_FOLDER in experiment.intake.oddities
            or experiment.intake.torn
            or unread_files(experiment)
        ),
        actors=actors,
        writers=writers,
        sinks=shipping,
        dead_letters=[
            DeadLetterStatus(file, reason, count, offset, excerpt)
            for file, reason, _, count, offset, excerpt in dead[:MAX_LISTED]
        ],
        dead_letter_count=dead_letters,
        dead_value_count=dead_values,
        lacking=lacking,
        counts=store.counts(),
        lead=experiment.streaming.config.lead,
        streams=streams,
        clocks=[
            ClockStatus(host, record.offset, record.err, max(0.0, wall - record.t + record.offset))
            for host, record in clocks.newest().items()
        ],
        notes=_notes(experiment) + restarts + [f"sink {sink.name}: {sink.note}" for sink in shipping if sink.note],
        claims=claims,
        row_function=MadeWith(store).row_function(),
        finished=bool(experiment.sources) and experiment.finished(),
        short=[found for actor in actors if (found := _short(store, actor.actor, made)) is not None],
        began=experiment.streaming.origin,
        newest_t=max((s.writer.newest_t for s in experiment.sources.values() if s.writer is not None), default=0.0),
        trends=trends.trends(behind),
        misuse=store.reported(),
        version=__version__,
        misuse_t=experiment.reported_at,
        run=run_status(book.data, book.changes, writers, experiment.streaming.config.lead),
        nonfinite=nonfinite_statuses(store, experiment.streaming)[:MAX_LISTED],
        alerts=_alerts(experiment.alert_book),
        episodes=experiment.alert_book.count,
    )


def _first(sources: Collection[Source]) -> Iterable[Source]:
    """The files that a status lists: first those of active writers, last those without a writer."""
    if len(sources) <= MAX_WRITERS:
        return sources

    def place(source: Source) -> int:
        writer = source.writer
        return 2 if writer is None else int(writer.closed and source.size <= source.read)

    return heapq.nsmallest(MAX_WRITERS, sources, key=place)


def _living(actor: Actor) -> list[Writer]:
    """The writers of an actor without former lives of the job, such as an earlier submission."""
    past = actor.roster.past_lives()
    return [writer for writer in actor.roster.writers.values() if writer.root not in past]


def _behind(actor: Actor, living: list[Writer]) -> int:
    """The step that an actor is at, if it does steps again behind which there are rows; else -1."""
    reach = max((max(writer.segments[-1].barrier, writer.segments[-1].last) for writer in living), default=-1)
    return reach if reach < actor.highest_closed and actor.rows.lacks_ranks(reach) is not None else -1


def _newest(store: Store, actor: Actor, behind: Mapping[str, int]) -> Row | None:
    step = behind.get(actor.name, actor.highest_closed)
    return store.newest(Unit(actor.name, STEP, step)) if step >= 0 else None


def _actor(actor: Actor, newest: Row | None, living: list[Writer], now: float, gone: Collection[str]) -> ActorStatus:
    seen = {writer.rank for writer in living}
    worlds = [writer.open.world for writer in living if writer.root is writer]
    oldest = min(actor.open.values(), key=lambda unit: unit.line_at, default=None)
    coverage = newest.coverage if newest is not None else None
    whom, note = waits(actor, now, gone)
    if coverage is not None:
        expected = coverage.expected + count_ranks(coverage.absent)
    else:
        expected = max(max((world or 0 for world in worlds), default=0), len(seen))
    return ActorStatus(
        actor=actor.name,
        ranks_seen=len(seen),
        ranks_expected=max(expected, len(seen)),
        step=newest.unit.index if newest is not None else None,
        open_step=max(actor.open, default=None),
        open_units=len(actor.open),
        lag_s=max(0.0, now - oldest.line_at) if oldest is not None else 0.0,
        missing=list(coverage.missing) if coverage is not None else [],
        absent=list(coverage.absent) if coverage is not None else [],
        note=note,
        waiting=whom,
    )


def _short(store: Store, actor: str, made: Steps) -> ShortStatus | None:
    """The rows of an actor that are short of ranks. Rows are `made` of these steps alone. Where many rows differ, the
    newest together say which ranks.
    """
    steps = LoggedSteps(store, actor)
    rows, first, last = steps.count_short(made)
    if not rows:
        return None
    spellings: dict[str, set[tuple[str, ...]]] = {}
    newest = steps.newest_short(made, MAX_SHORT)
    found = [orjson.loads(step.short or "{}") for step in newest]
    for of_step in found:
        for metric, names in of_step.items():
            spellings.setdefault(metric, set()).add(tuple(names))
    # Metrics that are logged together lack the same ranks, so few of these unions differ.
    together: dict[frozenset[tuple[str, ...]], list[str]] = {}
    metrics: dict[str, list[str]] = {}
    for metric in sorted(spellings):
        which = frozenset(spellings[metric])
        if which not in together:
            together[which] = list(rank_names({rank for names in which for rank in each_rank(names)}))
        metrics[metric] = together[which]
    varied = [metric for metric, which in sorted(spellings.items()) if len(which) > 1]
    of_newest = MAX_SHORT if rows > MAX_SHORT else 0
    spans = {
        metric: _spans((row.step, of_step.get(metric, ())) for row, of_step in zip(newest, found))
        for metric in sorted(spellings)
        if metric in varied or metric not in found[0]
    }
    stopped = _stopped(steps, actor, made, metrics)
    return ShortStatus(actor, rows, first, last, metrics, of_newest, found[0], varied, spans, stopped)


def _stopped(steps: LoggedSteps, actor: str, made: Steps, short: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The ranks that lack a metric in the newest row, although it has others of them, and of which it does not say so:
    for longer than `short_window` they have gone on without it.
    """
    newest = next(steps.before(made.last + 1), None)
    if newest is None:
        return {}
    logged = decode_logged(newest.ranks, {number: metric for metric, number, _, _ in steps.metrics()}, decode_ranks)
    said = orjson.loads(newest.short or "{}")
    present = {rank for ranks in logged.values() for rank in ranks}
    found: dict[str, list[str]] = {}
    for key, names in short.items():
        having = logged.get(key.removeprefix(f"{actor}/"))
        if having is not None and key not in said and (ranks := ({*each_rank(names)} & present) - {*having}):
            found[key] = list(rank_names(ranks))
    return found


def _spans(short: Iterable[tuple[int, Iterable[str]]]) -> list[ShortSpan]:
    """Where ranks are short, those together that are so between the same steps. `short`: by step, newest first."""
    last: dict[RankName, int] = {}
    first: dict[RankName, int] = {}
    for step, names in short:
        for rank in each_rank(names):
            last.setdefault(rank, step)
            first[rank] = step
    alike: dict[tuple[int, int], list[RankName]] = {}
    for rank, step in last.items():
        alike.setdefault((first[rank], step), []).append(rank)
    return [ShortSpan(list(rank_names(ranks)), *steps) for steps, ranks in sorted(alike.items())]


def _writer(source: Source, silent_s: float, *, awaited: bool) -> WriterStatus:
    unread = max(0, source.size - source.read)
    writer = source.writer
    if writer is None:
        note = _problem(source) or ("no open record yet" if source.size else "empty")
        return WriterStatus(
            source.name, "", "", 0, 0, None, None, 0.0, unread, False, note, unreadable=source.is_unreadable
        )
    segment = writer.segments[-1]
    return WriterStatus(
        file=source.name,
        actor=writer.open.actor,
        replica=writer.open.replica,
        rank=writer.open.rank,
        attempt=writer.open.attempt,
        step=segment.last if segment.last >= 0 else None,
        barrier=segment.barrier if segment.barrier >= 0 else None,
        silent_s=silent_s,
        unread=unread,
        closed=writer.closed,
        note=_problem(source),
        format=writer.open.writer if is_foreign(source.name) else "",
        observes=observes(writer.open.actor, writer.open.agent),
        host=writer.open.host,
        pid=writer.open.pid,
        beats=writer.open.beat is not None,
        writer="" if is_foreign(source.name) else writer.open.writer,
        awaited=awaited,
        failure="" if writer.closed else writer.end.failure,
        unreadable=source.is_unreadable,
    )


def _is_gone(experiment: Experiment, source: Source) -> bool:
    """True if a process has certainly ended without a close. What it wrote last may not be read yet: so the size of its
    file is asked for once it is gone.
    """
    writer = source.writer
    if writer is None or not has_ended(writer.open.pid_space, writer.open.pid):
        return False
    try:
        size = os.lstat(experiment.directory / WRITERS_FOLDER / source.name).st_size
    except OSError:
        return False
    return size == source.read


def _problem(source: Source) -> str:
    if source.gone and is_document(source):
        return ""  # its framework has rewritten it, as TRL does at each evaluation
    return source.problem or (NOT_THERE if source.sightings.unlisted else "")


def unread_files(experiment: Experiment) -> list[str]:
    """The files of which some data cannot be read, now or in the past, each with the reason."""
    # Many frameworks truncate or rewrite their files, so that is no lost data.
    found = [s for s in experiment.sources.values() if _problem(s) and not (s.gone and is_foreign(s.name))]
    return [f"{source.name}: {_problem(source)}" for source in found]


def _notes(experiment: Experiment) -> list[str]:
    odd = sorted(experiment.intake.oddities.items())
    notes = [f"{name}: {problem}" for name, problem in odd[:MAX_LISTED]]
    if len(odd) > MAX_LISTED:
        notes.append(f"and {len(odd) - MAX_LISTED} more entries that are no files to read")
    if len(experiment.sources) > MAX_WRITERS:
        without = sum(source.writer is None for source in experiment.sources.values())
        notes.append(f"lists {MAX_WRITERS} of {len(experiment.sources)} files, of which {without} have no open record")
    if len(experiment.actors) > MAX_ACTORS:
        notes.append(f"lists {MAX_ACTORS} of {len(experiment.actors)} actors: those that logged last")
    notes += _formats(experiment)
    notes += stream_notes(experiment)
    return [*notes, *_misuse(experiment.store), *experiment.rules.customs.problems.values()]


def _formats(experiment: Experiment) -> list[str]:
    """How many files of each other framework are read, and what documents are beside the job's own lines."""
    native = any(s.writer is not None and not is_foreign(s.name) for s in experiment.sources.values())
    documents = {s.writer.open.writer for s in experiment.sources.values() if s.writer is not None and is_document(s)}
    beside = " beside the job's own lines, which is fine: both hold the same values"
    return [
        f"reads {counted(count, 'file')} of {name}{beside if native and name in documents else ''}"
        for name, count in sorted(experiment.intake.formats().items())
    ]


def _misuse(store: Store) -> list[str]:
    """What writers reported to the job, which may have printed it where no person looks.

    A process reports each text once, so a count is that of processes and not of wrong calls.
    """
    reported = store.reported()
    notes = [f"{REPORTED_TO_JOB} by {count} process{'es' * (count != 1)}: {text}" for text, count in reported.items()]
    if more := store.counts().get(WRONG_USE, 0) - sum(reported.values()):
        what = "something else" if notes else "something without a text"
        notes.append(f"{REPORTED_TO_JOB} in {counted(more, 'more report' if notes else 'report')}: {what}")
    return notes
