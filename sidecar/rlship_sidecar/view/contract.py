"""What the page may ask the server for, and the shape of each answer.

Every request is a GET with the header `Authorization: Bearer <token>`; `{e}` is `ExperimentEntry.id`. An answer is one
JSON object; one that is refused has a status of 400 and above and the shape `Refusal`. A live stream is lines of JSON.

| request | parameters | answer |
|---|---|---|
| /api/experiments | | Experiments |
| /api/live | | lines of ListEvent |
| /api/e/{e}/overview | | Overview |
| /api/e/{e}/metrics | | Metrics |
| /api/e/{e}/series | m=ID,ID,… (all headline metrics without it); axis=step or time; from, to; points=N | Series |
| /api/e/{e}/ranks | m=ID; axis, from, to, points; stat=mean,min,max (mean without it); rank=NAME | Ranks |
| /api/e/{e}/spans | from, to (times); or step, or first and last (steps); lane=ID,ID,…; limit=N | Spans |
| /api/e/{e}/rollouts | step=N; table, actor; limit=N | Rollouts |
| /api/e/{e}/alerts | | Alerts |
| /api/e/{e}/why | episode=ID; or step=N; or metric=KEY | Why |
| /api/e/{e}/ledger | axis, from, to, points | Ledger |
| /api/e/{e}/events | first, last (steps); name; limit=N | Events |
| /api/e/{e}/run | | RunSaid |
| /api/e/{e}/diff | with={e}; rtol, atol | Diff |
| /api/e/{e}/live | store, row: what the page has, none at first | lines of Event |

Rules for all answers:

- Steps are integers, times Unix seconds. `from` and `to` belong to the axis and are both part of the range.
- A number that lacks is null: JSON has no NaN. In `Packed` it is NaN.
- Texts come from jobs. They are strings of valid Unicode, at most `MAX_TEXT` characters where nothing else is said,
  with "…" at their end where they were cut, and may hold anything, such as "<script>" or U+0000: the page sets them as
  text.
- `store` and `row` say what an answer is of: rows below number `row` of the store. Another `store` means that the rows
  were made again, so that nothing of the former ones counts.
- A column is a list with a value for each bucket, sample or span; columns of one object are equally long.
- An exported file holds one `Embedded`; the page's other source answers the same questions out of it.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

CONTRACT = 1
MAX_TEXT = 4_000  # characters of a text, but for a sample's own
MAX_SAMPLE_TEXT = 200_000  # of one value of a sample
MAX_POINTS, USUAL_POINTS = 4_000, 600  # buckets of a series
MAX_RANK_POINTS, USUAL_RANK_POINTS = 1_000, 400  # buckets of a matrix of ranks
MAX_METRICS = 2_000  # of an answer to /series
MAX_SPANS, USUAL_SPANS = 250_000, 50_000
MAX_SAMPLES = 2_000
MAX_EVENTS = 2_000
MAX_ROWS = 100  # in a live event; more become one event `behind`
BEAT_S = 10.0  # a live stream sends an event at least so often

Axis = Literal["step", "time"]
Column = list[float | None]
State = Literal["running", "held", "silent", "ended", "finished", "stopped", "unwatched", "unreadable"]


class Refusal(TypedDict):
    """Why a request got no answer, and the way out.

    `code`: token, host, origin, path, method, unknown (experiment), parameter, store, internal.
    """

    code: str
    error: str
    hint: str


# The list ---------------------------------------------------------------------------------------------------------


class Spark(TypedDict):
    """A metric's newest value and curve over the whole run, as `rlship status` draws it."""

    key: str
    unit: str
    value: float | None
    first: int
    last: int
    points: Column


