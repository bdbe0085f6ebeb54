"""From evidence to ranked causes. Pure.

Each sign multiplies or divides the weight of a cause by a fixed factor (STRENGTHS). Nothing is fitted. What follows
from another sign that the cause does not explain counts for nothing, and so does what began too late. `unknown` is
always a candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.alerts.signals import Signal
from rlship_sidecar.why.evidence import ABSENT, BEFORE, LATE, LATER_THAN, SHOWS, UNKNOWN, Evidence
from rlship_sidecar.why.graph import BOTH, DOWN, STRENGTHS, UP, Cause, EvidencePart, Graph, Sign

UNKNOWN_WEIGHT = 4.0  # more than one weak sign, less than a strong one
ORDER_WEIGHT = 2.5  # signs of a cause in the wrong order, or at different places, divide by it; at one place multiply
DECISIVE = "decisive"
SYMPTOM = "weak"  # of a symptom that follows from another sign, which all causes of that share, no more counts
MANY = STRENGTHS["strong"]  # what all signs that do not show come to, and all weak ones that are against a cause
RULED_OUT = 1 / 8

# What became of a part of the evidence.
FOR, AGAINST, EXPLAINED, TOO_LATE, OLD, OPEN = "for", "against", "explained", "too late", "before", "not logged"


class Around(NamedTuple):
    """What else is known: by how many steps effects may lag, the hosts of ranks that stand out, the lead, and the signs
    that the rules of episodes saw which hang together with this one.
    """

    lag: int = 0
    hosts: Mapping[str, str] = MappingProxyType({})
    lead: str = ""
    beside: Collection[str] = ()


NOWHERE = Around()


class JudgedPart(NamedTuple):
    """What a sign says of one cause. `factor` is what it multiplies the weight by; `by` the sign that explains it."""

    part: EvidencePart
    evidence: Evidence
    verdict: str
    factor: float
    by: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause with its weight. `cause` is None for `unknown`. `order` names signs that came in the wrong order."""

    cause: Cause | None
    weight: float
    place: str
    found: tuple[JudgedPart, ...] = ()
    order: tuple[tuple[str, str], ...] = ()

    def of(self, *verdicts: str) -> list[JudgedPart]:
        """The parts of its evidence with one of these verdicts."""
        return [one for one in self.found if one.verdict in verdicts]

    @property
    def weight_of_shown(self) -> float:
        """Its weight without what speaks for it only because other signs do not show."""
        return self.weight / _silent(self.found)

    @property
    def supporting(self) -> list[JudgedPart]:
        """What speaks for it and shows, in order of time."""
        shown = [one for one in self.of(FOR) if one.part.wanted]
        return sorted(shown, key=lambda one: (one.evidence.at, -one.factor))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an episode began. `candidates` are ranked and hold `unknown`; `symptoms` are the signs that its rule saw."""

    episode: Episode
    symptoms: tuple[str, ...]
    roots: tuple[str, ...]
    evidence: Mapping[str, Evidence]
    candidates: tuple[Candidate, ...]
    ruled_out: tuple[str, ...]


def symptoms_of(episode: Episode, rules: Sequence[Rule], graph: Graph, evidence: Mapping[str, Evidence]) -> list[str]:
    """The signs that the rule's true signals saw, of the same metric in the same direction; those that show, if any."""
    true = {name for name, _ in episode.evidence}
    signals = [one for rule in rules if rule.name == episode.rule for one in rule.signals]
    seen = [one for one in signals if one.name in true] or signals
    found = [
        sign.name
        for sign in graph.signs.values()
        if any(_sees(signal, sign) for signal in seen) and sign.name in evidence
    ]
    return [name for name in found if evidence[name].state in (SHOWS, LATE)] or found


def _sees(signal: Signal, sign: Sign) -> bool:
    if signal.kind == "stalled" or sign.test == "stalls":
        return signal.kind == "stalled" and sign.test == "stalls"
    if sign.test == "slows" or not signal.metrics:
        return signal.kind == "shift" and not signal.metrics and sign.test == "slows"
    if (signal.kind == "peer") != (sign.test == "apart"):
        return False
    if (signal.less, signal.of) != (sign.less, sign.of) or not set(signal.metrics) & set(sign.metrics):
        return False
    way = signal.direction
    if signal.kind in ("invariant", "above"):
        way = BOTH if signal.low is not None and signal.high is not None else DOWN if signal.low is not None else UP
    return BOTH in (way, sign.direction) or way == sign.direction


