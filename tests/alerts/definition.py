"""What rules say of frames, in the slow and obvious way: every answer is worked out from the first frame on.

It shares the rules, the frames and the conditions with the engine, and nothing of how signals and states are kept.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

from rlship_sidecar.alerts.expression import AtLeast, Name, Not
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.alerts.signals import Signal


def number(signal: Signal, frame: StepFrame) -> tuple[str, float] | None:
    """The metric that counts at a frame, and the value that the signal is about."""
    present = [name for name in signal.metrics if name in frame.values]
    needed = [name for name in (signal.less, signal.of, signal.beside) if name]
    if not present or any(name not in frame.values for name in needed):
        return None
    value = frame.values[present[0]]
    if signal.less:
        value = value - frame.values[signal.less]
    if signal.of:
        if frame.values[signal.of] <= 0:
            return None
        value = value / frame.values[signal.of]
    return present[0], value


def usual_before(signal: Signal, frames: Sequence[StepFrame]) -> tuple[str, list[float]]:
    """The values that count as usual after these frames, and of which metric."""
    name, usual, unusual = "", [], []
    for frame in frames:
        found = number(signal, frame)
        if found is None:
            continue
        if found[0] != name:
            name, usual, unusual = found[0], [], []
        if len(usual) >= signal.warmup and is_far(signal, usual, found[1]):
            unusual.append(found[1])
            if len(unusual) == signal.window:
                usual, unusual = unusual, []
        else:
            usual, unusual = [*usual, found[1]][-signal.window :], []
    return name, usual


def is_far(signal: Signal, usual: list[float], value: float) -> bool:
    """Whether a value is far from the level, or from the trend, of usual ones."""
    if signal.kind == "level":
        level = statistics.median(usual)
        spread = 1.4826 * statistics.median([abs(one - level) for one in usual])
        least = max(signal.z * max(spread, 0.05 * abs(level), 1e-12), signal.floor)
        change = signal.ratio - 1 if value >= level else 1 - 1 / signal.ratio
        return in_direction(signal, value - level, max(least, change * abs(level)))
    late, slope, spread = line_through(usual)
    least = max(signal.size, (signal.ratio - 1) * abs(late), signal.z * spread)
    ahead = late + slope * ((len(usual) // 2 + 1) / 2)
    return in_direction(signal, value - ahead, least) and in_direction(signal, value - late, least)


def in_direction(signal: Signal, change: float, least: float) -> bool:
    return {"up": change >= least, "down": -change >= least, "both": abs(change) >= least}[signal.direction]


def bare_truth(signal: Signal, frames: Sequence[StepFrame]) -> bool | None:
    """What a signal says at the last of these frames, but for `missing` and `hold`."""
    frame = frames[-1]
    if signal.kind == "stalled":
        return is_late(signal, frames)
    if signal.kind == "peer":
        return is_apart(signal, frames)
    if signal.kind == "shift":
        return has_shifted(signal, frames)
    found = number(signal, frame)
    if found is None:
        return None
    name, value = found
    if signal.kind in ("invariant", "above"):
        if signal.same != (1, 1):
            return max(times_out(signal, frames).values(), default=0) >= signal.same[0]
        return is_beyond(signal, value)
    if signal.kind == "equal":
        return abs(value - frame.values[signal.to]) > signal.size if signal.to in frame.values else None
    if signal.kind == "growth":
        return has_grown(signal, frames)
    of, usual = usual_before(signal, frames[:-1])
    if of != name or len(usual) < signal.warmup:
        return None
    return is_far(signal, usual, value)


def is_beyond(signal: Signal, value: float) -> bool:
    low, high = signal.low, signal.high
    if signal.kind == "invariant":
        return (low is not None and value < low) or (high is not None and value > high)
    return (low is not None and value <= low) or (high is not None and value >= high)


def is_of_single_ranks(signal: Signal, name: str) -> bool:
    """Whether one rank that is missing or short is enough."""
    lacking = ("coverage/missing", "coverage/missing/lead", "coverage/missing/others", "coverage/short")
    return name in lacking and not signal.less and not signal.of and is_beyond(signal, 1.0)


def times_out(signal: Signal, frames: Sequence[StepFrame]) -> dict[str, int]:
    """In how many of the last frames that count each rank was out, or ("") the value of all of them."""
    known = [(number(signal, frame), frame) for frame in frames]
    counted: list[list[str]] = []
    last = ""
    for found, frame in known:
        if found is None:
            continue
        counted, last = counted if found[0] == last else [], found[0]
        ranks = [place for place, _ in frame.ranks.get(last, ())]
        counted.append(ranks if is_of_single_ranks(signal, last) else [""] * is_beyond(signal, found[1]))
    times: dict[str, int] = {}
    for places in counted[-signal.same[1] :]:
        for place in places:
            times[place] = times.get(place, 0) + 1
    return times


def has_grown(signal: Signal, frames: Sequence[StepFrame]) -> bool | None:
    name, values = "", []
    for frame in frames:
        found = number(signal, frame)
        if found is not None:
            values = [*values, found[1]] if found[0] == name else [found[1]]
            name = found[0]
    values = values[-signal.window :]
    if len(values) < signal.window:
        return None
    quarter = max(1, signal.window // 4)
    medians = [statistics.median(part) for part in (values[:quarter], values[quarter : 2 * quarter])]
    medians += [statistics.median(part) for part in (values[-2 * quarter :][:quarter], values[-quarter:])]
    grown = medians[3] - medians[0]
    if not in_direction(signal, grown, signal.size):
        return False
    if signal.ratio > 1 and max(medians[0], medians[3]) < signal.ratio * min(medians[0], medians[3]):
        return False
    if signal.z and abs(grown) < signal.z * line_through(values)[2]:
        return False
    sign = 1 if grown > 0 else -1
    late, early = sign * (medians[3] - medians[2]), sign * (medians[1] - medians[0])
    return not signal.bend or late >= signal.bend * early


def line_through(values: list[float]) -> tuple[float, float, float]:
    """The trend's value in the middle of the last half, its slope, and how far values usually are from it."""
    half = len(values) // 2
    early, late = statistics.median(values[:half]), statistics.median(values[-half:])
    slope = (late - early) / (len(values) - half)
    middle = len(values) - half + (half - 1) / 2
    residuals = [abs(one - (late + slope * (at - middle))) for at, one in enumerate(values)]
    return late, slope, max(1.4826 * statistics.median(residuals), 1e-12)


