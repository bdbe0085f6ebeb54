"""What changes around an episode and has no sign in the graph: other metrics, and ranks that stand apart in them. Pure.

It names no cause. It says where something happened that the causes of the graph may leave unexplained, and so where an
unknown cause lies.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rlship_formats.catalogue.metrics import lookup_evidence
from rlship_sidecar.alerts.frames import ENDS, names_of
from rlship_sidecar.alerts.signals import median
from rlship_sidecar.why.detectors import INSIDE, Detector, detectors_of, wanted
from rlship_sidecar.why.evidence import LATER_THAN, RECENT, SHOWS, USUAL, Evidence, observe
from rlship_sidecar.why.graph import BOTH, Sign
from rlship_sidecar.why.window import Window

MAX_METRICS, MAX_RANKS = 200, 2000  # metrics that are looked at, and values of ranks in one frame
RATIO, PEER_RATIO = 1.5, 2.0  # of a change that counts: most metrics here have no size in the catalogue
KINDS = ("", "level", "peer")  # curves come and go, claims say nothing, and what is invariant has a rule
AWAY = ("event", "svc", "barrier", "zz_rlship", "sample")  # first parts of names that are no metric of the job's

# From where data come to where they go. What is blocked further on may slow down what is before it, but all of it.
STAGES = ("data", "environment", "generator", "reward", "buffer", "trainer")


def detectors_beyond(keys: Mapping[tuple[str, str], int], known: Sequence[Detector], lead: str) -> list[Detector]:
    """Detectors of metrics that no known one reads. `keys`: of how many ranks rows have values, by actor and key. Those
    of others than the lead first, as the lead sees what all others do.
    """
    read = wanted(known)
    found: list[Detector] = []
    ranks = 0
    chosen = [(actor, key) for actor, key in sorted(keys) if _is_beyond(actor, key, keys, read, lead)]
    for actor, key in sorted(chosen, key=lambda one: one[0] == lead)[:MAX_METRICS]:
        if actor != lead:
            found += detectors_of(_sign(key, "change", RATIO))
        ranks += keys[actor, key]
        if keys[actor, key] and ranks <= MAX_RANKS:
            found += detectors_of(_sign(key, "apart", PEER_RATIO))
    return found


def changed(window: Window, detectors: Iterable[Detector], lag: int) -> tuple[Evidence, ...]:
    """What shows around an episode."""
    worth = [one for one in detectors if one.sign.test == "apart" or _may_have_changed(one, window)]
    return tuple(one for one in observe(window, worth, lag).values() if one.state == SHOWS)


def _may_have_changed(detector: Detector, window: Window) -> bool:
    """Whether a value around the episode is far from what was usual before: mostly it is not, and quick to see."""
    begins = max(0, window.first - RECENT)
    before = [value for frame in window.frames[:begins] if (value := frame.values.get(detector.metric)) is not None]
    usual = median(sorted(before[-USUAL:] or [0.0]))
    least = (1 - 1 / RATIO) * abs(usual)
    return any(
        abs(value - usual) >= least
        for frame in window.frames[begins:]
        if (value := frame.values.get(detector.metric)) is not None
    )


def _is_beyond(actor: str, key: str, keys: Collection[tuple[str, str]], read: set[str], lead: str) -> bool:
    path = key.removeprefix(f"{actor}/")
    head, _, end = key.rpartition("/")
    if path == key or path.partition("/")[0] in AWAY or (end in ENDS and (actor, head) in keys):
        return False
    entry = lookup_evidence(actor, path, lead)
    if entry is not None and entry.evidence.kind not in KINDS:
        return False
    names = {key, *names_of(actor, key, lead)}
    return read.isdisjoint({*names, *(name.rpartition("/")[0] for name in names)})


def _sign(key: str, test: str, size: float) -> Sign:
    return Sign(
        name=f"{INSIDE}{test}{INSIDE}{key}",
        says=key,
        metrics=(key,),
        test=test,
        value=BOTH,
        size=size,
        floor=0.0,
        window=None,
        lasting=None,
        need=None,
        ranks=3,
        start=None,
        less="",
        of="",
        at="",
        leads_to=(),
    )


def first_of(found: Iterable[Evidence], by: float) -> Evidence | None:
    """Of what began by a frame, or so little later that it may be at once: what began first; then the rank that stands
    apart; then the greatest change, as effects are seldom greater than what they come from.
    """
    begun = [one for one in found if one.at <= by + LATER_THAN]
    if not begun:
        return None
    least = min(one.at for one in begun)
    return max((one for one in begun if one.at <= least + LATER_THAN), key=lambda one: (bool(one.rank), _change(one)))


def _change(one: Evidence) -> float:
    ratio = None if one.size is None else one.size.ratio
    return abs(math.log(ratio)) if ratio else math.inf


def unexplained(found: Iterable[Evidence], place: str, evidence: Sequence[Evidence], lead: str) -> Iterator[Evidence]:
    """Of what changed, what a cause at `place` with this evidence leaves unexplained: it began no later, is at another
    place, and lies before it on the way of the data, or is another rank of the same actor.
    """
    began = min((one.at for one in evidence), default=math.inf)
    actor = place.partition("/")[0]
    actors = {actor, *(one.actor for one in evidence)}
    ranks = {place, *(one.rank for one in evidence)}
    for one in found:
        if one.at > began + LATER_THAN:
            continue
        if one.rank:
            beside = one.actor == actor and place != actor
            if one.rank not in ranks and (beside or _is_before(one.actor, actor, lead)):
                yield one
        elif one.actor not in actors and _is_before(one.actor, actor, lead):
            yield one


def _is_before(actor: str, other: str, lead: str) -> bool:
    """Whether data come to one actor before another one. Of other names only the lead's is known to be the last."""
    one, two = ("trainer" if name == lead else name for name in (actor, other))
    if two not in STAGES:
        return False
    return STAGES.index(one) < STAGES.index(two) if one in STAGES else two == "trainer"
