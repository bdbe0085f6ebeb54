"""The frames around an episode, with all that the signs of a graph ask for. Memory is bounded by the window. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from rlship_formats.catalogue.metrics import lookup
from rlship_sidecar.alerts.episodes import Episode
from rlship_sidecar.alerts.evaluation import History
from rlship_sidecar.alerts.frames import NONFINITE, FrameNames, Frames, Part, RankValues, StepFrame
from rlship_sidecar.rows import ALIGNED, LEDGER, STEP, Row, Unit
from rlship_sidecar.why.detectors import INSIDE, RESTARTS, Detector, detectors_of, standing_out, wanted
from rlship_sidecar.why.graph import Graph

BEFORE, AFTER = 200, 60  # frames before the beginning of an episode, and after it fired
MAX_KEYS = 20_000
MAX_FAMILY = 20  # names that stand for `<name>` in that of a metric
ROWS = f"{INSIDE}row/"
GAP = "coverage/gap"
VERSION = "policy_version"
LAGS = ("generator/policy_lag", "async/staleness")  # in steps


_Value = TypeVar("_Value")


class MetricSource(NamedTuple):
    """Whose rows of which kind show a metric."""

    actor: str
    kind: str


@dataclass
class Survey:
    """What has to be known of all rows before a window can be chosen, gathered while they pass by.

    The steps of the lead, the names that stand for `<name>` in `families`, and unless `keys` is None the keys of rows,
    and by key of a metric the first and the last step at which it was not finite.
    """

    lead: str
    families: tuple[str, ...] = ()
    steps: set[int] = field(default_factory=set)
    names: dict[str, list[str]] = field(default_factory=dict)
    keys: set[str] | None = None
    nonfinite: dict[str, tuple[int, int]] = field(default_factory=dict)
    versions: bool = False  # whether others than the lead say which weights they have
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, those of the ledger joined to frames."""
        for row in map(joined, rows):
            if row.unit.kind == STEP and row.unit.actor == self.lead:
                self.steps.add(row.unit.index)
            elif not self.versions and row.unit.actor != self.lead:
                self.versions = any(VERSION in key for key in row.values)
            if self.families:
                self._look(row)
            if self.keys is not None and len(self.keys) < MAX_KEYS:
                self.keys.update(row.values)
                self._note_nonfinite(row)
            yield row

    def _note_nonfinite(self, row: Row) -> None:
        if NONFINITE not in "\n".join(row.values) or row.unit.kind not in (STEP, ALIGNED):  # nearly all rows
            return
        at = row.unit.index
        for name in [name for name, count in row.values.items() if name.endswith(NONFINITE) and count]:
            key = name.removesuffix(NONFINITE)
            first, last = self.nonfinite.get(key, (at, at))
            self.nonfinite[key] = min(first, at), max(last, at)

    def _look(self, row: Row) -> None:
        for key in row.values:
            if (row.unit.actor, key) in self._seen or len(self._seen) > MAX_KEYS:
                continue
            self._seen.add((row.unit.actor, key))
            path = key.removeprefix(f"{row.unit.actor}/").removeprefix("aligned/")
            found = lookup(row.unit.actor, path)
            if found is not None and found.name in self.families:
                before = found.name.partition("<")[0]
                name = path if path.startswith(before) else f"{before}{path.split('/')[1]}"
                known = self.names.setdefault(found.name, [])
                if name not in known and len(known) < MAX_FAMILY:
                    known.append(name)

    def detectors(self, graph: Graph) -> list[Detector]:
        """The detectors of all signs; of a metric with `<name>` in it one for each name."""
        found = []
        for sign in graph.signs.values():
            metrics = [
                name
                for metric in sign.metrics
                for name in (sorted(self.names.get(metric, [])) if "<" in metric else [metric])
            ]
            if metrics or not sign.metrics:
                found += detectors_of(replace(sign, metrics=tuple(metrics)))
        return found


def families_of(graph: Graph) -> tuple[str, ...]:
    """The metrics of a graph that stand for several."""
    return tuple({name for sign in graph.signs.values() for name in sign.metrics if "<" in name})


class Window(NamedTuple):
    """The frames around an episode, in the order of their steps. `sources` says by name which rows have it: those of
    the lead first, as in frames.
    """

    frames: tuple[StepFrame, ...]
    sources: Mapping[str, tuple[MetricSource, ...]]
    first: int  # place of the episode's first frame
    fired: int  # place of the frame in which it fired
    last: int  # place of its last breach, or of the last frame
    complete: bool  # whether it begins with the run

    def begins(self, at: int) -> int:
        """The place at which the attempt of a frame begins; -BEFORE if that is before the window."""
        lineage = self.frames[at].lineage[:2]
        while at > 0 and self.frames[at - 1].lineage[:2] == lineage:
            at -= 1
        return at if at or self.complete else -BEFORE

    def source_of(self, name: str, rank: str = "") -> MetricSource | None:
        """Whose rows show a name; of a rank that stands out those of its actor."""
        found = self.sources.get(name, ())
        actor = rank.partition("/")[0]
        return next((one for one in found if one.actor == actor), None) or next(iter(found), None)

    def row_of(self, source: MetricSource, at: int) -> int | None:
        """The number of the row that a frame has from a source."""
        found = self.frames[at].values.get(f"{ROWS}{source.actor}{INSIDE}{source.kind}")
        return None if found is None else int(found)


