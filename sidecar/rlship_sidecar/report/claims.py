"""Ranks that several writers claim: at one time, which is a mistake, or one after the other, which is a restart."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise

from rlship_sidecar.align.lineage import SIDE_BY_SIDE_S, SubmittedJob, Writer, rank_names
from rlship_sidecar.pipeline.experiment import Experiment
from rlship_sidecar.pipeline.source import is_document
from rlship_sidecar.rows import RankName, rank_words
from rlship_sidecar.tail.listing import is_foreign
from rlship_sidecar.tally import NODE_AGENT, OWN_ACTOR

CLOCK_SLACK_S = 1.0  # between hosts
MAX_NAMED = 8  # runs of ranks in one line


def overlapping_of(places: Iterable[Writer]) -> set[str]:
    """The files of root writers of one rank that overlap with another writer of the same attempt, or of another
    submission.

    In such a pair the older writer continued after the newer one had begun, so it is no restart; a short while does not
    count (`_limit`). The search looks at each writer once, because there may be thousands.
    """
    every = sorted(places, key=_life)
    found = _across(every)
    for _, alike in groupby(every, _life):
        ordered = sorted(alike, key=lambda writer: (writer.open.t, writer.open.id))
        found |= _passed_over(ordered) | _passing(ordered) | _together(ordered)
    return found


def _life(writer: Writer) -> tuple[int, int]:
    return writer.submission, writer.open.attempt


def _across(every: list[Writer]) -> set[str]:
    """The writers of two submissions of which the earlier one continued for long after the later one had begun.

    `every`: in the order of submissions.
    """
    grouped = [list(alike) for _, alike in groupby(every, lambda writer: writer.submission)]
    found: set[str] = set()
    until: list[tuple[float, str]] = []  # the greatest times of earlier submissions and whose they are, of two ids
    for alike in grouped:
        for writer in alike:
            if any(t > writer.open.t + SIDE_BY_SIDE_S and id != writer.open.id for t, id in until):
                found.add(writer.file)
        until = _two([*until, *((writer.newest_t, writer.open.id) for writer in alike)])
    begun: list[tuple[float, str]] = []  # the same of the least opens of later submissions, negated
    for alike in reversed(grouped):
        for writer in alike:
            if any(writer.newest_t > SIDE_BY_SIDE_S - t and id != writer.open.id for t, id in begun):
                found.add(writer.file)
        begun = _two([*begun, *((-writer.open.t, writer.open.id) for writer in alike)])
    return found


def _two(times: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The greatest time, and the greatest of another id."""
    first = max(times)
    return [first, *sorted((one for one in times if one[1] != first[1]), reverse=True)[:1]]


def _limit(newer: Writer, slack_s: float) -> float:
    """The time after which an older writer that still writes is a claim: half of the newer one's life, `SIDE_BY_SIDE_S`
    at most. One that ended soon after the newer one had begun was replaced, as by a submission that overlaps a little.
    """
    return newer.open.t + min(SIDE_BY_SIDE_S, max(slack_s, (newer.newest_t - newer.open.t) / 2))


def _passed_over(ordered: list[Writer]) -> set[str]:
    """The writers that began while an older one was still writing, and went on.

    On one host the clock decides; between hosts the overlap has to exceed `CLOCK_SLACK_S`.
    """
    found: set[str] = set()
    until = float("-inf")
    until_on: dict[str, float] = {}
    for _, group in groupby(ordered, lambda writer: writer.open.t):
        begun = list(group)
        for writer in begun:
            on_host = until_on.get(writer.open.host, float("-inf")) if writer.open.host else float("-inf")
            if until > _limit(writer, CLOCK_SLACK_S) or on_host > _limit(writer, 0.0):
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
    for _, group in groupby(reversed(ordered), lambda writer: writer.open.t):
        begun = list(group)
        for writer in begun:
            on_host = following_on.get(writer.open.host, float("inf")) if writer.open.host else float("inf")
            if writer.newest_t > following or writer.newest_t > on_host:
                found.add(writer.file)
        for writer in begun:
            following = min(following, _limit(writer, CLOCK_SLACK_S))
            host = writer.open.host
            following_on[host] = min(following_on.get(host, float("inf")), _limit(writer, 0.0))
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


def beside_each_other(jobs: list[SubmittedJob]) -> list[SubmittedJob]:
    """The jobs that run at one time with another one."""
    ordered = sorted(jobs, key=lambda job: job.order)
    found: dict[SubmittedJob, None] = {}
    for older, newer in pairwise(ordered):
        if not older.over_for(newer):
            found.update({older: None, newer: None})
    return list(found)


