"""The central plain data: units, coverage and rows, and a row's JSON form."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import orjson

from rlship_formats.values import Histogram

STEP, ALIGNED, CLOCK, POINT, LEDGER, ALERT = "step", "aligned", "clock", "point", "ledger", "alert"
OWN_KINDS = (LEDGER, ALERT)  # of units without an actor, whose index is a step of the lead
ALERT_KEYS = "zz_rlship/alert"


@dataclass(frozen=True, slots=True, order=True)
class Unit:
    """The subject of one row.

    `index` is the step of a `kind` "step", "aligned", "ledger" or "alert", the number of the window of a "clock", and
    the byte offset of the line of a "point". `writer` is the `open.id` of a point's file, "" for the other kinds.
    """

    actor: str
    kind: str
    index: int
    writer: str = ""

    @property
    def kind_on_disk(self) -> str:
        """The kind in the store, row JSON and tables; a point's names its writer: "point:<open.id>"."""
        return f"{POINT}:{self.writer}" if self.kind == POINT else self.kind

    @classmethod
    def from_disk(cls, actor: str, kind: str, index: int) -> Unit:
        """The inverse of `kind_on_disk`."""
        name, colon, writer = kind.partition(":")
        return cls(actor, name, index, writer) if colon and name == POINT else cls(actor, kind, index)


_Value = TypeVar("_Value")

Lineage = tuple[int, int, int]  # submission, attempt, rollbacks


class RankName(NamedTuple):
    """One place in an actor: rank `rank` of replica `replica`."""

    replica: str
    rank: int


