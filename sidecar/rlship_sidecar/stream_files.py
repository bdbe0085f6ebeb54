"""How applied stream lines and barriers come out of the files again, for the stages that do not read files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from rlship_sidecar.lineage import Writer
from rlship_sidecar.lines import Batch, StreamLine
from rlship_sidecar.recent import Kept
from rlship_sidecar.streams import Streams, UnitKey
from rlship_sidecar.window import Window

Line = TypeVar("Line")
Ranges: TypeAlias = "Sequence[tuple[float, float]]"


@dataclass(frozen=True, slots=True)
class Files:
    """How applied lines are read again out of a writer's file. All raise OSError; FileNotFoundError if what was read
    is not there any more.
    """

    lines: Callable[[Writer, Ranges], list[StreamLine]]
    line_at: Callable[[Writer, int], list[StreamLine]]
    barriers: Callable[[Writer], Iterator[Batch]]


@dataclass(frozen=True, slots=True)
class Fetching:
    """What rows need beside what is at hand, as far as it can be read now: the lines of some time, None if they cannot,
    and what their samples hold, False if it cannot.
    """

    lines: Callable[[Streams, Ranges], list[Kept] | None]
    samples: Callable[[Mapping[UnitKey, Window]], bool]


def what_is_left(read: Callable[[], list[Line]]) -> list[Line]:
    """What can be read of a file that may be gone: rows stay as they are without it."""
    try:
        return read()
    except FileNotFoundError:
        return []
