"""An answer as lines that can be read in ten seconds, and as plain data with everything. Pure.

Names and texts come from files and graphs and are not trusted: unprintable characters are escaped.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rlship_sidecar.alerts.episodes import Episode, Moment
from rlship_sidecar.why.asking import Reply
from rlship_sidecar.why.evidence import UNKNOWN, Evidence, Size
from rlship_sidecar.why.graph import Graph
from rlship_sidecar.why.ranking import (
    AGAINST,
    EXPLAINED,
    FOR,
    OLD,
    OPEN,
    TOO_LATE,
    Candidate,
    Explanation,
    JudgedPart,
)

WIDTH = 80
MAX_SHOWN = 3  # causes
LEAST_WEIGHT = 1.0  # of a cause that is shown to people
MAX_EVIDENCE = 5  # lines of the first cause's evidence
MAX_NAMES = 4
INDENT = " " * 4

Date = Callable[[float], str]
Clean = Callable[[str, int], str]


class Text:
    """Writes answers about one experiment."""

    def __init__(self, experiment: str, graph: Graph, clean: Clean, date: Date) -> None:
        self._experiment = clean(experiment, 40)
        self._graph = graph
        self._clean = clean
        self._date = date

    def lines(self, reply: Reply) -> Iterator[str]:
        """The answer for people: about twenty lines of at most 80 characters."""
        answer = reply.answer
        if answer is None:
            up_to = "" if reply.last is None else f", up to step {reply.last.step}"
            yield from self._wrapped(f"{self._experiment}: nothing to explain{up_to}: {reply.note}", "", "  ")
            yield from self._processes(reply)
            return
        yield from self._head(answer, reply)
        hosts = reply.hosts or {}
        unknown = next(one for one in answer.candidates if one.cause is None)
        shown = [one for one in answer.candidates if one.weight >= LEAST_WEIGHT][:MAX_SHOWN]
        for place, one in enumerate(shown, 1):
            yield from self._candidate(place, one, answer, hosts)
        if unknown not in shown:
            yield self._fit(f"   unknown at {self._place(unknown, hosts)}: weight {number(unknown.weight)}")
        if open_signs := not_logged(answer):
            metrics = [name for sign in open_signs for name in answer.evidence[sign].metrics[:1]]
            yield from self._wrapped(f"not logged, would decide: {self._list(metrics)}", "", "  ")
        if answer.ruled_out:
            yield from self._wrapped(f"ruled out: {self._list(answer.ruled_out, 6)}", "", "  ")

    def _head(self, answer: Explanation, reply: Reply) -> Iterator[str]:
        one = answer.episode
        when = f"steps {one.first.step}..{one.last.step}" if one.ended else f"since step {one.first.step}"
        date = self._date(one.first.t)
        head = self._clean(f"{self._experiment}: {one.rule}, {one.severity}, {one.state}, {when}", 1000)
        dated = f"{head} ({date})"
        yield dated if date and len(dated) <= WIDTH else self._fit(head)
        place = f" at {one.place}" if one.place else ""
        yield from self._wrapped(f"{reply.about or one.rule}{place}", "  ", "  ", 2)
        if reply.others:
            names = dict.fromkeys(f"{other.rule} ({other.first.step})" for other in reply.others)
            yield self._fit(f"  with it: {self._list(list(names))}")
        yield from self._processes(reply)

    def _processes(self, reply: Reply) -> Iterator[str]:
        for line in (*reply.ended, *reply.waits):
            yield from self._wrapped(line, "  ", "    ")

    def _candidate(self, rank: int, one: Candidate, answer: Explanation, hosts: Mapping[str, str]) -> Iterator[str]:
        first, place = rank == 1, self._place(one, hosts)
        said = f"unknown at {place}" if one.cause is None else f"{one.cause.says}" + f" [{place}]" * bool(place)
        weight = f"weight {number(one.weight)}"
        if not first and one.weight_of_shown < one.weight:
            weight += f" ({number(one.weight_of_shown)} by what shows)"
        yield from self._wrapped(f"{rank}. {said}, {weight}", "", "   ", 2)
        found = [answer.evidence[name] for name in answer.roots] if one.cause is None else _shown(one, whole=first)
        for evidence in found[: MAX_EVIDENCE if first else 1]:
            yield self._fit(INDENT + self._evidence(evidence, one.place))
        if len(found) > MAX_EVIDENCE and first:
            yield f"{INDENT}and {len(found) - MAX_EVIDENCE} more (--json)"
        if one.cause is None or not first:
            return
        if against := [self._against(found) for found in one.of(AGAINST, TOO_LATE, EXPLAINED, OLD) if _matters(found)]:
            yield from self._wrapped(f"against: {self._list(against, 3)}", INDENT, INDENT + "  ", 2)
        for what, text in (("look at", one.cause.look), ("try", one.cause.remedy)):
            if text:
                yield from self._wrapped(f"{what}: {text}", INDENT, INDENT + "  ", 2)

    def _evidence(self, one: Evidence, at: str) -> str:
        step = "" if one.onset is None else f"step {one.onset.step}  "
        sign = self._graph.signs[one.sign]
        says = self._clean(sign.says, 100)
        size = f": {size_text(one.size, of_peers=sign.test == 'apart')}" if one.size is not None else ""
        place = f" at {self._clean(one.rank, 60)}" if one.rank and one.rank != at else ""
        whole = f"{step}{says}{place}{size}"
        return whole if len(INDENT + whole) <= WIDTH else f"{step}{says}{size}"

    def _against(self, found: JudgedPart) -> str:
        says = self._clean(self._graph.signs[found.part.sign].says, 100)
        if found.verdict == AGAINST:
            return f"not that {says}" if found.part.wanted else says
        onset = found.evidence.onset
        step = "" if onset is None else f" from step {onset.step}"
        if found.verdict == EXPLAINED:
            return f"{says}{step} follows from: {self._clean(self._graph.signs[found.by].says, 100)}"
        return f"{says} only{step}" if found.verdict == TOO_LATE else f"{says} long before"

    def _place(self, one: Candidate, hosts: Mapping[str, str]) -> str:
        place = self._clean(one.place or "an unknown place", 60)
        host = hosts.get(one.place, "")
        return f"{place} ({self._clean(host, 40)})" if host else place

    def _list(self, names: Sequence[str], most: int = MAX_NAMES) -> str:
        more = f" +{len(names) - most}" if len(names) > most else ""
        return ", ".join(self._clean(name, 200) for name in names[:most]) + more

    def _fit(self, line: str) -> str:
        safe = self._clean(line, 1000)
        return safe if len(safe) <= WIDTH else safe[: WIDTH - 1] + "…"

    def _wrapped(self, text: str, first: str, later: str, most: int = 3) -> Iterator[str]:
        safe = self._clean(text, 1000)
        lines = textwrap.wrap(
            safe, WIDTH, initial_indent=first, subsequent_indent=later, max_lines=most, placeholder=" …"
        )
        yield from lines


def _shown(one: Candidate, *, whole: bool) -> list[Evidence]:
    """What speaks for a cause and shows, in order of time; unless it is to be `whole`, the strongest of that alone."""
    found = one.supporting if whole else sorted(one.supporting, key=lambda part: -part.factor)[:1]
    return [part.evidence for part in found]


def _matters(found: JudgedPart) -> bool:
    """False for a sign that the cause does not have and that came after the episode."""
    return found.part.wanted or found.verdict == AGAINST


def size_text(size: Size, *, of_peers: bool) -> str:
    """A value after what is usual, beside that of its peers, or beside its bound where no value was before it."""
    if size.usual is None:
        bound = "" if size.bound is None else f", bound {number(size.bound)}"
        return f"{number(size.value)}{bound}"
    value, usual = number(size.value), number(size.usual)
    text = f"{value} against {usual}" if of_peers else f"{usual} -> {value}"
    if size.ratio is not None and (size.ratio >= 2 or size.ratio <= 0.5):
        return f"{text}, x{number(size.ratio)}"
    return text if size.deviations is None or size.deviations < 2 else f"{text}, {size.deviations:.0f} spreads"


def number(value: float) -> str:
    """A number for people, in few characters."""
    return f"{value:.0f}" if abs(value) < 1e6 and (abs(value) >= 1000 or value == int(value)) else f"{value:.3g}"


def not_logged(answer: Explanation) -> list[str]:
    """The decisive and strong signs of the first causes whose metrics are not logged, the strongest first."""
    found: dict[str, float] = {}
    for one in answer.candidates[:MAX_SHOWN]:
        for part in one.of(OPEN):
            if part.part.strength != "weak" and part.evidence.metrics and not part.evidence.actor:
                found[part.part.sign] = max(found.get(part.part.sign, 0.0), -_STRENGTH[part.part.strength])
    return sorted(found, key=lambda sign: found[sign])


_STRENGTH = {"decisive": 2.0, "strong": 1.0}


# As data --------------------------------------------------------------------------------------------------------------


def form(experiment: str, reply: Reply, graph: Graph) -> dict[str, Any]:
    """The answer as JSON has it, complete."""
    answer = reply.answer
    if answer is None:
        return {
            "experiment": experiment,
            "episode": None,
            "note": reply.note,
            "last": _moment(reply.last),
            "ended": list(reply.ended),
            "waits": list(reply.waits),
        }
    hosts = reply.hosts or {}
    return {
        "experiment": experiment,
        "episode": _episode(answer.episode) | {"about": reply.about},
        "note": "",
        "last": _moment(reply.last),
        "ended": list(reply.ended),
        "waits": list(reply.waits),
        "with": [_episode(one) for one in reply.others],
        "symptoms": list(answer.symptoms),
        "roots": list(answer.roots),
        "causes": [_candidate(one, hosts, answer) for one in answer.candidates],
        "signs": {
            name: _evidence(one, graph) for name, one in answer.evidence.items() if one.state not in ("absent", UNKNOWN)
        },
        "absent": [name for name, one in answer.evidence.items() if one.state == "absent"],
        "not_logged": [name for name, one in answer.evidence.items() if one.state == UNKNOWN],
        "would_decide": not_logged(answer),
        "ruled_out": list(answer.ruled_out),
    }


def _finite(value: float | None) -> float | None:
    """A number as JSON can have it: differences of extreme values may be infinite."""
    return value if value is not None and math.isfinite(value) else None


def _moment(one: Moment | None) -> dict[str, Any] | None:
    return None if one is None else one._asdict()


def _episode(one: Episode) -> dict[str, Any]:
    return {
        "id": one.id,
        "rule": one.rule,
        "severity": one.severity,
        "state": one.state,
        "place": one.place,
        "lineage": list(one.lineage),
        "first": _moment(one.first),
        "fired": _moment(one.fired),
        "last": _moment(one.last),
        "ended": _moment(one.ended),
        "evidence": {name: _finite(value) for name, value in one.evidence},
    }


def _candidate(one: Candidate, hosts: Mapping[str, str], answer: Explanation) -> dict[str, Any]:
    cause = one.cause
    place = {"place": one.place, "host": hosts.get(one.place)}
    if cause is None:
        return {"cause": "unknown", "weight": one.weight, **place, "begins_with": list(answer.roots)}
    return {
        "cause": cause.name,
        "says": cause.says,
        "weight": one.weight,
        **place,
        "for": [_part(found) for found in one.of(FOR)],
        "against": [_part(found) for found in one.of(AGAINST)],
        "not_counted": [_part(found) for found in one.of(EXPLAINED, TOO_LATE, OLD)],
        "not_logged": [_part(found) for found in one.of(OPEN)],
        "wrong_order": [list(pair) for pair in one.order],
        "look": cause.look,
        "try": cause.remedy,
        "source": cause.source,
    }


def _part(found: JudgedPart) -> dict[str, Any]:
    made = {"sign": found.part.sign, "wanted": found.part.wanted, "strength": found.part.strength}
    made |= {"factor": found.factor, "why": found.verdict}
    return made | ({"follows_from": found.by} if found.by else {})


def _evidence(one: Evidence, graph: Graph) -> dict[str, Any]:
    return {
        "says": graph.signs[one.sign].says,
        "state": one.state,
        "metric": one.metric,
        "onset": _moment(one.onset),
        "last": _moment(one.last),
        "size": None if one.size is None else {name: _finite(value) for name, value in one.size._asdict().items()},
        "actor": one.actor,
        "kind": one.kind,
        "row": one.row,
        "rank": one.rank,
    }
