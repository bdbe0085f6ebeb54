"""Several encoded observations of one metric, and how many there may be."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of one value. More would hardly fit in the buffer, and encoding them is most of a second of the job's time.
MOST_ELEMENTS = 1 << 18


def count_of(value: Any) -> int:
    """How many elements a list, an array or a tensor has, without reading any; 1 of anything else."""
    if isinstance(value, (list, tuple)):
        return len(value)
    shape = getattr(value, "shape", ())
    count = 1
    for length in shape if isinstance(shape, tuple) else ():
        count *= length
    return count


class Observations:
    """Several observations of one metric, each already encoded; `w` holds their weights, or is None."""

    __slots__ = ("v", "w")

    def __init__(self, v: list[str], w: list[str] | None) -> None:
        self.v = v
        self.w = w

    def __str__(self) -> str:
        if self.w is None:
            return f"[{','.join(self.v)}]"
        return f'{{"v":[{",".join(self.v)}],"w":[{",".join(self.w)}]}}'

    def __len__(self) -> int:
        """Bytes of the encoded value (numbers are ASCII)."""
        size = sum(map(len, self.v)) + len(self.v) + 1
        return size if self.w is None else size + sum(map(len, self.w)) + len(self.w) + 12

    def cut(self, most: int) -> list[Observations]:
        """The same observations in parts of at most `most` bytes each."""
        parts, start, size = [], 0, 0
        for i, text in enumerate(self.v):
            cost = len(text) + 1 + (0 if self.w is None else len(self.w[i]) + 1)
            if size and size + cost > most - 14:
                parts.append(Observations(self.v[start:i], None if self.w is None else self.w[start:i]))
                start, size = i, 0
            size += cost
        parts.append(Observations(self.v[start:], None if self.w is None else self.w[start:]))
        return parts
