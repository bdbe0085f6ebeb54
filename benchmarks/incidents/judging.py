"""One run each: made, read by rlship, and compared with what the oracle knows."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.incidents import baselines, found
from benchmarks.incidents.job import Job, Truth
from benchmarks.incidents.plan import HealthyRun, Incident, IncidentType, Plan, plan
from rlship_sidecar import bounded_toml
from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.demo.faults import CULPRIT, FAULTS, NONE
from rlship_sidecar.demo.job import Job as DemoJob
from rlship_sidecar.demo.plan import JobPlan

NAMES = Path(__file__).with_name("names.toml")
LAST = 20  # steps of which the oracle takes the mean
FIRST = 3
UNKNOWN = "unknown"  # what `rlship why` calls a cause that its graph has not
WHY, RULES, MOVER, LARGEST, BARO, RANDOM = "rlship why", "rules alone", "first mover", "largest |z|", "BARO", "random"
LIMIT = "z of each metric"
WAYS = (WHY, RULES, MOVER, LARGEST, BARO, RANDOM)


@dataclass(frozen=True, slots=True)
class Judged:
    """One incident. Steps are absolute; `rank` is by way the place of the true cause among its causes, from 1."""

    incident: Incident
    impact: int | None  # the step at which it is first visible; None if it has none
    detected: dict[str, int | None]  # by way of detecting, the step at which it fired
    rule: str = ""
    rank: dict[str, int | None] = field(default_factory=dict)
    placed: dict[str, bool] = field(default_factory=dict)
    unknown: bool | None = None  # whether "unknown" at the right place was the answer, where there is no node
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Healthy:
    """One healthy run. `explained` are episodes that name a replica which really was not there."""

    run: HealthyRun
    frames: int
    episodes: tuple[str, ...]
    explained: int
    alarms: int


@contextmanager
def _folder(parent: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def healthy(one: HealthyRun, steps: int, parent: Path) -> Healthy:
    """Judge a healthy run."""
    with _folder(parent) as folder:
        job = Job(one.seed, None, one.events, folder / "run")
        job.run(steps)
        rows = found.rows_of(folder / "run", folder / "state")
    episodes, frames = found.episodes_of(rows)
    explained = sum(_is_explained(episode, job) for episode in episodes)
    alarms = len(baselines.Series(rows.every).alarms())
    return Healthy(one, frames, tuple(f"{e.rule}@{e.fired.step}" for e in episodes), explained, alarms)


def _is_explained(episode: Episode, job: Job) -> bool:
    return any(
        episode.place == f"generator/{at}.0" and begin <= episode.first.step <= back + 1 for at, begin, back in job.away
    )


def incident(kind: IncidentType, one: Incident, parent: Path) -> Judged:
    """Judge an incident: whether it has impact, when it is seen, and what its cause is said to be."""
    planned = plan()
    with _folder(parent) as folder:
        hurt = Job(one.seed, one, (), folder / "run").run(planned.steps)
        impact = first_impact(Job(one.seed, None, (), None).run(planned.steps), hurt, one, planned)
        rows = found.rows_of(folder / "run", folder / "state")
        episodes = [episode for episode in found.episodes_of(rows)[0] if episode.fired.step >= one.step]
        answer = found.why(folder / "run", folder / "state")
    first = min(episodes, key=_fired, default=None)
    series = baselines.Series(rows.every)
    alarms = [step for step in series.alarms() if step >= one.step]
    accepted = _names(kind.name)
    ranks = {WHY: _rank([cause for cause, _ in answer.causes], accepted)}
    order = [baselines.RULES.get(episode.rule, ()) for episode in sorted(episodes, key=_fired)]
    ranks[RULES] = _rank(list(dict.fromkeys(cause for causes in order for cause in causes)), {kind.name})
    for way in (MOVER, LARGEST, BARO):
        ranks[way] = _rank(baselines.causes_of(series.ranked(one.step, way.split()[0])), {kind.name})
    drawn = [other.name for other in planned.types if other.node]
    random.Random(one.seed).shuffle(drawn)
    ranks[RANDOM] = _rank(drawn, {kind.name})
    places = [place for cause, place in answer.causes[:FIRST] if cause in accepted]
    return Judged(
        one,
        impact,
        {WHY: None if first is None else first.fired.step, LIMIT: min(alarms, default=None)},
        "" if first is None else first.rule,
        ranks,
        {WHY: any(_is_place(kind, one, place) for place in places)},
        None if kind.node else _is_unknown(kind, one, answer),
        tuple(f"{cause}@{place}" for cause, place in answer.causes),
    )


def real(fault: str, seed: int, parent: Path) -> tuple[Judged | None, int, int]:
    """Judge a run of the demo's processes. A healthy one has nothing to judge. Then its episodes and its frames."""
    runs = plan().real
    with _folder(parent) as folder:
        demo = JobPlan(steps=runs.steps, pace_s=0.0, seed=seed, fault=fault)
        with DemoJob(folder / "run", folder / "logs", demo) as job:
            failure = job.wait()
        if failure is not None:
            raise RuntimeError(f"{fault}, seed {seed}: {failure.name} ended with {failure.code}: {failure.tail}")
        episodes, frames = found.episodes_of(found.rows_of(folder / "run", folder / "state"))
        answer = found.why(folder / "run", folder / "state")
    if fault == NONE:
        return None, len(episodes), frames
    name, place = runs.faults[fault], FAULTS[fault].place
    one = Incident(fault, seed, demo.onset, 1.0, CULPRIT)
    right = IncidentType(name, "", place, (place.partition("/")[0],), "", held_out=False, node=True, incidents=())
    first = min((episode for episode in episodes if episode.fired.step >= demo.onset), default=None, key=_fired)
    accepted = _names(name)
    places = [where for cause, where in answer.causes[:FIRST] if cause in accepted]
    judged = Judged(
        one,
        demo.onset,
        {WHY: None if first is None else first.fired.step},
        "" if first is None else first.rule,
        {WHY: _rank([cause for cause, _ in answer.causes], accepted)},
        {WHY: any(_is_place(right, one, where) for where in places)},
        said=tuple(f"{cause}@{where}" for cause, where in answer.causes),
    )
    return judged, len(episodes), frames


