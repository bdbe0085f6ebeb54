"""The facts about an experiment that `rlship status`, the live table and `status.json` show."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlship_sidecar import state_file
from rlship_sidecar.plainfiles import read_plain
from rlship_sidecar.run_data.merging import AboutRun

STATUS_FILE = "status.json"
MAX_BYTES = 1 << 28
MAX_WRITERS = 10_000  # beyond this, a status would be stale before it is written
NEVER_READ = "no sidecar has read it yet"


@dataclass(slots=True)
class WriterStatus:
    """One writer's file.

    `step` and `barrier` are the newest seen. `silent_s` counts the seconds since its last line. `unread` counts bytes
    not yet applied. `format` names the reader of a foreign file, "" for rlship's own. `observes` is True if the writer
    is no part of the job and may write without it. `host` is "" and `pid` 0 where the file does not name them. `beats`
    is True if the writer promised to write at intervals, so that silence means something. `writer` is the
    implementation and version that the file names. `awaited` is True for a process of the job that has not closed,
    unless its rank began a later life or it is a child. `failure` is the error that ended the process. `unreadable` is
    True if the file has or may have more than could be read; `note` says why. `gone` is True if an awaited process has
    ended for certain: the sidecar, on the same machine, found no such process, and had read all that it wrote.
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
    host: str = ""
    pid: int = 0
    beats: bool = False
    writer: str = ""
    awaited: bool = False
    failure: str = ""
    unreadable: bool = False
    gone: bool = False

    @property
    def is_never_read(self) -> bool:
        """True if no sidecar knew the file; see `never_read`."""
        return not self.actor and self.note == NEVER_READ


def never_read(file: str, size: int) -> WriterStatus:
    """A writer's file that a reader of the status found, and no sidecar has read."""
    return WriterStatus(file, "", "", 0, 0, None, None, 0.0, size, False, NEVER_READ)


@dataclass(slots=True)
class ActorStatus:
    """One actor.

    `step` is the step of its newest row, `open_step` the newest step with lines. `lag_s` counts the seconds since the
    oldest open unit got its first barrier or line. `waiting` names the ranks that this unit waits for; `note` explains
    it. `steps_per_s` is the rate of its newest rows, None if unknown.
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
    steps_per_s: float | None = None


@dataclass(slots=True)
class TrendStatus:
    """The newest values of one metric, which a screen draws.

    `key` is its key in rows of `actor` and `kind`. `value` belongs to the newest row that has the metric, `index` is
    that row's step or window, `rows_since` is how many newer rows lack the metric. `points` are values from row `first`
    to that row, oldest first, evenly chosen where there are many. None: no observation was finite. `nonfinite` counts
    those of the newest row. Where `value` is None, `finite` is the newest finite value, of row `finite_index`.
    """

    key: str
    actor: str
    kind: str
    index: int
    value: float | None
    points: list[float | None]
    unit: str = ""
    rows_since: int = 0
    nonfinite: int = 0
    first: int | None = None
    finite: float | None = None
    finite_index: int | None = None


@dataclass(slots=True)
class StreamStatus:
    """An actor's stream lines.

    Up to `step` (beside steps of the lead) and `until` (over time, in Unix seconds) they are in rows; None: no row yet.
    `lag_s` is how much newer its newest line is than `until`. `waits_for` is the rank that is furthest behind, or "".
    `elapsed_s` is `until` on the charts' axis, in seconds since the experiment began. `missing` names ranks that the
    newest row over time lacks, and ranks that are silent for too long without a close. `silent_s` is the shortest such
    silence, or 0.
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
    """A host's clock: `offset_s` ahead of the file server's, within `error_s`, as measured `age_s` ago."""

    host: str
    offset_s: float
    error_s: float
    age_s: float


@dataclass(slots=True)
class SinkStatus:
    """One sink. It confirmed all rows below `next_row` and received those below `sent`.

    `state` is "shipping", "idle", "waiting" (will retry), "refused" or "closed". `trouble_s` counts the seconds for
    which it has had the `error` and confirmed nothing. `advice` is what a person can do for all experiments alike.
    """

    name: str
    state: str
    next_row: int
    sent: int
    where: str = ""
    error: str = ""
    trouble_s: float = 0.0
    note: str = ""
    advice: str = ""


@dataclass(slots=True)
class DeadLetterStatus:
    """Dead letters of one file and reason; `offset` is the byte where the first one begins."""

    file: str
    reason: str
    count: int
    offset: int
    excerpt: str


@dataclass(slots=True)
class LackingStatus:
    """The rows of one actor and `kind` that lack ranks: their number, and the index of the first and the last.

    `first_s` and `last_s` are the beginnings of time windows on the charts' axis, in seconds.
    """

    actor: str
    rows: int
    first: int
    last: int
    kind: str = "step"
    first_s: float | None = None
    last_s: float | None = None


class ShortSpan(NamedTuple):
    """Ranks that are short of a metric at no other steps than from `first` to `last`."""

    ranks: list[str]
    first: int
    last: int


