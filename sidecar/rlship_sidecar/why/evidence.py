"""What each sign of a graph shows around an episode: since when, how much, and in which rows. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rlship_sidecar.alerts.episodes import Moment
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.signals import LEAST_SPREAD, SIGMA, median
from rlship_sidecar.rows import LEDGER
from rlship_sidecar.why.detectors import Detector, SignStretch, follow, values_of
from rlship_sidecar.why.graph import BOTH, DOWN
from rlship_sidecar.why.onset import began
from rlship_sidecar.why.window import Window

SHOWS, ABSENT, UNKNOWN, LATE, BEFORE = "shows", "absent", "unknown", "late", "before"
RECENT = 30  # frames before an episode in which a sign may have ended, and still counts
LATER = 20  # frames after an episode's beginning in which a consequence may begin
HABIT = 3  # times that a sign showed before that say that it comes and goes anyway
EARLY = 5  # frames at the beginning of what is known: what shows there may have begun before
BACK = {"level": 20, "break": 20, "shift": 30, "growth": 60}  # values by which a kind of signal may be late, at most
USUAL = 50  # values before a change that are its healthy baseline


class Size(NamedTuple):
    """How much a value changed: against `usual`, the median of healthy values, or that of its peers. Where no value was
    there before, `usual` is None, and `bound` is what the value should not pass, if there is such a number.

    `ratio` is value / usual, and `deviations` how many times the usual spread lies between them; None where there is no
    such number.
    """

    value: float
    usual: float | None
    ratio: float | None
    deviations: float | None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one sign shows. `state` is shows, absent, unknown, late (it began after the episode) or before (it showed
    long before, or comes and goes anyway). The rest is None or "" unless it shows, late and before included. `actor`
    and `kind` are those of the rows that have the metric, "" if none has.

    `at` is the place of its onset in the window, as estimated, and `sure` that from which on its detector says so.
    `rank` is the rank that stands out, as `<actor>/<replica>.<rank>`.
    """

    sign: str
    state: str
    metrics: tuple[str, ...]
    metric: str = ""
    at: int = -1
    onset: Moment | None = None
    last: Moment | None = None
    size: Size | None = None
    actor: str = ""
    kind: str = ""
    row: int | None = None
    rank: str = ""
    sure: int = -1

    @property
    def place(self) -> str:
        """The rank that stands out, else the actor whose rows show it."""
        return self.rank or self.actor


def observe(window: Window, detectors: Sequence[Detector], lag: int) -> dict[str, Evidence]:
    """What each sign shows. A sign that any of its metrics shows is there, and absent if one is known and none does."""
    found: dict[str, Evidence] = {}
    for one in detectors:
        evidence = _of_metric(window, one, lag)
        before = found.get(one.sign.name)
        found[one.sign.name] = evidence if before is None else _better(before, evidence)
    return found


_ORDER = (SHOWS, LATE, BEFORE, ABSENT, UNKNOWN)


def _better(one: Evidence, other: Evidence) -> Evidence:
    best = min((one, other), key=lambda evidence: (_ORDER.index(evidence.state), evidence.at, not evidence.actor))
    return replace(best, metrics=(*one.metrics, *other.metrics))


def _of_metric(window: Window, detector: Detector, lag: int) -> Evidence:
    course = follow(detector, window.frames)
    metrics = (detector.metric,) if detector.metric else ()
    stretches = [one for one in _dated(course.stretches, detector, window) if _is_early(detector, one, window)]
    stretch = choose(stretches, window, lag)
    source = window.source_of(detector.metric, "" if stretch is None else stretch.place)
    actor, kind = ("", "") if source is None else source
    if stretch is None:
        near = [at for at in course.known if window.first - RECENT <= at <= window.last]
        told = len(near) >= 3 and near[-1] >= window.first - EARLY
        return Evidence(detector.sign.name, ABSENT if told else UNKNOWN, metrics, actor=actor, kind=kind)
    begin, end = window.frames[stretch.first], window.frames[stretch.last]
    rank, row = stretch.place, None if source is None else window.row_of(source, stretch.first)
    if source is None and rank:
        actor, rank = rank, ""  # of an event the place is an actor
    return Evidence(
        detector.sign.name,
        _state(stretch, stretches, course.known, window, lag),
        metrics,
        detector.metric,
        stretch.first,
        Moment(begin.index, begin.t),
        Moment(end.index, end.t),
        _size(window.frames, detector, stretch),
        actor,
        LEDGER if source is not None and not actor else kind,
        row,
        rank,
        stretch.sure,
    )