class ExperimentEntry(TypedDict):
    """One experiment. `id` stays as long as its folder has its name.

    `state`: "held" runs, and a step waits while a process has ended without a close; "silent" has processes that
    neither write nor ended; "ended" has some that ended without a close, and no other one goes on; "stopped" has no
    sidecar that reads on; "unwatched" has no rows yet, and they are made when it is opened; "unreadable" says why in
    `note`, where others say since when. `trouble` are lines on what is wrong, the worst first. `ranks` and `expected`
    are those of all actors together.
    """

    id: str
    name: str
    state: State
    note: str
    step: int | None
    steps_per_s: float | None
    ranks: int
    expected: int
    rows: int
    began: float | None
    newest: float | None
    firing: int
    episodes: int
    complete: bool
    trouble: list[str]
    sparks: list[Spark]


class Experiments(TypedDict):
    """`single`: the folder given is itself the experiment. `left_out`: folders with the reason."""

    contract: int
    version: str
    folder: str
    single: bool
    now: float
    experiments: list[ExperimentEntry]
    left_out: dict[str, str]


class ListEvent(TypedDict):
    """`kind`: "experiments" (those that changed, whole entries; `gone`: ids) or "beat"."""

    kind: Literal["experiments", "beat"]
    now: float
    experiments: list[ExperimentEntry]
    gone: list[str]


# One experiment ---------------------------------------------------------------------------------------------------


class ActorOverview(TypedDict):
    """`missing` ranks lack in the newest row, `absent` ones never came; both named as `0.17`, `0.3-7`.

    `axis` is what its steps count.
    """

    actor: str
    lead: bool
    axis: str
    step: int | None
    open_step: int | None
    steps_per_s: float | None
    lag_s: float
    ranks: int
    expected: int
    missing: list[str]
    absent: list[str]
    note: str


class WriterOverview(TypedDict):
    """A process of the job. `state`: "open", "closed", "failed", "silent", "unread" or "agent"."""

    file: str
    actor: str
    rank: str
    attempt: int
    host: str
    pid: int
    step: int | None
    silent_s: float
    state: str
    note: str


class RefusedData(TypedDict):
    """Lines or values that could not be used. `what`: "lines", "values", "file" or "ranks"."""

    what: str
    where: str
    reason: str
    count: int
    excerpt: str


class Overview(TypedDict):
    """All facts of `rlship status`. `progress` is 0..1 while rows or the rollup are still made, else null.

    `status` is the whole status as `rlship status --json` prints it, null without one. `extent` is the range of both
    axes: [least, greatest], null without any. `missing` counts rows that lack ranks, by actor. `lead_steps` counts the
    steps of the lead that have a row, which rules of alerts look at.
    """

    store: str
    row: int
    entry: ExperimentEntry
    sidecar: str
    progress: float | None
    doing: str
    lead: str
    actors: list[ActorOverview]
    writers: list[WriterOverview]
    writers_in_all: int
    hosts: list[str]
    sinks: list[dict[str, Any]]
    refused: list[RefusedData]
    refused_in_all: int
    notes: list[str]
    lacking: list[dict[str, Any]]
    short: list[dict[str, Any]]
    nonfinite: list[dict[str, Any]]
    run: dict[str, Any] | None
    extent: dict[Axis, tuple[float, float] | None]
    panels: dict[str, list[str]]  # panel -> ids of metrics: "stability", "memory", "ranks"
    lead_steps: int


class MetricEntry(TypedDict):
    """A key of rows. `id` is the same in every run that has the key in rows of this kind.

    `kind` is that of its rows: step, aligned, clock, point, alert or ledger; only the first two, alert and ledger have
    steps, so that the others are answered on the axis time whatever was asked. `name` is the key without its actor.
    `headline` counts from 1, null for others. `per_rank`: /ranks answers for it. `last`: the newest value. Of memory,
    `limit` is the metric of what it can have at most, and `in_use` that of the part of it that is in use, null without.
    """

    id: str
    key: str
    name: str
    actor: str
    kind: str
    unit: str
    about: str
    headline: int | None
    per_rank: bool
    limit: str | None
    in_use: str | None
    last: float | None


