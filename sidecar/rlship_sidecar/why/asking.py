"""From stored rows to the answer: which episode is meant, its window, its evidence, its causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from rlship_formats.catalogue.metrics import lookup_evidence
from rlship_formats.values import is_reduction
from rlship_sidecar.alerts.episodes import CLEARING, CRITICAL, FIRING, Episode, Moment
from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.expression import Name
from rlship_sidecar.alerts.rules import Rule
from rlship_sidecar.alerts.signals import Signal
from rlship_sidecar.alerts.words import entry_of
from rlship_sidecar.rows import Row
from rlship_sidecar.similar import similar
from rlship_sidecar.why.evidence import Evidence, observe
from rlship_sidecar.why.graph import BOTH, DOWN, UP, Graph
from rlship_sidecar.why.ranking import Around, Explanation, rank, symptoms_of
from rlship_sidecar.why.window import LAGS, Survey, Window, families_of, window_of

MAX_LAG = 100
BEGUN_WITHIN = 3  # frames before the first row that shows a restart
BESIDE = 30  # steps between the last breach of an episode and the first one of another that may come of the same
NEAR = 60  # steps between episodes that are named together


class ProcessFacts(Protocol):
    """What the writers' files say of processes, which rows do not."""

    def hosts(self, ranks: set[str]) -> Mapping[str, str]:
        """The hosts of ranks, as far as they are known."""
        ...

    def begun(self, actor: str, first: float, last: float) -> Sequence[str]:
        """The ranks of an actor that began anew between two times."""
        ...


class NoFiles:
    """Nothing is known of processes."""

    def hosts(self, ranks: set[str]) -> Mapping[str, str]:
        """None."""
        return {}

    def begun(self, actor: str, first: float, last: float) -> Sequence[str]:
        """None."""
        return ()


NO_FILES = NoFiles()


class Question(NamedTuple):
    """What is asked: an episode at `step`, or that began in first..last, of a rule or of the metric `metric`."""

    metric: str = ""
    step: int | None = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer, and what else is known. Without an episode `answer` is None and `note` says why. `ended` names the
    processes that an error ended, and those that ended without a close. `waits` names the ranks that steps wait for.
    """

    note: str = ""
    answer: Explanation | None = None
    others: tuple[Episode, ...] = ()
    last: Moment | None = None
    about: str = ""
    hosts: Mapping[str, str] | None = None
    ended: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()


class UnknownMetric(Exception):
    """No row has the metric; `near` are names that are similar."""

    def __init__(self, near: Sequence[str]) -> None:
        super().__init__(", ".join(near))
        self.near = tuple(near)


def reply_to(
    question: Question,
    read: Callable[[], Iterable[Row]],
    lead: str,
    rules: tuple[Rule, ...],
    graph: Graph,
    files: ProcessFacts = NO_FILES,
    past: Mapping[int, Collection[Row]] | None = None,
) -> Reply:
    """Answer a question about the rows that `read` gives, twice. `past` is that of `History.take`."""
    survey = Survey(lead, families_of(graph), keys=set() if question.metric else None)
    own = (rule_of(question.metric, lead),) if question.metric else ()
    history = History((*own, *rules), lead)
    survey.steps.update(past or ())
    history.take(survey.watch(read()), past)
    history.settle()
    last = history.last()
    if last is None:
        return Reply("no step of the lead has a row (lead = … in rlship.toml)")
    if own:
        full = _full_name(question.metric, history, survey)
        if full != question.metric:
            return reply_to(question._replace(metric=full), read, lead, rules, graph, files, past)
    episodes = history.episodes()
    asked = [one for one in episodes if not own or one.rule == own[0].name]
    episode = choose(asked, question)
    if episode is None:
        return Reply(_calm(question, len(asked), survey), last=last)
    together = [episode] if question != Question() else together_with(episode, episodes)
    episode = together[0]
    detectors = survey.detectors(graph)
    window = window_of(read(), episode, survey, detectors, past)
    if window is None:
        return Reply("the rows changed while they were read; ask again", last=last)
    lag = lag_of(window)
    evidence = {name: _placed(one, window, graph, files) for name, one in observe(window, detectors, lag).items()}
    every = (*own, *rules)
    symptoms = symptoms_of(episode, every, graph, evidence)
    beside = {name for one in together[1:] for name in symptoms_of(one, every, graph, evidence)}
    where = files.hosts(
        {one.rank for one in evidence.values() if one.rank} | ({episode.place} if episode.place else set())
    )
    answer = rank(graph, episode, symptoms, evidence, Around(lag, where, lead, beside))
    others = tuple(one for one in episodes if one.id != episode.id and _is_near(one, episode))
    about = next((rule.about for rule in every if rule.name == episode.rule), "")
    return Reply("", answer, others, last, about, where)


def _placed(one: Evidence, window: Window, graph: Graph, files: ProcessFacts) -> Evidence:
    """Evidence of a restart with the rank that began anew, if it was only one."""
    if graph.signs[one.sign].value != "restart" or one.onset is None or one.rank:
        return one
    before = window.frames[max(0, one.at - BEGUN_WITHIN)].t
    after = window.frames[min(one.at + 1, len(window.frames) - 1)].t
    ranks = files.begun(one.actor, before, after)
    return replace(one, rank=ranks[0]) if len(ranks) == 1 else one


def _calm(question: Question, count: int, survey: Survey) -> str:
    what = f"{question.metric} {_course(question.metric, survey)}" if question.metric else "no rule fired"
    if not count:
        return what
    return f"{what} in steps {_text(question.first)}..{_text(question.last)}"


def _course(metric: str, survey: Survey) -> str:
    """What is said of a metric that no episode is about: it was in its usual range, but for steps at which it was NaN
    or infinite.
    """
    plain, _, end = metric.rpartition("/")
    names = {metric, plain} if is_reduction(end) else {metric}
    found = [key for key in survey.nonfinite if not names.isdisjoint((key, *_catalogued(key, survey.lead)))]
    usual = "did not leave its usual range"
    if not found:
        return usual
    first = min(survey.nonfinite[key][0] for key in found)
    last = max(survey.nonfinite[key][1] for key in found)
    when = f"at step {first}" if first == last else f"first at step {first} and last at step {last}"
    rest = f"otherwise {usual}" if metric not in found or metric in (survey.keys or ()) else "had no finite value"
    return f"was not finite {when}, and {rest}"


def _text(step: int | None) -> str:
    return "" if step is None else str(step)


def choose(episodes: Sequence[Episode], question: Question) -> Episode | None:
    """The episode that is meant: at a step the one that it lies in, or the nearest; else one that goes on before one
    that is over, critical before a warning, the newest lineage, the last one.
    """
    found = [
        one
        for one in episodes
        if (question.first is None or one.last.step >= question.first)
        and (question.last is None or one.first.step <= question.last)
    ]
    return max(found, key=lambda one: _key(one, question.step), default=None)


def together_with(episode: Episode, episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that hang together with one, the first one first: each began while the next one went on, or not long
    before it. What began there may be the cause of all of them.
    """
    found = [episode]
    for one in sorted(episodes, key=_beginning, reverse=True):
        before = _beginning(one) < _beginning(found[0]) and one.lineage == found[0].lineage
        if before and one.last.step >= found[0].first.step - BESIDE:
            found.insert(0, one)
    return found


