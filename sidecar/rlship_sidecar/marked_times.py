"""When the recent barriers of each host were written: what a late word about its clock can concern. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rlship_sidecar.lines import BarrierLine

KEPT = 4096  # barriers of a host


@dataclass(slots=True)
class _Host:
    whole_from: float = -math.inf
    barriers: deque[tuple[float, str, int]] = field(default_factory=deque)


class MarkedTimes:
    """The newest barrier records of each host: `t`, actor and step."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def begin(self, newest: Mapping[str, float]) -> None:
        """Of these hosts there were barriers up to these times already."""
        for host, t in newest.items():
            self._hosts[host] = _Host(math.nextafter(t, math.inf))

    def note(self, host: str, actor: str, lines: Iterable[BarrierLine]) -> None:
        """Take in barriers."""
        known = self._hosts.setdefault(host, _Host())
        for line in lines:
            if line.t >= known.whole_from:
                known.barriers.append((line.t, actor, line.step))
        while len(known.barriers) > KEPT:
            t, _, _ = known.barriers.popleft()
            known.whole_from = max(known.whole_from, math.nextafter(t, math.inf))

    def between(self, host: str, actor: str, low: float, high: float) -> set[int] | None:
        """The steps of an actor's barriers from `low` to `high` (exclusive); None: not known any more."""
        known = self._hosts.get(host)
        if known is None:
            return set()
        if low < known.whole_from:
            return None
        return {step for t, name, step in known.barriers if name == actor and low <= t < high}