def has_shifted(signal: Signal, frames: Sequence[StepFrame]) -> bool | None:
    """Whether the last fifth of what is known is far from the rest and from where its trend leads."""
    name, values, answer = "", list[float](), None
    for before, frame in zip([None, *frames], frames):
        answer = None
        if signal.metrics:
            found = number(signal, frame)
        elif before is None or before.lineage != frame.lineage or frame.index <= before.index:
            found = None
        else:
            found = "", (frame.t - before.t) / (frame.index - before.index)
        if found is None:
            continue
        values = [*values, found[1]] if found[0] == name else [found[1]]
        name, values = found[0], values[-signal.window :]
        lately = max(1, signal.window // 5)
        if len(values) < signal.warmup + lately:
            continue
        now, usual = statistics.median(values[-lately:]), values[:-lately]
        late, slope, spread = line_through(usual)
        ahead = late + slope * ((len(usual) // 2 + lately) / 2)
        change = signal.ratio - 1 if now >= late else 1 - 1 / signal.ratio
        least = max(change * abs(late), signal.floor, signal.z * spread)
        answer = in_direction(signal, now - late, least) and in_direction(signal, now - ahead, least)
    return answer


def is_late(signal: Signal, frames: Sequence[StepFrame]) -> bool | None:
    usual: list[float] = []
    answer = None
    for before, frame in zip([None, *frames], frames):
        answer = None
        if before is None or before.lineage != frame.lineage:
            continue
        accounted = sum(frame.values[name] for name in signal.metrics if frame.values.get(name, 0.0) > 0)
        gap = frame.t - before.t - accounted
        known = len(usual) >= signal.warmup
        late = known and gap >= signal.size and gap >= signal.ratio * statistics.median(usual)
        answer = late if known else None
        if not late:
            usual = [*usual, gap][-signal.window :]
    return answer


def is_apart(signal: Signal, frames: Sequence[StepFrame]) -> bool | None:
    def known(frame: StepFrame) -> Sequence[tuple[str, float]] | None:
        return next((frame.ranks[n] for n in signal.metrics if len(frame.ranks.get(n, ())) >= signal.ranks), None)

    if known(frames[-1]) is None:
        return None
    return max(times_apart(signal, frames).values(), default=0) >= signal.same[0]


def times_apart(signal: Signal, frames: Sequence[StepFrame]) -> dict[str, int]:
    """In how many of the last frames that count each place was apart."""
    known = [
        [frame.ranks[n] for n in signal.metrics if len(frame.ranks.get(n, ())) >= signal.ranks] for frame in frames
    ]
    lately = [found[0] for found in known if found][-signal.same[1] :]
    times: dict[str, int] = {}
    for ranks in lately:
        for at, (place, value) in enumerate(ranks):
            middle = statistics.median([other for number, (_, other) in enumerate(ranks) if number != at])
            above = value - middle >= signal.floor and value >= signal.ratio * middle
            below = middle - value >= signal.floor and value * signal.ratio <= middle
            if {"up": above, "down": below, "both": above or below}[signal.direction]:
                times[place] = times.get(place, 0) + 1
    return times


Places = Mapping[str, object] | None  # None: too many to tell them apart


def places_of(signal: Signal, frames: Sequence[StepFrame]) -> Places:
    """The places of each of which a signal is true by itself at the last of these frames, where it is true."""
    frame = frames[-1]
    if signal.kind == "peer":
        found = {place for place, count in times_apart(signal, frames).items() if count >= signal.same[0]}
        return dict.fromkeys(found) if len(found) <= 16 else None
    name, value = number(signal, frame) or ("", 0.0)
    if not is_of_single_ranks(signal, name):
        return {}
    named = dict(frame.ranks.get(name, ()))
    if len(named) < value:
        return None
    if signal.same == (1, 1):
        return named
    lasting = [place for place, count in times_out(signal, frames).items() if count >= signal.same[0]]
    return dict.fromkeys(lasting) if len(lasting) <= 16 else None


def truths_of(signal: Signal, frames: Sequence[StepFrame]) -> list[tuple[bool | None, Places]]:
    """What a signal says at each frame, and of which places."""
    answers: list[tuple[bool | None, Places]] = []
    held, places = 0, None
    for at in range(len(frames)):
        found = bare_truth(signal, frames[: at + 1])
        now = places_of(signal, frames[: at + 1]) if found else {}
        found = signal.missing if found is None else found
        if found:
            held, places = signal.hold, now
        elif found is False and held:
            found, held, now = True, held - 1, places
        answers.append((found, now))
    return answers


def holds(condition: Any, signals: Mapping[str, bool | None]) -> bool | None:
    """Whether a condition holds for every way in which what is unknown could be."""
    if condition is None:
        return None
    if isinstance(condition, Name):
        return signals[condition.name]
    if isinstance(condition, Not):
        inner = holds(condition.of, signals)
        return None if inner is None else not inner
    assert isinstance(condition, AtLeast)
    parts = [holds(part, signals) for part in condition.parts]
    if sum(part is True for part in parts) >= condition.count:
        return True
    return None if sum(part is not False for part in parts) >= condition.count else False


def reasons(condition: Any, signals: Mapping[str, bool | None]) -> set[str]:
    """The signals in the smallest sets of known ones that are enough to make a condition hold."""
    known = [name for name, found in signals.items() if found is not None]
    enough: list[set[str]] = []
    for count in range(len(known) + 1):
        for names in map(set, combinations(known, count)):
            if not any(less <= names for less in enough):
                left = {name: found if name in names else None for name, found in signals.items()}
                enough += [names] if holds(condition, left) else []
    return set().union(*enough)


def is_over(condition: Any, signals: Mapping[str, bool | None], by: set[str]) -> bool:
    """Whether a condition does not hold, given the best of what could be unknown but for the signals in `by`."""
    free = [name for name, found in signals.items() if found is None and name not in by]
    ways = product((False, True), repeat=len(free))
    return condition is None or any(holds(condition, {**signals, **dict(zip(free, way))}) is False for way in ways)


Said = tuple[dict[str, bool | None], bool | None, bool | None]  # of signals, and of the two conditions


def said_of(rule: Rule, answers: Mapping[str, tuple[bool | None, Places]], place: str) -> Said:
    """What a rule says of one place at a frame: with a signal that is true of it among the reasons."""
    signals: dict[str, bool | None] = {}
    for name, (found, places) in answers.items():
        signals[name] = found if not found or places == {} else None if places is None else place in places
    here = {name for name, (found, places) in answers.items() if found and places and place in places}
    found = [holds(one, signals) for one in (rule.warning, rule.critical)]
    both = [
        bool(reasons(one, signals) & here) if says else says for one, says in zip((rule.warning, rule.critical), found)
    ]
    return signals, both[0], both[1]


def said_else(rule: Rule, answers: Mapping[str, tuple[bool | None, Places]], of_places: Sequence[Said]) -> Said:
    """What a rule says at a frame besides what it says of places."""
    signals = {name: found for name, (found, _) in answers.items()}
    rest = {name: found and not places for name, (found, places) in answers.items()}
    both: list[bool | None] = []
    mixed = False
    for at, condition in enumerate((rule.warning, rule.critical), 1):
        whole, alone = holds(condition, signals), holds(condition, rest)
        if whole is True and alone is not True and not any(said[at] for said in of_places):
            both, mixed = [*both, True], True  # signals of two places
        elif whole is None and alone is True:
            both.append(None)
        else:
            both.append(False if whole is False else alone)
    return signals if mixed else rest, both[0], both[1]


def episodes_of(rule: Rule, frames: Sequence[StepFrame]) -> list[tuple[Any, ...]]:
    """(place, severity, state, lineage, first, fired, last, ended) of each episode, steps only; the place is "" for
    an episode of no single place.
    """
    by_signal = {signal.name: truths_of(signal, frames) for signal in rule.signals}
    said = [{name: answers[at] for name, answers in by_signal.items()} for at in range(len(frames))]
    places = {place for answers in said for found, where in answers.values() if found and where for place in where}
    of = {place: [said_of(rule, answers, place) for answers in said] for place in sorted(places)}
    rest = [said_else(rule, answers, [one[at] for one in of.values()]) for at, answers in enumerate(said)]
    found = [(place, *one) for place, here in of.items() for one in course(rule, frames, here)]
    return found + [("", *one) for one in course(rule, frames, rest)]


def course(rule: Rule, frames: Sequence[StepFrame], said: Sequence[Said]) -> list[tuple[Any, ...]]:
    """The episodes of what a rule says at each frame."""
    found: list[list[Any]] = []
    begun: list[Any] | None = None  # lineage and step of the first breach
    episode: list[Any] | None = None
    warned: list[bool] = []
    alarmed: list[bool] = []
    by: set[str] = set()
    calm, last_breach = 0, 0
    for frame, (signals, warning, critical) in zip(frames, said):
        warned = [*warned, *([] if warning is None else [warning])][-rule.need[1] :]
        alarmed = [*alarmed, *([] if critical is None else [critical])][-rule.critical_need[1] :]
        is_critical = sum(alarmed) >= rule.critical_need[0]
        breach = warning is True or critical is True
        if breach and begun is None:
            begun, by = [frame.lineage, frame.index], set()
        for condition, says in ((rule.warning, warning), (rule.critical, critical)):
            by |= reasons(condition, signals) if says else set()
        if episode is None:
            if begun is not None and (is_critical or sum(warned) >= rule.need[0]):
                last_breach = frame.index if breach else last_breach
                episode = ["critical" if is_critical else "warning", "firing", *begun, frame.index, last_breach, None]
                found.append(episode)
            elif begun is not None and not any([*warned, *alarmed]):
                begun = None
            if breach:
                last_breach = frame.index
            continue
        if is_critical:
            episode[0] = "critical"
        if breach:
            episode[5] = frame.index
        if rule.calm is not None:
            quiet = holds(rule.calm, signals)
        else:
            both = ((rule.warning, warning), (rule.critical, critical))
            over = all(says is False or is_over(text, signals, by) for text, says in both)
            quiet = False if breach else True if over else None
        if breach or quiet is False:
            calm, episode[1] = 0, "firing"
        elif quiet:
            calm += 1
            episode[1] = "clearing"
            if calm == rule.clear:
                episode[1], episode[6] = "resolved", frame.index
                episode, begun, calm, warned, alarmed = None, None, 0, [], []
    return [tuple(one) for one in found]
