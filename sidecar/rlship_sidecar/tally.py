"""Counts of what one process did with one experiment. They only grow; any thread may read them."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_Key = TypeVar("_Key", bound=Hashable)

OWN_ACTOR = "rlship"  # under whose name the sidecar's own figures are rows of the run
# Who writes beside the job: were their lines signs of its life, they would keep each other going for ever. By actor,
# and by the label `agent` of who writes under an actor's name that the job may have too.
OBSERVERS = frozenset({OWN_ACTOR, "node"})
NODE_AGENT = "sysmon"
AGENTS = frozenset({NODE_AGENT, "scrape"})

# Upper ends in seconds: promises are about the first ones, outages about the last ones.
LAG_ENDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
_MAX_NEW = 1000


def observes(actor: str, agent: str) -> bool:
    """Whether a writer says nothing of whether the job goes on. `agent`: its label of that name, "" without one."""
    return actor in OBSERVERS or agent in AGENTS


@dataclass(slots=True)
class Lags:
    """How long rows took, in seconds. `counts[i]` are those up to `LAG_ENDS_S[i]` and above the end before, the last
    one those above all ends. `new` are the latest ones, at most a thousand, for who takes them from there.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_ENDS_S) + 1))
    total_s: float = 0.0
    new: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_NEW))

    def add(self, lag_s: float) -> None:
        """Take in one. Clocks of hosts differ: what would be below 0 is 0."""
        lag_s = max(0.0, lag_s)
        self.counts[bisect_left(LAG_ENDS_S, lag_s)] += 1
        self.total_s += lag_s
        self.new.append(lag_s)

    def __add__(self, other: Lags) -> Lags:
        """Both together; the latest ones are those of `other`."""
        counts = [a + b for a, b in zip(self.counts, other.counts)]
        return Lags(counts, self.total_s + other.total_s, other.new)

    def take_new(self) -> list[float]:
        """Those since the last call."""
        taken = []
        while self.new:
            taken.append(self.new.popleft())
        return taken


@dataclass(slots=True)
class Shipping:
    """One sink: how long after its time (`Row.t`) a row was `written` to it and `confirmed` by it, first revisions
    only, and how many attempts failed.
    """

    written: Lags = field(default_factory=Lags)
    confirmed: Lags = field(default_factory=Lags)
    errors: int = 0

    def __add__(self, other: Shipping) -> Shipping:
        """Both together."""
        return Shipping(self.written + other.written, self.confirmed + other.confirmed, self.errors + other.errors)


@dataclass(slots=True)
class Tally:
    """`lines` and `read_bytes` of files by actor ("" before a file's first line is understood), `rows` by actor and by
    why they appeared (see `Arrival.closed`), `sinks` by name.
    """

    lines: dict[str, int] = field(default_factory=dict)
    read_bytes: dict[str, int] = field(default_factory=dict)
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    sinks: dict[str, Shipping] = field(default_factory=dict)

    def took(self, actor: str, lines: int, read_bytes: int) -> None:
        """A piece of a file was read."""
        self.lines[actor] = self.lines.get(actor, 0) + lines
        self.read_bytes[actor] = self.read_bytes.get(actor, 0) + read_bytes

    def __add__(self, other: Tally) -> Tally:
        """Both together: what was counted before an experiment was put to rest, and since it was taken up again."""
        sinks = {name: self.sinks.get(name, Shipping()) + shipping for name, shipping in other.sinks.items()}
        return Tally(
            _added(self.lines, other.lines),
            _added(self.read_bytes, other.read_bytes),
            _added(self.rows, other.rows),
            {**self.sinks, **sinks},
        )


def _added(one: Mapping[_Key, int], other: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