@dataclass(slots=True)
class ShortStatus:
    """The rows of one actor that are short of ranks for a metric: their number, the first and the last step.

    `metrics` maps `<actor>/<metric>` to the ranks that such rows are short of; of the newest `of_newest`, or of
    all if that is 0. `of_last` does so for the row `last` alone. `varied` are the metrics of which these rows are not
    all short of the same ranks. `spans` says where ranks are short in these rows, of each metric
    that is in `varied` or not in `of_last`. `stopped` are the ranks that go on without the metric: rows after these
    lack it too, and do not say so.
    """

    actor: str
    rows: int
    first: int
    last: int
    metrics: dict[str, list[str]] = field(default_factory=dict)
    of_newest: int = 0
    of_last: dict[str, list[str]] = field(default_factory=dict)
    varied: list[str] = field(default_factory=list)
    spans: dict[str, list[ShortSpan]] = field(default_factory=dict)
    stopped: dict[str, list[str]] = field(default_factory=dict)


class RunStatus(AboutRun, frozen=True, kw_only=True):
    """What the job said of the run.

    `outcome` is "finished", "failed", "running" while a process of the lead's newest start lives, otherwise "unknown".
    `config`, `summary` and `facts` hold their first keys, with dots; of the first two there are `config_keys` and
    `summary_keys` in all. `changes` counts the keys that got another value, without the facts of
    each start. `dropped` are the keys that writers kept to themselves because they look like secrets, `left_out` counts
    values that met a bound.
    """

    config_keys: int = 0
    summary_keys: int = 0
    changes: int = 0
    dropped: list[str] = msgspec.field(default_factory=list)
    left_out: int = 0


@dataclass(slots=True)
class NonFiniteStatus:
    """Metrics of an actor with observations that were NaN or infinite, all of the same ranks and rows.

    `metrics` are keys of rows of `kind`. `rows` is how many rows count such an observation, `first` and `last` are the
    index of the first and the last one. `ranks` made them. `first_s` and `last_s` are as in `LackingStatus`.
    """

    actor: str
    kind: str
    metrics: list[str]
    ranks: list[str]
    rows: int
    first: int
    last: int
    first_s: float | None = None
    last_s: float | None = None


@dataclass(slots=True)
class AlertStatus:
    """An episode of a rule that is not over.

    `state` is "firing" or "clearing". `place` is the rank that stood out when it fired, as `<actor>/<replica>.<rank>`,
    or "". `last_step` is that of the last breach. `evidence` has the values of the signals that were true when it
    fired. `about` and `look` are the rule's texts.
    """

    id: str
    rule: str
    severity: str
    state: str
    place: str
    first_step: int
    fired_step: int
    fired_t: float
    last_step: int
    evidence: dict[str, float] = field(default_factory=dict)
    about: str = ""
    look: str = ""


@dataclass(slots=True)
class Status:
    """The whole status at `t` (Unix seconds).

    `claims` describes ranks that several writers claim at one time. The reader sets `running`: True if a sidecar owns
    the experiment now. `row_function` is the number of the row function that made every row. `finished`: no line and no
    row is to come. `began` and `newest_t` are the times of its first and its last line in Unix seconds, 0 if unknown.
    `misuse` holds what writers reported about calls of the job, with how many processes reported each. `misuse_t` is
    when this sidecar read it last, in Unix seconds of the writer; what an earlier sidecar read is not in it. `version`
    is that of the rlship whose sidecar wrote the status. `run` is what the job said of the run, None for nothing.
    `alerts` are the episodes that go on, those that fire first; `episodes` counts all, over or not.
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
    finished: bool = False
    short: list[ShortStatus] = field(default_factory=list)
    began: float = 0.0
    newest_t: float = 0.0
    trends: list[TrendStatus] = field(default_factory=list)
    misuse: dict[str, int] = field(default_factory=dict)
    version: str = ""
    misuse_t: dict[str, float] = field(default_factory=dict)
    run: RunStatus | None = None
    nonfinite: list[NonFiniteStatus] = field(default_factory=list)
    alerts: list[AlertStatus] = field(default_factory=list)
    episodes: int = 0


_decode = msgspec.json.Decoder(Status).decode


class LostStatus(msgspec.DecodeError):
    """A status without content. It is not synced, so a host that loses its power may keep no more than its name."""


class _LetGoError(Exception):
    """Another sidecar owns the state by now, so its status stays."""


def write_status(
    state_dir: Path, status: Status, *, generation: int = 0, held: Callable[[], bool] = lambda: True
) -> None:
    """Replace `status.json` atomically: a reader sees the old or the new file, never half of one.

    `generation` is the writer's generation; `held` returns True while it still owns the experiment. If a process
    freezes before the rename, the next generation removes its scratch file.
    """
    data = msgspec.json.encode(status) + b"\n"
    prefix = f"status.{generation}."
    with (
        suppress(_LetGoError),
        # Not durable: after a crash it may be old, and the next sidecar writes a new one at its start.
        state_file.replacing(state_dir / STATUS_FILE, durable=False, scratch_prefix=prefix) as file,
    ):
        file.write(data)
        file.flush()
        if not held():
            raise _LetGoError


def read_status(state_dir: Path) -> Status | None:
    """Read the last status; None if none was written. Raises LostStatus, msgspec.DecodeError, OSError."""
    try:
        data = read_plain(state_dir / STATUS_FILE, MAX_BYTES)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        raise LostStatus("it is empty")
    return _decode(data)
