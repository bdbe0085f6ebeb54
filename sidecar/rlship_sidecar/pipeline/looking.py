"""When to look at each file of a network filesystem, where every look is an open.

A row waits for the last of its ranks. Ranks finish a step at about the same time, so the first one that is seen to have
finished it *calls* the others: those after it are looked at soon, and then at a share of the time that a file takes
to grow. Files that are at the newest step have nothing to say before another one goes on. They are looked at in
turn, so many a second, and one that grew calls the rest. Files without steps have a pace of their own.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from rlship_sidecar.pipeline.source import Source
from rlship_sidecar.tail.looks import Look, Looks
from rlship_sidecar.tail.tail import Glance

FASTEST_S = 0.1  # between two looks at a file that is waited for
SLOWEST_CALLED_S = 0.5
TURN_S = 0.2  # between two looks at a file of a small actor, from which nothing is expected
IDLE_S = 0.5  # the same once the actor has been quiet for some seconds
TURNS_PER_S = 400  # looks at files from which nothing is expected
CLOSED_S = 30.0  # between two looks at a file whose writer closed
SETTLED_S = 60.0  # how long a closed file is looked at like others
SILENT_S = 30.0  # a rank that others left behind for so long is looked at once a step
BURST_S = 0.25  # opens that were not used for so long may be made at once
OPENS_PER_S = 8000
GOLDEN = 0.6180339887498949  # steps of this length spread evenly over a circle


@dataclass(slots=True)
class _Group:
    """The files of an actor. `front` is the newest step that any of them has finished, or -1. They were `called_at`
    then: when one of them went on first, or grew again after a quiet time, at `woke_at`.
    """

    members: dict[str, Source] = field(default_factory=dict)
    front: int = -1
    called_at: float = -math.inf
    woke_at: float = -math.inf
    grown_at: float = -math.inf


class Schedule:
    """The due times of all files, and how many opens are allowed now."""

    def __init__(self, opens_per_s: float = OPENS_PER_S, every_s: float | None = None) -> None:
        """`every_s`: look at every file so often, whatever it does."""
        self._opens_per_s = opens_per_s
        self._every_s = every_s
        self._allowed = opens_per_s * BURST_S
        self._counted_at = -math.inf
        self._phase = 0.0
        self._due: list[tuple[float, str]] = []
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}

    def add(self, source: Source, now: float) -> None:
        """A new file, to be looked at as soon as possible."""
        self._push(source, now)

    def take(self, sources: dict[str, Source], now: float) -> list[Source]:
        """The files to look at now, the longest overdue first, as many as may be opened."""
        if math.isinf(self._counted_at):
            self._counted_at = now
        refill = (now - self._counted_at) * self._opens_per_s
        self._allowed = min(self._opens_per_s * BURST_S, self._allowed + refill)
        self._counted_at = now
        found: list[Source] = []
        while self._due and self._due[0][0] <= now and self._allowed >= 1.0:
            due, name = heapq.heappop(self._due)
            source = sources.get(name)
            if source is not None and source.pace.due == due and source.pace.look is None:
                source.pace.due = math.inf
                self._allowed -= 1.0
                found.append(source)
        return found

    def next_due(self) -> float:
        """When the next file is due."""
        return self._due[0][0] if self._due else math.inf

    def looked(self, looked: Iterable[Source], now: float) -> None:
        """Plan the next look at files that were looked at just now, and call others if one of these went on."""
        done = list(looked)
        for group, grown in self._by_group(done, now):
            before, quiet_s = group.front, now - group.grown_at
            if grown:
                group.front = max(group.front, *map(_finished, grown))
                group.grown_at = now
            wakes = bool(grown) and quiet_s > max(1.0, 2 * grown[0].pace.every_s)
            if wakes:
                group.woke_at = now
            if wakes or group.front > before:
                group.called_at = now
                self._call(group, now)
        for source in done:
            self._push(source, now + self._interval_s(source, now))

    def _in_turn(self, mean_s: float) -> float:
        """Until a file has its turn. Files that were looked at together must not stay so: one of them has its turn
        soon.
        """
        self._phase = (self._phase + GOLDEN) % 1.0
        return 2 * mean_s * self._phase

    def _by_group(self, done: list[Source], now: float) -> Iterator[tuple[_Group, list[Source]]]:
        grown: dict[str, list[Source]] = {}
        for source in done:
            actor = source.writer.open.actor if source.writer is not None else ""
            before = self._group_of.get(source.name)
            if before != actor:
                if before is not None:
                    del self._groups[before].members[source.name]
                self._group_of[source.name] = actor
                self._groups.setdefault(actor, _Group()).members[source.name] = source
            if source.pace.grown_at == now:
                grown.setdefault(actor, []).append(source)
            else:
                grown.setdefault(actor, [])
        for actor, found in grown.items():
            yield self._groups[actor], found

    def _call(self, group: _Group, now: float) -> None:
        """Look soon at the files of which something is expected now."""
        for source in group.members.values():
            pace = source.pace
            if pace.look is not None or pace.due == math.inf or (source.writer is not None and source.writer.closed):
                continue
            if _finished(source) < group.front or not _has_steps(source):
                soon = max(now, pace.looked_at + FASTEST_S)
                if soon < pace.due:
                    self._push(source, soon)

    def _interval_s(self, source: Source, now: float) -> float:
        if self._every_s is not None:
            return self._every_s
        pace, writer = source.pace, source.writer
        group = self._groups[self._group_of[source.name]]
        quiet_s = now - pace.grown_at
        if (writer is None or writer.closed) and quiet_s > SETTLED_S:
            return CLOSED_S
        count, total = len(group.members), len(self._group_of)
        turn_s = max(TURN_S, count / TURNS_PER_S)
        idle_s = max(turn_s, min((now - group.grown_at) / 16, max(IDLE_S, total / TURNS_PER_S)))
        if writer is not None and writer.closed:
            return self._in_turn(idle_s)
        if group.front < 0 and not _has_steps(source):
            soon_s = max(FASTEST_S, pace.every_s / 4)
            return soon_s if quiet_s / 4 < soon_s < idle_s else self._in_turn(min(idle_s, max(soon_s, quiet_s / 4)))
        left_behind_s = now - max(pace.grown_at, group.woke_at)
        if _finished(source) >= group.front or left_behind_s > SILENT_S + 4 * pace.every_s:
            return self._in_turn(idle_s)
        soon_s = max(FASTEST_S, min(pace.every_s / 4, SLOWEST_CALLED_S), (now - group.called_at) / 4)
        return soon_s if soon_s < idle_s else self._in_turn(idle_s)

    def _push(self, source: Source, due: float) -> None:
        source.pace.due = due
        heapq.heappush(self._due, (due, source.name))


def _has_steps(source: Source) -> bool:
    return source.writer is not None and source.writer.segments[-1].begins is not None


def _finished(source: Source) -> int:
    """The step up to which a file's writer promised to write nothing more, or -1."""
    return source.writer.segments[-1].waits_to if source.writer is not None else -1


