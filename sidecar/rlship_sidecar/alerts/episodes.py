"""The states of a rule, frame by frame, and the episodes in which it fires. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from rlship_sidecar.alerts.expression import Truth, truth
from rlship_sidecar.alerts.frames import StepFrame
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.alerts.signals import START, SignalAnswer, State, ask
from rlship_sidecar.rows import Lineage

INACTIVE, PENDING, FIRING, CLEARING, RESOLVED = "inactive", "pending", "firing", "clearing", "resolved"
SUPERSEDED, WITHDRAWN = "superseded", "withdrawn"
WARNING, CRITICAL = "warning", "critical"


class Moment(NamedTuple):
    """A frame's step and time."""

    step: int
    t: float


class Course(NamedTuple):
    """Where a rule stands after a frame. `warned` and `alarmed` are the last known truths of its conditions."""

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


@dataclass(frozen=True, slots=True)
class Episode:
    """A stretch of frames in which a rule fires, from the first breach to the end of the calm after the last one.

    `lineage` is that of its first frame. `state` is firing, clearing, resolved, superseded or withdrawn; `ended` is
    None in the first two. `place` is the rank that stood out when it fired, as `<actor>/<replica>.<rank>`, or "".
    `evidence` holds the signals that were true when it fired, with their values.
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

    @property
    def id(self) -> str:
        """What stays the same of it while it goes on and whenever it is evaluated again."""
        what = "\0".join((self.rule, self.place, *map(str, self.lineage), str(self.first.step)))
        return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class RuleState(NamedTuple):
    """All that a rule carries from frame to frame."""

    signals: tuple[State, ...]
    course: Course


def start(rule: Rule) -> RuleState:
    """The state before the first frame."""
    return RuleState((START,) * len(rule.signals), Course())


def step(rule: Rule, frame: StepFrame, state: RuleState) -> tuple[RuleState, Episode | None]:
    """The state after a frame, and the episode that ends with it."""
    answers: dict[str, SignalAnswer] = {}
    after = []
    for signal, before in zip(rule.signals, state.signals):
        answers[signal.name], own = ask(signal, frame, before)
        after.append(own)
    course = follow(rule, frame, answers, state.course)
    ended = episode_of(rule, course, Moment(frame.index, frame.t)) if course.state == RESOLVED else None
    return RuleState(tuple(after), Course() if ended else course), ended


def follow(rule: Rule, frame: StepFrame, answers: dict[str, SignalAnswer], before: Course) -> Course:
    """The course after a frame. What is unknown changes nothing."""
    truths = {name: answer.truth for name, answer in answers.items()}
    warning = None if rule.warning is None else truth(rule.warning, truths)
    critical = None if rule.critical is None else truth(rule.critical, truths)
    course = before._replace(
        warned=_remembered(before.warned, warning, rule.need[1]),
        alarmed=_remembered(before.alarmed, critical, rule.critical_need[1]),
    )
    now = Moment(frame.index, frame.t)
    breach = warning is True or critical is True
    if breach and course.state == INACTIVE:
        course = course._replace(state=PENDING, lineage=frame.lineage, first=now)
    if breach:
        course = course._replace(last=now)
    if course.state == PENDING:
        return _pending(rule, course, answers, now)
    if course.state == INACTIVE:
        return course
    if course.alarmed.count(True) >= rule.critical_need[0]:
        course = course._replace(severity=CRITICAL)
    return _clearing(rule, course, _is_calm(rule, truths, warning, critical), breach=breach)


def _pending(rule: Rule, course: Course, answers: dict[str, SignalAnswer], now: Moment) -> Course:
    critical = course.alarmed.count(True) >= rule.critical_need[0]
    if not critical and course.warned.count(True) < rule.need[0]:
        # Forgotten once no breach is among the frames that count.
        return course if any((*course.warned, *course.alarmed)) else Course(INACTIVE, course.warned, course.alarmed)
    held = [(name, answer) for name, answer in answers.items() if answer.truth]
    return course._replace(
        state=FIRING,
        fired=now,
        severity=CRITICAL if critical else WARNING,
        place=next((answer.place for _, answer in held if answer.place), ""),
        evidence=tuple((name, answer.value) for name, answer in held if answer.value is not None),
    )


def _is_calm(rule: Rule, truths: dict[str, Truth], warning: Truth, critical: Truth) -> Truth:
    if rule.calm is not None:
        return truth(rule.calm, truths)
    known = [one for condition, one in ((rule.warning, warning), (rule.critical, critical)) if condition is not None]
    if any(known):
        return False
    return None if None in known else True


def _clearing(rule: Rule, course: Course, calm: Truth, *, breach: bool) -> Course:
    if breach or calm is False:
        return course._replace(state=FIRING, calm=0)
    if calm is None:
        return course
    course = course._replace(state=CLEARING, calm=course.calm + 1)
    return course._replace(state=RESOLVED) if course.calm >= rule.clear else course


def _remembered(before: tuple[bool, ...], found: Truth, count: int) -> tuple[bool, ...]:
    return before if found is None else (*before, found)[-count:]


def episode_of(rule: Rule, course: Course, ended: Moment | None = None) -> Episode | None:
    """The episode that a rule is in, or None if it does not fire."""
    if course.state not in (FIRING, CLEARING, RESOLVED):
        return None
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
    )
