"""What one transaction of the store makes durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rlship_sidecar.decode.lines import Dead
from rlship_sidecar.rows import Row, Unit


class SavedWriter(NamedTuple):
    """A file's saved position: bytes below `read` are applied; no line of an open unit begins before `floor`."""

    file: str
    read: int
    floor: int
    state: bytes


class SavedBlock(NamedTuple):
    """A stretch of a file: which steps its metrics and barrier records have (-1: none), the `t` its first line
    inherits, and that of the segment's last barrier record before it, and the least and the greatest `t` of
    its stream lines (None: no such lines).
    """

    file: str
    start: int
    stop: int
    t: float
    lowest: int
    highest: int
    barrier_t: float | None
    t_low: float | None = None
    t_high: float | None = None


class MergedRun(NamedTuple):
    """What all writers said of the run, as JSON: a `RunData`, and a list of `Change`. The version grows with each
    change of either; 0 stands for nothing.
    """

    version: int = 0
    data: bytes = b""
    changes: bytes = b""


@dataclass(slots=True)
class Changes:
    """What one transaction makes durable."""

    writers: list[SavedWriter] = field(default_factory=list)
    governing: list[tuple[str, int, bytes]] = field(default_factory=list)
    blocks: list[SavedBlock] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    dirty: list[Unit] = field(default_factory=list)
    revised: list[Unit] = field(default_factory=list)
    dead: list[tuple[str, Dead]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    said: list[tuple[str, str, bytes]] = field(default_factory=list)
    run: MergedRun | None = None
