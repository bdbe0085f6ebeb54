"""Sets of ranks as whole numbers, so that a step of thousands of ranks and varied metrics is compared quickly. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import orjson

from rlship_sidecar.align.lineage import replica_key
from rlship_sidecar.rows import RankName, name_run

RankSet: TypeAlias = int

_RUN = re.compile("1+")
_MAX_NAMES = 256  # sets of which the names are kept


class RankSets:
    """Sets of an actor's ranks: each rank has a bit, in merge order.

    The bits of ranks are neighbours only where their numbers are, so that a run of bits is a run of ranks.
    """

    def __init__(self) -> None:
        self._bits: dict[RankName, int] = {}
        self._ranks: list[RankName] = []  # by bit; where a bit is left out, the rank before it
        # Of a run that begins at a bit: its JSON up to the last rank, and its name where it is one rank.
        self._begun: list[str] = []
        self._named: list[str] = []
        self._known_names: dict[RankSet, tuple[str, ...]] = {}

    def meeting(self, ranks: Iterable[RankName]) -> RankSets:
        """The same with further ranks. Sets that were made before hold no more if it is another object."""
        new = sorted({rank for rank in ranks if rank not in self._bits}, key=_merge_order)
        if new and self._ranks and _merge_order(new[0]) < _merge_order(self._ranks[-1]):
            return RankSets().meeting([*self._bits, *new])
        for rank in new:
            if self._ranks and rank != self._ranks[-1]._replace(rank=self._ranks[-1].rank + 1):
                self._add(self._ranks[-1])
            self._bits[rank] = len(self._ranks)
            self._add(rank)
        return self

    def _add(self, rank: RankName) -> None:
        self._ranks.append(rank)
        self._begun.append(orjson.dumps([*rank])[:-1].decode())
        self._named.append(name_run(*rank, rank.rank))

    def of(self, ranks: Iterable[RankName]) -> RankSet:
        """Those of some ranks that were met."""
        bits = self._bits
        flags = np.zeros((len(self._ranks) + 1, 1), np.bool_)
        flags[[bits[rank] for rank in ranks if rank in bits]] = True
        return _numbers(flags)[0]

    def of_columns(self, ranks: Sequence[RankName], there: Any) -> list[RankSet]:
        """For each column of `there`, those ranks whose row is true in it."""
        rows = [self._bits[rank] for rank in ranks]
        flags = np.zeros((len(self._ranks) + 1, there.shape[1]), np.bool_)
        if len(set(rows)) == len(rows):
            flags[rows] = there
        else:
            np.logical_or.at(flags, rows, there)
        return _numbers(flags)

    def names(self, ranks: RankSet) -> tuple[str, ...]:
        """The names of the ranks in a set, as coverage has them."""
        found = self._known_names.get(ranks)
        if found is None:
            one, of = self._named, self._ranks
            found = tuple(
                [one[bit] if end == bit + 1 else name_run(*of[bit], of[end - 1].rank) for bit, end in _runs(ranks)]
            )
            if len(self._known_names) >= _MAX_NAMES:
                self._known_names.clear()
            self._known_names[ranks] = found
        return found

    def encode(self, ranks: RankSet) -> str:
        """The runs in a set as JSON: replica, first and last rank of each, in merge order."""
        begun, of = self._begun, self._ranks
        return f"[{','.join([f'{begun[bit]},{of[end - 1].rank}]' for bit, end in _runs(ranks)])}]"

    def decode(self, text: str) -> RankSet:
        """The inverse of `encode`, for ranks that were met."""
        return self.of(decode_ranks(text))


def decode_ranks(text: str) -> frozenset[RankName]:
    """The ranks in runs that `encode` gave."""
    return frozenset(
        RankName(replica, rank) for replica, first, last in orjson.loads(text) for rank in range(first, last + 1)
    )


def _runs(ranks: RankSet) -> list[tuple[int, int]]:
    """The first bit of each run, and the one after its last."""
    return [run.span() for run in _RUN.finditer(bin(ranks)[:1:-1])]


def _numbers(flags: Any) -> list[RankSet]:
    """A whole number for each column, whose row n is bit n."""
    packed = np.packbits(flags, axis=0, bitorder="little")
    size, data = len(packed), packed.T.tobytes()
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def _merge_order(rank: RankName) -> tuple[tuple[int, int, str], int]:
    return replica_key(rank.replica), rank.rank