def rank(
    graph: Graph,
    episode: Episode,
    symptoms: Sequence[str],
    evidence: Mapping[str, Evidence],
    around: Around = NOWHERE,
) -> Explanation:
    """The causes of an episode, the likeliest first."""
    physics = _Physics(graph, evidence, around.lag)
    roots = physics.roots(symptoms)
    seen = {*symptoms, *around.beside}
    candidates = [
        _candidate(cause, symptoms, evidence, physics, around)
        for cause in graph.causes.values()
        if not symptoms or any(not seen.isdisjoint(physics.reached(sign)) for sign in cause.shows)
    ]
    ruled_out = [one for one in candidates if one.weight <= RULED_OUT]
    # A cause of which nothing shows is no candidate, however little speaks against it.
    left = [one for one in candidates if one.supporting]
    left.append(Candidate(None, UNKNOWN_WEIGHT, _origin(graph, roots, evidence, around.lead) or episode.place))
    left.sort(key=_rank_key)
    return Explanation(
        episode,
        tuple(symptoms),
        tuple(roots),
        evidence,
        tuple(left),
        tuple(one.cause.name for one in ruled_out if one.cause is not None),
    )


def _rank_key(one: Candidate) -> tuple[float, int, int]:
    """The greater weight first; then what has more evidence, then what began first, then the order of the graph."""
    shown = one.supporting
    return -one.weight, -len(shown), min((found.evidence.at for found in shown), default=0)


def _origin(graph: Graph, roots: Sequence[str], evidence: Mapping[str, Evidence], lead: str) -> str:
    """Where what happened first has its origin: the rank that stands out, else the actor."""
    if not roots:
        return ""
    one, at = evidence[roots[0]], graph.signs[roots[0]].at
    if one.rank or not at:
        return one.place
    # Whatever the job calls its generators: not what the trainer, or another actor beside them, logs about them.
    return at if one.actor in ("", lead) or at in {other.actor for other in evidence.values()} else one.actor