class Turns:
    """The looks at files of a network filesystem: which are due, which are under way, and what is left to read."""

    def __init__(self, looks: Looks, opens_per_s: float, poll_s: float | None) -> None:
        self.schedule = Schedule(opens_per_s, poll_s)
        self._looks = looks
        self._under_way: dict[str, Source] = {}
        self._unread: dict[str, Source] = {}
        self._looked: list[Source] = []

    def due(self, sources: dict[str, Source], now: float) -> list[Source]:
        """The files to look at now. Those that wait to be restored have their next turn later."""
        found = self.schedule.take(sources, now)
        self._looked += [source for source in found if source.unrestored is not None]
        return [source for source in found if source.unrestored is None]

    def begin(self, looks: Iterable[tuple[Source, Callable[[], Glance]]]) -> None:
        """Begin these looks, each at a file without a look under way."""
        for source, look in looks:
            if source.pace.look is None:
                source.pace.look = self._looks.begin(look)
                self._under_way[source.name] = source

    def wait(self, timeout_s: float) -> None:
        """Wait for the looks that are under way, and not for those that hang."""
        now = time.monotonic()
        looks = [source.pace.look for source in self._under_way.values() if source.pace.look is not None]
        self._looks.wait([look for look in looks if not look.hung_s(now)], timeout_s)

    def returned(self) -> list[tuple[Source, Look[Glance]]]:
        """The looks that have returned since the last call."""
        found = []
        for source in list(self._under_way.values()):
            look = source.pace.look
            if look is not None and look.is_done:
                source.pace.look = None
                del self._under_way[source.name]
                found.append((source, look))
        self._looked += [source for source, _ in found]
        return found

    def hanging(self) -> list[tuple[Source, Look[Glance], float]]:
        """The files at which a look hangs, and for how many seconds."""
        now = time.monotonic()
        looks = [(source, source.pace.look) for source in self._under_way.values()]
        return [(source, look, hung_s) for source, look in looks if look is not None and (hung_s := look.hung_s(now))]

    @property
    def is_working(self) -> bool:
        """True if a look is under way that does not hang."""
        return len(self._under_way) > len(self.hanging())

    @property
    def is_waiting(self) -> bool:
        """True if a look is under way."""
        return bool(self._under_way)

    def left(self, source: Source, *, left: bool) -> None:
        """Whether more of a file is there to be read, without another look."""
        if left:
            self._unread[source.name] = source
        else:
            self._unread.pop(source.name, None)

    def unread(self) -> list[Source]:
        """The files of which there is more to read."""
        return [source for source in self._unread.values() if source.pace.look is None]

    def plan(self, now: float) -> None:
        """Plan the next looks at the files that were looked at, whose lines are read."""
        self.schedule.looked(self._looked, now)
        self._looked = []

    def next_due(self) -> float:
        """When the next file is due, in monotonic seconds."""
        return self.schedule.next_due()
