"""Sorting more than fits into memory: sorted runs in temporary files, merged when they are read."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import IO, Generic, TypeVar

Item = TypeVar("Item", bound="tuple[object, ...]")

IN_MEMORY = 50_000
BATCH = 100
FAN_IN = 16


class Sorted(Generic[Item]):
    """Takes tuples in any order and returns them once, sorted.

    At most `in_memory` of them are in memory while they come in, and a few thousand while they go out. The rest is in
    temporary files without a name, in the usual place (`TMPDIR`). Raises OSError if there is no room for them.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._limit = in_memory
        self._items: list[Item] = []
        # Runs by how often they were merged: FAN_IN of a level become one of the next, so that few are open at a time.
        self._levels: list[list[IO[bytes]]] = []

    def add(self, item: Item) -> None:
        """Add a tuple."""
        self._items.append(item)
        if len(self._items) >= self._limit:
            self._items.sort()
            self._keep(self._items, 0)
            self._items = []

    def __iter__(self) -> Iterator[Item]:
        self._items.sort()
        try:
            if self._levels:
                yield from merge(self._items, *(self._read(run) for level in self._levels for run in level))
            else:
                yield from self._items
        finally:
            self.close()

    def close(self) -> None:
        """Drop everything."""
        self._items = []
        for level in self._levels:
            _close(level)
        self._levels = []

    def _keep(self, items: Iterable[Item], level: int) -> None:
        """Write a run of a level."""
        if level == len(self._levels):
            self._levels.append([])
        runs = self._levels[level]
        run = tempfile.TemporaryFile(prefix="rlship-trace-")  # noqa: SIM115 - open until all is read
        runs.append(run)
        source = iter(items)
        while batch := list(islice(source, BATCH)):
            pickle.dump(batch, run, protocol=pickle.HIGHEST_PROTOCOL)
        run.seek(0)
        if len(runs) == FAN_IN:
            self._keep(merge(*map(self._read, runs)), level + 1)
            _close(runs)

    @staticmethod
    def _read(run: IO[bytes]) -> Iterator[Item]:
        while True:
            try:
                batch: list[Item] = pickle.load(run)
            except EOFError:
                return
            yield from batch


def _close(runs: list[IO[bytes]]) -> None:
    while runs:
        runs.pop().close()
