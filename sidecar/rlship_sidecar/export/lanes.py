"""Which line of the picture a span is drawn on. Pure.

Viewers draw the spans of one line by nesting alone: of two that overlap, one has to lie inside the other. What a lane
holds does so as a rule, because a thread leaves what it entered last. Where it does not (two threads of one name, a
clock that was set), the span goes to another line of the same lane, `main (2)`.

Tasks that asyncio numbered share lines: each has one to itself while it is in a span, and leaves it to the next.
"""

from __future__ import annotations

import re
from heapq import heappop, heappush
from typing import NamedTuple

# Two readings of the clock and the rounding to microseconds make neighbours overlap by this much, in microseconds.
SLACK_US = 20

_NUMBERED_TASK = re.compile(r"(Task)-\d+")


class Placed(NamedTuple):
    """Where a span is drawn: `start` and `end` (µs) are its own, or off by the slack so that it nests."""

    line: Line
    start: int
    end: int


class Line:
    """One line of the picture. `family` counts the lanes in order of appearance from 0, `number` the lines of a lane
    from 1.
    """

    __slots__ = ("_ends", "_newest", "family", "lane", "name", "number", "root_end")

    def __init__(self, name: str, family: int, number: int) -> None:
        self.name = name if number == 1 else f"{name} ({number})"
        self.family = family
        self.number = number
        self.lane = ""  # whose it is, while its outermost span lasts
        self.root_end = 0
        self._ends: list[int] = []  # of the spans that have begun, the outermost first
        self._newest = 0

    def begin(self, start: int, end: int) -> Placed:
        """Draw a span that no other one contains."""
        self._ends = [end]
        self._newest = start
        self.root_end = end
        return Placed(self, start, end)

    def nest(self, start: int, end: int) -> Placed | None:
        """Draw a span inside or after what is there, or None where it would cross the end of something."""
        ends = self._ends
        while ends and ends[-1] <= start:
            ends.pop()
        latest = start + SLACK_US
        start = max(start, self._newest)  # what it is in may have been moved
        depth = len(ends)
        while depth and ends[depth - 1] <= start:
            depth -= 1
        while depth and end > ends[depth - 1] + SLACK_US:
            # It outlasts what it begins in: it can only come after that.
            if ends[depth - 1] > latest:
                return None
            start = ends[depth - 1]
            depth -= 1
        end = max(start, end)
        if not depth:
            return self.begin(start, end)
        del ends[depth:]
        end = min(end, ends[-1])
        ends.append(end)
        self._newest = start
        return Placed(self, start, end)


class _Family:
    """The lines of one lane, or of all numbered tasks."""

    __slots__ = ("busy", "free", "held", "index", "lines", "name")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.lines: list[Line] = []
        self.free: list[int] = []  # heap of indices into `lines`
        self.busy: list[tuple[int, int]] = []  # heap of (end of the outermost span, index)
        self.held: dict[str, list[int]] = {}  # lane -> its lines now

    def release(self, now: int) -> None:
        """Take back the lines on which everything has ended."""
        while self.busy and self.busy[0][0] <= now:
            end, index = heappop(self.busy)
            line = self.lines[index]
            if line.root_end != end:
                continue  # another span has begun on it since
            heappush(self.free, index)
            mine = self.held[line.lane]
            mine.remove(index)
            if not mine:
                del self.held[line.lane]

    def place(self, lane: str, start: int, end: int) -> Placed:
        """Draw a span of a lane."""
        self.release(start)
        for index in self.held.get(lane, ()):
            line = self.lines[index]
            before = line.root_end
            placed = line.nest(start, end)
            if placed is not None:
                if line.root_end != before:
                    heappush(self.busy, (line.root_end, index))
                return placed
        if self.free:
            index = heappop(self.free)
        else:
            index = len(self.lines)
            self.lines.append(Line(self.name, self.index, index + 1))
        line = self.lines[index]
        line.lane = lane
        self.held.setdefault(lane, []).append(index)
        heappush(self.busy, (end, index))
        return line.begin(start, end)


class Lanes:
    """The lines of one process. Memory is bounded by the lanes and the spans that are open at one time."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def place(self, lane: str, start: int, end: int) -> Placed:
        """Draw a span (µs). Spans have to come by start, of those with the same start the outer one first."""
        numbered = _NUMBERED_TASK.fullmatch(lane)
        name = numbered[1] if numbered else lane
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(name, len(self._families))
        return family.place(lane, start, end)
