"""Counts of one process's work on one experiment. They only grow; any thread may read them."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)

OWN_ACTOR = "rlship"  # the actor of the sidecar's own metrics
# Writers that are no part of the job. If their lines counted as signs of its life, they would keep each other going for
# ever. They are known by actor, or by the label `agent` if the job may use the same actor.
OBSERVERS = frozenset({OWN_ACTOR, "node"})
NODE_AGENT = "sysmon"
AGENTS = frozenset({NODE_AGENT, "scrape"})

# Upper ends in seconds: the first ones serve promises about latency, the last ones outages.
LAG_ENDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
_MAX_NEW = 1000


def observes(actor: str, agent: str) -> bool:
    """True if a writer's lines do not show that the job runs. `agent` is its label of that name, or ""."""
    return actor in OBSERVERS or agent in AGENTS


@dataclass(slots=True)
class Lags:
    """Latencies of rows, in seconds.

    `counts[i]` counts those up to `LAG_ENDS_S[i]` and above the end before; the last one counts those above all ends.
    `new` holds the latest ones, at most a thousand, for `take_new`.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_ENDS_S) + 1))
    total_s: float = 0.0
    new: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_NEW))

    def add(self, lag_s: float) -> None:
        """Add one latency. Clocks of hosts differ, so a negative value counts as 0."""
        lag_s = max(0.0, lag_s)
        self.counts[bisect_left(LAG_ENDS_S, lag_s)] += 1
        self.total_s += lag_s
        self.new.append(lag_s)

    def __add__(self, other: Lags) -> Lags:
        """Add two; `new` is that of `other`."""
        counts = [a + b for a, b in zip(self.counts, other.counts)]
        return Lags(counts, self.total_s + other.total_s, other.new)

    def take_new(self) -> list[float]:
        """Return the latencies since the last call."""
        taken = []
        while self.new:
            taken.append(self.new.popleft())
        return taken


@dataclass(slots=True)
class Shipping:
    """The deliveries to one sink.

    `written` and `confirmed` hold the latencies from a row's time (`Row.t`), of first revisions only. `errors` counts
    failed attempts.
    """

    written: Lags = field(default_factory=Lags)
    confirmed: Lags = field(default_factory=Lags)
    errors: int = 0

    def __add__(self, other: Shipping) -> Shipping:
        """Add two."""
        return Shipping(self.written + other.written, self.confirmed + other.confirmed, self.errors + other.errors)


@dataclass(slots=True)
class Tally:
    """Counts of one experiment.

    `lines` and `read_bytes` are by actor ("" before a file's first line is understood). `rows` are by actor and by the
    reason for which they appeared (see `Arrival.closed`). `sinks` are by name.
    """

    lines: dict[str, int] = field(default_factory=dict)
    read_bytes: dict[str, int] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    sinks: dict[str, Shipping] = field(default_factory=dict)

    def took(self, actor: str, lines: int, read_bytes: int) -> None:
        """Count a piece of a file that was read."""
        self.lines[actor] = self.lines.get(actor, 0) + lines
        self.read_bytes[actor] = self.read_bytes.get(actor, 0) + read_bytes

    def __add__(self, other: Tally) -> Tally:
        """Add the counts from before an experiment was put to rest and those since it was opened again."""
        sinks = {name: self.sinks.get(name, Shipping()) + shipping for name, shipping in other.sinks.items()}
        return Tally(
            _added(self.lines, other.lines),
            _added(self.read_bytes, other.read_bytes),
            _added(self.rows, other.rows),
            {**self.sinks, **sinks},
        )


def _added(one: Mapping[_Key, int], other: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
