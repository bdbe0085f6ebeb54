"""Turns two readings of an endpoint into the values to log for each of its engines. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlship_agents.scrape import names
from rlship_agents.scrape.exposition import Labels
from rlship_agents.scrape.increases import Increases, increases
from rlship_agents.scrape.reading import Engine, Histogram, Key, Reading, by_engine, engine_of, of
from rlship_formats.catalogue.metrics import Metric, lookup
from rlship_formats.values import SUM_LAST

# Metrics whose engine matters, because a sick engine hides in a value over all of them.
PER_RANK = frozenset(
    (
        "gen/kv_usage",
        "gen/kv_miss_rate",
        "gen/decode_tokens_per_s",
        "gen/requests_running",
        "gen/requests_waiting",
        "gen/ttft_s",
        "gen/tpot_s",
        "svc/replica_queue_depth",
        "svc/replica_failures",
        "svc/recovery_s",
    )
)
OF_ENDPOINT = Engine()
MAX_OBSERVATIONS = 100  # observations of a metric at one look that are logged one by one
_COUNTS_END = 2.0**53  # a greater number is not exact and not a count
_WAITING, _QUEUE = "gen/requests_waiting", "svc/replica_queue_depth"


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric's value, as `log` takes it, and its reductions.

    `level`: true for the momentary state of one source, which `gauge.sum` adds up over sources. Its value is then a
    plain number, or the numbers of several series that make it up.
    """

    value: Any
    reduce: tuple[str, ...]
    unit: str = ""
    per_rank: bool = False
    level: bool = False


Figures = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Observed:
    """The result of a look at an endpoint: values by engine and metric, and the number of processes that restarted."""

    engines: dict[Engine, Figures]
    restarts: int


def observe(before: Reading | None, now: Reading, keep: tuple[str, ...] = ()) -> Observed:
    """The values known at `now`, given `before`, the last good reading (None before the first).

    Series with unknown names are folded over all labels but `keep`.
    """
    grown = increases(before, now)
    engines: dict[Engine, Figures] = {}
    asleep = _asleep(now)
    for engine, one in asleep.items():
        _put(engines, engine, "gen/asleep", Figure(float(one), ("mean",), "0-1"))
    for name, source in names.SOURCES.items():
        _levels(engines, source, of(now.levels, name), asleep)
        _known_counters(engines, source.metric, of(grown.counters, name))
        _known_histograms(engines, source.metric, name, grown)
    _waiting_by_reason(engines, now, asleep)
    _capacity(engines, now, asleep)
    for engine, requests in _sums(grown.counters, "vllm:request_success", "sglang:num_requests").items():
        _put(engines, engine, "perf/samples_per_s", Figure(requests, ("rate",), "1/s"))
    for ratio in names.RATIOS:
        _ratio(engines, ratio, now, grown)
    if not of(now.counters, "sglang:cached_tokens"):
        for engine, series in by_engine(of(now.levels, names.HIT_RATE)).items():
            _put(engines, engine, "gen/kv_miss_rate", Figure(1.0 - max(series.values()), ("mean",), "0-1", True))
    depths = [figures[_WAITING].value for figures in engines.values() if _WAITING in figures]
    if depths:
        _put(engines, OF_ENDPOINT, _QUEUE, Figure(sum(depths), ("max",), "count", True))
    _own(engines.setdefault(OF_ENDPOINT, {}), now, grown, keep)
    return Observed(engines, grown.restarts)


def _put(engines: dict[Engine, Figures], engine: Engine, metric: str, figure: Figure) -> None:
    """Add a value. Names of several versions may mean one metric: the first counts."""
    engines.setdefault(engine, {}).setdefault(metric, figure)


def _asleep(now: Reading) -> dict[Engine, bool]:
    """The engines that report whether they sleep. The other gauges of a sleeping one show its state before."""
    found: dict[Engine, bool] = {}
    for labels, value in of(now.levels, names.SLEEP).items():
        state = dict(labels).get("sleep_state", "")
        engine = engine_of(labels)
        found[engine] = found.get(engine, False) or ((value == 0) if state == "awake" else (value != 0))
    return found


def _levels(
    engines: dict[Engine, Figures], source: names.Source, series: Mapping[Labels, float], asleep: Mapping[Engine, bool]
) -> None:
    metric = source.metric
    for engine, own in by_engine(series).items():
        values = [value * source.scale for value in own.values()]
        if not asleep.get(engine):
            _put(engines, engine, metric.name, _level(metric, values))


def _level(metric: Metric, values: list[float]) -> Figure:
    first = metric.reduce[0]
    per_rank = _per_rank(metric)
    if first == SUM_LAST:
        return Figure(sum(values), ("gauge.sum", *metric.reduce[1:]), metric.unit, per_rank, level=True)
    if first == "mean" and len(values) > 1:
        return Figure(_observations(values), metric.reduce, metric.unit, per_rank)
    return Figure(max(values), metric.reduce, metric.unit, per_rank)


def _observations(values: list[float]) -> Any:
    """Several series of one metric, as `log` takes them; very many as a summary."""
    if len(values) <= MAX_OBSERVATIONS:
        return values if len(values) > 1 else values[0]
    return {"n": len(values), "sum": math.fsum(values), "min": min(values), "max": max(values)}


def _waiting_by_reason(engines: dict[Engine, Figures], now: Reading, asleep: Mapping[Engine, bool]) -> None:
    """Use the sum over all reasons if the server does not report the total of waiting requests."""
    _levels(engines, names.SOURCES[names.WAITING], of(now.levels, names.WAITING_BY_REASON), asleep)