class Metrics(TypedDict):
    """Headline metrics first, then by actor and name. `left_out` counts those beyond the bound of the rollup."""

    store: str
    row: int
    metrics: list[MetricEntry]
    left_out: int


class Grid(TypedDict):
    """The buckets of the rows of an actor and kind. `x` is on the axis of the grid, the first row of the bucket, `t`
    its time; `rows` how many rows the bucket has, `partial` how many of them lack ranks, `revised` how many have a
    revision. `width`: how many steps (of time: seconds) a bucket covers; 1 of steps: every row by itself.
    """

    actor: str
    kind: str
    axis: Axis
    width: float
    x: list[float]
    t: list[float]
    rows: list[int]
    partial: list[int]
    revised: list[int]


class Curve(TypedDict):
    """A metric over the buckets of `grids[grid]`. `min` and `max` are null where every bucket has one value: then they
    are `mean`. A bucket without a value is null; `n` counts its values, and is null where that is the grid's `rows`.
    """

    grid: int
    mean: Column
    min: Column | None
    max: Column | None
    n: list[int] | None


class Series(TypedDict):
    """`curves` by metric id; an id that no row has is left out."""

    store: str
    row: int
    grids: list[Grid]
    curves: dict[str, Curve]


class Packed(TypedDict):
    """A matrix of numbers, row by row: `f32` is base64 of little-endian 32-bit floats, NaN where a number lacks."""

    rows: int
    columns: int
    f32: str


class Ranks(TypedDict):
    """A metric by rank (a row of each matrix) and bucket (a column).

    `ranks` are named as "0.17" in merge order, `hosts` stand beside them, "" where unknown. Of each bucket `low`,
    `median`, `high` are over the ranks' means, `low_rank` and `high_rank` are indexes into `ranks` (-1: no rank), and
    `missing` names the ranks that its rows lack, neighbours as "0.3-7". If one rank was asked for, the matrices hold it
    alone, and `only` is its index in `ranks`, else -1. Without such a rank it is the one that has the greatest value.
    """

    store: str
    row: int
    metric: str
    grid: Grid
    ranks: list[str]
    hosts: list[str]
    mean: Packed | None
    min: Packed | None
    max: Packed | None
    low: Column
    median: Column
    high: Column
    low_rank: list[int]
    high_rank: list[int]
    only: int
    missing: list[list[str]]


class TimelineLane(TypedDict):
    """A line of the timeline: a lane (a thread or task) of a writer. Spans of a lane nest, or follow each other."""

    id: str
    actor: str
    rank: str
    host: str
    attempt: int
    name: str


class Barriers(TypedDict):
    """When a lane's process finished steps."""

    lane: list[int]
    step: list[int]
    t: list[float]


class SpanColumns(TypedDict):
    """`lane` and `name` are indexes; `t` is seconds after `Spans.origin`; `step` is -1 without one; `depth` is 0 for an
    outermost span of its lane. `err` maps indexes of spans, as strings, to the error that ended them.
    """

    lane: list[int]
    name: list[int]
    t: list[float]
    dur: list[float]
    step: list[int]
    depth: list[int]
    err: dict[str, str]


class Stages(TypedDict):
    """Of each step of the lead, the seconds of each stage: of the outermost spans on its main lane, the mean over its
    ranks. `bubble`: the seconds in which a rank of the lead is in no span, or idles by its own metric. Of a step that
    was done again, after a rollback or a restart, the last doing counts.
    """

    step: list[int]
    t: list[float]
    dur: Column
    names: list[str]
    seconds: list[Column]
    bubble: Column


