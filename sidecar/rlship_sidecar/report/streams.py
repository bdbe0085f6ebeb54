"""The part of a status about records without a step. Read-only."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import orjson

from rlship_sidecar.align.lineage import Writer, rank_names, replica_key
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.report.silence import Present
from rlship_sidecar.report.status import LackingStatus, NonFiniteStatus, StreamStatus
from rlship_sidecar.report.terminal import duration
from rlship_sidecar.rows import CLOCK, RankName, Unit, each_rank
from rlship_sidecar.store.nonfinite import NonFiniteMetric, nonfinite_families
from rlship_sidecar.store.store import Store
from rlship_sidecar.streams.actor import ActorStreams
from rlship_sidecar.streams.streaming import ExperimentStreams
from rlship_sidecar.tail.listing import is_foreign
from rlship_sidecar.tally import observes

# What stands in `labels.source` of files of these calls.
WANDB, FORGE = "wandb", "forge"


def stream_statuses(experiment: Experiment, present: Present, grace_s: float) -> list[StreamStatus]:
    """The status of each actor's stream lines, sorted by actor."""
    return [
        _stream(experiment, streams, present, grace_s)
        for _, streams in sorted(experiment.streaming.streams.items())
        if streams.writers
    ]


def _stream(experiment: Experiment, streams: ActorStreams, present: Present, grace_s: float) -> StreamStatus:
    clock, (reach, last) = streams.frontier.clock, streams.reach(present.now)
    until = None if clock is None else (clock + 1) * streams.window_s
    newest = streams.newest()
    silent = _silent(experiment, streams.actor, present, grace_s)
    row = None if clock is None else experiment.store.newest(Unit(streams.actor, CLOCK, clock))
    missing = {*silent, *(each_rank(row.coverage.missing) if row is not None else ())}
    return StreamStatus(
        actor=streams.actor,
        step=streams.frontier.step if streams.frontier.step >= 0 else None,
        until=until,
        lag_s=max(0.0, newest - until) if until is not None else 0.0,
        waits_for=f"{last.open.replica}.{last.open.rank}" if last is not None and reach < newest else "",
        elapsed_s=None if until is None else max(0.0, until - experiment.streaming.origin),
        missing=list(rank_names(sorted(missing, key=lambda rank: (replica_key(rank.replica), rank.rank)))),
        silent_s=min(silent.values(), default=0.0),
    )


def _silent(experiment: Experiment, actor: str, present: Present, grace_s: float) -> dict[RankName, float]:
    """The silent seconds of each rank that logs without a step, did not close, and did not even beat for `grace_s`."""
    newest: dict[RankName, Writer] = {}
    roster = experiment.actors[actor].roster
    past = roster.past_lives()
    for writer in roster.writers.values():
        if writer.root is writer and writer.stream_t is not None and writer not in past:
            other = newest.get(writer.rank)
            if other is None or other.segments[0].age < writer.segments[0].age:
                newest[writer.rank] = writer
    silent = {
        rank: present.silent_s(experiment.sources[writer.file]) for rank, writer in newest.items() if not writer.closed
    }
    return {rank: seconds for rank, seconds in silent.items() if seconds >= grace_s}


def lacking_status(found: tuple[str, int, int, int, str], streaming: ExperimentStreams) -> LackingStatus:
    """Describe rows that lack ranks, as found in the store. Time windows also get their place on the charts' axis."""
    status = LackingStatus(*found)
    _place_in_time(status, streaming)
    return status


def nonfinite_statuses(store: Store, streaming: ExperimentStreams) -> list[NonFiniteStatus]:
    """The metrics with observations that were not finite; those of the same ranks and rows together."""
    found: list[NonFiniteStatus] = []
    for family in nonfinite_families(store):
        alike: dict[NonFiniteMetric, NonFiniteStatus] = {}
        for metric in family.all():
            held = alike.get(metric._replace(key=""))
            if held is not None:
                held.metrics.append(metric.key)
                continue
            key, rows, first, last, ranks = metric
            one = NonFiniteStatus(family.actor, family.kind, [key], orjson.loads(ranks), rows, first, last)
            _place_in_time(one, streaming)
            alike[metric._replace(key="")] = one
        found += sorted(alike.values(), key=lambda one: one.first)
    return found


def _place_in_time(status: LackingStatus | NonFiniteStatus, streaming: ExperimentStreams) -> None:
    """Give windows of time their place on the charts' axis."""
    if status.kind == CLOCK:
        first, last = (
            max(0.0, i * streaming.config.clock_window_s - streaming.origin) for i in (status.first, status.last)
        )
        status.first_s, status.last_s = first, last


