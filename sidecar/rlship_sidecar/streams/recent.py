"""The newest stream lines of one actor, so that most of its units need no look into the files. Pure."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from typing import TypeAlias

from rlship_sidecar.align.lineage import Segment, Writer
from rlship_sidecar.decode.lines import StreamLine

MAX_LINES = 50_000

Kept: TypeAlias = "tuple[Segment, StreamLine]"


class Recent:
    """Every applied stream line from `whole_from` on (its own `t`, uncorrected), at most `most` of them."""

    def __init__(self, whole_from: float = -math.inf, most: int = MAX_LINES) -> None:
        self.whole_from = whole_from
        self.count = 0
        self._most = most
        self._seconds: dict[int, list[Kept]] = {}

    def add(self, segment: Segment, line: StreamLine) -> None:
        """Keep a line; where there are too many, those with the least times go."""
        if line.t < self.whole_from:
            return
        second = math.floor(line.t)
        lines = self._seconds.get(second)
        if lines is None:
            lines = self._seconds[second] = []
        lines.append((segment, line))
        self.count += 1
        if self.count > self._most:
            for second in sorted(self._seconds):
                self._drop(second)
                if self.count <= self._most // 4 * 3:
                    break

    def drop(self, writer: Writer, offsets: Container[int]) -> None:
        """Forget lines of a file that are in no stream any more."""
        for second, lines in list(self._seconds.items()):
            kept = [(s, line) for s, line in lines if s.writer is not writer or line.offset not in offsets]
            self.count -= len(lines) - len(kept)
            if kept:
                self._seconds[second] = kept
            else:
                del self._seconds[second]

    def holds(self, low: float) -> bool:
        """Whether no line from `low` on is lacking."""
        return low >= self.whole_from

    def within(self, ranges: Sequence[tuple[float, float]]) -> Iterator[Kept]:
        """The lines with `t` in one of some ranges (low, high), each once, and perhaps some beside."""
        seconds: set[int] = set()
        for low, high in ranges:
            if high - low <= len(self._seconds):
                seconds.update(s for s in range(math.floor(low), math.floor(high) + 1) if s in self._seconds)
            else:
                seconds.update(second for second in self._seconds if low - 1.0 <= second <= high)
        for second in seconds:
            yield from self._seconds[second]

    def forget_before(self, t: float) -> None:
        """Lines from before are not needed any more."""
        if self._seconds and min(self._seconds) + 1 <= t:
            for second in [second for second in self._seconds if second + 1 <= t]:
                self._drop(second)

    def _drop(self, second: int) -> None:
        self.count -= len(self._seconds.pop(second))
        self.whole_from = max(self.whole_from, second + 1.0)
