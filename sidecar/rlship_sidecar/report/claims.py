"""Ranks that several writers claim: at one time, which is a mistake, or one after the other, which is a restart."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rlship_sidecar.align.lineage import SIDE_BY_SIDE_S, Writer
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.pipeline.source import is_document
from rlship_sidecar.tail.listing import is_foreign
from rlship_sidecar.tally import NODE_AGENT, OWN_ACTOR

CLOCK_SLACK_S = 1.0  # between hosts


def overlapping_of(places: Iterable[Writer]) -> set[str]:
    """The files of root writers of one rank that overlap with another writer of the same attempt.

    In such a pair the older writer continued after the newer one had begun, so it is no restart. The search looks at
    each writer once, because there may be thousands.
    """
    found: set[str] = set()
    for _, alike in groupby(sorted(places, key=lambda writer: writer.open.attempt), lambda writer: writer.open.attempt):
        ordered = sorted(alike, key=lambda writer: (writer.open.t, writer.open.id))
        found |= _passed_over(ordered) | _passing(ordered) | _together(ordered)
    return found


def _passed_over(ordered: list[Writer]) -> set[str]:
    """The writers that began while an older one was still writing.

    On one host the clock decides; between hosts the overlap has to exceed `CLOCK_SLACK_S`.
    """
    found: set[str] = set()
    until = float("-inf")
    until_on: dict[str, float] = {}
    for t, group in groupby(ordered, lambda writer: writer.open.t):
        begun = list(group)
        for writer in begun:
            on_host = until_on.get(writer.open.host, float("-inf")) if writer.open.host else float("-inf")
            if t < max(until - CLOCK_SLACK_S, on_host):
                found.add(writer.file)
        for writer in begun:
            until = max(until, writer.newest_t)
            until_on[writer.open.host] = max(until_on.get(writer.open.host, float("-inf")), writer.newest_t)
    return found


def _passing(ordered: list[Writer]) -> set[str]:
    """The writers that continued after a newer one had begun."""
    found: set[str] = set()
    following = float("inf")
    following_on: dict[str, float] = {}
    for t, group in groupby(reversed(ordered), lambda writer: writer.open.t):
        begun = list(group)
        for writer in begun:
            on_host = following_on.get(writer.open.host, float("inf")) if writer.open.host else float("inf")
            if following < writer.newest_t - CLOCK_SLACK_S or on_host < writer.newest_t:
                found.add(writer.file)
        following = t
        following_on.update((writer.open.host, t) for writer in begun)
    return found


def _together(ordered: list[Writer]) -> set[str]:
    """The writers that began in the same instant as another one, if the one with the lower id continued for long."""
    found: set[str] = set()
    for t, group in groupby(ordered, lambda writer: writer.open.t):
        begun = list(group)
        if begun[0].open.id == begun[-1].open.id:
            continue
        long = False
        for _, alike in groupby(begun, lambda writer: writer.open.id):
            same = list(alike)
            if long:
                found.update(writer.file for writer in same)
            lasting = {writer.file for writer in same if writer.newest_t > t + SIDE_BY_SIDE_S}
            if same[-1].open.id != begun[-1].open.id:
                found |= lasting
            long = long or bool(lasting)
    return found


def shared_ranks(experiment: Experiment) -> tuple[list[str], list[str]]:
    """Describe the ranks that several writers of one attempt claim: those at one time, and those one after the
    other.
    """
    claims, restarts = [], []
    for name, actor in sorted(experiment.actors.items()):
        for places in actor.roster.shared_places():
            rank = f"{name}/{places[0].open.replica}/r{places[0].open.rank}"
            overlapping = len(overlapping_of(places))
            newest = max(writer.open.attempt for writer in places)
            equal = sum(writer.open.attempt == newest for writer in places)
            if overlapping and any(is_foreign(writer.file) for writer in places):
                restarts.append(f"{overlapping} writers of {rank} at one time, which all count")
            elif overlapping and all(writer.open.agent == NODE_AGENT for writer in places):
                # Two agents that begin together notice each other after a few seconds. Both report the same, and
                # nothing about the job.
                restarts.append(f"{overlapping} agents of {rank} at one time, which all count")
            elif overlapping:
                claims.append(f"{overlapping} writers claim {rank} at one time: set rank or replica")
            elif (
                equal > 1
                and name != OWN_ACTOR  # a sidecar opens another file whenever the job continues
                and not all(is_document(experiment.sources[writer.file]) for writer in places)
            ):
                restarts.append(f"{equal} writers of {rank}, one after the other: {_what_counts(places)}")
    return claims, restarts


def _what_counts(writers: Iterable[Writer]) -> str:
    """Describe which values count among writers of one rank and attempt. Stream lines carry times, which order them."""
    streamed = any(writer.stream_t is not None for writer in writers)
    stepped = any(writer.begins is not None for writer in writers)
    if streamed and stepped:
        return "of what has a step the last one's values count, of what has none all"
    return "all values count, each at its time" if streamed else "the last one's values count"