def shared_ranks(experiment: Experiment) -> tuple[list[str], list[str]]:
    """Describe the ranks that several writers of one attempt claim: those at one time, and those one after the
    other. Jobs that log as one actor at one time are claims as well, and so are ranks that a later start lacks.
    """
    claims, restarts = [], []
    for name, actor in sorted(experiment.actors.items()):
        claimed, restarted = _Alike(name), _Alike(name)
        beside = len(beside_each_other(actor.roster.jobs()))
        if beside:
            claims.append(
                f"{beside} jobs log as {name} at one time, all of them count: stop the older one, or give each a folder"
            )
        if ranks := rank_names({writer.rank for writer in actor.roster.left_over()}):
            claims.append(
                f"{' '.join(ranks)} of {name}, of an older start with a larger world, and ranks of a newer one log at "
                "one time, all of them count: stop the older one, or give each a folder"
            )
        for every in actor.roster.shared_places():
            places = _of_the_job(experiment, every)
            if len(places) < 2:
                continue
            rank = places[0].rank
            found = overlapping_of(places)
            overlapping = len(found)
            submitted = len({writer.submission for writer in places if writer.file in found})
            newest = max(map(_life, places))
            equal = sum(_life(writer) == newest for writer in places)
            if overlapping and any(is_foreign(writer.file) for writer in places):
                restarted.add(rank, f"{overlapping} writers", "of", "at one time, which all count")
            elif overlapping and all(writer.open.agent == NODE_AGENT for writer in places):
                # Two agents that begin together notice each other after a few seconds. Both report the same, and
                # nothing about the job.
                restarted.add(rank, f"{overlapping} agents", "of", "at one time, which all count")
            elif overlapping:
                claimed.add(rank, *_claim(overlapping, submitted))
            elif (
                equal > 1
                and name != OWN_ACTOR  # a sidecar opens another file whenever the job continues
                and not all(is_document(experiment.sources[writer.file]) for writer in places)
            ):
                restarted.add(rank, f"{equal} writers", "of", f"one after the other: {_what_counts(places)}", ",")
        claims += claimed.said()
        restarts += restarted.said()
    return claims, restarts


class _Alike:
    """What is said of ranks of an actor: in one line of all ranks of which the same is said."""

    def __init__(self, actor: str) -> None:
        self._actor = actor
        self._ranks: dict[tuple[str, str, str, str], list[RankName]] = {}

    def add(self, rank: RankName, who: str, do: str, what: str, comma: str = "") -> None:
        """`who` `do` this rank, `what`: "2 writers", "claim", "at one time"."""
        self._ranks.setdefault((who, do, what, comma), []).append(rank)

    def said(self) -> list[str]:
        """The lines."""
        lines = []
        for (who, do, what, comma), ranks in self._ranks.items():
            each = " each" if len(ranks) > 1 else ""
            lines.append(f"{who}{each} {do} {self._words(ranks)}{comma} {what}")
        return lines

    def _words(self, ranks: list[RankName]) -> str:
        if len(ranks) == 1:
            return f"{self._actor}/{ranks[0].replica}/r{ranks[0].rank}"
        words = rank_words(rank_names(ranks))
        more = f" and {len(words) - MAX_NAMED} more" if len(words) > MAX_NAMED else ""
        return f"{self._actor} {', '.join(words[:MAX_NAMED])}{more}"


def _claim(writers: int, submitted: int) -> tuple[str, str, str]:
    if submitted > 1:
        ways = "stop the older one, or give each a folder"
        return f"{writers} writers of {submitted} submissions", "log as", f"at one time, all of them count: {ways}"
    way_out = "set rank or replica, or if the job was submitted again, stop the older one"
    return f"{writers} writers", "claim", f"at one time: {way_out}"


def _of_the_job(experiment: Experiment, places: list[Writer]) -> list[Writer]:
    """The writers without documents beside a native one: a callback logs what such a document repeats."""
    own = [writer for writer in places if not is_document(experiment.sources[writer.file])]
    return own if any(not is_foreign(writer.file) for writer in own) else places


def _what_counts(writers: Iterable[Writer]) -> str:
    """Describe which values count among writers of one rank and attempt. Stream lines carry times, which order them."""
    streamed = any(writer.stream_t is not None for writer in writers)
    stepped = any(writer.begins is not None for writer in writers)
    if streamed and stepped:
        return "of what has a step the last one's values count, of what has none each one's up to the next one's start"
    return "each one's values count up to the next one's start" if streamed else "the last one's values count"
