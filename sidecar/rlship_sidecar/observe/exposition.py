"""The sidecar's own metrics for Prometheus.

The only labels are `actor`, `sink`, `closed`, `reason` and `at`, each with few values whatever a job writes. A
monitoring system keeps every combination of labels that it ever saw.
"""

from __future__ import annotations

import itertools
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rlship._version import __version__
from rlship_sidecar.observe.pulse import Pulse
from rlship_sidecar.report.status import Status
from rlship_sidecar.rows import count_ranks
from rlship_sidecar.tally import LAG_ENDS_S, Lags, Shipping, Tally

MAX_VALUES = 50  # the values of one label; later ones become `other`
OTHER = "other"

Values = Mapping[str, float]


class Own(Collector):
    """Collects the loop's last report over all experiments: counts and queues are added up, of lags the greatest
    counts.
    """

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._actors = Few()
        self._reasons = Few()

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families."""
        snapshot = self._pulse.snapshot
        yield from self._process()
        yield from self._reading(snapshot.statuses, snapshot.tallies)
        yield from self._rows(snapshot.statuses, snapshot.tallies)
        yield from _shipping(snapshot.statuses, snapshot.tallies)

    def _process(self) -> Iterator[Metric]:
        pulse, snapshot = self._pulse, self._pulse.snapshot
        build = GaugeMetricFamily("rlship_build_info", "1, with the versions as labels.", labels=("version", "python"))
        build.add_metric((__version__, platform.python_version()), 1)
        yield build
        yield _one("rlship_up", "1 while the sidecar works, 0 once it is stopping.", not pulse.is_stopping)
        yield _one("rlship_loop_age_seconds", "Since the loop last completed a round.", pulse.age_s or 0.0)
        yield _one("rlship_experiments", "Experiments that this sidecar owns.", len(snapshot.statuses))
        yield _one("rlship_experiments_left_out", "Experiments that it cannot work on now.", len(snapshot.suspended))

    def _reading(self, statuses: Iterable[Status], tallies: Iterable[Tally]) -> Iterator[Metric]:
        by = self._actors.gather
        lines = by(sum, (t.lines for t in tallies))
        yield _counts("rlship_records_read", "Lines of writers' files that were applied.", "actor", lines)
        read = by(sum, (t.read_bytes for t in tallies))
        yield _counts("rlship_bytes_read", "Bytes of writers' files that were applied.", "actor", read)
        files = by(sum, (Counter(writer.actor for writer in s.writers) for s in statuses))
        yield _gauges("rlship_files_tracked", "Writers' files.", "actor", files)
        unread = sum(writer.unread for s in statuses for writer in s.writers)
        yield _one("rlship_tail_lag_bytes", "Bytes in writers' files that are not applied yet.", unread)
        skew = max((abs(clock.offset_s) for s in statuses for clock in s.clocks), default=0.0)
        yield _one("rlship_clock_skew_seconds", "How far the worst host's clock is off.", skew)
        dead = by_reason(self._reasons, statuses)
        yield _counts("rlship_records_quarantined", "Dead letters and dead values in the stores.", "reason", dead)

    def _rows(self, statuses: Iterable[Status], tallies: Iterable[Tally]) -> Iterator[Metric]:
        made: Counter[tuple[str, str]] = Counter()
        for tally in tallies:
            for (actor, closed), count in tuple(tally.rows.items()):
                made[self._actors.name(actor), closed] += count
        rows = CounterMetricFamily(
            "rlship_rows",
            "Rows committed, by why they appeared: complete, partial (ranks missing), revision (late lines), end.",
            labels=("actor", "closed"),
        )
        for labels, count in made.items():
            rows.add_metric(labels, count)
        yield rows
        by = self._actors.gather
        yield _gauges(
            "rlship_step",
            "Step of the newest row.",
            "actor",
            by(max, ({a.actor: a.step for a in s.actors if a.step is not None} for s in statuses)),
        )
        yield _gauges(
            "rlship_barrier_wait_seconds",
            "How long the oldest open step has been open.",
            "actor",
            by(max, ({a.actor: a.lag_s for a in s.actors} for s in statuses)),
        )
        yield _gauges(
            "rlship_barrier_missing_ranks",
            "Ranks that the newest row lacks.",
            "actor",
            by(sum, ({a.actor: count_ranks(a.missing) for a in s.actors} for s in statuses)),
        )


def _shipping(statuses: Iterable[Status], tallies: Iterable[Tally]) -> Iterator[Metric]:
    queued: Counter[str] = Counter()
    unconfirmed: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    trouble: dict[str, float] = {}
    for status in statuses:
        for sink in status.sinks:
            queued[sink.name] += max(0, status.rows - sink.sent)
            unconfirmed[sink.name] += max(0, sink.sent - sink.next_row)
            refused[sink.name] += sink.state == "refused"
            trouble[sink.name] = max(sink.trouble_s, trouble.get(sink.name, 0.0))
    yield _gauges("rlship_sink_queue_depth", "Rows that were not handed to the sink yet.", "sink", queued)
    yield _gauges("rlship_sink_unconfirmed_rows", "Rows that it has and has not confirmed yet.", "sink", unconfirmed)
    yield _gauges("rlship_sink_trouble_seconds", "How long it has confirmed nothing for an error.", "sink", trouble)
    yield _gauges("rlship_sink_refused", "Experiments for which it refuses rows for good.", "sink", refused)
    shipped: dict[str, list[Shipping]] = {}
    for tally in tallies:
        for name, one in tally.sinks.items():
            shipped.setdefault(name, []).append(one)
    errors = {name: sum(one.errors for one in all_of) for name, all_of in shipped.items()}
    yield _counts("rlship_sink_errors", "Failed attempts to deliver.", "sink", errors)
    lags = HistogramMetricFamily(
        "rlship_ship_lag_seconds",
        "From a row's own time (when its ranks logged it) until the sink had it (written), and until it confirmed it.",
        labels=("sink", "at"),
    )
    for name, all_of in shipped.items():
        lags.add_metric((name, "written"), *_histogram([one.written for one in all_of]))
        lags.add_metric((name, "confirmed"), *_histogram([one.confirmed for one in all_of]))
    yield lags


def _histogram(lags: list[Lags]) -> tuple[list[tuple[str, float]], float]:
    counts = [sum(column) for column in zip(*(one.counts for one in lags))]
    ends = [*map(str, LAG_ENDS_S), "+Inf"]
    return list(zip(ends, itertools.accumulate(counts))), sum(one.total_s for one in lags)


class Few:
    """Label values taken from names that a job chooses: the first names as they are, all later ones as `other`."""

    def __init__(self, most: int = MAX_VALUES) -> None:
        self._most = most
        self._known: set[str] = set()

    def name(self, name: str) -> str:
        """Return the label value for a name."""
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name

    def gather(self, how: Callable[[list[float]], float], parts: Iterable[Values]) -> dict[str, float]:
        """Return one value for each label value; `how` reduces the values of all its names."""
        found: dict[str, list[float]] = {}
        for part in parts:
            for name, value in tuple(part.items()):  # the loop may add to it meanwhile
                found.setdefault(self.name(name), []).append(value)
        return {name: how(values) for name, values in found.items()}


def by_reason(few: Few, statuses: Iterable[Status]) -> dict[str, float]:
    """Count dead letters and values by reason; those of files that a status does not list count as `other`."""
    found: Counter[str] = Counter()
    for status in statuses:
        listed = 0
        for letter in status.dead_letters:
            found[few.name(letter.reason)] += letter.count
            listed += letter.count
        found[OTHER] += status.dead_letter_count + status.dead_value_count - listed
    return {reason: count for reason, count in found.items() if count}


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _gauges(name: str, text: str, label: str, values: Values) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for label_value, value in values.items():
        family.add_metric((label_value,), value)
    return family


def _counts(name: str, text: str, label: str, values: Values) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for label_value, value in values.items():
        family.add_metric((label_value,), value)
    return family


class Exposition:
    """The text of all metrics, including the process's own (`process_…`)."""

    def __init__(self, pulse: Pulse) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(Own(pulse))
        ProcessCollector(registry=self._registry, pid=os.getpid)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the text and its content type, in the form that an `Accept` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
