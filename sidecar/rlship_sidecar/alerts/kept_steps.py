"""What rules ask for of a piece of steps, as bytes, for the store: far less than the rows that it comes from. Pure.

Values of ranks stay in the rows, and are read from there once a rule looks at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from rlship_sidecar.alerts.frames import AtPlaces, Part, Place, RankValues, StepParts
from rlship_sidecar.rows import LateRanks, Lineage

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode


class PartOf(NamedTuple):
    """Which row a part is of: that of `place` at `step`. `former`: of the lead, as that lineage had the step before it
    was done again.
    """

    step: int
    place: Place | None  # None: of the lead
    former: Lineage | None


RanksOf = Callable[[PartOf], Mapping[str, RankValues]]  # gives a row's values of ranks, by key


def pack_steps(steps: Mapping[int, StepParts]) -> bytes:
    """What rows say of some steps. Names that rows have in common are there once."""
    shapes: dict[tuple[Any, ...], int] = {}
    packed = []
    for step, parts in steps.items():
        own = max(parts.lead, default=None)
        of_lead = [(None, lineage != own, part) for lineage, part in parts.lead.items()]
        for place, is_former, part in (*of_lead, *((place, False, part) for place, part in parts.others.items())):
            late = tuple((name, *ranks.source) for name, ranks in part.ranks.items() if isinstance(ranks, AtPlaces))
            few = {name: ranks for name, ranks in part.ranks.items() if not isinstance(ranks, AtPlaces)}
            shape = shapes.setdefault((tuple(part.values), late), len(shapes))
            packed.append((step, place, is_former, part.lineage, part.t, shape, tuple(part.values.values()), few))
    return _encode((list(shapes), packed))


def unpack_steps(data: bytes, ranks_of: RanksOf) -> dict[int, StepParts]:
    """The inverse of `pack_steps`."""
    shapes, packed = _decode(data)
    found: dict[int, StepParts] = {}
    for step, at, is_former, of, t, shape, figures, few in packed:
        names, late = shapes[shape]
        place = at and (at[0], at[1])
        lineage = (of[0], of[1], of[2])
        ranks: dict[str, RankValues] = {name: tuple([(one, x) for one, x in ones]) for name, ones in few.items()}
        if late:
            row = _Row(PartOf(step, place, lineage if is_former else None), ranks_of)
            ranks |= {name: AtPlaces(actor, key, LateRanks(row.of(key)), scale) for name, actor, key, scale in late}
        part = Part(lineage, t, dict(zip(names, figures)), ranks)
        parts = found.setdefault(step, StepParts())
        if place is None:
            parts.lead[lineage] = part
        else:
            parts.others[place] = part
    return found


class _Row:
    """Values of ranks of one row, which is read at the first look at any of them."""

    __slots__ = ("_of", "_ranks", "_ranks_of")

    def __init__(self, of: PartOf, ranks_of: RanksOf) -> None:
        self._of, self._ranks_of = of, ranks_of
        self._ranks: Mapping[str, RankValues] | None = None

    def of(self, key: str) -> Callable[[], RankValues]:
        """Gives those of one key; none where the row is another one by now, which has yet to be taken in."""

        def find() -> RankValues:
            if self._ranks is None:
                self._ranks = self._ranks_of(self._of)
            return self._ranks.get(key, ())

        return find