def _is_stepless(streams: ActorStreams) -> bool:
    """Whether an actor logged nothing with a step, and has rows of time windows."""
    return bool(streams.writers) and streams.frontier.clock is not None and not streams.names.stepped


def stream_notes(experiment: Experiment) -> list[str]:
    """Explain why the rows of the lead's steps hold less than a person may expect."""
    streaming = experiment.streaming
    lead, over_time = streaming.config.lead, "what is logged without a step is shown over time only"
    if not any(streams.writers for streams in streaming.streams.values()):
        return []
    stepless = ", ".join(name for name, streams in sorted(streaming.streams.items()) if _is_stepless(streams))
    each = f"a row of {stepless} holds all calls of {streaming.config.clock_window_s:g} s"
    mend = "if each call is a step, pass step= to log(), or count_steps=True to init()"
    if lead not in experiment.actors:
        more = f"; {each}: {mend}" if stepless else ""
        return [f"there is no actor {lead}: {over_time}; rlship.toml can name another lead{more}"]
    if lead in streaming.streams and _is_stepless(streaming.streams[lead]):
        return [f"the lead {lead} calls log() without a step, so {each}: {mend}"]
    if experiment.actors[lead].highest_closed >= 0 and streaming.timeline.empty():
        if all(map(is_foreign, experiment.actors[lead].roster.writers)):
            return [f"the files of the lead {lead} do not say when its steps ended: {over_time}"]
        return [
            f"the lead {lead} never called barrier(): it is unknown when its steps ended, so {over_time}, and without "
            "policy_lag; call rlship.barrier(step) at the end of each step"
        ]
    return _before_lead(experiment)


def _before_lead(experiment: Experiment) -> list[str]:
    """Name the actors that logged before the lead's newest life opened: that is beside none of its steps."""
    streaming = experiment.streaming
    lead, timeline, corrected = streaming.config.lead, streaming.timeline, streaming.clocks.corrected
    life = min(_living(experiment, lead), key=lambda one: (replica_key(one.rank.replica), one.rank.rank), default=None)
    if life is None or timeline.empty():
        return []
    opened = corrected(life.open.host, life.open.t)
    step = timeline.current(opened)
    before = None if step is None else timeline.interval(step)
    since = -math.inf if before is None else before.end  # what is older was logged beside an earlier life
    early: dict[str, float] = {}
    for name in sorted(streaming.streams):
        times = [
            corrected(one.open.host, one.stream_t) for one in _living(experiment, name) if one.stream_t is not None
        ]
        seconds = opened - min((t for t in times if t > since), default=opened)
        if seconds > 0:
            early[name] = seconds
    if not early:
        return []
    logged = ", ".join(f"{name} for {duration(seconds)}" for name, seconds in early.items())
    return [
        f"logged before {lead} opened: {logged}; this is shown over time only, beside no step. To have it beside the "
        f"first step, call init() in {lead} before the others log"
    ]


def _living(experiment: Experiment, actor: str) -> list[Writer]:
    """The root writers of an actor's newest life that are part of the job, rather than agents beside it."""
    roster = experiment.actors[actor].roster
    past = roster.past_lives()
    return [
        one
        for one in roster.writers.values()
        if one.root is one and one not in past and not observes(actor, one.open.agent)
    ]


def own_named(experiment: Experiment) -> tuple[str, ...]:
    """The actors whose metrics have their bare names at W&B, as far as is known now."""
    return own_named_by(
        experiment.streaming.config.lead, {name: _sources(experiment, name) for name in experiment.actors}
    )


def own_named_by(lead: str, sources: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The actors whose metrics the job's own W&B run would have by their bare names, from what calls the writers of
    each: the lead, if its files hold calls of W&B; every actor with calls of Forge, if the lead has them, because Forge
    makes one run of all processes.
    """
    of_lead = sources.get(lead, ())
    if FORGE in of_lead:
        return tuple(name for name in sorted(sources) if FORGE in sources[name])
    return (lead,) if WANDB in of_lead else ()


def _sources(experiment: Experiment, name: str) -> set[str]:
    """What calls the writers of an actor in the job."""
    actor = experiment.actors.get(name)
    return set() if actor is None else {writer.open.source for writer in actor.roster.writers.values()}


def over_time_only(experiment: Experiment) -> bool:
    """Whether streams have rows over time only, as far as is known now.

    They have as long as no step of the lead has ended, unless a lead is there that has logged nothing without a step:
    its first step may take long.
    """
    streaming = experiment.streaming
    if not streaming.timeline.empty():
        return False
    lead = experiment.actors.get(streaming.config.lead)
    if lead is None:
        return True
    streams = streaming.streams.get(streaming.config.lead)
    return lead.highest_closed >= 0 or (streams is not None and bool(streams.writers))
