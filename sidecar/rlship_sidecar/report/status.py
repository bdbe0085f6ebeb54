"""The facts about an experiment that `rlship status`, the live table and `status.json` all show."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rlship_sidecar import state_file
from rlship_sidecar.plainfiles import read_plain

STATUS_FILE = "status.json"
MAX_BYTES = 1 << 28


@dataclass(slots=True)
class WriterStatus:
    """One writer's file. `step` and `barrier` are the newest seen, `silent_s` seconds since its last line; `unread` is
    bytes not yet applied. `format`: the reader of a foreign file, "" for rlship's own. `observes`: it writes beside the
    job, whether or not that goes on.
    """

    file: str
    actor: str
    replica: str
    rank: int
    attempt: int
    step: int | None
    barrier: int | None
    silent_s: float
    unread: int
    closed: bool
    note: str = ""
    format: str = ""
    observes: bool = False


@dataclass(slots=True)
class ActorStatus:
    """One actor. `step` is its newest row's, `open_step` the newest step with lines; `lag_s` seconds since the oldest
    open unit got its first barrier or line. `waiting`: whom the oldest one waits for, which `note` says in full.
    """

    actor: str
    ranks_seen: int
    ranks_expected: int
    step: int | None
    open_step: int | None
    open_units: int
    lag_s: float
    missing: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    note: str = ""
    waiting: str = ""


@dataclass(slots=True)
class StreamStatus:
    """What an actor logs without a step. `step` and `until` (Unix seconds): up to there it is in rows, beside steps of
    the lead and over time; None: nothing is. `lag_s`: how much newer its newest line is than `until`; `waits_for`: the
    rank that is furthest behind, "" if none is waited for. `elapsed_s` is `until` on the charts' axis, in seconds since
    the experiment began. `missing`: ranks that the newest row over time lacks, and those that were silent for too long
    without a close, of which the least is silent for `silent_s` (0: none is).
    """

    actor: str
    step: int | None
    until: float | None
    lag_s: float
    waits_for: str = ""
    elapsed_s: float | None = None
    missing: list[str] = field(default_factory=list)
    silent_s: float = 0.0


@dataclass(slots=True)
class ClockStatus:
    """A host's clock: `offset_s` ahead of the file server's, give or take `error_s`, as it said `age_s` ago."""

    host: str
    offset_s: float
    error_s: float
    age_s: float


@dataclass(slots=True)
class SinkStatus:
    """One sink. It confirmed all rows below `next_row` and was handed those below `sent`.

    `state` is "shipping", "idle", "waiting" (will retry), "refused" or "closed". `trouble_s`: for how many seconds it
    has had the `error` and confirmed nothing.
    """

    name: str
    state: str
    next_row: int
    sent: int
    where: str = ""
    error: str = ""
    trouble_s: float = 0.0
    note: str = ""


@dataclass(slots=True)
class DeadLetterStatus:
    """Dead letters of one file and reason; `offset` is the byte where the first of them begins."""

    file: str
    reason: str
    count: int
    offset: int
    excerpt: str


@dataclass(slots=True)
class LackingStatus:
    """How many of an actor's rows of a `kind` lack ranks, and the index of the first and the last such unit; of windows
    of time also where they begin on the charts' axis, in seconds.
    """

    actor: str
    rows: int
    first: int
    last: int
    kind: str = "step"
    first_s: float | None = None
    last_s: float | None = None


@dataclass(slots=True)
class Status:
    """Everything, as of `t` (Unix seconds). `claims`: ranks that several writers claim at one time. `running` is filled
    in by the reader: whether a sidecar owns the experiment now. `row_function`: the number of the function that every
    row was made with.
    """

    experiment: str
    t: float
    store_id: str
    filesystem: str
    rows: int
    complete: bool
    actors: list[ActorStatus]
    writers: list[WriterStatus]
    sinks: list[SinkStatus]
    dead_letters: list[DeadLetterStatus]
    dead_letter_count: int
    dead_value_count: int
    lacking: list[LackingStatus] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    lead: str = ""
    streams: list[StreamStatus] = field(default_factory=list)
    clocks: list[ClockStatus] = field(default_factory=list)
    running: bool = False
    row_function: int = 1


class _LetGoError(Exception):
    """Another sidecar owns the state by now, and its status stays."""


def write_status(
    state_dir: Path, status: Status, *, generation: int = 0, held: Callable[[], bool] = lambda: True
) -> None:
    """Replace `status.json` at once: a reader sees the old one or the new one, never half.

    `generation` is the writer's, `held` whether it still owns. What a process makes here that is then frozen, the next
    generation removes before it has its name.
    """
    data = msgspec.json.encode(status) + b"\n"
    prefix = f"status.{generation}."
    with (
        suppress(_LetGoError),
        # Not durable: a crash makes it old, and the next sidecar writes another at its start.
        state_file.replacing(state_dir / STATUS_FILE, durable=False, scratch_prefix=prefix) as file,
    ):
        file.write(data)
        file.flush()
        if not held():
            raise _LetGoError


def read_status(state_dir: Path) -> Status | None:
    """The last status written, or None if there is none."""
    try:
        data = read_plain(state_dir / STATUS_FILE, MAX_BYTES)
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=Status)
