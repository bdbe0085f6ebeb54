"""Chooses the line on which a viewer draws a span. Pure.

Viewers draw the spans of one line by nesting alone: of two that overlap, one has to lie inside the other. The spans of
a lane normally nest, because a thread leaves first what it entered last. If they do not (two threads of one name, a
clock that was set), the span goes to another line of the same lane, `main (2)`.

Tasks that asyncio numbered share lines: a task owns a line while it is in a span, and then leaves it to the next task.
"""

from __future__ import annotations

import re
from heapq import heappop, heappush
from typing import NamedTuple

# Two readings of the clock and the rounding to microseconds make neighbours overlap by this much, in microseconds.
SLACK_US = 20

_NO_ROOM, _NO_END = -(1 << 63), 1 << 63  # the room of a line on which no span fits, or every span fits

_NUMBERED_TASK = re.compile(r"(Task)-\d+")


class Placed(NamedTuple):
    """Where a span is drawn: `start` and `end` (µs) are its own, or moved within the slack so that it nests."""

    line: Line
    start: int
    end: int


class Line:
    """One line of the picture. `family` counts the lanes from 0 in order of appearance, `number` the lines of a lane
    from 1.
    """

    __slots__ = ("_ends", "_newest", "family", "lane", "name", "number", "root_end")

    def __init__(self, name: str, family: int, number: int) -> None:
        self.name = name if number == 1 else f"{name} ({number})"
        self.family = family
        self.number = number
        self.lane: str | None = None  # the lane that owns it while its outermost span lasts
        self.root_end = 0
        self._ends: list[int] = []  # of the spans that have begun, the outermost first
        self._newest = 0

    def begin(self, start: int, end: int) -> Placed:
        """Draw a span that lies in no other span."""
        self._ends = [end]
        self._newest = start
        self.root_end = end
        return Placed(self, start, end)

    def nest(self, start: int, end: int) -> Placed | None:
        """Draw a span inside or after the spans drawn so far; None if it would cross the end of one."""
        ends = self._ends
        while ends and ends[-1] <= start:
            ends.pop()
        latest = start + SLACK_US
        start = max(start, self._newest)  # the enclosing span may have been moved
        depth = len(ends)
        while depth and ends[depth - 1] <= start:
            depth -= 1
        while depth and end > ends[depth - 1] + SLACK_US:
            # It outlasts the span that it begins in, so it can only follow that span.
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

    def room(self, now: int) -> int:
        """When a span that starts `now` has to end so that `nest` finds a place for it, without the slack."""
        ends = self._ends  # the ends descend
        low, high = 0, len(ends)
        while low < high:  # a span that ends within the slack can be followed by another
            middle = (low + high) // 2
            if ends[middle] > now + SLACK_US:
                low = middle + 1
            else:
                high = middle
        return ends[low - 1] if low else _NO_END


class _Held:
    """The lines of one lane in the order in which it took them, and the room on each.

    A tree finds the first line with enough room. With a list, each of many crossing spans would search every line.
    """

    __slots__ = ("_first", "_lines", "_most", "_places")

    def __init__(self) -> None:
        self._lines: list[int] = []  # by place; -1 for a line that was given back
        self._places: dict[int, int] = {}
        self._first = 1  # where the leaves begin in `_most`
        self._most = [_NO_ROOM, _NO_ROOM]  # node n has the most room of its children, 2n and 2n + 1

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, index: int, room: int) -> None:
        """Add a line."""
        if len(self._lines) == self._first:
            self._rebuild()
        self._places[index] = len(self._lines)
        self._lines.append(index)
        self.set(index, room)

    def remove(self, index: int) -> None:
        """Give a line back."""
        self.set(index, _NO_ROOM)
        self._lines[self._places.pop(index)] = -1

    def set(self, index: int, room: int) -> None:
        """Set a line's room."""
        node, most = self._first + self._places[index], self._most
        most[node] = room
        while node > 1:
            node //= 2
            most[node] = max(most[2 * node], most[2 * node + 1])

    def first_with(self, room: int) -> int | None:
        """The first line with at least this much room."""
        node, most = 1, self._most
        if most[node] < room:
            return None
        while node < self._first:
            node *= 2
            node += most[node] < room
        return self._lines[node - self._first]

    def _rebuild(self) -> None:
        """Close the gaps, and reserve space for as many lines again."""
        rooms = [(index, self._most[self._first + place]) for index, place in self._places.items()]
        self._first = 1 << (2 * len(rooms)).bit_length()
        self._most = [_NO_ROOM] * (2 * self._first)
        self._lines = [index for index, _ in rooms]
        self._places = {index: place for place, index in enumerate(self._lines)}
        for index, room in rooms:
            self.set(index, room)


class _Family:
    """The lines of one lane, or of all numbered tasks."""

    __slots__ = ("busy", "ending", "free", "held", "index", "lines", "name")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.lines: list[Line] = []
        self.free: list[int] = []  # heap of indices into `lines`
        self.busy: list[tuple[int, int]] = []  # heap of (end of the outermost span, index)
        self.ending: list[tuple[int, int]] = []  # heap of (end of a span, index)
        self.held: dict[str, _Held] = {}  # lane -> its lines now

    def release(self, now: int) -> None:
        """Give back the lines on which every span has ended, and update the room of the others."""
        while self.busy and self.busy[0][0] <= now:
            end, index = heappop(self.busy)
            line = self.lines[index]
            lane = line.lane
            if line.root_end != end or lane is None:
                continue  # another span has begun on it since
            heappush(self.free, index)
            line.lane = None
            self.held[lane].remove(index)
            if not self.held[lane]:
                del self.held[lane]
        while self.ending and self.ending[0][0] <= now + SLACK_US:
            index = heappop(self.ending)[1]
            line = self.lines[index]
            if line.lane is not None:
                self.held[line.lane].set(index, line.room(now))

    def place(self, lane: str, start: int, end: int) -> Placed:
        """Draw a span of a lane."""
        self.release(start)
        held = self.held.get(lane)
        index = None if held is None else held.first_with(end - SLACK_US)
        if held is not None and index is not None:
            line = self.lines[index]
            before = line.root_end
            placed = line.nest(start, end)
            assert placed is not None  # `room` guarantees it
            if line.root_end != before:
                heappush(self.busy, (line.root_end, index))
        else:
            index = self._take(lane)
            line = self.lines[index]
            placed = line.begin(start, end)
            heappush(self.busy, (end, index))
        self.held[lane].set(index, line.room(start))
        heappush(self.ending, (placed.end, index))
        return placed

    def _take(self, lane: str) -> int:
        """A line on which no span is drawn now."""
        if self.free:
            index = heappop(self.free)
        else:
            index = len(self.lines)
            self.lines.append(Line(self.name, self.index, index + 1))
        self.lines[index].lane = lane
        self.held.setdefault(lane, _Held()).add(index, _NO_ROOM)
        return index


class Lanes:
    """The lines of one process. The lanes and the spans that are open at one time bound the memory."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def place(self, lane: str, start: int, end: int) -> Placed:
        """Draw a span (µs). Spans have to come by start; of those with the same start the outer one comes first."""
        numbered = _NUMBERED_TASK.fullmatch(lane)
        name = numbered[1] if numbered else lane
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(name, len(self._families))
        return family.place(lane, start, end)
