"""Rollouts: the samples of a step, by table and prompt, with the values of their tokens. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from rlship_sidecar.export.tables import as_json
from rlship_sidecar.rows import Row
from rlship_sidecar.view.contract import MAX_SAMPLE_TEXT, Histogram, RolloutSample, RolloutTable, Token
from rlship_sidecar.view.records import FoundRecord
from rlship_sidecar.view.texts import number, plain, text

DROPPED = "samples_dropped"
BINS = 20
ROOM_BYTES = 24 << 20  # of an answer
MAX_TOKENS = 200_000
_PROMPT = ("prompt", "input", "question", "query")
_RESPONSE = ("response", "completion", "output", "messages", "answer")
_GROUP = ("group", "group_id", "prompt_id", "uid")
_TOKENS = ("tokens", "token_texts", "token_strings")
_OWN = frozenset(("reward", "score", "advantage"))


@dataclass(slots=True)
class Table:
    """The samples of a table: how many there are, those that fit, what each is worth, and by which measures."""

    kept: int = 0
    worths: list[float] = field(default_factory=list)
    measures: set[str] = field(default_factory=set)
    samples: list[RolloutSample] = field(default_factory=list)


@dataclass(slots=True)
class Rolls:
    """Collects the samples of one step. `shows` are those that its row shows, by rank, time and score."""

    limit: int
    table: str = ""
    shows: Mapping[tuple[str, float, object], tuple[str, ...]] = field(default_factory=dict)
    tables: dict[tuple[str, str], Table] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    room: int = ROOM_BYTES

    def take(self, found: Iterable[FoundRecord]) -> None:
        """Take samples, and the events that count those that were not kept."""
        for one in found:
            actor, body = one.opened.actor, one.entry.body
            if one.entry.kind == "event":
                n = body.attrs.get("n") if body.name == DROPPED else None
                if isinstance(n, int) and 0 < n < 2**53:
                    self.dropped[actor] = self.dropped.get(actor, 0) + n
                continue
            rank = f"{one.opened.replica}.{one.opened.rank}"
            why = self.shows.get((rank, one.entry.t, body.score), ())
            place = f"{one.file}\0{body.table}\0{one.entry.t!r}\0{body.pri!r}"
            self._add(actor, body.table, _Raw(place, rank, one.t, body.score, why, body.row, body.cut))

    def take_row(self, row: Row) -> None:
        """Take the samples that a row shows, where the files say nothing."""
        for table, samples in row.samples.items():
            for at, one in enumerate(samples):
                place = f"{row.unit.actor}\0{table}\0{row.unit.index}\0{at}"
                self._add(row.unit.actor, table, _Raw(place, one.rank, one.t, one.score, one.why, one.row, one.cut))

    def _add(self, actor: str, name: str, raw: _Raw) -> None:
        if self.table and name != self.table:
            return
        table = self.tables.setdefault((actor, name), Table())
        table.kept += 1
        measure, worth = raw.worth
        if worth is not None:
            table.worths.append(worth)
            table.measures.add(measure)
        if len(table.samples) >= self.limit or self.room <= 0:
            return
        sample = raw.shown()
        self.room -= len(orjson.dumps(sample, option=orjson.OPT_SERIALIZE_NUMPY))
        table.samples.append(sample)

    def answer(self) -> list[RolloutTable]:
        """The tables by actor and name."""
        found: list[RolloutTable] = []
        for (actor, name), table in sorted(self.tables.items()):
            alone = sum(of == actor for of, _ in self.tables) == 1
            dropped = self.dropped.get(actor, 0)
            groups: dict[str, list[int]] = {}
            for at, sample in enumerate(table.samples):
                groups.setdefault(sample["group"], []).append(at)
            found.append(
                {
                    "actor": text(actor),
                    "table": text(name),
                    "kept": table.kept,
                    "taken": table.kept + dropped if alone or not dropped else None,
                    "shown": len(table.samples),
                    "groups": list(groups.values()),
                    "samples": table.samples,
                    "measure": "advantage" if table.measures == {"advantage"} else "reward",
                    "rewards": histogram(table.worths),
                }
            )
        return found


@dataclass(slots=True)
class _Raw:
    place: str
    rank: str
    t: float
    score: float | str | None
    why: tuple[str, ...]
    row: dict[str, Any]
    cut: Any

    @property
    def worth(self) -> tuple[str, float | None]:
        """Its score, else its reward, and which of both measures that is. A score that is the sample's advantage, as
        TRL's completions have it, is no reward: a reward beside it counts first.
        """
        score, reward = number(self.score), number(self.row.get("reward"))
        if score is None or score != number(self.row.get("advantage")):
            return "reward", reward if score is None else score
        return ("advantage", score) if reward is None else ("reward", reward)

    def shown(self) -> RolloutSample:
        """The sample as the page shows it."""
        row = self.row
        prompt, response = _first(row, _PROMPT), _first(row, _RESPONSE)
        group = _first(row, _GROUP)
        named = group if group is not None else row.get(prompt) if prompt is not None else None
        key = row[group] if group is not None else named
        tokens, columns = _tokens_of(row)
        taken = {prompt, response, group, *columns}
        return {
            "id": hashlib.blake2b(self.place.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest(),
            "group": _group_text(key),
            "rank": text(self.rank),
            "t": self.t,
            "score": self.worth[1],
            "advantage": number(row.get("advantage")),
            "why": list(self.why),
            "prompt": None if prompt is None else plain(row[prompt], MAX_SAMPLE_TEXT),
            "response": None if response is None else plain(row[response], MAX_SAMPLE_TEXT),
            "tokens": tokens,
            "row": {
                text(name): plain(value, MAX_SAMPLE_TEXT)
                for name, value in row.items()
                if name not in taken and name not in _OWN
            },
            "cut": plain(self.cut),
        }


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if row.get(name) is not None), None)


def _group_text(key: Any) -> str:
    """A short name of a group: its own, or the digest of its prompt."""
    if key is None:
        return ""
    if isinstance(key, (int, str)) and len(str(key)) <= 100:
        return text(str(key))
    return hashlib.blake2b(as_json(key), digest_size=6).hexdigest()


def _tokens_of(row: Mapping[str, Any]) -> tuple[Token | None, list[str]]:
    """The columns with a value for each token, and their names: the lists of numbers that are as long as most are."""
    lists = {name: value for name, value in row.items() if isinstance(value, list) and 1 < len(value) <= MAX_TOKENS}
    numeric = {name: value for name, value in lists.items() if all(_is_value(one) for one in value)}
    texts = next((name for name in _TOKENS if name in lists and all(isinstance(one, str) for one in lists[name])), None)
    if not numeric:
        return None, []
    lengths = [len(value) for value in numeric.values()]
    length = len(lists[texts]) if texts is not None else max(lengths, key=lambda one: (lengths.count(one), one))
    columns = {name: value for name, value in numeric.items() if len(value) == length}
    if not columns:
        return None, []
    return {
        "text": None if texts is None else [text(one, 1_000) for one in lists[texts]],
        "columns": {text(name): [number(_as_number(one)) for one in value] for name, value in columns.items()},
    }, [*columns, *([texts] if texts is not None else [])]


def _is_value(one: Any) -> bool:
    return one is None or isinstance(one, (int, float)) or one in ("NaN", "Infinity", "-Infinity")


def _as_number(one: Any) -> Any:
    return int(one) if isinstance(one, bool) else one


def histogram(values: list[float]) -> Histogram | None:
    """The distribution of some rewards; None without any."""
    if not values:
        return None
    low, high = min(values), max(values)
    if low == high:
        return {"edges": [low - 0.5, low + 0.5], "counts": [len(values)]}
    if not math.isfinite(high - low):
        return None
    bins = min(BINS, 2 * len(set(values)))
    edges = np.linspace(low, high, bins + 1)
    if not (edges[:-1] < edges[1:]).all():  # rewards that differ by a rounding have no room for bins between them
        return {"edges": [low, high], "counts": [len(values)]}
    counts, edges = np.histogram(np.array(values), bins=bins, range=(low, high))
    return {"edges": edges.tolist(), "counts": counts.tolist()}
