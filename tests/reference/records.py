"""The plain data that a file's lines become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.reference.values import Moments


@dataclass(frozen=True)
class Entry:
    """What a `define`, or the catalogue, says of one metric; `reduce` is None where it asks for the default.
    `catalogued`: no define, span or event has a say. `asked`: a define names the reductions.
    """

    reduce: tuple[str, ...] | None = None
    per_rank: bool = False
    stream: bool = False
    unit: str | None = None
    catalogued: bool = False
    asked: bool = False


@dataclass(frozen=True)
class Sample:
    """`score` is a number, or the word of one that is not finite, or None."""

    table: str
    pri: float
    score: float | str | None
    row: dict[str, Any]
    cut: Any


@dataclass
class Measured:
    """One metrics record, or what stands for one: with a step, or a stream line (None).

    `values`: each metric that yields anything, with its observations or its one summary (then it is in `summaries`, and
    `bins` has its edges and counts, or None);
    `defined`: what the file's latest `define` said of those that have one; `reduce`: what a span or an event asks for
    where no define does. `time` is t on the file server's clock, filled in once all clock records are known. `adopted`:
    a barrier gave it its step; `on_purpose`: none may.
    """

    t: float
    step: int | None
    place: int
    values: dict[str, list[Moments]] = field(default_factory=dict)
    summaries: frozenset[str] = frozenset()
    bins: dict[str, tuple[tuple[float, ...], tuple[int, ...]] | None] = field(default_factory=dict)
    defined: dict[str, Entry] = field(default_factory=dict)
    reduce: tuple[str, ...] | None = None
    tag: str | None = None
    sample: Sample | None = None
    time: float = 0.0
    adopted: bool = False
    on_purpose: bool = False

    def observed(self, metric: str) -> list[tuple[float, float]]:
        """The finite observations (x, weight) of a metric in their order."""
        if metric in self.summaries:
            return []
        return [(moments.first, moments.w) for moments in self.values[metric] if moments.first is not None]


@dataclass
class Entered:
    """A `ledger` record: its time, its step, the byte where its line begins, its segment, and its members."""

    t: float
    step: int | None
    at: int
    segment: int
    members: dict[str, Any]


@dataclass
class Segment:
    """The lines of one file between rollbacks. `rolled_back_to` is None for segment 0; `t` is that of its first line;
    `barriers` are (step, t).
    """

    number: int
    rolled_back_to: int | None
    t: float
    barriers: list[tuple[int, float]] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    first_stepped: int | None = None


@dataclass
class Writer:
    """One file with a usable `open`. `t` is 0 where the `open` has none; `times` are those of all its lines, the
    `open` first; `closed` is the time of its first `close` that is not a roll; `gaps` are (n, from, to) and `lost` are
    (n, t) of those without from and to; `runs` are (t, members) of its `run` records; `ledger` are its `ledger`
    records; `clocks` are (t, offset, err), `unproven` those with `client_time`. `root` and `submission` are filled in
    once all files are known.
    """

    file: str
    actor: str
    id: str
    replica: str
    rank: int
    world: int | None
    attempt: int
    t: float
    parent: str | None
    axis: str
    host: str
    segments: list[Segment]
    times: list[float]
    closed: float | None = None
    gaps: list[tuple[int, int, int]] = field(default_factory=list)
    lost: list[tuple[int, float]] = field(default_factory=list)
    runs: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    ledger: list[Entered] = field(default_factory=list)
    failed: bool = False
    clocks: list[tuple[float, float, float]] = field(default_factory=list)
    unproven: list[tuple[float, float, float]] = field(default_factory=list)
    job: str | None = None
    made_by: str = ""
    root: Writer | None = None
    submission: int = 0


@dataclass
class File:
    """What one file holds. `dead`: (offset, reason, metric or None) in file order."""

    writer: Writer | None
    dead: list[tuple[int, str, str | None]]
