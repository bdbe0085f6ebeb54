"""Stored rows as charts need them, decoded without the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rlship_sidecar.rows import ALERT, ALIGNED, LEDGER, POINT, STEP, LeanRow

STEPPED = (STEP, ALIGNED, LEDGER, ALERT)  # kinds whose index is a step
_POINT_MS = 1000  # of a second: points have no number that means a place


class ChartedRow(LeanRow):
    """A row with its place on charts."""

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


decoded: Callable[[bytes], ChartedRow] = msgspec.json.Decoder(ChartedRow).decode
