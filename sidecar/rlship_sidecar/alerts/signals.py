"""Signals: what one metric says at a frame, given the frames before it. Pure.

A signal is true, false, or unknown (None): its metric is not in the frame, or too few frames came before. All
arithmetic is sorting, comparing and the four operations on doubles, each rounded as IEEE 754 states. So equal frames
give equal answers on every machine.

States are tuples, so that a snapshot is a reference and two states compare by value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlship_sidecar.alerts.expression import Truth
from rlship_sidecar.alerts.frames import LACKING, MAX_PLACES, RankValues, StepFrame, ordered_figures

TINY = 1e-12  # below it a spread is that of rounding
SIGMA = 1.4826  # the standard deviation of normal values is this times their median absolute deviation
LEAST_SPREAD = 0.05  # a level's spread is at least this share of it, or a constant would alarm by its last digit
UP, DOWN, BOTH = "up", "down", "both"

State = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal of a rule. docs/alerts.md explains the kinds and what each takes.

    The metric is the first of `metrics` that a frame has. The value is (metric - `less`) / `of`, each as far as named.
    Only frames that have `beside`, too, count.
    """

    name: str
    kind: str
    metrics: tuple[str, ...] = ()
    less: str = ""
    of: str = ""
    to: str = ""
    beside: str = ""
    direction: str = UP
    low: float | None = None
    high: float | None = None
    size: float = 0.0
    ratio: float = 1.0
    floor: float = 0.0
    z: float = 6.0
    window: int = 50
    warmup: int = 20
    ranks: int = 4
    same: tuple[int, int] = (1, 1)
    bend: float = 0.0
    hold: int = 0
    missing: Truth = None


Places = tuple[tuple[str, float | None], ...]  # with the value that each is about


class SignalAnswer(NamedTuple):
    """What a signal says: its truth, the value it is about, and the place that stands out ("" for none).

    `places` are those of which each is true by itself, so that a rule follows it by itself. None: they are too many.
    """

    truth: Truth
    value: float | None = None
    place: str = ""
    places: Places | None = ()


UNKNOWN = SignalAnswer(None)
START: State = ()
_FRESH: State = (0, START, ())  # after a frame that says nothing