def name_ranks(runs: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """Name runs of ranks (replica, first, last): "0.3", and "0.3-7" for neighbours, so that a thousand ranks stay
    readable.
    """
    merged: list[tuple[str, int, int]] = []
    replica, first, last = "", 0, -1
    for name, low, high in runs:
        if name == replica and low == last + 1 and last >= first:
            last = high
            continue
        if last >= first:
            merged.append((replica, first, last))
        replica, first, last = name, low, high
    if last >= first:
        merged.append((replica, first, last))
    return tuple(name_run(*run) for run in merged)


def name_run(replica: str, first: int, last: int) -> str:
    """The name of some neighbours."""
    return f"{replica}.{first}" if first == last else f"{replica}.{first}-{last}"


def count_ranks(names: Iterable[str]) -> int:
    """Count the ranks that such names stand for."""
    total = 0
    for name in names:
        first, _, last = name.rpartition(".")[2].partition("-")
        total += int(last) - int(first) + 1 if last else 1
    return total


def each_rank(names: Iterable[str]) -> Iterator[RankName]:
    """The ranks that such names stand for, in their order."""
    for name in names:
        replica, _, run = name.rpartition(".")
        first, _, last = run.partition("-")
        yield from (RankName(replica, rank) for rank in range(int(first), int(last or first) + 1))


def split_rank(name: str) -> tuple[str, str] | None:
    """The replica and the rank or span of ranks ("3", "3-7") in such a name; None for any other text."""
    replica, dot, span = name.rpartition(".")
    first, _, last = span.partition("-")
    return (replica, span) if dot and first.isdecimal() and (last.isdecimal() or "-" not in span) else None


def rank_words(names: Iterable[str], replicas: Collection[str] = ()) -> list[str]:
    """Such names for people, because "0.5 0.17" reads as two numbers: `r5`, `r17`, `r512-514`; `rep 1 r17`.

    `replicas` are all replicas of the actor, as far as they are known. If the only one is "0", its name is left out.
    """
    names = list(names)
    parts = [split_rank(name) for name in names]
    only = {*replicas, *(part[0] for part in parts if part is not None)} <= {"0"}
    return [
        name if part is None else f"r{part[1]}" if only else f"rep {part[0]} r{part[1]}"
        for name, part in zip(names, parts)
    ]


def process_place(host: str, pid: int) -> str:
    """Where a rank's process runs, to put after its name: " (n07 pid 4121)", or "" if that is unknown."""
    known = [*([host] if host else []), *([f"pid {pid}"] if pid else [])]
    return f" ({' '.join(known)})" if known else ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The ranks and lines that a row is made of.

    Ranks are named `<replica>.<rank>`, neighbours as `<replica>.<first>-<last>`, in merge order (`count_ranks` counts
    them). `short` maps `<actor>/<metric>` to the ranks that finished the step without this metric, though they logged
    it shortly before. `lives` is above 1 where one rank has values of several processes, started one after the other,
    or where several submissions of the job have. `lineage` is the submission, attempt and number of rollbacks of the
    newest lines that count: it is greater where a step was done again. It is None for other units than steps, and
    where it is `plain_lineage(attempts)`.
    """

    ranks: tuple[str, ...]
    expected: int
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    attempts: tuple[int, ...] = ()
    gap: int = 0
    underivable: tuple[str, ...] = ()
    short: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lives: int = 1
    lineage: Lineage | None = None


def plain_lineage(attempts: Sequence[int]) -> Lineage:
    """The lineage of a step of a job that was submitted once and never went back."""
    return 0, max(attempts, default=0), 0


def lineage_of(row: Row) -> Lineage:
    """From which start of the job the newest lines of a row of a step are."""
    return row.coverage.lineage or plain_lineage(row.coverage.attempts)


def count_short(coverage: Coverage) -> int:
    """Count the ranks that are short of any metric, each once."""
    return len({rank for ranks in coverage.short.values() for rank in each_rank(ranks)})


class Sample(NamedTuple):
    """A sample that a row shows.

    `why` holds "newest", or any of "top", "bottom" and "random". `rank` is named as in the coverage. `t` is Unix
    seconds. `score` is a number, the word for one that is not finite, or None. `row` is the job's data. `cut` maps each
    shortened column to its former length.
    """

    why: tuple[str, ...]
    rank: str
    t: float
    score: float | str | None
    row: dict[str, Any]
    cut: Any = None


Samples = dict[str, list[Sample]]  # by table, in merge and file order


@dataclass(frozen=True, slots=True)
class Arrival:
    """Facts that depend on when lines arrived, excluded from every comparison between live and replay.

    `row_number` counts rows 0, 1, 2, … without gaps. `changed` are the keys that a sink ships: for revision 0 all of
    them, for others those that are new, changed or withdrawn. `closed` is why the row appeared: "complete", "partial",
    "end" (end of the files) or "revision".
    """

    row_number: int
    revision: int
    changed: tuple[str, ...]
    closed: str


@dataclass(frozen=True, slots=True)
class Row:
    """A closed unit.

    `t` is Unix seconds from the records; `x` holds the axes, such as {"global_step": 12}. `values` holds the reduced
    values. `per_rank` maps each key to rank names and values, in merge order. All values, `tags` and `samples` (by
    table) are complete in every revision. `asked` are the sorted keys of further reductions that a `define` or the
    configuration asks for. `nonfinite` names, by the keys of metrics, the ranks with an observation that was not
    finite. It is no part of the row's JSON; the status is made of it.
    """

    unit: Unit
    t: float
    x: dict[str, int | float]
    values: dict[str, float]
    coverage: Coverage
    arrival: Arrival = field(default=Arrival(0, 0, (), "complete"), compare=False)
    hists: dict[str, Histogram] = field(default_factory=dict)
    per_rank: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    samples: Samples = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    nonfinite: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @property
    def row_number(self) -> int:
        """The row's place in its store; at a sink its line, and W&B's `_step`. `unit.index` is another number."""
        return self.arrival.row_number

    @property
    def shipped(self) -> dict[str, float]:
        """The values that are new or changed in this revision."""
        return self._shipped(self.values)

    @property
    def shipped_hists(self) -> dict[str, Histogram]:
        """The histograms that are new or changed in this revision."""
        return self._shipped(self.hists)

    @property
    def shipped_per_rank(self) -> dict[str, list[tuple[str, float]]]:
        """The per-rank values that are new or changed in this revision, all those of a key together."""
        return self._shipped(self.per_rank)

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """The keys that this revision takes away. Rows of an earlier rlship do not name them."""
        if self.arrival.revision == 0:
            return ()
        there = set(self.keys())
        return tuple(key for key in self.arrival.changed if key not in there)

    @property
    def shipped_samples(self) -> Samples:
        """The samples of the tables that are new or changed in this revision, by the keys of the tables."""
        return self._shipped({self.table_key(table): samples for table, samples in self.samples.items()})

    def table_key(self, table: str) -> str:
        """The key of a table of samples: `<actor>/samples/<table>`, for streams under `<actor>/aligned/` and
        `clock/<actor>/`, for episodes under `zz_rlship/alert/`.
        """
        kind, actor = self.unit.kind, self.unit.actor
        family = f"{actor}/aligned" if kind == ALIGNED else f"clock/{actor}" if kind == CLOCK else actor or ALERT_KEYS
        return f"{family}/samples/{table}"

    def _shipped(self, values: dict[str, _Value]) -> dict[str, _Value]:
        if self.arrival.revision == 0:
            return values
        return {key: values[key] for key in self.arrival.changed if key in values}

    def keys(self) -> tuple[str, ...]:
        """All keys of the row, each once."""
        if not (self.hists or self.per_rank or self.samples):
            return tuple(self.values)
        tables = (self.table_key(table) for table in self.samples)
        return tuple(dict.fromkeys((*self.values, *self.hists, *self.per_rank, *tables)))

    def differing(self, before: Row) -> tuple[str, ...]:
        """The keys whose values are new or differ in any bit from `before`, and those that are no more: 0.0 and -0.0
        differ.
        """
        old = before.values
        changed = [
            key
            for key, value in self.values.items()
            if old.get(key) != value or math.copysign(1.0, old[key]) != math.copysign(1.0, value)
        ]
        changed += [key for key, hist in self.hists.items() if hist != before.hists.get(key)]
        # The JSON text shows every bit.
        changed += [
            key
            for key, values in self.per_rank.items()
            if key not in before.per_rank or orjson.dumps(values) != orjson.dumps(before.per_rank[key])
        ]
        changed += [
            self.table_key(table)
            for table, samples in self.samples.items()
            if table not in before.samples or _text(samples) != _text(before.samples[table])
        ]
        changed += [key for key in before.values if key not in self.values]
        changed += [key for key in before.hists if key not in self.hists]
        changed += [key for key in before.per_rank if key not in self.per_rank]
        changed += [self.table_key(table) for table in before.samples if table not in self.samples]
        return tuple(dict.fromkeys(changed))

    def to_json(self) -> bytes:
        """The row as one line of JSON without its LF, for the jsonl sink and the store."""
        coverage = self.coverage
        body: dict[str, Any] = {
            "row": self.arrival.row_number,
            "actor": self.unit.actor,
            "kind": self.unit.kind_on_disk,
            "index": self.unit.index,
            "t": self.t,
            "x": self.x,
            "m": self.values,
            "coverage": {
                "ranks": coverage.ranks,
                "expected": coverage.expected,
                "missing": coverage.missing,
                "absent": coverage.absent,
                "attempts": coverage.attempts,
                "gap": coverage.gap,
                "underivable": coverage.underivable,
                **({"short": coverage.short} if coverage.short else {}),
                **({"lives": coverage.lives} if coverage.lives > 1 else {}),
                **({"lineage": coverage.lineage} if coverage.lineage else {}),
            },
            "arrival": {
                "revision": self.arrival.revision,
                "changed": self.arrival.changed,
                "closed": self.arrival.closed,
            },
        }
        if self.hists:
            body["hists"] = {key: hist._asdict() for key, hist in self.hists.items()}
        if self.per_rank:
            body["per_rank"] = {key: dict(values) for key, values in self.per_rank.items()}
        if self.tags:
            body["tags"] = self.tags
        if self.asked:
            body["asked"] = self.asked
        if self.samples:
            body["samples"] = {table: [_body(sample) for sample in found] for table, found in self.samples.items()}
        return orjson.dumps(body)

    @classmethod
    def from_json(cls, line: bytes | str) -> Row:
        """The inverse of `to_json`."""
        body: dict[str, Any] = orjson.loads(line)
        arrival = body["arrival"]
        return cls(
            Unit.from_disk(body["actor"], body["kind"], body["index"]),
            body["t"],
            body["x"],
            body["m"],
            _coverage(body["coverage"]),
            Arrival(body["row"], arrival["revision"], tuple(arrival["changed"]), arrival["closed"]),
            {
                key: Histogram(tuple(hist["edges"]), tuple(hist["counts"]))
                for key, hist in body.get("hists", {}).items()
            },
            {key: list(values.items()) for key, values in body.get("per_rank", {}).items()},
            tuple(body.get("tags", ())),
            {table: [_sample(one) for one in found] for table, found in body.get("samples", {}).items()},
            tuple(body.get("asked", ())),
        )

    @classmethod
    def figures_from_json(cls, line: bytes) -> Row:
        """The same without its arrival, histograms and samples. Values of ranks are read from `line` once one looks."""
        body = _figures.decode(line)
        late: Any = {key: LateRanks(partial(_ranks_in, values)) for key, values in body.per_rank.items()}
        return cls(
            Unit.from_disk(body.actor, body.kind, body.index),
            body.t,
            body.x,
            body.m,
            _coverage(body.coverage),
            per_rank=late,
            tags=tuple(body.tags),
        )


def _coverage(body: dict[str, Any]) -> Coverage:
    return Coverage(
        tuple(body["ranks"]),
        body["expected"],
        tuple(body["missing"]),
        tuple(body["absent"]),
        tuple(body["attempts"]),
        body["gap"],
        tuple(body["underivable"]),
        {key: tuple(ranks) for key, ranks in body.get("short", {}).items()},
        body.get("lives", 1),
        tuple(body["lineage"]) if "lineage" in body else None,
    )


Ranks = TypeVar("Ranks")


class LeanCoverage(msgspec.Struct, gc=False):
    """Of what a row is made of only the ranks that it lacks."""

    missing: tuple[str, ...] = ()


class LeanArrival(msgspec.Struct, gc=False):
    """Of how a row came only its revision."""

    revision: int = 0


class RowFigures(msgspec.Struct, Generic[Ranks]):
    """The figures in the JSON of a row, as `to_json` names them, decoded without the rest.

    A row of a thousand ranks has some 200 KB: a reader of many rows decodes no more of each than it needs. `Ranks` is
    what the values by rank of one key become.
    """

    actor: str
    kind: str
    index: int
    t: float
    x: dict[str, Any]
    m: dict[str, float]
    per_rank: dict[str, Ranks] = {}


class _FiguresOfRules(RowFigures[msgspec.Raw], kw_only=True):
    """What rules look at."""

    coverage: dict[str, Any]
    tags: list[str] = []


_figures = msgspec.json.Decoder(_FiguresOfRules)


class LeanRow(RowFigures[dict[str, float]], kw_only=True):
    """What charts show. `samples` are not decoded, only the names of their tables count."""

    row: int
    coverage: LeanCoverage
    arrival: LeanArrival
    samples: dict[str, msgspec.Raw] = {}


class LateRanks(Sequence[tuple[str, float]]):
    """(rank, value) of each rank, which `make` gives at the first look: few rows are looked at so closely."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Sequence[tuple[str, float]]]) -> None:
        self._make: Callable[[], Sequence[tuple[str, float]]] | None = make
        self._found: Sequence[tuple[str, float]] = ()

    def _all(self) -> Sequence[tuple[str, float]]:
        if self._make is not None:
            self._found, self._make = self._make(), None
        return self._found

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, at: Any) -> Any:
        return self._all()[at]

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as it equals other sequences


def _ranks_in(text: msgspec.Raw) -> list[tuple[str, float]]:
    return list(orjson.loads(bytes(text)).items())


def _text(samples: list[Sample]) -> bytes:
    return orjson.dumps([_body(sample) for sample in samples])


def _body(sample: Sample) -> dict[str, Any]:
    return {name: value for name, value in sample._asdict().items() if value is not None}


def _sample(body: dict[str, Any]) -> Sample:
    return Sample(tuple(body["why"]), body["rank"], body["t"], body.get("score"), body["row"], body.get("cut"))


def axis(row: Row) -> tuple[str, float | int]:
    """The row's own axis and its position there: the first of `row.x`, or the unit's index under its kind."""
    for name, value in row.x.items():
        return name, value
    return row.unit.kind_on_disk, row.unit.index
