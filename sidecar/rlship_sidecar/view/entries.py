"""An experiment in the list, and its overview, out of the last status. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rlship_sidecar.report.ended import EndedProcesses
from rlship_sidecar.report.screen import glance
from rlship_sidecar.report.status import ActorStatus, DeadLetterStatus, Status, TrendStatus, WriterStatus
from rlship_sidecar.report.terminal import present
from rlship_sidecar.tally import OWN_ACTOR
from rlship_sidecar.view.contract import (
    ActorOverview,
    ExperimentEntry,
    RefusedData,
    Spark,
    State,
    WriterOverview,
)
from rlship_sidecar.view.texts import number, plain, text

MAX_WRITERS, MAX_REFUSED, MAX_NOTES, MAX_TROUBLE = 2_000, 200, 200, 20
_STATES: Mapping[str, State] = {
    "running": "running",
    "silent": "silent",
    "not watched": "stopped",
    "finished": "finished",
}


def bare_entry(identity: str, name: str, state: State, note: str = "") -> ExperimentEntry:
    """An experiment of which no status is known."""
    return {
        "id": identity,
        "name": text(name),
        "state": state,
        "note": text(note),
        "step": None,
        "steps_per_s": None,
        "ranks": 0,
        "expected": 0,
        "rows": 0,
        "began": None,
        "newest": None,
        "firing": 0,
        "episodes": 0,
        "complete": state == "unwatched",
        "trouble": [text(note)] if state == "unreadable" else [],
        "sparks": [],
    }


def entry_of(identity: str, name: str, status: Status, ended: EndedProcesses, t: float) -> ExperimentEntry:
    """An experiment as its last status has it at `t`."""
    seen = glance(status, t, ended.silent_s)
    actors = _actors(status)
    lead = next((one for one in actors if one.actor == status.lead), actors[0] if actors else None)
    state: State = "ended" if seen.ended else _STATES[seen.state]
    if state == "running" and _is_held(actors, ended):
        state = "held"
    return bare_entry(identity, name, state, seen.words) | {
        "step": None if lead is None else lead.step,
        "steps_per_s": None if lead is None or not status.running else number(lead.steps_per_s),
        "ranks": sum(present(one) for one in actors),
        "expected": sum(one.ranks_expected for one in actors),
        "rows": status.rows,
        "began": status.began or None,
        "newest": status.newest_t or None,
        "firing": sum(one.state == "firing" for one in status.alerts),
        "episodes": status.episodes,
        "complete": status.complete,
        "trouble": [text(one, 500) for one in seen.trouble[:MAX_TROUBLE]],
        "sparks": [_spark(one) for one in status.trends],
    }


def _is_held(actors: Sequence[ActorStatus], ended: EndedProcesses) -> bool:
    """True if a step waits while a process has ended without a close, which others may wait for."""
    return any(one.waiting for one in actors) and any(not one.failure for one in ended.writers)


def _actors(status: Status) -> list[ActorStatus]:
    """The actors of the job."""
    return [actor for actor in status.actors if actor.actor != OWN_ACTOR]


def _spark(trend: TrendStatus) -> Spark:
    return {
        "key": text(trend.key),
        "unit": trend.unit,
        "value": number(trend.value),
        "first": trend.first if trend.first is not None else trend.index,
        "last": trend.index,
        "points": [number(one) for one in trend.points],
    }


def actors_of(status: Status, axes: Mapping[str, str]) -> list[ActorOverview]:
    """The job's actors, the lead first. `axes`: what the steps of each count."""
    actors = sorted(_actors(status), key=lambda one: (one.actor != status.lead, one.actor))
    return [
        {
            "actor": text(one.actor),
            "lead": one.actor == status.lead,
            "axis": text(axes.get(one.actor, "")),
            "step": one.step,
            "open_step": one.open_step,
            "steps_per_s": number(one.steps_per_s),
            "lag_s": one.lag_s,
            "ranks": present(one),
            "expected": one.ranks_expected,
            "missing": [text(name) for name in one.missing],
            "absent": [text(name) for name in one.absent],
            "note": text(one.note),
        }
        for one in actors
    ]


