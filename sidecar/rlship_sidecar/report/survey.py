"""Reads the facts of a running experiment into a `Status`. Looks only; changes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

from rlship_formats.standing import WRONG_USE
from rlship_sidecar.align.actor import Actor
from rlship_sidecar.align.lineage import Writer, side_by_side
from rlship_sidecar.experiment import Experiment
from rlship_sidecar.intake.listing import WRITERS_FOLDER
from rlship_sidecar.intake.opening import is_foreign
from rlship_sidecar.intake.source import Source, is_document
from rlship_sidecar.report.status import (
    ActorStatus,
    ClockStatus,
    DeadLetterStatus,
    SinkStatus,
    Status,
    WriterStatus,
)
from rlship_sidecar.report.streams import lacking_status, stream_notes, stream_statuses
from rlship_sidecar.rows import Row, Unit, count_ranks
from rlship_sidecar.store.store import Store
from rlship_sidecar.tally import OWN_ACTOR

MAX_LISTED = 200
CLOCK_SLACK_S = 1.0  # between hosts


def survey(experiment: Experiment, sinks: Iterable[SinkStatus], *, now: float, wall: float) -> Status:
    """The status as of `now` (monotonic seconds, the experiment's clock) and `wall` (Unix seconds)."""
    store = experiment.store
    newest = {name: _newest(store, actor) for name, actor in experiment.actors.items()}
    actors = [_actor(actor, newest[name], now) for name, actor in sorted(experiment.actors.items())]
    streams = stream_statuses(experiment, now, experiment.patience.grace_s)
    lost = {stream.actor: stream.missing for stream in streams}
    for actor in actors:
        if actor.step is None:  # of an actor without steps it is the rows over time that can lack ranks
            actor.missing = lost.get(actor.actor, [])
    dead, shipping = store.dead_counts(), list(sinks)
    dead_letters = sum(count for _, _, is_value, count, _, _ in dead if not is_value)
    dead_values = sum(count for _, _, is_value, count, _, _ in dead if is_value)
    claims, restarts = _shared_ranks(experiment)
    lacking = [lacking_status(found, experiment.streaming) for found in store.lacking()]
    return Status(
        experiment=os.fsencode(experiment.directory).decode("utf-8", "replace"),
        t=wall,
        store_id=store.store_id,
        filesystem=experiment.filesystem.type + ("" if experiment.filesystem.local else " (polled)"),
        rows=store.row_count(),
        complete=not (lacking or dead_letters or dead_values or claims or _unread(experiment)),
        actors=actors,
        writers=[_writer(source, now) for source in experiment.sources.values()],
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
            for host, record in experiment.streaming.clocks.newest().items()
        ],
        notes=_notes(experiment) + restarts + [f"sink {sink.name}: {sink.note}" for sink in shipping if sink.note],
        claims=claims,
    )


def _newest(store: Store, actor: Actor) -> Row | None:
    return store.newest(Unit(actor.name, "step", actor.highest_closed)) if actor.highest_closed >= 0 else None


def _actor(actor: Actor, newest: Row | None, now: float) -> ActorStatus:
    seen = {writer.rank for writer in actor.roster.writers.values()}
    worlds = [writer.open.world for writer in actor.roster.writers.values() if writer.root is writer]
    oldest = min(actor.open.values(), key=lambda unit: unit.line_at, default=None)
    coverage = newest.coverage if newest is not None else None
    whom, note = _waits(actor, now)
    if coverage is not None:
        expected = coverage.expected + count_ranks(coverage.absent)
    else:
        expected = max(max((world or 0 for world in worlds), default=0), len(seen))
    return ActorStatus(
        actor=actor.name,
        ranks_seen=len(seen),
        ranks_expected=max(expected, len(seen)),
        step=actor.highest_closed if actor.highest_closed >= 0 else None,
        open_step=max(actor.open, default=None),
        open_units=len(actor.open),
        lag_s=max(0.0, now - oldest.line_at) if oldest is not None else 0.0,
        missing=list(coverage.missing) if coverage is not None else [],
        absent=list(coverage.absent) if coverage is not None else [],
        note=note,
        waiting=whom,
    )


