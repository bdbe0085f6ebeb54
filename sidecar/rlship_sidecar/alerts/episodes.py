"""The states of a rule, frame by frame, and the episodes in which it fires. Pure."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from operator import is_
from typing import NamedTuple

from rlship_sidecar.alerts.expression import Expression, Truth, least, reasons, truth
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.alerts.signals import START, UNKNOWN, SignalAnswer, State, ask, ask_of_nothing
from rlship_sidecar.rows import Lineage

INACTIVE, PENDING, FIRING, CLEARING, RESOLVED = "inactive", "pending", "firing", "clearing", "resolved"
SUPERSEDED, WITHDRAWN = "superseded", "withdrawn"
WARNING, CRITICAL = "warning", "critical"
_GREATEST = sys.float_info.max
MAX_KNOWN = 1000  # truths of a rule's signals of which it is remembered what conditions make of them


class Moment(NamedTuple):
    """A frame's step and time."""

    step: int
    t: float


class Course(NamedTuple):
    """Where a rule stands after a frame. `warned` and `alarmed` are the last known truths of its conditions, `by` the
    signals that made them hold since `first`.
    """

    state: str = INACTIVE
    warned: tuple[bool, ...] = ()
    alarmed: tuple[bool, ...] = ()
    calm: int = 0
    lineage: Lineage = (0, 0, 0)
    first: Moment = Moment(0, 0.0)
    fired: Moment = Moment(0, 0.0)
    last: Moment = Moment(0, 0.0)
    severity: str = ""
    place: str = ""
    evidence: tuple[tuple[str, float], ...] = ()
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """A stretch of frames in which a rule fires, from the first breach to the end of the calm after the last one.

    `lineage` is that of its first frame. `state` is firing, clearing, resolved, superseded or withdrawn; `ended` is
    None in the first two. `place` is the rank that stood out when it fired, as `<actor>/<replica>.<rank>`, or "".
    `evidence` holds the signals that were true when it fired, with their values, which are finite. `apart`: it is of
    that place alone, and the rule is followed for other places by itself.
    """

    rule: str
    severity: str
    state: str
    place: str
    lineage: Lineage
    first: Moment
    fired: Moment
    last: Moment
    ended: Moment | None
    evidence: tuple[tuple[str, float], ...]
    apart: bool = False

    @property
    def id(self) -> str:
        """What stays the same of it while it goes on and whenever it is evaluated again."""
        what = "\0".join(
            (self.rule, self.place, *map(str, self.lineage), str(self.first.step), *["apart"] * self.apart)
        )
        return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class RuleState(NamedTuple):
    """All that a rule carries from frame to frame: its course as a whole, and those of single places, in order."""

    signals: tuple[State, ...]
    course: Course
    places: tuple[Course, ...] = ()


class _RuleView(NamedTuple):
    """What a rule says at a frame, as a whole or of one place."""

    answers: dict[str, SignalAnswer]
    truths: dict[str, Truth]
    warning: Truth
    critical: Truth


def start(rule: Rule) -> RuleState:
    """The state before the first frame."""
    return RuleState((START,) * len(rule.signals), Course())


After = tuple[RuleState, tuple[Episode, ...]]
"""The state after a frame, and the episodes that end with it."""


def step(rule: Rule, frame: StepFrame, state: RuleState) -> After:
    """What a frame leads to. This is the definition of it; `RuleSteps` has the same answers sooner."""
    answers: dict[str, SignalAnswer] = {}
    after = []
    for signal, before in zip(rule.signals, state.signals):
        answers[signal.name], own = ask(signal, frame, before)
        after.append(own)
    return _decide(rule, frame, answers, tuple(after), state)


