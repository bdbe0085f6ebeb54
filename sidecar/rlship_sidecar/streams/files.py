"""How applied stream lines and barriers come out of the files again, for the stages that do not read files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlship_sidecar.align.lineage import Writer
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.decode.lines import Batch, StreamLine
from rlship_sidecar.rows import Unit
from rlship_sidecar.streams.actor import ActorStreams
from rlship_sidecar.streams.recent import Kept

Ranges: TypeAlias = "Sequence[tuple[float, float]]"


@dataclass(frozen=True, slots=True)
class Files:
    """How applied lines are read again out of a writer's file. Both raise OSError; FileNotFoundError if what was read
    is not there any more. `miss` is for a file where that failed: it is taken in again when it can be read.
    """

    lines: Callable[[Writer, Ranges], list[StreamLine]]
    barriers: Callable[[Writer], Iterator[Batch]]
    miss: Callable[[Writer], None]


@dataclass(frozen=True, slots=True)
class Fetching:
    """What rows need beside what is at hand, as far as it can be read now: the lines of some time and the line at a
    byte, None if they cannot, and what their samples hold, False if it cannot.
    """

    lines: Callable[[ActorStreams, Ranges], list[Kept] | None]
    line_at: Callable[[Writer, int], list[StreamLine] | None]
    samples: Callable[[Mapping[Unit, UnitLines]], bool]