class Spans(TypedDict):
    """Spans that touch a range of time. `left_out` counts those beyond the limit: the shortest are left out first.

    `found` is the range that was read; null: no span at all. Where steps are asked for, it leaves out spans of their
    former doings. `note` says what lacks, such as files that cannot be read.
    """

    store: str
    row: int
    origin: float
    found: tuple[float, float] | None
    lanes: list[TimelineLane]
    names: list[str]
    spans: SpanColumns
    barriers: Barriers
    stages: Stages
    left_out: int
    note: str


class Token(TypedDict):
    """Values by token; only the columns that the job logged are there. `mask` 0 is a token that does not count."""

    text: list[str] | None
    columns: dict[str, Column]  # logprobs, rollout_logprobs, logp_diff, importance_ratio, advantages, mask, …


class RolloutSample(TypedDict):
    """`prompt` and `response` are texts or lists of messages {role, content, …}; `row` has all further columns.

    `why` says why a row shows it: top, bottom, random, newest; empty for one from the files. `id` is unique among the
    samples of the answer and stays the same while the files do.
    """

    id: str
    group: str
    rank: str
    t: float
    score: float | None
    advantage: float | None
    why: list[str]
    prompt: Any
    response: Any
    tokens: Token | None
    row: dict[str, Any]
    cut: Any


class Histogram(TypedDict):
    """`counts[i]` is of `edges[i]`..`edges[i + 1]`."""

    edges: list[float]
    counts: list[int]


class RolloutTable(TypedDict):
    """The samples of a table at a step, in groups of one prompt: `groups` are lists of indexes into `samples`.

    `kept` are in the files, of `taken` that the job took (null: unknown): say "n of N" where they differ. `shown` are
    in the answer. `measure` says what the `score` of each sample is: its reward, or its advantage where the job says no
    reward. `rewards` is of these scores of the kept ones.
    """

    actor: str
    table: str
    kept: int
    taken: int | None
    shown: int
    groups: list[list[int]]
    samples: list[RolloutSample]
    measure: Literal["reward", "advantage"]
    rewards: Histogram | None


class Rollouts(TypedDict):
    """`steps` are those around that have samples (at most 2,000, the asked one's neighbours first); `step` is the one
    that was answered: the nearest of them, null without any.
    """

    store: str
    row: int
    step: int | None
    steps: list[int]
    tables: list[RolloutTable]
    note: str


class Alert(TypedDict):
    """An episode. Moments are {step, t} or null; `place` is a rank as "trainer/0.17" or "". `last` is the last breach;
    its time is null as long as the episode goes on.
    """

    id: str
    rule: str
    severity: str
    state: str
    place: str
    lineage: list[int]
    first: dict[str, Any]
    fired: dict[str, Any]
    last: dict[str, Any]
    ended: dict[str, Any] | None
    evidence: dict[str, float | None]
    about: str
    look: str


class Alerts(TypedDict):
    """Those that go on first, then by step. `note` says why there is nothing to evaluate, `blind` names rules that saw
    none of their metrics. `needs` has for each rule how many earlier steps its signals compare with, at most.
    """

    store: str
    row: int
    episodes: list[Alert]
    last_step: int | None
    blind: list[str]
    needs: list[int]
    note: str


class Why(TypedDict):
    """`answer` is what `rlship why --json` prints, `text` what `rlship why` prints."""

    store: str
    row: int
    answer: dict[str, Any]
    text: list[str]


class Ledger(TypedDict):
    """What became of groups of samples: the ledger's values as curves by key without "zz_rlship/ledger/", and totals.

    `wrong` are the keys that should be 0 and are not.
    """

    store: str
    row: int
    logged: bool
    grid: Grid | None
    curves: dict[str, Curve]
    totals: dict[str, float]
    wrong: list[str]


class EventEntry(TypedDict):
    """Something that happened in a process."""

    t: float
    step: int | None
    actor: str
    rank: str
    attempt: int
    name: str
    attrs: dict[str, Any]


class Events(TypedDict):
    """By time, the newest `limit` of them; `left_out` counts the others."""

    store: str
    row: int
    events: list[EventEntry]
    names: list[str]
    left_out: int
    note: str