class RuleSteps:
    """Takes a rule over frames, as `step` does one by one. What most of them have in common it works out once: what
    signals say whose metrics they lack, what conditions make of the same truths, and that nothing changes.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._known: dict[tuple[Truth, ...], tuple[Truth, Truth]] = {}

    def over(self, frames: Sequence[StepFrame], state: RuleState) -> list[After]:
        """What each of these frames leads to, the first of them from `state` on."""
        rule = self.rule
        names: set[str] = set()
        for frame in frames:
            names.update(frame.values, frame.ranks)
        answers, signals, asked = [UNKNOWN] * len(rule.signals), list(state.signals), []
        for at, signal in enumerate(rule.signals):
            same = ask_of_nothing(signal, names, signals[at])
            if same is None:
                asked.append((at, signal))
            else:
                answers[at], signals[at] = same
        truths = [answer.truth for answer in answers]
        found: list[After] = []
        for frame in frames:
            of_place = False
            for at, signal in asked:
                answer, signals[at] = ask(signal, frame, signals[at])
                answers[at], truths[at] = answer, answer.truth
                of_place = of_place or bool(answer.truth and answer.places)
            warning, critical = self._holding(tuple(truths))
            if warning or critical or of_place or state.places or state.course.state != INACTIVE:
                named = {signal.name: answer for signal, answer in zip(rule.signals, answers)}
                after = _decide(rule, frame, named, tuple(signals), state)
            else:
                after = self._stay(state, tuple(signals), warning, critical), ()
            found.append(after)
            if after[0] is state and not asked:  # so it is at all the others, as they say the same
                return found + found[-1:] * (len(frames) - len(found))
            state = after[0]
        return found

    def _holding(self, truths: tuple[Truth, ...]) -> tuple[Truth, Truth]:
        """What both conditions are where the signals are this, in their order."""
        found = self._known.get(truths)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            named = dict(zip((signal.name for signal in self.rule.signals), truths))
            warning, critical = self.rule.warning, self.rule.critical
            found = self._known[truths] = (
                None if warning is None else truth(warning, named),
                None if critical is None else truth(critical, named),
            )
        return found

    def _stay(self, state: RuleState, signals: tuple[State, ...], warning: Truth, critical: Truth) -> RuleState:
        """The state after a frame in which an inactive rule stays so: `follow` without a breach."""
        course = state.course
        warned = _remembered(course.warned, warning, self.rule.need[1])
        alarmed = _remembered(course.alarmed, critical, self.rule.critical_need[1])
        if warned != course.warned or alarmed != course.alarmed:
            return RuleState(signals, course._replace(warned=warned, alarmed=alarmed))
        return state if all(map(is_, signals, state.signals)) else RuleState(signals, course)


def _decide(
    rule: Rule, frame: StepFrame, answers: dict[str, SignalAnswer], after: tuple[State, ...], state: RuleState
) -> After:
    """What a frame at which signals say `answers` leads to; `after` are their states after it."""
    courses = {one.place: one for one in state.places}
    for answer in answers.values():
        if answer.truth and answer.places:
            courses.update((place, Course(place=place)) for place, _ in answer.places if place not in courses)
    views = {place: _view_of(rule, answers, place) for place in sorted(courses)}
    moment = Moment(frame.index, frame.t)
    kept, ended = [], []
    for place, view in views.items():
        course = follow(rule, frame, view, courses[place], apart=True)
        if course.state == RESOLVED:
            ended.append(_episode(rule, course, moment, apart=True))
        elif course.state != INACTIVE:
            kept.append(course)
    course = follow(rule, frame, _whole(rule, answers, views), state.course)
    if course.state == RESOLVED:
        ended.append(_episode(rule, course, moment))
        course = Course()
    return RuleState(after, course, tuple(kept)), tuple(ended)


def _view_of(rule: Rule, answers: dict[str, SignalAnswer], place: str) -> _RuleView:
    """What a rule says of one place. A condition holds for it only with a signal that is true of this place itself."""
    own = {name: _at(answer, place) for name, answer in answers.items()}
    truths = {name: answer.truth for name, answer in own.items()}

    def holds(condition: Expression | None) -> Truth:
        found = None if condition is None else truth(condition, truths)
        if condition is None or not found:
            return found
        return any(own[name].truth and own[name].places for name in reasons(condition, truths))

    return _RuleView(own, truths, holds(rule.warning), holds(rule.critical))


def _at(answer: SignalAnswer, place: str) -> SignalAnswer:
    if not answer.truth or answer.places == ():
        return answer
    if answer.places is None:
        return UNKNOWN  # it may be true of this place
    found = next((one for one in answer.places if one[0] == place), None)
    return SignalAnswer(False) if found is None else SignalAnswer(True, found[1], place, (found,))


def _whole(rule: Rule, answers: dict[str, SignalAnswer], views: dict[str, _RuleView]) -> _RuleView:
    """What a rule says apart from what it says of single places."""
    truths = {name: answer.truth for name, answer in answers.items()}
    warning = None if rule.warning is None else truth(rule.warning, truths)
    critical = None if rule.critical is None else truth(rule.critical, truths)
    own = {name: SignalAnswer(False) if one.truth and one.places else one for name, one in answers.items()}
    if own == answers:
        return _RuleView(answers, truths, warning, critical)
    rest = {name: answer.truth for name, answer in own.items()}
    mixed = False  # whether only signals of several places together make a condition hold

    def left(condition: Expression | None, found: Truth, at_place: bool) -> Truth:
        nonlocal mixed
        if condition is None or found is False:
            return found
        alone = truth(condition, rest)
        if found is None:
            return None if alone else alone
        mixed = mixed or not (alone or at_place)
        return alone if alone or at_place else True

    warning = left(rule.warning, warning, any(view.warning for view in views.values()))
    critical = left(rule.critical, critical, any(view.critical for view in views.values()))
    return _RuleView(answers, truths, warning, critical) if mixed else _RuleView(own, rest, warning, critical)


def follow(rule: Rule, frame: StepFrame, view: _RuleView, before: Course, *, apart: bool = False) -> Course:
    """The course after a frame. What is unknown changes nothing."""
    warning, critical = view.warning, view.critical
    course = before._replace(
        warned=_remembered(before.warned, warning, rule.need[1]),
        alarmed=_remembered(before.alarmed, critical, rule.critical_need[1]),
    )
    now = Moment(frame.index, frame.t)
    breach = warning is True or critical is True
    if breach and course.state == INACTIVE:
        course = course._replace(state=PENDING, lineage=frame.lineage, first=now)
    if breach:
        course = course._replace(last=now, by=_signals_of(rule, view, course.by))
    if course.state == PENDING:
        return _pending(rule, course, view, now, apart=apart)
    if course.state == INACTIVE:
        return course
    if course.alarmed.count(True) >= rule.critical_need[0]:
        course = course._replace(severity=CRITICAL)
    return _clearing(rule, course, _is_calm(rule, view, course.by), breach=breach)


def _signals_of(rule: Rule, view: _RuleView, before: tuple[str, ...]) -> tuple[str, ...]:
    """The signals that made conditions hold, with those of this frame."""
    found = set(before)
    for condition, holds in ((rule.warning, view.warning), (rule.critical, view.critical)):
        if condition is not None and holds:
            found.update(reasons(condition, view.truths))
    return tuple(sorted(found))


def _pending(rule: Rule, course: Course, view: _RuleView, now: Moment, *, apart: bool) -> Course:
    critical = course.alarmed.count(True) >= rule.critical_need[0]
    if not critical and course.warned.count(True) < rule.need[0]:
        # Forgotten once no breach is among the frames that count.
        return course if any((*course.warned, *course.alarmed)) else Course(INACTIVE, course.warned, course.alarmed)
    held = [(name, answer) for name, answer in view.answers.items() if answer.truth]
    if apart:  # what is true of no place says something of this one only with it
        held = [(name, answer) for name, answer in held if answer.places or name in course.by]
    return course._replace(
        state=FIRING,
        fired=now,
        severity=CRITICAL if critical else WARNING,
        place=course.place if apart else next((answer.place for _, answer in held if answer.place), ""),
        evidence=_evidence(held),
    )


def _evidence(held: Sequence[tuple[str, SignalAnswer]]) -> tuple[tuple[str, float], ...]:
    """The values of signals as JSON can have them: differences and quotients of extreme values may be infinite."""
    known = ((name, answer.value) for name, answer in held if answer.value is not None)
    return tuple((name, max(-_GREATEST, min(_GREATEST, value))) for name, value in known if not isnan(value))


def _is_calm(rule: Rule, view: _RuleView, by: tuple[str, ...]) -> Truth:
    """Whether a frame is calm. A signal that was unknown all along and fired nothing does not keep a rule firing: a
    condition that no signal in `by` can make hold any more is over.
    """
    if rule.calm is not None:
        return truth(rule.calm, view.truths)
    if view.warning or view.critical:
        return False
    unknown = [
        condition
        for condition, holds in ((rule.warning, view.warning), (rule.critical, view.critical))
        if condition is not None and holds is None
    ]
    return True if all(least(condition, view.truths, by) is False for condition in unknown) else None


def _clearing(rule: Rule, course: Course, calm: Truth, *, breach: bool) -> Course:
    if breach or calm is False:
        return course._replace(state=FIRING, calm=0)
    if calm is None:
        return course
    course = course._replace(state=CLEARING, calm=course.calm + 1)
    return course._replace(state=RESOLVED) if course.calm >= rule.clear else course


def _remembered(before: tuple[bool, ...], found: Truth, count: int) -> tuple[bool, ...]:
    return before if found is None else (*before, found)[-count:]


def episodes_of(rule: Rule, state: RuleState) -> tuple[Episode, ...]:
    """The episodes that a rule is in."""
    found = [_episode(rule, one, apart=True) for one in state.places if one.state in (FIRING, CLEARING)]
    whole = [_episode(rule, state.course)] if state.course.state in (FIRING, CLEARING) else []
    return (*found, *whole)


def _episode(rule: Rule, course: Course, ended: Moment | None = None, *, apart: bool = False) -> Episode:
    return Episode(
        rule.name,
        course.severity,
        course.state,
        course.place,
        course.lineage,
        course.first,
        course.fired,
        course.last,
        ended,
        course.evidence,
        apart,
    )
