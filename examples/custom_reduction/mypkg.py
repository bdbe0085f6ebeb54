"""A reduction of one's own: the mean without the least and the greatest tenth of the observations."""

from __future__ import annotations


class TrimmedMean:
    """What rlship makes one of for each rank, fills, merges in the order of the ranks, and asks for its value."""

    def __init__(self) -> None:
        self.xs: list[float] = []

    def add(self, x: float, weight: float) -> None:
        """Take in an observation; this reduction has no use for weights, but for 0: it does not count."""
        if weight > 0:
            self.xs.append(x)

    def merge(self, other: TrimmedMean) -> None:
        """Take in what another one has."""
        self.xs += other.xs

    def value(self) -> float | None:
        """The value, or None if these observations have none."""
        left_out = len(self.xs) // 10
        kept = sorted(self.xs)[left_out : len(self.xs) - left_out]
        return sum(kept) / len(kept) if kept else None

    def state(self) -> list[float]:
        """Everything, as JSON can have it."""
        return self.xs

    @classmethod
    def from_state(cls, state: list[float]) -> TrimmedMean:
        """One that goes on where the state was taken."""
        made = cls()
        made.xs = list(state)
        return made