def _waits(actor: Actor, now: float) -> tuple[str, str]:
    """Whom the oldest open step waits for, and that in full, once it takes long enough to ask."""
    if not actor.open:
        return "", ""
    step = min(actor.open)
    waited_s = now - actor.open[step].line_at
    if waited_s < 2.0:
        return "", ""
    patience = actor.patience
    waiting = actor.roster.waiting(step, now, closed_any=actor.highest_closed >= 0, join_s=patience.join_s)
    names = [f"{writer.open.replica}.{writer.open.rank}" for writer in waiting.writers[:3]]
    more = len(waiting.writers) - len(names)
    if names:
        whom, it = " ".join(names) + (f" and {more} more" if more else ""), "it" if len(names) == 1 else "them"
        end = f"goes on without {it} after {'it is' if it == 'it' else 'they are'} silent for {patience.grace_s:g} s"
    elif waiting.unopened:
        whom = "ranks that have not opened yet"
        end = f"goes on without them {patience.join_s:g} s after the first rank opened"
    else:
        return "", ""
    return whom, f"step {step} waits for {whom} for {waited_s:.0f} s; {end}"


def _writer(source: Source, now: float) -> WriterStatus:
    unread = max(0, source.size - source.read)
    writer = source.writer
    if writer is None:
        note = source.problem or ("no open record yet" if source.size else "empty")
        return WriterStatus(source.name, "", "", 0, 0, None, None, 0.0, unread, False, note)
    segment = writer.segments[-1]
    return WriterStatus(
        file=source.name,
        actor=writer.open.actor,
        replica=writer.open.replica,
        rank=writer.open.rank,
        attempt=writer.open.attempt,
        step=segment.last if segment.last >= 0 else None,
        barrier=segment.barrier if segment.barrier >= 0 else None,
        silent_s=max(0.0, now - writer.line_at),
        unread=unread,
        closed=writer.closed,
        note=source.problem,
        format=writer.open.writer if is_foreign(source.name) else "",
    )


def _unread(experiment: Experiment) -> bool:
    """Whether there is, or was, data that cannot be read."""
    if WRITERS_FOLDER in experiment.intake.oddities:
        return True
    # That its file is cut or written anew is the way of many a framework.
    return any(s.problem and not (s.gone and is_foreign(s.name)) for s in experiment.sources.values())


def _overlap(older: Writer, newer: Writer) -> bool:
    """Whether the older of two writers of one rank and attempt went on after the newer one had begun: no restart."""
    if side_by_side(older, newer):
        return True
    if older.open.attempt != newer.open.attempt:
        return False
    slack_s = 0.0 if older.open.host and older.open.host == newer.open.host else CLOCK_SLACK_S
    return older.open.t < newer.open.t < older.newest_t - slack_s


def _notes(experiment: Experiment) -> list[str]:
    notes = [f"{name}: {problem}" for name, problem in sorted(experiment.intake.oddities.items())]
    notes += [f"reads {count} of {name}" for name, count in sorted(experiment.intake.formats().items())]
    notes += stream_notes(experiment)
    if told := experiment.store.counts().get(WRONG_USE, 0):
        times = "once" if told == 1 else f"{told} times"
        notes.append(
            f"writers told the job {times} that a call cannot be done as it says: "
            f"grep -h {WRONG_USE} {shlex.quote(experiment.intake.folder)}/*.jsonl"
        )
    return [*notes, *experiment.rules.customs.problems.values()]


def _shared_ranks(experiment: Experiment) -> tuple[list[str], list[str]]:
    """What to say of ranks that several writers of one attempt claim: at one time, and one after the other."""
    claims, restarts = [], []
    for name, actor in sorted(experiment.actors.items()):
        for places in actor.roster.shared_places():
            rank = f"{name}/{places[0].open.replica}/r{places[0].open.rank}"
            overlapping = sum(any(_overlap(a, b) or _overlap(b, a) for b in places if b is not a) for a in places)
            newest = max(writer.open.attempt for writer in places)
            equal = sum(writer.open.attempt == newest for writer in places)
            if overlapping and any(is_foreign(writer.file) for writer in places):
                restarts.append(f"{overlapping} writers of {rank} at one time, which all count")
            elif overlapping:
                claims.append(f"{overlapping} writers claim {rank} at one time: set rank or replica")
            elif (
                equal > 1
                and name != OWN_ACTOR  # a sidecar opens another file whenever the job goes on
                and not all(is_document(experiment.sources[writer.file]) for writer in places)
            ):
                restarts.append(f"{equal} writers of {rank}, one after the other: {_what_counts(places)}")
    return claims, restarts


def _what_counts(writers: Iterable[Writer]) -> str:
    """Of writers of one rank and attempt: by their times stream lines say themselves which is newer."""
    streamed = any(writer.stream_t is not None for writer in writers)
    stepped = any(writer.begins is not None for writer in writers)
    if streamed and stepped:
        return "of what has a step the last one's values count, of what has none all"
    return "all values count, each at its time" if streamed else "the last one's values count"