def _beginning(one: Episode) -> tuple[int, int, str]:
    return one.first.step, one.fired.step, one.rule


def _key(one: Episode, step: int | None) -> tuple[object, ...]:
    distance = 0
    if step is not None:
        distance = max(one.first.step - step, step - one.last.step, 0)
    going_on = one.state in (FIRING, CLEARING)
    return -distance, going_on, one.severity == CRITICAL, one.lineage, one.fired.step, one.first.step, one.rule


def _is_near(one: Episode, other: Episode) -> bool:
    return one.first.step - NEAR <= other.fired.step and other.first.step - NEAR <= one.fired.step


def lag_of(window: Window) -> int:
    """How many steps the trainer is behind what generators do, at most: what they log around the episode."""
    most = 0.0
    for frame in window.frames[max(0, window.first - NEAR) : window.last + 1]:
        most = max([most, *(frame.values[name] for name in LAGS if name in frame.values)])
    return round(min(most, MAX_LAG))


# A metric that the user names ---------------------------------------------------------------------------------------


def rule_of(metric: str, lead: str) -> Rule:
    """A rule by which one metric is a symptom: by its kind of evidence, in either direction."""
    actor, slash, rest = metric.partition("/")
    entry = entry_of(metric) or (lookup_evidence(actor, rest, lead) if slash else None)
    names = (metric,) if entry is None or entry_of(metric) is entry else (metric, entry.name)
    kind = "claim" if entry is None else entry.evidence.kind
    size = 0.0 if entry is None else entry.evidence.size
    if entry is not None and kind == "invariant" and entry.evidence.direction in (UP, DOWN):
        bound: dict[str, Any] = {"high" if entry.evidence.direction == UP else "low": size}
        signal = Signal("it", "invariant", names, direction=entry.evidence.direction, **bound)
    elif kind == "curve":
        signal = Signal("it", "break", names, direction=BOTH, size=size, window=30)
    else:
        signal = Signal("it", "level", names, direction=BOTH, ratio=size if size > 1 else 1.5)
    need = (1, 1) if signal.kind == "invariant" else (2, 3)
    about = f"{metric} left its usual range"
    return Rule(f"metric {metric}", about, "", (signal,), Name("it"), None, None, need, need, 10)


def _full_name(metric: str, history: History, survey: Survey) -> str:
    """The name, or the key of rows that a name without its actor means: the lead's, or that of the only actor that has
    it. Raises UnknownMetric.
    """
    known, _ = history.knowledge()[1][f"metric {metric}", "it"]
    if known:
        return metric
    keys = {*(survey.keys or ()), *survey.nonfinite}  # a metric that was never finite has no value
    names = {*keys, *(found for key in keys for found in _catalogued(key, survey.lead))}
    if metric in names:
        return metric
    of_lead = f"{survey.lead}/{metric}"
    full = [of_lead] if of_lead in keys else sorted(key for key in keys if key.partition("/")[2] == metric)
    if len(full) == 1:
        return full[0]
    raise UnknownMetric((full or _with_part(metric, keys) or similar(metric, sorted(names), 3))[:3])


def _with_part(part: str, keys: Collection[str]) -> list[str]:
    """The keys of which this is a part between slashes, first those that end with it, then the shortest."""
    found = [key for key in keys if f"/{part}/" in f"{key}/"]
    return sorted(found, key=lambda key: (not key.endswith(f"/{part}"), len(key), key))


def _catalogued(key: str, lead: str) -> list[str]:
    actor, _, rest = key.partition("/")
    found = lookup_evidence(actor, rest, lead)
    return [] if found is None or "<" in found.name else [found.name]
