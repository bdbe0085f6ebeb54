"""The names under which W&B, TensorBoard and the console show the keys of a row. Pure.

docs/sinks.md has the same as one table. Rows, the store, rows.jsonl and `rlship query` keep the row's own keys.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlship_formats.catalogue.metrics import lookup
from rlship_formats.reading import SPAN_REDUCTIONS
from rlship_formats.values import MOMENT_REDUCTIONS
from rlship_sidecar.rows import ALIGNED, CLOCK, OWN_KINDS, POINT, STEP, Row, count_ranks, count_short
from rlship_sidecar.sinks.options import WrongOption
from rlship_sidecar.tally import OWN_ACTOR

# W&B and TensorBoard make a section of each first part of a name, and sort sections by name. A leading underscore is no
# way to the end: TensorBoard sorts it before letters, and W&B keeps it for its own keys.
FIRST, EXTRAS = "aa_headline", "zz_rlship"
OPTIONS = ("first", "extras")

# Reward and loss, as jobs and frameworks call them.
REWARD_AND_LOSS = (
    "*/reward",
    "*/reward/total",
    "*/rewards/mean",
    "*/loss",
    "*/loss/mean",
    "*/pg_loss",
    "*/global_avg_loss",
    "*/eval_reward",
    "*/eval_loss",
)
_OF_RANKS = frozenset(("max", "min", "argmax_rank", "argmax_replica"))  # beside the values of single ranks
_PATTERNS = 'a list of patterns of keys, such as ["*/reward", "trainer/kl"]'

Flat = dict[str, float | int | str]
_NO_RANKS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class SinkNames:
    """What decides the name of a key at a sink.

    `first`: patterns of the keys that stand at the very beginning. `extras`: whether the sink shows what rlship adds.
    `over_time`: clock rows are the charts of a stream, because the experiment has no aligned rows. `own`: the actors
    whose metrics have the names that the job gave them, without the actor.
    """

    first: tuple[str, ...] = ()
    extras: bool = True
    over_time: bool = False
    own: tuple[str, ...] = ()

    def of(self, row: Row, key: str) -> str | None:
        """The name at the sink of a key of this row; None if the sink does not show it."""
        if row.unit.kind in OWN_KINDS:
            return key  # rlship's own: it begins with EXTRAS
        extra = is_extra(row, key, over_time=self.over_time)
        # In streams that have another chart, a reward is lifted only by a pattern that names the kind of row.
        repeated = extra and row.unit.kind in (CLOCK, POINT)
        if place(key, self.first, family(row) if repeated else "") is not None:
            return f"{FIRST}/{key}"
        if extra:
            return f"{EXTRAS}/{key}" if self.extras else None
        return own_name(row, key, self.own) or key


DEFAULT_NAMES = SinkNames()


def names_of(
    options: Mapping[str, Any], *, first: tuple[str, ...] = (), over_time: bool = False, own: tuple[str, ...] = ()
) -> SinkNames:
    """The names that a sink's options ask for; `first` is the sink's default."""
    chosen, extras = options.get("first"), options.get("extras")
    return SinkNames(first if chosen is None else tuple(chosen), True if extras is None else extras, over_time, own)


def check_names_options(sink: str, options: Mapping[str, Any]) -> None:
    """Raise WrongOption for options of `OPTIONS` that cannot be used."""
    check_patterns(sink, "first", options.get("first"))
    extras = options.get("extras")
    if extras is not None and not isinstance(extras, bool):
        raise WrongOption(sink, "extras", f"is {extras!r}", "true, false")


def check_patterns(sink: str, option: str, value: Any) -> None:
    """Raise WrongOption unless `value` is None or a list of patterns."""
    if value is not None and not (isinstance(value, list) and all(isinstance(one, str) and one for one in value)):
        raise WrongOption(sink, option, f"is {value!r}", _PATTERNS)


@lru_cache(maxsize=1 << 15)  # rows have the same keys again and again
def place(key: str, patterns: tuple[str, ...], literal: str = "") -> int | None:
    """The number of the first pattern that matches the whole key; `*` stands for any characters, `/` among them.

    Only patterns that begin with the first part of `literal` count, if there is one.
    """
    kind = f"{literal.partition('/')[0]}/" if literal else ""
    for number, pattern in enumerate(patterns):
        if pattern.startswith(kind) and _compiled(pattern).match(key):
            return number
    return None


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))


def is_extra(row: Row, key: str, *, over_time: bool = False) -> bool:
    """Whether rlship adds this key of the row's values, histograms or tables to what the job logged.

    Every metric has one chart, and one for each further reduction that the job asks for: in aligned rows if the
    experiment has any, else in clock rows.
    """
    unit = row.unit
    if unit.actor == OWN_ACTOR or unit.kind == POINT or (unit.kind == CLOCK and not over_time):
        return True
    metric = key.removeprefix(f"{family(row)}/")
    if metric.startswith(("barrier/", "event/")):
        return True
    # The actor logs this metric with steps as well, and that has the chart.
    if unit.kind == ALIGNED and (metric.endswith("/aligned") or "/aligned/" in metric):
        return True
    if key in row.asked:
        return False
    base, _, last = key.rpartition("/")
    if last == "nonfinite":
        return True
    if not (base in row.values or base in row.hists or base in row.coverage.underivable):
        return False
    return (base in row.per_rank and last in _OF_RANKS) or last in _added(unit.actor, metric.rpartition("/")[0])


def own_name(row: Row, key: str, own: tuple[str, ...]) -> str:
    """The name that the job gave to what stands under a key, if it is the first reduction of a metric of one of the
    actors `own`, on any of its axes (`<actor>.<axis>`); else "". The key is no extra.
    """
    unit = row.unit
    if unit.kind not in (STEP, ALIGNED) or not f"{unit.actor}.".startswith(tuple(f"{actor}." for actor in own)):
        return ""
    name = key.removeprefix(f"{unit.actor}/")
    derived = name == "policy_lag" and f"{unit.actor}/policy_version" in row.values
    if key in row.asked or derived or name.partition("/")[0] in (FIRST, EXTRAS) or name == key:
        return ""
    return "" if name.partition("/")[2] in row.samples and name.startswith("samples/") else name


@lru_cache(maxsize=1 << 12)
def _added(actor: str, metric: str) -> tuple[str, ...]:
    """The further reductions that rlship adds to a metric on its own account: the catalogue's, and a span's.

    Rates, quantiles, histograms and custom reductions are never extras, and nothing is that only a `define` asks for.
    """
    known = lookup(actor, metric)
    catalogued = () if known is None else known.reduce[1:]
    of_span = SPAN_REDUCTIONS[1:] if metric.endswith("_s") else ()  # a row does not say which metrics are spans
    return tuple(name for name in (*catalogued, *of_span) if name in MOMENT_REDUCTIONS)


def flatten(row: Row, names: SinkNames = DEFAULT_NAMES, ranks: Mapping[str, float] = _NO_RANKS) -> Flat:
    """The numbers and texts of one point by their names: the shipped values, `ranks` (values of single ranks by their
    keys), and what `about` says of the row. The axes are not among them.

    A user's value wins over a derived one with the same name.
    """
    flat: Flat = {}
    if names.extras:
        flat.update((f"{EXTRAS}/{key}", value) for key, value in about(row).items())
    for key, value in ranks.items():
        flat[f"{FIRST if place(key, names.first) is not None else EXTRAS}/{key}"] = value
    flat.update(named(row, row.shipped, names))
    return flat


def named(row: Row, by_key: Mapping[str, Any], names: SinkNames = DEFAULT_NAMES) -> dict[str, Any]:
    """What stands under keys of the row, by the names that the sink shows."""
    found = ((names.of(row, key), value) for key, value in by_key.items())
    return {name: value for name, value in found if name is not None}


def names_withdrawn(row: Row, names: SinkNames = DEFAULT_NAMES, ranks: Iterable[str] = ()) -> set[str]:
    """The names under which a sink may show what this revision takes away; `ranks` are keys of single ranks.

    A row does not say what stood beside a key before, which decides its name. So these are all names that it can have.
    """
    if row.unit.kind in OWN_KINDS:
        return set(row.withdrawn)
    found = {f"{group}/{key}" for key in (*row.withdrawn, *ranks) for group in (FIRST, EXTRAS)}
    found.update(name for key in row.withdrawn for name in (key, own_name(row, key, names.own)) if name)
    return found


def about(row: Row) -> Flat:
    """The coverage, tags and revision of a row. Points have no coverage of interest.

    `<actor>/ranks/short` counts the ranks that are short of a metric, for steps only. `<actor>/missing_ranks`
    ("0.3 0.5-7") is there only if ranks are missing, `<actor>/tags` only with tags, and `<actor>/revision` only from
    the first revision on.
    """
    if row.unit.kind in OWN_KINDS:
        return {}
    coverage = row.coverage
    prefix = f"{row.unit.actor}/aligned" if row.unit.kind == ALIGNED else family(row)
    keys: Flat = {}
    if row.unit.kind != POINT:
        keys[f"{prefix}/ranks/in"] = count_ranks(coverage.ranks)
        keys[f"{prefix}/ranks/expected"] = coverage.expected
        keys[f"{prefix}/ranks/missing"] = count_ranks(coverage.missing)
    if row.unit.kind == STEP:
        keys[f"{prefix}/ranks/short"] = count_short(coverage)
    if coverage.missing:
        keys[f"{prefix}/missing_ranks"] = " ".join(coverage.missing)
    if row.tags:
        keys[f"{prefix}/tags"] = " ".join(row.tags)
    if row.arrival.revision > 0:
        keys[f"{prefix}/revision"] = row.arrival.revision
    return keys


def family(row: Row) -> str:
    """The common prefix of the keys of a row's values, which share an axis."""
    kind, actor = row.unit.kind, row.unit.actor
    if kind in OWN_KINDS:
        return f"{EXTRAS}/{kind}"
    if kind == CLOCK:
        return f"clock/{actor}"
    return f"point/{actor}" if kind == POINT else actor


def key_of(name: str) -> str:
    """The row's key that a sink shows under this name."""
    group, _, key = name.partition("/")
    return key if group in (FIRST, EXTRAS) else name


def rank_keys(row: Row) -> Iterator[tuple[str, float]]:
    """The shipped values of single ranks under keys of their own: `<actor>/<metric>/r<replica>.<rank>`.

    A value or histogram of the row with such a key wins.
    """
    for metric, values in row.shipped_per_rank.items():
        for rank, value in values:
            key = f"{metric}/r{rank}"
            if key not in row.values and key not in row.hists:
                yield key, value
