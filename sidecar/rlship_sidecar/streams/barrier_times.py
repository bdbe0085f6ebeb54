"""The times of each host's recent barriers, which a late clock record may change. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlship_sidecar.decode.lines import BarrierLines

KEPT = 4096  # barriers of a host, and as many more as came in together with the oldest of them


@dataclass(slots=True)
class _Host:
    """`told` are barriers as they came in, with their actor and their greatest time: `count` in all."""

    whole_from: float = -math.inf
    told: deque[tuple[str, BarrierLines, float]] = field(default_factory=deque)
    count: int = 0


class BarrierTimes:
    """The newest barrier records of each host: `t`, actor and step."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def begin(self, newest: Mapping[str, float]) -> None:
        """Of these hosts there were barriers up to these times already."""
        for host, t in newest.items():
            self._hosts[host] = _Host(math.nextafter(t, math.inf))

    def note(self, host: str, actor: str, barriers: BarrierLines, newest_t: float) -> None:
        """Take in barriers, of which none has a greater `t` than `newest_t`."""
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host()
        known.told.append((actor, barriers, newest_t))
        known.count += len(barriers.steps)
        while known.count - len(known.told[0][1].steps) >= KEPT:
            _, gone, newest_t = known.told.popleft()
            known.count -= len(gone.steps)
            known.whole_from = max(known.whole_from, math.nextafter(newest_t, math.inf))

    def between(self, host: str, actor: str, low: float, high: float) -> set[int] | None:
        """The steps of an actor's barriers from `low` to `high` (exclusive); None: not known any more."""
        known = self._hosts.get(host)
        if known is None:
            return set()
        if low < known.whole_from:
            return None
        told = (barriers for name, barriers, _ in known.told if name == actor)
        return {step for barriers in told for step, t in zip(barriers.steps, barriers.ts) if low <= t < high}
