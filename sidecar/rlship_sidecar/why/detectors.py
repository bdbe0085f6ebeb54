"""When a sign shows: what a metric says frame by frame, by the kinds of evidence that the catalogue states. Pure.

Levels, breaks, bounds, growth and stalls are found by the signals of alerts. So a rule and a sign never disagree about
the same metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from rlship_sidecar.alerts.frames import RankValues, StepFrame
from rlship_sidecar.alerts.signals import START, UNKNOWN, Signal, SignalAnswer, State, apart, ask, median
from rlship_sidecar.alerts.words import entry_of
from rlship_sidecar.why.graph import DOWN, Sign

SAME = (3, 5)  # a rank is apart in 3 of 5 frames
LASTING_Z, GROWTH, LASTS = 4.0, 60, (2, 3)  # spreads, window and frames of a change that is slow or for good
LEAST_SHARE = 0.1  # of a growth lies in each quarter of its window
JUMPED = 50  # frames for which a value that jumped is news
END = 5  # frames without it end what shows
INSIDE = "\0"  # begins the names of what a frame has for detectors alone
RESTARTS = f"{INSIDE}restarts/"


@dataclass(frozen=True, slots=True)
class Detector:
    """Looks for a sign in one metric. `signal` is None for what alerts have no kind of."""

    sign: Sign
    metric: str
    signal: Signal | None
    need: tuple[int, int]

    @property
    def key(self) -> str:
        """Under which frames have the ranks that stand apart."""
        return f"{INSIDE}{self.sign.name}{INSIDE}{self.metric}"


class SignStretch(NamedTuple):
    """Frames in which a sign shows, by their places in the list of frames: from `first` to `last`. From `sure` on its
    detector says so; `first` may be dated back.
    """

    first: int
    last: int
    place: str
    sure: int


class SignCourse(NamedTuple):
    """What a detector says: at how many frames it knows, since which one, and where the sign shows."""

    known: tuple[int, ...]
    stretches: tuple[SignStretch, ...]


def detectors_of(sign: Sign) -> list[Detector]:
    """A detector for each metric of a sign."""
    if sign.test in ("event", "stalls"):
        signal = Signal(sign.name, "stalled", (), size=120, ratio=5, window=20, warmup=5)
        return [Detector(sign, "", signal if sign.test == "stalls" else None, (1, 1))]
    if sign.test == "slows":
        ratio = max(1.0, sign.value)
        return [Detector(sign, "", Signal(sign.name, "shift", (), ratio=ratio, z=LASTING_Z), LASTS)]
    lasting = [one for metric in sign.metrics if sign.lasting is not None for one in _lasting(sign, metric)]
    return [*(_detector(sign, metric) for metric in sign.metrics), *lasting]


def _lasting(sign: Sign, metric: str) -> list[Detector]:
    """Look for a change that is slow, or for good, of a level."""
    entry = entry_of(metric)
    kind = "level" if entry is None else entry.evidence.kind
    size = sign.size if sign.size is not None or entry is None else entry.evidence.size
    common: dict[str, Any] = {"direction": sign.value, "ratio": sign.lasting, "less": sign.less, "of": sign.of}
    window, least = min(GROWTH, sign.window or GROWTH), (size if kind == "curve" else sign.floor) or 0.0
    made = [Signal(sign.name, "growth", (metric,), size=least, z=LASTING_Z, window=window, **common)]
    if kind != "curve":
        made.append(Signal(sign.name, "shift", (metric,), floor=least, z=LASTING_Z, **common))
    return [Detector(sign, metric, one, LASTS) for one in made]


def _detector(sign: Sign, metric: str) -> Detector:
    common: dict[str, Any] = {"less": sign.less, "of": sign.of}
    if sign.test in ("grows", "falls", "rises", "jumps", "stuck"):
        return Detector(sign, metric, None, sign.need or (1, 1))
    if sign.test == "differs":
        made = Signal(sign.name, "equal", (metric,), to=sign.value, size=sign.size or 0.0, **common)
        return Detector(sign, metric, made, sign.need or (1, 1))
    if sign.test in ("above", "below"):
        bound: dict[str, Any] = {"high" if sign.test == "above" else "low": sign.value}
        made = Signal(sign.name, "invariant", (metric,), direction=sign.direction, **bound, **common)
        return Detector(sign, metric, made, sign.need or (1, 1))
    return _by_kind(sign, metric, common)


def _by_kind(sign: Sign, metric: str, common: dict[str, Any]) -> Detector:
    """What the catalogue says of the metric, but for what the sign itself says."""
    entry = entry_of(metric)
    kind = "level" if entry is None else entry.evidence.kind
    size = sign.size if sign.size is not None or entry is None else entry.evidence.size
    floor = sign.floor if sign.floor is not None or entry is None else entry.evidence.floor
    assert size is not None  # the graph was checked
    if sign.test == "apart":
        made = Signal(sign.name, "peer", (metric,), direction=sign.value, ratio=max(1.0, size), floor=floor or 0.0)
        return Detector(sign, metric, made, (1, 1))
    if kind == "invariant" and sign.size is None:
        bound: dict[str, Any] = {"low" if sign.value == DOWN else "high": size}
        made = Signal(sign.name, "invariant", (metric,), direction=sign.value, **bound, **common)
        return Detector(sign, metric, made, sign.need or (1, 1))
    if kind == "curve":
        window = sign.window or 30
        common["warmup"] = min(20, window)
        made = Signal(sign.name, "break", (metric,), direction=sign.value, size=size, window=window, **common)
        return Detector(sign, metric, made, sign.need or (2, 3))
    ratio, window = max(1.0, size), sign.window or 50
    made = Signal(
        sign.name, "level", (metric,), direction=sign.value, ratio=ratio, floor=floor or 0.0, window=window, **common
    )
    return Detector(sign, metric, made, sign.need or (2, 3))


def wanted(detectors: Sequence[Detector]) -> set[str]:
    """The names of frames that detectors ask for."""
    found = {name for one in detectors for name in (one.metric, one.sign.less, one.sign.of)}
    return {
        name for name in (*found, *(str(one.sign.value) for one in detectors if one.sign.test == "differs")) if name
    }


def standing_out(detector: Detector, values: RankValues) -> RankValues:
    """Of the ranks of a frame the median, and those that stand apart. Few, so that many frames fit into memory."""
    if detector.signal is None or len(values) < detector.sign.ranks:
        return ()
    found = dict(values)
    out = sorted(apart(detector.signal, values), key=lambda place: (-abs(found[place]), place))[:8]
    return ((INSIDE, median(sorted(found.values()))), *((place, found[place]) for place in out))


def follow(detector: Detector, frames: Sequence[StepFrame]) -> SignCourse:
    """What a detector says of frames."""
    if detector.sign.test == "apart":
        return _course(_apart(detector, frames), detector.need)
    answers, state = [], START
    look = _own(detector)
    for frame in frames:
        answer, state = look(detector, frame, state)
        answers.append(answer)
    return _course(answers, detector.need)


def _course(answers: Sequence[SignalAnswer], need: tuple[int, int]) -> SignCourse:
    """Where `need` (k, n) of the frames in which it is known are true, and END that are not have not ended it."""
    known = tuple(at for at, answer in enumerate(answers) if answer.truth is not None)
    found: list[SignStretch] = []
    lately: list[tuple[int, SignalAnswer]] = []
    calm = END
    for at in known:
        answer = answers[at]
        lately = [*lately, (at, answer)][-need[1] :]
        hits = [one for one in lately if one[1].truth]
        calm = 0 if answer.truth else calm + 1
        if len(hits) < need[0] or not answer.truth:
            if found and answer.truth and calm < END and at - found[-1].last <= END:
                found[-1] = found[-1]._replace(last=at)
            continue
        if found and hits[0][0] - found[-1].last <= END:
            found[-1] = found[-1]._replace(last=at, place=found[-1].place or answer.place)
        else:
            place = next((one.place for _, one in hits if one.place), "")
            found.append(SignStretch(hits[0][0], at, place, hits[0][0]))
    return SignCourse(known, tuple(found))


_Look = Callable[[Detector, StepFrame, State], tuple[SignalAnswer, State]]


def _own(detector: Detector) -> _Look:
    if detector.signal is None:
        return _OWN[detector.sign.test]
    return _signal


def _signal(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    assert detector.signal is not None
    return ask(detector.signal, frame, state)


def value_at(detector: Detector, frame: StepFrame) -> float | None:
    """The value that a detector is about: (metric - less) / of, or how much two metrics differ."""
    value = frame.values.get(detector.metric)
    if value is None:
        return None
    other = detector.sign.value if detector.sign.test == "differs" else detector.sign.less
    if other:
        if other not in frame.values:
            return None
        value -= frame.values[other]
    if detector.sign.of:
        whole = frame.values.get(detector.sign.of)
        if whole is None or whole <= 0:
            return None
        value /= whole
    return value


def values_of(detector: Detector, frames: Sequence[StepFrame]) -> list[tuple[int, float]]:
    """The values that a detector is about, each with its frame's place; of `slows` the seconds of steps."""
    if detector.sign.test != "slows":
        return [(at, value) for at, frame in enumerate(frames) if (value := value_at(detector, frame)) is not None]
    return [
        (at, (one.t - before.t) / (one.index - before.index))
        for at, (before, one) in enumerate(pairwise(frames), 1)
        if before.lineage == one.lineage and one.index > before.index
    ]


