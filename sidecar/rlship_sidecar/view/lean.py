"""The parts of a stored row that charts need, decoded without the rest. Pure.

A row of a thousand ranks has some 200 KB: a reader of many rows decodes no more of each than it draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from rlship_sidecar.rows import ALERT, ALIGNED, LEDGER, POINT, STEP

STEPPED = (STEP, ALIGNED, LEDGER, ALERT)  # kinds whose index is a step
_POINT_MS = 1000  # of a second: points have no number that means a place


class LeanCoverage(msgspec.Struct, gc=False):
    """Which ranks the row lacks."""

    missing: tuple[str, ...] = ()


class LeanArrival(msgspec.Struct, gc=False):
    """The row's revision."""

    revision: int = 0


class LeanRow(msgspec.Struct):
    """A row without its values by rank. `samples` are not decoded, only its tables' names count."""

    row: int
    actor: str
    kind: str
    index: int
    t: float
    x: dict[str, float]
    m: dict[str, float]
    coverage: LeanCoverage
    arrival: LeanArrival
    samples: dict[str, msgspec.Raw] = {}

    @property
    def family(self) -> tuple[str, str]:
        """The actor, and the kind without the writer of a point."""
        return self.actor, self.kind.partition(":")[0]

    @property
    def position(self) -> int:
        """Where the row stands among those of its family: its index, for a point its time in milliseconds."""
        return self.index if self.family[1] != POINT else int(self.t * _POINT_MS)

    @property
    def step(self) -> int | None:
        """Its step, if it has one."""
        return self.index if self.kind in STEPPED else None


class RankedRow(LeanRow):
    """A row with its values by rank."""

    per_rank: dict[str, dict[str, float]] = {}


Decoded = TypeVar("Decoded", LeanRow, RankedRow)
lean: Callable[[bytes], LeanRow] = msgspec.json.Decoder(LeanRow).decode
ranked: Callable[[bytes], RankedRow] = msgspec.json.Decoder(RankedRow).decode