def _dated(stretches: Sequence[SignStretch], detector: Detector, window: Window) -> list[SignStretch]:
    """The same stretches, each from where the change began."""
    if detector.sign.test not in ("change", "grows", "slows"):
        return list(stretches)
    back = BACK.get("growth" if detector.signal is None else detector.signal.kind, 0)
    values = values_of(detector, window.frames)
    places = [at for at, _ in values]
    found: list[SignStretch] = []
    for one in stretches:
        seen = bisect_right(places, one.first)
        most = min(back, seen - 1 - (bisect_right(places, found[-1].last) if found else 0))
        down = detector.sign.direction == DOWN or (
            detector.sign.direction == BOTH and seen > 1 and values[seen - 1][1] < values[max(0, seen - 1 - most)][1]
        )
        first = places[began([value for _, value in values[:seen]], most, down=down)]
        found.append(one._replace(first=first))
    return found


def _is_early(detector: Detector, stretch: SignStretch, window: Window) -> bool:
    """Whether a stretch begins where the sign wants it: anywhere, or as the run or an attempt begins."""
    start = detector.sign.start
    return start is None or stretch.first - window.begins(stretch.first) < start


def choose(stretches: Iterable[SignStretch], window: Window, lag: int) -> SignStretch | None:
    """The stretch that belongs to an episode: the last one that began by then and had not long ended, else the first
    one after it.
    """
    after = None
    best = None
    for one in stretches:
        if one.first <= window.first + LATER_THAN:
            best = one if one.last >= window.first - RECENT - lag else best
        elif after is None and one.first <= max(window.fired, window.first) + LATER + lag:
            after = one
    return best or after


LATER_THAN = 3  # frames: detectors that need several frames, and clocks of other hosts, disagree by so much


def _state(
    stretch: SignStretch, stretches: Sequence[SignStretch], known: Sequence[int], window: Window, lag: int
) -> str:
    recent = window.first - RECENT - lag
    if sum(one.last < recent for one in stretches) >= HABIT:
        return BEFORE
    if stretch.first > window.first + LATER_THAN:
        return LATE
    return BEFORE if stretch.first - known[0] < EARLY and stretch.first < recent else SHOWS


def _size(frames: Sequence[StepFrame], detector: Detector, stretch: SignStretch) -> Size | None:
    """The extreme within the stretch, against what was usual before it."""
    inside = frames[stretch.first : stretch.last + 1]
    if detector.sign.test == "apart":
        return _peer_size(inside, detector, stretch.place)
    values = [value for _, value in values_of(detector, inside)]
    if not values:
        return None
    before = [value for _, value in values_of(detector, frames[: stretch.first])]
    usual = before[-USUAL:]
    down = detector.sign.direction == DOWN
    if not usual:
        return Size((min if down else max)(values), None, None, None, _bound(detector))
    level = median(sorted(usual))
    extreme = max(values, key=lambda value: (abs(value - level), value))
    value = extreme if detector.sign.direction == "both" else (min if down else max)(values)
    spread = max(SIGMA * median(sorted(abs(one - level) for one in usual)), LEAST_SPREAD * abs(level))
    return Size(value, level, value / level if level > 0 else None, abs(value - level) / spread if spread > 0 else None)


def _bound(detector: Detector) -> float | None:
    if detector.signal is None:
        return None
    return detector.signal.high if detector.signal.low is None else detector.signal.low


def _peer_size(inside: Sequence[StepFrame], detector: Detector, place: str) -> Size | None:
    found = [
        (dict(ranks)[place], ranks[0][1])
        for frame in inside
        if place in dict(ranks := frame.ranks.get(detector.key, ()))
    ]
    if not found:
        return None
    value, middle = max(found, key=lambda one: (abs(one[0] - one[1]), one[0]))
    return Size(value, middle, value / middle if middle > 0 else None, None)