def _apart(detector: Detector, frames: Sequence[StepFrame]) -> list[SignalAnswer]:
    """True where a rank is apart from its peers that is so in SAME frames."""
    answers = [UNKNOWN] * len(frames)
    known = [(at, frame.ranks[detector.key]) for at, frame in enumerate(frames) if frame.ranks.get(detector.key)]
    places = [{place for place, _ in ranks[1:]} for _, ranks in known]
    for number, (at, ranks) in enumerate(known):
        answers[at] = SignalAnswer(False)
        for place, value in ranks[1:]:
            if any(
                sum(place in one for one in places[first : first + SAME[1]]) >= SAME[0]
                for first in range(max(0, number - SAME[1] + 1), number + 1)
            ):
                answers[at] = SignalAnswer(True, value, place)
                break
    return answers


def _falls(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the value is below the one before it by more than `size`."""
    value = value_at(detector, frame)
    if value is None:
        return UNKNOWN, state
    truth = value < state[0] - (detector.sign.size or 0.0) if state else None
    return SignalAnswer(truth, value), (value,)


def _rises(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the value is so much above the one before it."""
    value = value_at(detector, frame)
    if value is None:
        return UNKNOWN, state
    return SignalAnswer(value - state[0] >= detector.sign.value if state else None, value), (value,)


def _grows(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the median of the last quarter of the window is so much above that of the first one, and each quarter has
    its share in that. A single jump is no growth.
    """
    value = value_at(detector, frame)
    if value is None:
        return UNKNOWN, state
    window = detector.sign.window or 20
    state = (*state, value)[-window:]
    if len(state) < window:
        return SignalAnswer(None, value), state
    quarter = window // 4
    medians = [median(sorted(state[at : at + quarter])) for at in range(0, 4 * quarter, quarter)]
    grown = medians[3] - medians[0]
    shares = [after - before for before, after in pairwise(medians)]
    return SignalAnswer(grown >= detector.sign.value and min(shares) >= LEAST_SHARE * grown, value), state


def _jumps(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the value is so many times the one before it, and for as long as it stays so, up to `window` frames."""
    value = value_at(detector, frame)
    if value is None:
        return UNKNOWN, state
    if not state:
        return SignalAnswer(None, value), (value, 0)
    before, since = state
    if before > 0 and value >= detector.sign.value * before and since < (detector.sign.window or JUMPED):
        return SignalAnswer(True, value), (before, since + 1)
    return SignalAnswer(False, value), (value, 0)


def _stuck(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the last so many values are equal."""
    value = value_at(detector, frame)
    if value is None:
        return UNKNOWN, state
    state = (*state, value)[-detector.sign.value :]
    return SignalAnswer(len(set(state)) == 1 if len(state) == detector.sign.value else None, value), state


def _event(detector: Detector, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True at the first frame of a lineage, or where the attempt of an actor rises or a rank has another life."""
    what = detector.sign.value
    starts = {name: value for name, value in frame.values.items() if name.startswith(RESTARTS)}
    before: dict[str, float] = dict(state[1]) if state else {}
    last = state[0] if state else frame.lineage
    after: State = (frame.lineage, tuple((before | starts).items()))
    if what == "job_restart":
        return SignalAnswer(frame.lineage[:2] > last[:2]), after
    if what == "rollback":
        return SignalAnswer(frame.lineage[:2] == last[:2] and frame.lineage[2] > last[2]), after
    risen = sorted(name for name, value in starts.items() if value > before.get(name, value))
    return SignalAnswer(bool(risen), None, risen[0].removeprefix(RESTARTS) if risen else ""), after


_OWN: dict[str, _Look] = {
    "grows": _grows,
    "falls": _falls,
    "rises": _rises,
    "jumps": _jumps,
    "stuck": _stuck,
    "event": _event,
}