class _Names(FrameNames):
    """Names of frames that also note where they come from, and keep only the ranks that stand out."""

    def __init__(self, detectors: Sequence[Detector], lead: str, *, versions: bool) -> None:
        names = wanted(detectors)
        super().__init__({*names, *LAGS}, lead)
        self._sources: dict[str, set[MetricSource]] = {}
        self._lead = lead
        self._versions = versions
        self._apart: dict[str, list[Detector]] = {}
        self._gap = GAP in names
        for one in detectors:
            self._apart.setdefault(one.metric, []).append(one)

    def part(self, row: Row, **options: Any) -> Part:
        """What a row says of the names."""
        part = super().part(row, **options)
        if self._versions and row.unit.actor == self._lead:
            part = part._replace(values=_without_version(part.values), ranks=_without_version(part.ranks))
        actor, source = row.unit.actor, MetricSource(row.unit.actor, row.unit.kind)
        for name in part.values.keys() | part.ranks.keys():
            self._sources.setdefault(name, set()).add(source)
        values = dict(part.values)
        values[f"{ROWS}{actor}{INSIDE}{row.unit.kind}"] = float(row.row_number)
        if actor not in ("", self._lead):
            coverage = row.coverage
            values[f"{RESTARTS}{actor}"] = 1000.0 * max(coverage.attempts, default=0) + coverage.lives - 1
        if self._gap:
            values[GAP] = float(row.coverage.gap)
        return part._replace(values=values, ranks=self._few(part.ranks))

    def sources(self) -> dict[str, tuple[MetricSource, ...]]:
        """Whose rows show a name, the lead's first."""
        own = MetricSource(self._lead, STEP)
        return {name: tuple(sorted(found, key=lambda one: (one != own, one))) for name, found in self._sources.items()}

    def _few(self, ranks: dict[str, RankValues]) -> dict[str, RankValues]:
        found: dict[str, RankValues] = {}
        for name, values in ranks.items():
            if name.startswith("coverage/"):
                found[name] = values
                continue
            for one in self._apart.get(name, ()):
                if one.sign.test == "apart" and (out := standing_out(one, values)):
                    found[one.key] = out
            found[name] = _extreme(values)
        return found


def _without_version(named: dict[str, _Value]) -> dict[str, _Value]:
    """The version of the trainer's weights goes on whatever happens. Where others state theirs, those count."""
    return {name: value for name, value in named.items() if not name.startswith(VERSION)}


def _extreme(values: RankValues) -> RankValues:
    """The rank with the greatest value, if it is half as much again as the next one; else none."""
    if len(values) < 2:
        return ()
    ordered = sorted(value for _, value in values)
    if ordered[-1] > 0 and ordered[-1] >= 1.5 * ordered[-2]:
        return tuple(one for one in values if one[1] == ordered[-1])[:1]
    return ()


def window_of(
    rows: Iterable[Row],
    episode: Episode,
    survey: Survey,
    detectors: Sequence[Detector],
    past: Mapping[int, Collection[Row]] | None = None,
) -> Window | None:
    """The frames around an episode, of the newest lineage that has it; None if the rows have it no more."""
    steps = sorted(survey.steps)
    low = steps[max(0, bisect_left(steps, episode.first.step) - BEFORE)]
    high = steps[min(len(steps), bisect_right(steps, episode.fired.step) + AFTER) - 1]
    names = _Names(detectors, survey.lead, versions=survey.versions)
    history = _FrameHistory(names, survey.lead)
    before = past and {step: list(_relevant(found, survey.lead, low, high)) for step, found in past.items()}
    history.take(_relevant(rows, survey.lead, low, high), before)
    for frames in history.lineages():
        found = {frame.index: frame for frame in frames if low <= frame.index <= high}
        has = all(one.step in found and found[one.step].t == one.t for one in (episode.first, episode.fired))
        # Steps that were done again within a millisecond have the times that they had.
        if has and found[episode.first.step].lineage == episode.lineage:
            return _window(found, episode, names.sources(), complete=low == steps[0])
    return None


class _FrameHistory(History):
    """The frames of each lineage with the names that a graph asks for, made as rules see them, without any rule."""

    def __init__(self, names: FrameNames, lead: str) -> None:
        super().__init__((), lead)
        self._frames = Frames(names, lead)

    def lineages(self) -> Iterator[Iterable[StepFrame]]:
        """The frames of each lineage, the newest first."""
        for one in reversed(self._lineages.values()):
            yield one.frames()


def joined(row: Row) -> Row:
    """A row of the ledger as one that joins its frame by its step, as units do that are aligned with the lead's steps;
    any other row as it is.
    """
    return replace(row, unit=Unit(row.unit.actor, ALIGNED, row.unit.index)) if row.unit.kind == LEDGER else row


def _relevant(rows: Iterable[Row], lead: str, low: int, high: int) -> Iterator[Row]:
    """The rows from `low` to `high`; of others those of the lead without their values, which show the lineages.

    The answer is the same with all rows: this spares a fifth of the time of a question about a long run.
    """
    for row in map(joined, rows):
        unit = row.unit
        if unit.kind in (STEP, ALIGNED) and low <= unit.index <= high:
            yield row
        elif unit.kind == STEP and unit.actor == lead:
            yield replace(row, values={}, per_rank={}, hists={}, samples={})


def _window(
    found: dict[int, StepFrame], episode: Episode, sources: Mapping[str, tuple[MetricSource, ...]], *, complete: bool
) -> Window:
    steps = sorted(found)
    first, fired = steps.index(episode.first.step), steps.index(episode.fired.step)
    last = max(fired, bisect_right(steps, episode.last.step) - 1)
    return Window(tuple(found[step] for step in steps), sources, first, fired, last, complete)