def _capacity(engines: dict[Engine, Figures], now: Reading, asleep: Mapping[Engine, bool]) -> None:
    for labels in of(now.levels, names.CACHE_CONFIG):
        given, engine = dict(labels), engine_of(labels)
        tokens = _number(given.get("kv_cache_size_tokens"))
        if tokens is None:
            blocks, size = _number(given.get("num_gpu_blocks")), _number(given.get("block_size"))
            tokens = None if blocks is None or size is None else blocks * size
        if tokens is not None and not asleep.get(engine):
            _put(engines, engine, "gen/kv_capacity", _level(_catalogued("gen/kv_capacity"), [tokens]))


def _number(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None


def _known_counters(engines: dict[Engine, Figures], metric: Metric, series: Mapping[Labels, float]) -> None:
    for engine, own in by_engine(series).items():
        _put(engines, engine, metric.name, Figure(sum(own.values()), ("rate",), metric.unit, _per_rank(metric)))


def _sums(series: Mapping[Key, float], *wanted: str) -> dict[Engine, float]:
    return {engine: sum(own.values()) for name in wanted for engine, own in by_engine(of(series, name)).items()}


def _ratio(engines: dict[Engine, Figures], ratio: names.Ratio, now: Reading, grown: Increases) -> None:
    if not of(now.counters, ratio.part):
        return
    only = set(ratio.only)
    counted = {key: value for key, value in grown.counters.items() if only <= set(key.labels)}
    parts = _sums(counted, ratio.part)
    metric = _catalogued(ratio.metric)
    for engine, whole in _sums(grown.counters, ratio.whole).items():
        if whole > 0:
            share = parts.get(engine, 0.0) / whole
            share = ratio.add + (1.0 - share if ratio.complement else share)
            value = {"v": [share], "w": [whole]}
            _put(engines, engine, ratio.metric, Figure(value, ("mean",), metric.unit, _per_rank(metric)))


def _known_histograms(engines: dict[Engine, Figures], metric: Metric, name: str, grown: Increases) -> None:
    groups: dict[Engine, list[Histogram]] = {}
    for key, one in grown.histograms.items():
        if key.name == name:
            groups.setdefault(engine_of(key.labels), []).append(one)
    for engine, several in groups.items():
        for suffix, figure in _of_histogram(several, metric.reduce, metric.unit, _per_rank(metric)):
            _put(engines, engine, metric.name + suffix, figure)


def _of_histogram(
    several: Iterable[Histogram], asks: Iterable[str], unit: str, per_rank: bool = False
) -> Iterable[tuple[str, Figure]]:
    """The values to log for the increase of histograms: quantiles from buckets, and the mean from totals."""
    quantiles = [ask for ask in asks if ask[0] == "p" and ask[1:].isdigit()]
    several = [one for one in several if one.counts]
    count, total = sum(sum(one.counts) for one in several), sum(one.total for one in several)
    if not 0 < count < _COUNTS_END:
        return
    position = 0
    if "mean" in asks or not quantiles or "hist" in asks:
        position = 1
        if math.isfinite(total):
            yield "", Figure({"n": int(count), "sum": total}, ("mean",), unit, per_rank)
    value = buckets(several)
    if value is not None:
        for ask in quantiles:
            yield f"/{ask}" if position else "", Figure(value, (f"buckets.{ask}",), unit, per_rank and not position)
            position += 1


def buckets(several: Iterable[Histogram]) -> dict[str, list[float]] | None:
    """Increases of histograms as weighted observations, as the reductions `buckets.p50` … read them.

    Each bound has as its weight the observations between it and the bound below. That one is there too, with a weight
    of its own or 0. Observations above the highest finite bound stand right above it. None if no bound is finite.
    """
    weights: dict[float, float] = {}
    for one in several:
        finite = one.bounds[:-1]
        if not finite:
            return None
        for place, count in enumerate(one.counts):
            if count:
                bound = finite[place] if place < len(finite) else math.nextafter(finite[-1], math.inf)
                weights[bound] = weights.get(bound, 0.0) + count
                if place:
                    weights.setdefault(finite[place - 1], 0.0)
    ordered = sorted(weights)
    return {"v": ordered, "w": [weights[bound] for bound in ordered]}


def _own(figures: Figures, now: Reading, grown: Increases, keep: tuple[str, ...]) -> None:
    """Add families that the catalogue does not know, under their own names."""
    levels: dict[str, list[float]] = {}
    for key, value in now.levels.items():
        if key.name in now.own:
            levels.setdefault(_named(key, keep), []).append(value)
    for name, values in levels.items():
        figures.setdefault(name, Figure(_observations(values), ("mean", "min", "max")))
    counts: dict[str, float] = {}
    for key, value in grown.counters.items():
        if key.name in now.own:
            counts[_named(key, keep)] = counts.get(_named(key, keep), 0.0) + value
    for name, value in counts.items():
        figures.setdefault(name, Figure(value, ("rate",), "1/s"))
    histograms: dict[str, list[Histogram]] = {}
    for key, one in grown.histograms.items():
        if key.name in now.own:
            histograms.setdefault(_named(key, keep), []).append(one)
    for name, several in histograms.items():
        for suffix, figure in _of_histogram(several, ("mean", "p50", "p99"), ""):
            figures.setdefault(name + suffix, figure)


def _named(key: Key, keep: tuple[str, ...]) -> str:
    """A name with the values of the kept labels: `http_requests_total/GET`."""
    given = dict(key.labels)
    kept = [given[label][:100].replace("/", "_") for label in keep if given.get(label)]
    return "/".join([key.name[:200], *kept])


def _per_rank(metric: Metric) -> bool:
    return metric.per_rank or metric.name in PER_RANK


def _catalogued(name: str) -> Metric:
    found = lookup("", name)
    assert found is not None
    return found
