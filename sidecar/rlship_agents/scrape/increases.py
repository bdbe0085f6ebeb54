"""How much counters and histograms grew between two readings, where they did not begin anew. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlship_agents.scrape.exposition import MOST_SAMPLES
from rlship_agents.scrape.reading import Histogram, Key, Reading, process_of

# A start time that a server computes anew each time may jitter.
_SAME_START_S = 1.0
_SAME_CREATION_S = 1e-3


@dataclass(slots=True)
class Increases:
    """Increases of series that were there before. `restarts`: how many processes behind the endpoint began anew."""

    counters: dict[Key, float] = field(default_factory=dict)
    histograms: dict[Key, Histogram] = field(default_factory=dict)
    restarts: int = 0


def increases(before: Reading | None, now: Reading) -> Increases:
    """What was added since `before`.

    A process began anew if its start time, or the time that one of its series was made, is another than before, or a
    series that is known went down; nothing is known of the growth of any of its series then. A series of a name that
    is not known, which may be no counter at all, speaks for its family only.

    A series that is new in a process that was there began at 0. That is not sure of a name that is not known, nor of a
    series that was there before, or came as others of its name went: labels may change, and pages be short of some.
    """
    found = Increases()
    if before is None:
        return found
    processes = _processes(before)
    if before.start is not None and now.start is not None and abs(now.start - before.start) > _SAME_START_S:
        found.restarts = 1
        return found
    anew, families = _begun(before, now)
    found.restarts = len(anew & processes)
    changed = {(key.name, process_of(key.labels)) for key in _series(before) - _series(now)}

    def begins_at_0(key: Key, process: tuple[str, ...]) -> bool:
        known = key.name not in now.own and process in processes
        return known and key not in before.gone and (key.name, process) not in changed

    for key, value in now.counters.items():
        process = process_of(key.labels)
        if process in anew or key.name in families:
            continue
        old = before.counters.get(key)
        if old is None and begins_at_0(key, process):
            old = 0.0
        if old is not None:
            found.counters[key] = value - old
    for key, one in now.histograms.items():
        process = process_of(key.labels)
        if process in anew or key.name in families:
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
    """Let `now` know which series were there in earlier readings of these processes, and since when these are there."""
    if before is not None and not restarts:
        now.start = before.start if now.start is None else now.start
        now.gone = (before.gone | _series(before)) - _series(now)
        if len(now.gone) > MOST_SAMPLES:  # whose series are others at each look
            now.gone = _series(before) - _series(now)


def _series(reading: Reading) -> set[Key]:
    return {*reading.counters, *reading.histograms}


def _begun(before: Reading, now: Reading) -> tuple[set[tuple[str, ...]], set[str]]:
    """The processes that began anew, and names whose series did."""
    anew: set[tuple[str, ...]] = set()
    families: set[str] = set()

    def began(key: Key) -> None:
        if key.name in now.own:
            families.add(key.name)
        else:
            anew.add(process_of(key.labels))

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
    return anew, families


def _grown(last: Histogram, now: Histogram) -> Histogram | None:
    """What fell into each bucket; None: that cannot be, as one that holds all of another one grew by less."""
    grown = [new - old for old, new in zip(last.counts, now.counts)]
    counts = [high - low for low, high in zip([0.0, *grown], grown)]
    if any(count < 0 for count in counts):
        return None
    return Histogram(now.bounds, tuple(counts), now.total - last.total)


def _processes(reading: Reading) -> set[tuple[str, ...]]:
    return {process_of(key.labels) for series in (reading.counters, reading.histograms) for key in series}