def ask(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """What a signal says at a frame, and its state after it. A signal's first state is START."""
    before = state or _FRESH
    held, own, places = before
    found, after = _KINDS[signal.kind](signal, frame, own)
    if found.truth is None and signal.missing is not None:
        found = found._replace(truth=signal.missing)
    if signal.hold:
        if found.truth:
            held, places = signal.hold, found.places
        elif found.truth is False and held:
            found, held = found._replace(truth=True, places=places), held - 1
        if not held:
            places = ()
    elif after is own:
        return found, before
    return found, (held, after, places)


def ask_of_nothing(signal: Signal, names: Set[str], state: State) -> tuple[SignalAnswer, State] | None:
    """What `ask` gives at each of any frames that together have only these names, if that is the same for all of them
    and leaves the state as it is. None: it may not be.
    """
    before = state or _FRESH
    by_time = signal.kind == "stalled" or not signal.metrics
    held = before[0] or (signal.hold and signal.missing)
    if by_time or held or before[2] or not names.isdisjoint(signal.metrics):
        return None
    return UNKNOWN._replace(truth=signal.missing), before


def wanted(signal: Signal) -> list[str]:
    """The names of a frame that a signal asks for."""
    return [name for name in (*signal.metrics, signal.less, signal.of, signal.to, signal.beside) if name]


def value_of(signal: Signal, frame: StepFrame) -> tuple[str, float] | None:
    """The metric that counts, and its value; None if the frame lacks any of them."""
    values = frame.values
    for name in signal.metrics:
        if name in values:
            break
    else:
        return None
    if signal.beside and signal.beside not in values:
        return None
    value = values[name]
    if signal.less:
        if signal.less not in values:
            return None
        value -= values[signal.less]
    if signal.of:
        whole = values.get(signal.of)
        if whole is None or whole <= 0:
            return None
        value /= whole
    return name, value


def median(ordered: Sequence[float]) -> float:
    """The median of values in ascending order."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else ordered[middle - 1] / 2 + ordered[middle] / 2


def _place(signal: Signal, frame: StepFrame, name: str) -> str:
    """The first rank with the value that stands out; "" where values of ranks are not known."""
    ranks = frame.ranks.get(name, ())
    if not ranks:
        return ""
    most = (min if signal.direction == DOWN else max)(value for _, value in ranks)
    return next(place for place, value in ranks if value == most)


# Known values ---------------------------------------------------------------------------------------------------------


def _bounds(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """`invariant` is true outside of low..high, `above` at or beyond one of them; in k of the last n frames, with
    (k, n) = `same`.
    """
    found = value_of(signal, frame)
    if found is None:
        return UNKNOWN, state
    if signal.same[1] > 1:
        return _lasting(signal, frame, found, state)
    name, value = found
    if not _is_out(signal, value):
        return SignalAnswer(False, value), state
    return SignalAnswer(True, value, _place(signal, frame, name), _places(signal, frame, name, value)), state


def _lasting(signal: Signal, frame: StepFrame, found: tuple[str, float], state: State) -> tuple[SignalAnswer, State]:
    """Whether a bound is passed for long enough. Each rank counts for itself where one is enough."""
    name, value = found
    needed, lately = signal.same
    ranks = _each_out(signal, frame, name)
    now: dict[str, float | None] = {"": value} if ranks is None and _is_out(signal, value) else dict(ranks or ())
    before: State = state[1] if state and state[0] == name else ()
    out = (*before, tuple(now))[-lately:]
    places = [place for place, count in _times(out).items() if count >= needed]
    if not places:
        return SignalAnswer(False, value), (name, out)
    if ranks is None:
        return SignalAnswer(True, value), (name, out)
    told = _told(places, now) if value <= len(ranks) else None
    return SignalAnswer(True, now.get(places[0]), places[0], told), (name, out)


def _times(state: State) -> dict[str, int]:
    """In how many of the frames that are remembered each place was."""
    times: dict[str, int] = {}
    for places in state:
        for place in places:
            times[place] = times.get(place, 0) + 1
    return times


def _told(places: Sequence[str], now: dict[str, float | None]) -> Places | None:
    """Places with their values of this frame; None where they are too many."""
    return tuple((one, now.get(one)) for one in places) if len(places) <= MAX_PLACES else None


def _is_out(signal: Signal, value: float) -> bool:
    low, high = signal.low, signal.high
    if signal.kind == "invariant":
        return (low is not None and value < low) or (high is not None and value > high)
    return (low is not None and value <= low) or (high is not None and value >= high)


def _places(signal: Signal, frame: StepFrame, name: str, value: float) -> Places | None:
    """The ranks that are missing or short, where one is enough. A frame names the first of them only."""
    ranks = _each_out(signal, frame, name)
    if ranks is None:
        return ()
    return tuple((place, value) for place, _ in ranks) if value <= len(ranks) else None


def _each_out(signal: Signal, frame: StepFrame, name: str) -> RankValues | None:
    """The ranks that are missing or short, as far as a frame names them; None where one of them is not enough."""
    if name not in LACKING or signal.less or signal.of or not _is_out(signal, 1.0):
        return None
    return frame.ranks.get(name, ())


def _equal(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if two metrics differ by more than `size`."""
    found = value_of(signal, frame)
    if found is None or signal.to not in frame.values:
        return UNKNOWN, state
    difference = found[1] - frame.values[signal.to]
    return SignalAnswer(abs(difference) > signal.size, difference), state


# Against their own past -----------------------------------------------------------------------------------------------


class _Baseline(NamedTuple):
    """Values that count as usual, and the unusual ones since, which do not.

    Once there are as many of those as fit the window, they are what is usual: a lasting change is news only once.
    """

    name: str
    usual: tuple[float, ...] = ()
    unusual: tuple[float, ...] = ()

    def with_value(self, value: float, signal: Signal, *, far: bool) -> _Baseline:
        if not far:
            return _Baseline(self.name, (*self.usual, value)[-signal.window :])
        unusual = (*self.unusual, value)
        if len(unusual) >= signal.window:
            return _Baseline(self.name, unusual)
        return _Baseline(self.name, self.usual, unusual)


def _against_past(
    far: Callable[[Signal, tuple[float, ...], float], bool],
) -> Callable[[Signal, StepFrame, State], tuple[SignalAnswer, State]]:
    def answer(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
        found = value_of(signal, frame)
        if found is None:
            return UNKNOWN, state
        name, value = found
        # A state that was kept and read again has plain tuples.
        before = _Baseline(*state[0]) if state and state[0][0] == name else _Baseline(name)
        if len(before.usual) < signal.warmup:
            return SignalAnswer(None, value), (before.with_value(value, signal, far=False),)
        is_far = far(signal, before.usual, value)
        place = _place(signal, frame, name) if is_far else ""
        return SignalAnswer(is_far, value, place), (before.with_value(value, signal, far=is_far),)

    return answer


def _beyond(signal: Signal, difference: float, least: float) -> bool:
    """Whether a difference goes far enough in the direction that counts."""
    if signal.direction == UP:
        return difference >= least
    if signal.direction == DOWN:
        return -difference >= least
    return abs(difference) >= least


def _far_from_level(signal: Signal, usual: tuple[float, ...], value: float) -> bool:
    level = median(sorted(usual))
    difference = value - level
    least = _least(signal, difference, level)
    if not _beyond(signal, difference, least):
        return False  # before the spread, which costs most
    spread = SIGMA * median(sorted(abs(one - level) for one in usual))
    return _beyond(signal, difference, max(least, signal.z * max(spread, LEAST_SPREAD * abs(level), TINY)))


def _least(signal: Signal, difference: float, level: float) -> float:
    """The difference from a level that is of practical size."""
    share = 1 - 1 / signal.ratio if difference < 0 else signal.ratio - 1
    return max(share * abs(level), signal.floor)


class Trend(NamedTuple):
    """The line through the medians of the first and of the last half of values. `last` is its value in the middle of
    the last half, `half` how many values that has, and `scale` the usual distance of a value from the line.
    """

    last: float
    slope: float
    half: int
    scale: float

    def ahead(self, count: int) -> float:
        """Its value in the middle of the next `count` frames."""
        return self.last + self.slope * ((self.half + count) / 2)


def _last_half(values: Sequence[float]) -> float:
    return median(sorted(values[-(len(values) // 2) :]))


def trend_of(values: Sequence[float]) -> Trend:
    """The trend of two values or more."""
    half = len(values) // 2
    first, last = median(sorted(values[:half])), _last_half(values)
    slope = (last - first) / (len(values) - half)
    begin = len(values) - half + (half - 1) / 2  # the place of the middle of the last half
    residuals = sorted(abs(one - (last + slope * (at - begin))) for at, one in enumerate(values))
    return Trend(last, slope, half, max(SIGMA * median(residuals), TINY))


def _far_from_trend(signal: Signal, usual: tuple[float, ...], value: float) -> bool:
    last = _last_half(usual)
    least = max(signal.size, (signal.ratio - 1) * abs(last))
    # A bend of the curve is no break: the value has to be far from the newest values too.
    if not _beyond(signal, value - last, least):
        return False  # before the spread, which costs most
    trend = trend_of(usual)
    least = max(least, signal.z * trend.scale)
    return _beyond(signal, value - trend.ahead(1), least) and _beyond(signal, value - last, least)


def _growth(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the median of the last quarter of the window is at least `size` from that of its first quarter, and
    `ratio` times as much, and `z` spreads away; with `bend` the second half of the way took that much more than the
    first.
    """
    found = value_of(signal, frame)
    if found is None:
        return UNKNOWN, state
    name, value = found
    before: tuple[float, ...] = state[1] if state and state[0] == name else ()
    values = (*before, value)[-signal.window :]
    if len(values) < signal.window:
        return SignalAnswer(None, value), (name, values)
    quarter = max(1, signal.window // 4)
    first, last = median(sorted(values[:quarter])), median(sorted(values[-quarter:]))
    grown = last - first
    truth = _beyond(signal, grown, signal.size) and _is_times(signal, first, last)
    if truth and signal.z:
        truth = abs(grown) >= signal.z * trend_of(values).scale
    if truth and signal.bend:
        second = median(sorted(values[quarter : 2 * quarter]))
        third = median(sorted(values[-2 * quarter : -quarter]))
        way = 1.0 if grown > 0 else -1.0
        truth = way * (last - third) >= signal.bend * (way * (second - first))
    return SignalAnswer(truth, grown), (name, values)


def _is_times(signal: Signal, first: float, last: float) -> bool:
    """Whether a value became `ratio` times as large, or as small, as it was."""
    if signal.ratio == 1.0:
        return True
    low, high = (first, last) if last > first else (last, first)
    return high >= signal.ratio * low


def _shift(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the median of the last fifth of the window is far from the values before it, and from where their trend
    leads: `ratio` times as much, `floor` away and `z` spreads. Without a metric it is about the seconds that a step
    took, by the times of frames.
    """
    last_frame, name, before = state if state else (None, "", ())
    if signal.metrics:
        found = value_of(signal, frame)
        if found is None:
            return UNKNOWN, state
    else:
        now = (frame.lineage, frame.index, frame.t)
        found = _pace(now, last_frame)
        last_frame = now
        if found is None:
            return UNKNOWN, (last_frame, name, before)
    if found[0] != name:
        before = ()
    name, value = found
    values = (*before, value)[-signal.window :]
    lately = max(1, signal.window // 5)
    if len(values) < signal.warmup + lately:
        return SignalAnswer(None, value), (last_frame, name, values)
    value = median(sorted(values[-lately:]))
    truth = _has_shifted(signal, values[:-lately], lately, value)
    place = _place_apart(signal, frame, name) if truth else ""
    return SignalAnswer(truth, value, place), (last_frame, name, values)


def _place_apart(signal: Signal, frame: StepFrame, name: str) -> str:
    """The rank with the value that stands out, if it is apart from the others; a change of all of them has no place."""
    ranks = frame.ranks.get(name, ())
    place = _place(signal, frame, name) if len(ranks) > 1 and not (signal.less or signal.of) else ""
    return place if place and place in apart(signal, ranks) else ""


def _pace(now: tuple[Any, ...], last: Any) -> tuple[str, float] | None:
    """The seconds a step took since the frame before; None after a restart or a rollback."""
    if last is None or tuple(last[0]) != tuple(now[0]) or now[1] <= last[1]:
        return None
    return "", (now[2] - last[2]) / (now[1] - last[1])


def _has_shifted(signal: Signal, before: tuple[float, ...], lately: int, value: float) -> bool:
    last = _last_half(before)
    least = _least(signal, value - last, last)
    if not _beyond(signal, value - last, least):
        return False  # before the spread, which costs most
    trend = trend_of(before)
    least = max(least, signal.z * trend.scale)
    return _beyond(signal, value - last, least) and _beyond(signal, value - trend.ahead(lately), least)


def _stalled(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if the time since the frame before is at least `size` seconds and `ratio` times the usual; the seconds of
    `metrics` in the frame account for their part of it. After a restart or a rollback there is no such time.
    """
    last, lineage, usual = state if state else (frame.t, None, ())
    if lineage != frame.lineage:
        return UNKNOWN, (frame.t, frame.lineage, usual)
    gap = frame.t - last - sum(max(0.0, frame.values.get(name, 0.0)) for name in signal.metrics)
    known = len(usual) >= signal.warmup
    breach = known and gap >= signal.size and gap >= signal.ratio * median(sorted(usual))
    usual = usual if breach else (*usual, gap)[-signal.window :]
    return SignalAnswer(breach if known else None, gap), (frame.t, frame.lineage, usual)


# Against others -------------------------------------------------------------------------------------------------------


def _peer(signal: Signal, frame: StepFrame, state: State) -> tuple[SignalAnswer, State]:
    """True if a rank was apart from the others in k of the last n frames, with (k, n) = `same`."""
    name = next((name for name in signal.metrics if len(frame.ranks.get(name, ())) >= signal.ranks), None)
    if name is None:
        return UNKNOWN, state
    values = frame.ranks[name]
    needed, lately = signal.same
    state = (*state, apart(signal, values))[-lately:]
    times = _times(state)
    most = max(times.values(), default=0)
    if most < needed:
        return SignalAnswer(False), state
    place = next(place for place, count in times.items() if count == most)
    now: dict[str, float | None] = dict(values)
    places = _told([one for one, count in times.items() if count >= needed], now)
    return SignalAnswer(True, now.get(place), place, places), state


def apart(signal: Signal, values: RankValues) -> tuple[str, ...]:
    """The ranks whose value differs from the median of the others by a ratio and a floor."""
    ordered = ordered_figures(values)
    half = len(ordered) // 2
    middles: dict[int, float] = {}  # of the others, by the place of the value: the same below the middle, and above it

    def is_apart(value: float) -> bool:
        at = bisect_left(ordered, value)
        side = min(max(at, half - 1), half + 1)
        middle = middles.get(side)
        if middle is None:
            middle = middles[side] = median(_Without(ordered, at))
        up = value - middle >= signal.floor and value >= signal.ratio * middle
        down = middle - value >= signal.floor and value * signal.ratio <= middle
        return (up and signal.direction != DOWN) or (down and signal.direction != UP)

    # Values up to the one before the middle have the same median of the others, and so have those above the middle. Of
    # such values the least and the greatest are the farthest from it: if they are not apart, no value is.
    above = (bisect_right(ordered, ordered[at]) for at in (half - 1, half))
    if not any(is_apart(ordered[at]) for at in (0, -1, half - 1, half, *above) if at < len(ordered)):
        return ()
    return tuple(place for place, value in values if is_apart(value))


class _Without(Sequence[float]):
    """A sorted list without one of its items, without a copy."""

    def __init__(self, ordered: Sequence[float], at: int) -> None:
        self._ordered = ordered
        self._at = at

    def __len__(self) -> int:
        return len(self._ordered) - 1

    def __getitem__(self, place: Any) -> Any:
        return self._ordered[place + (place >= self._at)]


_KINDS: dict[str, Callable[[Signal, StepFrame, State], tuple[SignalAnswer, State]]] = {
    "invariant": _bounds,
    "above": _bounds,
    "equal": _equal,
    "level": _against_past(_far_from_level),
    "break": _against_past(_far_from_trend),
    "growth": _growth,
    "shift": _shift,
    "stalled": _stalled,
    "peer": _peer,
}
KINDS = tuple(_KINDS)
