"""Sorts the series of one exposition by kind (levels, counters, histograms) and by engine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rlship_agents.scrape import names
from rlship_agents.scrape.exposition import Family, Labels, Sample

# Labels for one process behind an endpoint that reports several (a Ray node), and for one engine of a process.
_PROCESS = ("ReplicaId", "replica", "WorkerId")
_ENGINE = ("engine", "dp_rank")
# Ranks within an engine, which all report the same: only the lowest one counts.
_SHARD = ("pp_rank", "tp_rank", "moe_ep_rank")


class Engine(NamedTuple):
    """The engine of a series: the process's labels, and its number in the process. Both are empty for the endpoint."""

    process: tuple[str, ...] = ()
    number: str = ""


class Key(NamedTuple):
    """A series: its name in this module's terms, and its labels."""

    name: str
    labels: Labels


@dataclass(frozen=True, slots=True)
class Histogram:
    """Buckets as written: upper bounds, ascending, the last one infinite; the observations at or below each."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float  # of the observations themselves


@dataclass(slots=True)
class Reading:
    """The series of an exposition. `own` holds the kinds of families that the catalogue does not know, by their own
    names. `gone` holds counters and histograms that earlier readings had and this one lacks.
    """

    start: float | None = None
    levels: dict[Key, float] = field(default_factory=dict)
    counters: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, Histogram] = field(default_factory=dict)
    created: dict[Key, float] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    gone: set[Key] = field(default_factory=set)


def read(families: Iterable[Family]) -> Reading:
    """Sort the series of the families. Of two series of one name and labels the first counts."""
    found = Reading()
    for family in families:
        name = names.known(family.name)
        made = names.known(family.name.removesuffix("_created"))
        if name is not None:
            _sort(found, name, family)
        elif made is not None and family.name.endswith(
            "_created"
        ):  # in the text format these are families of their own
            found.created.update((Key(made, sample.labels), sample.value) for sample in family.samples)
        elif not family.name.endswith("_created"):
            _sort(found, _own_name(family), family)
            found.own[_own_name(family)] = family.kind
    return found


def _sort(found: Reading, name: str, family: Family) -> None:
    for sample in family.samples:
        key = Key(name, sample.labels)
        if sample.name.endswith("_created"):
            found.created.setdefault(key, sample.value)
        elif name == names.START_TIME:
            found.start = sample.value if found.start is None else found.start
        elif family.kind == "counter" or name in names.COUNTERS:
            found.counters.setdefault(key, sample.value)
        elif family.kind in ("gauge", "unknown", "untyped"):
            found.levels.setdefault(key, sample.value)
    if family.kind == "histogram":
        for key, one in _histograms(name, family.samples):
            found.histograms.setdefault(key, one)
    elif family.kind == "summary":
        for key, one in _summaries(name, family):
            found.histograms.setdefault(key, one)


def _own_name(family: Family) -> str:
    """The name as written in the exposition, from which the parser may have removed `_total`."""
    counts = family.kind == "counter" and not family.name.endswith("_total")
    return f"{family.name}_total" if counts else family.name


def engine_of(labels: Labels) -> Engine:
    """The engine of a series with these labels."""
    given = dict(labels)
    number = next((given[name] for name in _ENGINE if given.get(name)), "")
    return Engine(process_of(labels), number)


def process_of(labels: Labels) -> tuple[str, ...]:
    """The labels that distinguish processes behind one endpoint."""
    return tuple(f"{name}={value}" for name, value in labels if name in _PROCESS)


def by_engine(series: Mapping[Labels, float]) -> dict[Engine, dict[Labels, float]]:
    """The series of each engine, only of its lowest shard."""
    groups: dict[Engine, dict[tuple[str, ...], dict[Labels, float]]] = {}
    for labels, value in series.items():
        given = dict(labels)
        shard = tuple(given.get(name, "").rjust(6, "0") for name in _SHARD)
        groups.setdefault(engine_of(labels), {}).setdefault(shard, {})[labels] = value
    return {engine: shards[min(shards)] for engine, shards in groups.items()}


def of(series: Mapping[Key, float], name: str) -> dict[Labels, float]:
    """The series of one name."""
    return {key.labels: value for key, value in series.items() if key.name == name}


def _histograms(name: str, samples: Iterable[Sample]) -> Iterable[tuple[Key, Histogram]]:
    buckets: dict[Labels, dict[float, float]] = {}
    totals: dict[Labels, float] = {}
    for sample in samples:
        if sample.name.endswith("_bucket"):
            bound = _bound(dict(sample.labels).get("le", ""))
            labels = tuple(pair for pair in sample.labels if pair[0] != "le")
            if bound is not None:
                buckets.setdefault(labels, {}).setdefault(bound, sample.value)
        elif sample.name.endswith("_sum"):
            totals.setdefault(sample.labels, sample.value)
    for labels, one in buckets.items():
        bounds = tuple(sorted(one))
        counts = tuple(one[bound] for bound in bounds)
        # Skip a histogram without an infinite bucket, or with cumulative counts that fall.
        if bounds[-1] == float("inf") and all(low <= high for low, high in pairwise(counts)):
            yield Key(name, labels), Histogram(bounds, counts, totals.get(labels, float("nan")))


def _summaries(name: str, family: Family) -> Iterable[tuple[Key, Histogram]]:
    """A summary as a histogram of one bucket: its quantiles cover all times and cannot be merged."""
    totals = {sample.labels: sample.value for sample in family.samples if sample.name.endswith("_sum")}
    for sample in family.samples:
        if sample.name.endswith("_count"):
            total = totals.get(sample.labels, float("nan"))
            yield Key(name, sample.labels), Histogram((float("inf"),), (sample.value,), total)


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if bound != bound or bound == float("-inf") else bound