class RunKey(TypedDict):
    """`part`: config, summary, facts, labels or run; `key` with dots; `value` is plain JSON."""

    part: str
    key: str
    value: Any


class ChangedKey(TypedDict):
    """A later value of a key, and who gave it."""

    part: str
    key: str
    t: float
    who: str
    before: Any
    after: Any


class RunSaid(TypedDict):
    """What the job said of the run."""

    store: str
    row: int
    keys: list[RunKey]
    changes: list[ChangedKey]
    left_out: int


class DiffKey(TypedDict):
    """A key that the runs say otherwise; a side without the key is absent."""

    part: str
    key: str
    a: Any
    b: Any


class Parted(TypedDict):
    """Where a metric of two runs parts; `first` and `widest` are {step, a, b} or null. `of_time`: it is a duration."""

    id: str
    key: str
    actor: str
    kind: str
    in_a: int
    in_b: int
    apart: int
    first: dict[str, Any] | None
    widest: dict[str, Any] | None
    of_time: bool


class Diff(TypedDict):
    """What two experiments differ in, as `rlship diff` says."""

    a: str
    b: str
    both: int
    equal: int
    run: list[dict[str, Any]]
    ranks: list[dict[str, Any]]
    metrics: list[Parted]


# Live -------------------------------------------------------------------------------------------------------------


class LiveRow(TypedDict):
    """A new row, or a revision of one that the page has, number `no` of the store.

    `x` is its step, null without one. `m` has all its values by metric id: a key that is not in it was taken away.
    `tables`: the row shows samples of these. Values by rank have to be asked for anew.
    """

    no: int
    actor: str
    kind: str
    x: int | None
    t: float
    partial: bool
    m: dict[str, float]
    tables: list[str]


class Event(TypedDict, total=False):
    """One line of a live stream; all have `kind`, `store` and `row`: what the page has once it took the event.

    - `hello`: the first. If `store` is not the one that was asked for, or `behind` is true, the page asks for all of it
      anew, and takes this stream's events from there: they go on at `row`.
    - `rows`: the rows up to `row` - 1, each with its number. `metrics`: entries of metrics that are new.
    - `behind`: so much came at once that the page had better ask for everything anew.
    - `status`: `entry` has the experiment's entry, which changed. `progress` and `doing` are those of `Overview`.
    - `run`: the answer to /run is another one.
    - `store`: the rows were made again, in `store`: the page begins anew.
    - `trouble`: `error` and `hint` say why nothing comes; the stream goes on, and a `status` ends the trouble.
    - `beat`: nothing new, and the server lives.

    Kinds of rows tell what else changed: `alert` /alerts, `ledger` /ledger.
    """

    kind: Literal["hello", "rows", "behind", "status", "run", "store", "trouble", "beat"]
    store: str
    row: int
    behind: bool
    rows: list[LiveRow]
    metrics: list[MetricEntry]
    entry: ExperimentEntry
    progress: float | None
    doing: str
    error: str
    hint: str


# An exported file -------------------------------------------------------------------------------------------------


class Embedded(TypedDict):
    """All that an exported file knows of one experiment: answers to the requests of the same names, in full.

    `series` has all metrics on their own axis, `ranks` all metrics by rank, by metric id; `rollouts` is by step, `why`
    by episode id. `spans` covers the newest steps, and `newest` has every one of the newest steps by itself where
    `ranks` has buckets. Their matrices are packed tighter than `Packed`: see packing.py.
    """

    contract: int
    experiments: Experiments
    overview: Overview
    metrics: Metrics
    series: Series
    ranks: dict[str, Ranks]
    newest: dict[str, Ranks]
    spans: Spans
    rollouts: dict[str, Rollouts]
    alerts: Alerts
    why: dict[str, Why]
    ledger: Ledger
    events: Events
    run: RunSaid
