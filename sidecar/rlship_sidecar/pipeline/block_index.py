"""Which steps and times each 256 KiB of a file holds, so that a unit is read again without reading the whole file."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlship_sidecar.decode.decoder import Decoder
from rlship_sidecar.decode.lines import Batch
from rlship_sidecar.store.changes import SavedBlock

BLOCK_BYTES = 256 * 1024


@dataclass(slots=True)
class BlockIndex:
    """The block that a file's applied end is in: what it holds from `start` on. `fresh` are finished blocks that the
    store lacks.

    `t` and `barrier_t` are what a decoder that begins at `start` has to know: the time that a first line without one
    inherits, and that of the barrier before. Without them a line that is read again would say something else.
    """

    start: int = 0
    t: float = 0.0
    lowest: int = -1
    highest: int = -1
    barrier_t: float | None = None
    t_low: float | None = None
    t_high: float | None = None
    fresh: list[SavedBlock] = field(default_factory=list)

    def advance(self, file: str, batch: Batch, end: int, decoder: Decoder) -> None:
        """A batch of a file that ends at byte `end` is applied; its decoder has just come that far."""
        if batch.highest >= 0:
            self._add_steps(batch.lowest, batch.highest)
        for barriers in batch.barriers:
            self._add_steps(min(barriers.steps), max(barriers.steps))
        if batch.streams:
            ts = [line.t for line in batch.streams]
            low, high = min(ts), max(ts)
            self.t_low = low if self.t_low is None else min(self.t_low, low)
            self.t_high = high if self.t_high is None else max(self.t_high, high)
        if end - self.start >= BLOCK_BYTES:
            self.fresh.append(self.unfinished(file, end))
            self.start, self.t, self.barrier_t = end, decoder.t, decoder.barrier_t
            self.lowest = self.highest = -1
            self.t_low = self.t_high = None

    def _add_steps(self, lowest: int, highest: int) -> None:
        self.highest = max(self.highest, highest)
        self.lowest = lowest if self.lowest < 0 else min(self.lowest, lowest)

    def unfinished(self, file: str, end: int) -> SavedBlock:
        """The block that the applied end is in."""
        return SavedBlock(
            file, self.start, end, self.t, self.lowest, self.highest, self.barrier_t, self.t_low, self.t_high
        )