def _fired(episode: Episode) -> int:
    return episode.fired.step


def first_impact(well: Sequence[Truth], hurt: Sequence[Truth], one: Incident, planned: Plan) -> int | None:
    """The step at which the oracle first sees impact; None if in the end there is too little to count."""
    bounds = planned.impact
    lower = sum(truth.quality for truth in well[-LAST:]) / LAST - sum(truth.quality for truth in hurt[-LAST:]) / LAST
    behind = [(truth.took, other.took) for truth, other in zip(well, hurt) if truth.step >= one.step]
    slower = median(other for _, other in behind) / median(took for took, _ in behind)
    if lower < bounds["quality"] and slower < bounds["time"]:
        return None
    for truth, other in zip(well, hurt):
        worse = truth.quality - other.quality >= bounds["first_quality"]
        if truth.step >= one.step and (worse or other.took >= bounds["first_time"] * truth.took):
            return truth.step
    return hurt[-1].step


def _names(name: str) -> set[str]:
    """What the graph may call the cause of a type."""
    return {name, *_graph_names("names", name)}


def _graph_names(table: str, name: str) -> Sequence[str]:
    names: Sequence[str] = bounded_toml.decode(NAMES.read_bytes())[table].get(name, ())
    return names


def _rank(causes: Sequence[str], accepted: set[str]) -> int | None:
    return next((at for at, cause in enumerate(causes, 1) if cause in accepted), None)


def _is_place(kind: IncidentType, one: Incident, place: str) -> bool:
    expected = kind.place_of(one)
    actor = place.partition("/")[0]
    return place == expected or ("/" not in expected and actor in {*kind.actors, *_graph_names("places", kind.name)})


def _is_unknown(kind: IncidentType, one: Incident, answer: found.Answer) -> bool:
    """Whether the right place is named as that of an unknown cause, and no cause is likelier."""
    first, place = next(iter(answer.causes), ("", ""))
    return first == UNKNOWN and _is_place(kind, one, place)
