"""How far an actor's stream units have become rows, and what else outlives the process of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from rlship_sidecar.store.stream_state import StreamState


@dataclass(slots=True)
class Frontier:
    """All clock windows up to `clock` are closed (None: no window is), those `ahead` of it (where a clock was wrong, in
    the far future) one by one, and all steps of the timeline up to the place (`end`, `step`) in its order.
    """

    clock: int | None = None
    end: float = -math.inf
    step: int = -1
    ahead: set[int] = field(default_factory=set)

    def covers(self, index: int) -> bool:
        """Whether a clock window is closed."""
        return index in self.ahead or (self.clock is not None and index <= self.clock)

    def close(self, index: int, *, far: bool) -> None:
        """A clock window is closed; one that is `far` in the future alone, any other with all before it."""
        if far:
            self.ahead.add(index)
        elif self.clock is None or index > self.clock:
            self.clock = index
            self.ahead = {other for other in self.ahead if other > index}

    def reopen(self) -> None:
        """Nothing counts as closed."""
        self.clock, self.end, self.step = None, -math.inf, -1
        self.ahead.clear()

    @property
    def place(self) -> tuple[float, int]:
        """Of the last closed step."""
        return self.end, self.step


def load_frontier(state: StreamState) -> Frontier:
    """An actor's frontier."""
    frontier = Frontier(*(state.frontier() or ()))
    frontier.ahead = state.windows_beyond(-1 if frontier.clock is None else frontier.clock)
    return frontier


def save_frontier(state: StreamState, frontier: Frontier) -> None:
    """Keep it."""
    state.save_frontier(frontier.clock, frontier.end, frontier.step)


class Names:
    """The metrics of an actor that have been logged with a step, and those without."""

    def __init__(self, state: StreamState) -> None:
        self._state = state
        self.stepped = state.names(stepped=True)
        self.streamed = state.names(stepped=False)

    def note(self, names: Iterable[str], *, stepped: bool) -> bool:
        """Take in names. Returns whether one of them is new here and has been logged in the other way."""
        known, others = (self.stepped, self.streamed) if stepped else (self.streamed, self.stepped)
        new = {name for name in names if name not in known}
        known.update(new)
        self._state.add_names(new, stepped=stepped)
        return not new.isdisjoint(others)