def writers_of(status: Status, ended: EndedProcesses) -> list[WriterOverview]:
    """The files of processes, those with something to say first."""
    gone = {writer.file for writer in ended.writers}
    closed = {writer.file for writer in ended.closed}

    def state(one: WriterStatus) -> str:
        if one.is_never_read or one.unreadable:
            return "unread"
        if one.observes:
            return "agent"
        if one.failure:
            return "failed"
        if one.closed or one.file in closed:
            return "closed"
        return "silent" if one.file in gone else "open"

    order = ("failed", "silent", "unread", "open", "closed", "agent")
    found = sorted(status.writers, key=lambda one: (order.index(state(one)), one.actor, one.replica, one.rank))
    return [
        {
            "file": text(one.file),
            "actor": text(one.actor),
            "rank": text(f"{one.replica}.{one.rank}") if one.actor else "",
            "attempt": one.attempt,
            "host": text(one.host),
            "pid": one.pid,
            "step": one.step,
            "silent_s": ended.silent_s.get(one.file, one.silent_s),
            "state": state(one),
            "note": text(one.failure or one.note),
        }
        for one in found[:MAX_WRITERS]
    ]


def refused_of(status: Status) -> list[RefusedData]:
    """What could not be used or read."""

    def refused(what: str, where: str, reason: str, count: int, excerpt: str = "") -> RefusedData:
        return {
            "what": what,
            "where": text(where),
            "reason": text(reason),
            "count": count,
            "excerpt": text(excerpt, 500),
        }

    found = [refused("ranks", "", claim, 1) for claim in status.claims]
    found += [refused("file", one.file, one.note, 1) for one in status.writers if one.unreadable]
    found += [_letter(one, refused) for one in status.dead_letters]
    return found[:MAX_REFUSED]


def _letter(one: DeadLetterStatus, refused: Any) -> RefusedData:
    made: RefusedData = refused("lines", f"{one.file}, byte {one.offset}", one.reason, one.count, one.excerpt)
    return made


def facts_of(status: Status, ended: EndedProcesses, t: float, sidecar: str) -> dict[str, Any]:
    """The parts of an overview that are taken from a status."""
    notes: Sequence[str] = [*ended.lines(status, t), *status.notes]
    return {
        "sidecar": text(sidecar),
        "lead": text(status.lead),
        "writers": writers_of(status, ended),
        "writers_in_all": len(status.writers),
        "hosts": sorted({text(one.host) for one in status.writers if one.host})[:MAX_WRITERS],
        "sinks": plain([_as_data(one) for one in status.sinks]),
        "refused": refused_of(status),
        "refused_in_all": status.dead_letter_count + status.dead_value_count + len(status.claims),
        "notes": [text(one) for one in notes[:MAX_NOTES]],
        "lacking": plain([_as_data(one) for one in status.lacking]),
        "short": plain([_as_data(one) for one in status.short]),
        "nonfinite": plain([_as_data(one) for one in status.nonfinite]),
        "run": None if status.run is None else plain(_as_data(status.run)),
    }


def no_facts(why: str) -> dict[str, Any]:
    """The same without a status."""
    lists = ("writers", "hosts", "sinks", "refused", "notes", "lacking", "short", "nonfinite")
    return {"sidecar": text(why), "lead": "", "run": None, "writers_in_all": 0, "refused_in_all": 0} | {
        name: [] for name in lists
    }


def hosts_by_rank(status: Status | None) -> dict[str, dict[str, str]]:
    """The host of each rank of each actor, of its newest attempt."""
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for one in status.writers if status is not None else ():
        if one.host and not one.observes:
            of_actor = found.setdefault(one.actor, {})
            name = f"{one.replica}.{one.rank}"
            of_actor[name] = max(of_actor.get(name, (-1, "")), (one.attempt, one.host))
    return {actor: {name: host for name, (_, host) in ranks.items()} for actor, ranks in found.items()}


def _as_data(one: Any) -> Any:
    return msgspec.to_builtins(one)


def name_of(path: str) -> str:
    """An experiment's name: that of its folder."""
    return os.path.basename(os.path.normpath(path)) or path