class _Physics:
    """Which signs follow from which, among those that show."""

    def __init__(self, graph: Graph, evidence: Mapping[str, Evidence], lag: int) -> None:
        self._graph = graph
        self._evidence = evidence
        self._lag = lag
        self._shown = [name for name, one in evidence.items() if one.state in (SHOWS, LATE)]
        broken = {name for name, one in evidence.items() if one.state == ABSENT}
        self._reach = {name: graph.reach(name, broken, self._shown) for name in self._shown}

    def reached(self, sign: str) -> frozenset[str]:
        """A sign and all to which it leads."""
        return self._graph.reached[sign]

    def leads(self, sign: str, other: str) -> bool:
        """Whether a sign that shows is another one, or leads to it over signs that are not absent."""
        return sign == other or other in self._reach.get(sign, ())

    def follows(self, sign: str, other: str) -> bool:
        """Whether a sign that shows can follow from another one: in the graph, in order, and soon enough."""
        within = self._reach.get(other, {}).get(sign)
        if within is None or sign == other:
            return False
        one, before = self._evidence[sign], self._evidence[other]
        late = one.at - before.at
        if before.sure - before.at <= LATER_THAN:  # dated to the step, as what the job itself says of its settings
            late = max(late, min(0, one.sure - before.at))
        return -LATER_THAN <= late <= within + self._lag + LATER_THAN

    def explained_by(self, sign: str, own: Collection[str] = ()) -> str:
        """The first sign from which one follows, and that does itself not follow from `own` signs; "" without any, or
        if one of `own` that is not explained away explains it as well.

        Of two signs that each lead to the other one, the first in time explains.
        """
        own = [name for name in own if name in self._reach]
        if any(self._explains(name, sign) and not self._foreign(name, own) for name in own):
            return ""
        return self._foreign(sign, own)

    def _foreign(self, sign: str, own: Collection[str]) -> str:
        others = [
            name
            for name in self._shown
            if name not in own and self._explains(name, sign) and not any(self._explains(one, name) for one in own)
        ]
        return min(others, key=lambda name: self._evidence[name].at, default="")

    def _explains(self, one: str, other: str) -> bool:
        if self._evidence[one].metric and self._evidence[one].metric == self._evidence[other].metric:
            return False  # two looks at one change
        return self.follows(other, one) and (not self.follows(one, other) or self._is_before(one, other))

    def _is_before(self, one: str, other: str) -> bool:
        return self._evidence[one].at < self._evidence[other].at

    def roots(self, symptoms: Sequence[str]) -> list[str]:
        """The signs that lead to the symptoms, or are symptoms, and follow from no other; the first in time first."""
        of = [
            name
            for name in self._shown
            if name in symptoms or (self._evidence[name].state == SHOWS and not self.reached(name).isdisjoint(symptoms))
        ]
        found = [name for name in of if not self.explained_by(name)] or of
        return sorted(found, key=lambda name: self._evidence[name].at)

    def place(self, cause: Cause, found: Sequence[JudgedPart], lead: str) -> str:
        """Where a cause lies: at the rank that stands out, of the actor that the cause names if it names one."""
        shown = sorted((one for one in found if one.verdict == FOR and one.part.wanted), key=lambda one: -one.factor)
        ranked = [one.evidence for one in shown if one.evidence.rank]
        if not cause.at:
            return next((one.place for one in (*ranked, *(one.evidence for one in shown)) if one.place), "")
        others = "" if cause.at in {one.actor for one in self._evidence.values()} else cause.at
        here = [
            one.evidence
            for one in shown
            if one.evidence.actor == cause.at
            # Whatever the job calls its generators: not what the trainer logs about them.
            or (others and self._graph.signs[one.part.sign].at == others and one.evidence.actor not in ("", lead))
        ]
        best = next((one for one in here if one.rank), None) or next(iter(here), None)
        if cause.at == "node" and (best is None or not best.rank):
            best = next(iter(ranked), best)  # the rank that runs there
        return cause.at if best is None else best.place

    def disorder(self, signs: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of signs of which the second leads to the first by an edge, and began when that was surely there."""
        return [
            (edge.to, name)
            for name in signs
            for edge in self._graph.signs[name].leads_to
            if edge.to in signs
            and self._evidence[name].at - max(self._evidence[edge.to].at, self._evidence[edge.to].sure) > LATER_THAN
        ]


def _candidate(
    cause: Cause,
    symptoms: Sequence[str],
    evidence: Mapping[str, Evidence],
    physics: _Physics,
    around: Around,
) -> Candidate:
    found = tuple(_judge(part, symptoms, evidence, physics, cause.shows) for part in cause.evidence)
    weight = _weight(found)
    shown = [one.part.sign for one in found if one.verdict == FOR and one.part.wanted]
    order = tuple(physics.disorder(shown))
    weight *= _locality([evidence[name].rank for name in shown if evidence[name].rank], around.hosts)
    if symptoms and not any(physics.leads(name, symptom) for name in shown for symptom in symptoms):
        weight /= ORDER_WEIGHT  # it explains what came beside the episode, or after it
    return Candidate(cause, weight / ORDER_WEIGHT ** len(order), physics.place(cause, found, around.lead), found, order)


def _weight(found: Sequence[JudgedPart]) -> float:
    """The product of all factors. What does not show tells causes apart, and makes no cause: it counts where a decisive
    or strong sign shows. Together such signs come to no more than one strong sign, and so do all weak ones against it.
    Of several decisive signs one is enough.
    """
    weight, doubt = 1.0, 1.0
    decided = any(one.verdict == FOR and one.part.wanted and one.part.strength == DECISIVE for one in found)
    for one in found:
        if decided and one.verdict == AGAINST and one.part.strength == DECISIVE:
            continue  # one is enough
        if one.verdict == AGAINST and one.part.strength == "weak":
            doubt *= one.factor
        elif one.verdict != FOR or one.part.wanted:
            weight *= one.factor
    return weight * max(doubt, 1 / MANY) * _silent(found)


def _silent(found: Sequence[JudgedPart]) -> float:
    """By how much all that does not show, and need not, multiplies a weight."""
    if not any(one.verdict == FOR and one.part.wanted and one.part.strength != "weak" for one in found):
        return 1.0
    silent = 1.0
    for one in found:
        if one.verdict == FOR and not one.part.wanted:
            silent *= one.factor
    return min(silent, MANY)


def _locality(ranks: Sequence[str], hosts: Mapping[str, str]) -> float:
    """What it says that several signs have ranks that stand out: at one place, or at several of them."""
    if len(ranks) < 2:
        return 1.0
    if len(set(ranks)) == 1:
        return ORDER_WEIGHT
    by_actor: dict[str, str] = {}
    clash = any(by_actor.setdefault(name.partition("/")[0], name) != name for name in ranks)
    where = {hosts.get(name, "") for name in ranks}
    if clash or ("" not in where and len(where) > 1):
        return 1 / ORDER_WEIGHT
    return ORDER_WEIGHT if len(where) == 1 and "" not in where else 1.0


def _judge(
    part: EvidencePart,
    symptoms: Sequence[str],
    evidence: Mapping[str, Evidence],
    physics: _Physics,
    own: Collection[str],
) -> JudgedPart:
    strength = STRENGTHS[part.strength]
    one = evidence.get(part.sign) or Evidence(part.sign, UNKNOWN, ())
    if one.state == UNKNOWN:
        return JudgedPart(part, one, OPEN, 1.0)
    if one.state == ABSENT:
        return JudgedPart(part, one, *((AGAINST, 1 / strength) if part.wanted else (FOR, strength)))
    if one.state == BEFORE:
        return JudgedPart(part, one, OLD, 1.0)
    if not part.wanted:
        # What is not expected and comes after the symptom may be a consequence of anything.
        return JudgedPart(part, one, *((AGAINST, 1 / strength) if one.state == SHOWS else (TOO_LATE, 1.0)))
    upstream = part.sign not in symptoms and not physics.reached(part.sign).isdisjoint(symptoms)
    if one.state == LATE and (upstream or not symptoms):
        return JudgedPart(part, one, TOO_LATE, 1.0)
    if by := physics.explained_by(part.sign, own):
        return JudgedPart(part, one, EXPLAINED, 1.0, by)
    if part.sign in symptoms and part.strength == "strong" and physics.explained_by(part.sign):
        strength = STRENGTHS[SYMPTOM]
    return JudgedPart(part, one, FOR, strength)
