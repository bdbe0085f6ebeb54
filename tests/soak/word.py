"""What one writer process said of what it logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True)
class Word:
    """One attempt of the writer at `place` (actor, replica, rank). `logged` are its steps in order, `flushed` the first
    of them, logged before a flush that succeeded; `following` may be in the file, or a part of it.
    """

    place: Place
    attempt: int
    logged: list[int]
    flushed: list[int]
    following: int
