"""The growth of counters and histograms between two readings, unless they restarted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlship_agents.scrape.exposition import MAX_SAMPLES
from rlship_agents.scrape.reading import Histogram, Key, Reading, process_of

# A server may compute its start time again each time, with jitter.
_SAME_START_S = 1.0
_SAME_CREATION_S = 1e-3


@dataclass(slots=True)
class Increases:
    """Increases of series that were there before. `restarts`: the number of the endpoint's processes that restarted."""

    counters: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, Histogram] = field(default_factory=dict)
    restarts: int = 0


def increases(before: Reading | None, now: Reading) -> Increases:
    """The growth since `before`.

    A process has restarted if its start time or the creation time of one of its series has changed, or if a known
    series fell. Then the growth of all of its series is unknown. A series with an unknown name may not be a counter at
    all, so it only decides for its own family.

    A series that is new in an old process began at 0. That is not certain in three cases: for an unknown name, for a
    series that was there before, and for one that came as others of its name went. Labels may change, and pages may
    lack some series.
    """
    found = Increases()
    if before is None:
        return found
    processes = _processes(before)
    if before.start is not None and now.start is not None and abs(now.start - before.start) > _SAME_START_S:
        found.restarts = 1
        return found
    restarted, families = _begun(before, now)
    found.restarts = len(restarted & processes)
    changed = {(key.name, process_of(key.labels)) for key in _series(before) - _series(now)}

    def begins_at_0(key: Key, process: tuple[str, ...]) -> bool:
        known = key.name not in now.own and process in processes
        return known and key not in before.gone and (key.name, process) not in changed

    for key, value in now.counters.items():
        process = process_of(key.labels)
        if process in restarted or key.name in families:
            continue
        old = before.counters.get(key)
        if old is None and begins_at_0(key, process):
            old = 0.0
        if old is not None:
            found.counters[key] = value - old
    for key, one in now.histograms.items():
        process = process_of(key.labels)
        if process in restarted or key.name in families:
            continue
        last = before.histograms.get(key)
        if last is None and begins_at_0(key, process):
            last = Histogram(one.bounds, (0.0,) * len(one.bounds), 0.0)
        if last is not None and last.bounds == one.bounds:
            grown = _grown(last, one)
            if grown is not None:
                found.histograms[key] = grown
    return found


def remember(before: Reading | None, now: Reading, restarts: int) -> None:
    """Copy into `now` which series earlier readings of these processes held, and when the processes started."""
    if before is not None and not restarts:
        now.start = before.start if now.start is None else now.start
        now.gone = (before.gone | _series(before)) - _series(now)
        if len(now.gone) > MAX_SAMPLES:  # the series change at each look
            now.gone = _series(before) - _series(now)


def _series(reading: Reading) -> set[Key]:
    return {*reading.counters, *reading.histograms}


def _begun(before: Reading, now: Reading) -> tuple[set[tuple[str, ...]], set[str]]:
    """The processes that restarted, and the names whose series did."""
    restarted: set[tuple[str, ...]] = set()
    families: set[str] = set()

    def began(key: Key) -> None:
        if key.name in now.own:
            families.add(key.name)
        else:
            restarted.add(process_of(key.labels))

    for key, made in now.created.items():
        if made > before.created.get(key, made) + _SAME_CREATION_S:
            began(key)
    for key, value in now.counters.items():
        if value < before.counters.get(key, value):
            began(key)
    for key, one in now.histograms.items():
        last = before.histograms.get(key)
        if last is None:
            continue
        if last.bounds != one.bounds or any(new < old for old, new in zip(last.counts, one.counts)):
            began(key)
    return restarted, families


def _grown(last: Histogram, now: Histogram) -> Histogram | None:
    """The growth of each bucket. None if it is inconsistent: a cumulative bucket grew by less than one within it."""
    grown = [new - old for old, new in zip(last.counts, now.counts)]
    counts = [high - low for low, high in zip([0.0, *grown], grown)]
    if any(count < 0 for count in counts):
        return None
    return Histogram(now.bounds, tuple(counts), now.total - last.total)


def _processes(reading: Reading) -> set[tuple[str, ...]]:
    return {process_of(key.labels) for series in (reading.counters, reading.histograms) for key in series}
