"""Which ranks are short of a metric at a step, and which rows a changed step can make so.

A row depends on earlier steps only here and in `tables_shown`. So each step's ranks are kept in the store, in the
transaction that keeps its row. Where a step's ranks change, or the step becomes a row after later ones, the later rows
in whose window it is are made again.

Nearly all steps of a job are alike. What they have in common is worked out once, for the whole set of metrics: see
`_Pattern`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import orjson

from rlship_sidecar.align.lineage import rank_names
from rlship_sidecar.align.roster import Roster
from rlship_sidecar.align.window import UnitLines
from rlship_sidecar.reduce.logged import (
    Logged,
    PlainKey,
    Ranks,
    decode_logged,
    decode_ranks,
    encode_logged,
    encode_ranks,
    plain_key,
    who_logged,
)
from rlship_sidecar.rows import RankName
from rlship_sidecar.store.logged_steps import LoggedStep, LoggedSteps

_MAX_PATTERNS = 1024

Short = dict[str, tuple[str, ...]]  # names of ranks by `<actor>/<metric>`


@dataclass(slots=True)
class _KnownMetric:
    """A metric of the actor: its number in the store, the first step that has it, and all ranks that ever logged it."""

    number: int
    first: int
    ranks: Ranks


@dataclass(slots=True, eq=False)
class _Pattern:
    """What some steps have in common: `logged`, and its JSON.

    `suspects` are the metrics that other ranks logged at another step, with these ranks; without any, no rank can be
    short. They are as of `version`. `since`: from this step on, `_KnownMetric` holds what this pattern says.
    """

    logged: Logged
    text: str
    suspects: dict[Ranks, list[str]] = field(default_factory=dict)
    version: int = -1
    since: int | None = None


@lru_cache(1024)
def _names_of(ranks: Ranks) -> tuple[str, ...]:
    """The names of ranks, which are often those of an earlier step."""
    return rank_names(ranks)


# Metrics of one line are logged by the same ranks, of which there may be thousands: what follows is found once for all.


@lru_cache(16)
def _joined(known: Ranks, ranks: Ranks) -> Ranks:
    return known | ranks


@lru_cache(16)
def _others(known: Ranks, ranks: Ranks) -> Ranks:
    return known - ranks


@lru_cache(16)
def _text_of(ranks: Ranks) -> str:
    return encode_ranks(ranks)


class LookedBack(NamedTuple):
    """What the row of a step is short of, and later steps whose rows have to be made again."""

    short: Short
    affected: list[int]


class Lookback:
    """The steps of one actor. `window` is the configuration's `short_window`."""

    def __init__(self, steps: LoggedSteps, window: int) -> None:
        self._steps = steps
        self._window = window
        self._highest = steps.highest()
        self._metrics = {
            metric: _KnownMetric(number, first, decode_ranks(ranks)) for metric, number, first, ranks in steps.metrics()
        }
        self._names = {metric.number: name for name, metric in self._metrics.items()}
        self._version = 0  # counts changes of any metric's ranks
        self._by_key: dict[PlainKey, _Pattern] = {}
        self._by_text: dict[str, _Pattern] = {}

    def look(self, step: int, window: UnitLines, roster: Roster, *, whole: bool) -> LookedBack:
        """Keep which ranks logged what at a step.

        `whole`: the window has all lines of the step. Else what is known of the step stays, too.
        """
        pattern, before, affected = self._pattern_of(step, window, roster), None, []
        if step > self._highest:
            self._highest = step
            self._learn(step, pattern)
        else:
            before = self._steps.get(step)
            known = self._decoded(before.ranks).logged if before is not None else {}
            if not whole and known:
                pattern = self._pattern(step, _union(known, pattern.logged))
            self._learn(step, pattern)
            if before is None or before.ranks != pattern.text:
                differing = {m for m in known.keys() | pattern.logged.keys() if known.get(m) != pattern.logged.get(m)}
                affected = self._affected(step, differing)
        short = self._short(step, pattern, roster)
        now = LoggedStep(step, pattern.text, orjson.dumps(short).decode() if short else None)
        if now != before:
            self._steps.put(now)
        return LookedBack(short, affected)

    def flush(self) -> None:
        """Hand over what the store lacks, before a commit."""
        self._steps.flush()

    # What steps have in common -------------------------------------------------------------------------------------

    def _pattern_of(self, step: int, window: UnitLines, roster: Roster) -> _Pattern:
        key = plain_key(window, roster)
        pattern = None if key is None else self._by_key.get(key)
        if pattern is None:
            pattern = self._pattern(step, who_logged(window))
            if key is not None:
                if len(self._by_key) >= _MAX_PATTERNS:
                    self._by_key.clear()
                self._by_key[key] = pattern
        return pattern

    def _pattern(self, step: int, logged: Logged) -> _Pattern:
        for name in logged:
            if name not in self._metrics:
                metric = self._metrics[name] = _KnownMetric(len(self._metrics), step, frozenset())
                self._names[metric.number] = name
        text = encode_logged(logged, {name: self._metrics[name].number for name in logged})
        return self._remembered(text, logged)

    def _decoded(self, text: str) -> _Pattern:
        return self._by_text.get(text) or self._remembered(text, decode_logged(text, self._names))

    def _remembered(self, text: str, logged: Logged) -> _Pattern:
        pattern = self._by_text.get(text)
        if pattern is None:
            if len(self._by_text) >= _MAX_PATTERNS:
                self._by_text.clear()
            pattern = self._by_text[text] = _Pattern(logged, text)
        return pattern

    def _learn(self, step: int, pattern: _Pattern) -> None:
        """Note the metrics of a step that becomes a row, and what its pattern lacks of them."""
        if pattern.since is None or step < pattern.since:
            for name, ranks in pattern.logged.items():
                metric = self._metrics[name]
                if not ranks <= metric.ranks or step < metric.first:
                    self._version += not ranks <= metric.ranks
                    metric.ranks, metric.first = _joined(metric.ranks, ranks), min(metric.first, step)
                    self._steps.put_metric(name, metric.number, metric.first, _text_of(metric.ranks))
            pattern.since = step
        if pattern.version != self._version:
            pattern.version = self._version
            pattern.suspects = {}
            for name, ranks in pattern.logged.items():
                if others := _others(self._metrics[name].ranks, ranks):
                    pattern.suspects.setdefault(others, []).append(name)

    # Looking back, and ahead ---------------------------------------------------------------------------------------

    def _short(self, step: int, pattern: _Pattern, roster: Roster) -> Short:
        wanted: dict[str, Ranks] = {}
        passed: Ranks | None = None
        for ranks, names in pattern.suspects.items():
            if passed is None:
                passed = roster.passed(step)
            if those := ranks & passed:
                wanted.update(dict.fromkeys(names, those))
        if not wanted:
            return {}
        found = self._lately(step, wanted)
        return {f"{self._steps.actor}/{name}": _names_of(found[name]) for name in sorted(found)}

    def _lately(self, step: int, wanted: Mapping[str, Ranks]) -> dict[str, Ranks]:
        """Of the wanted ranks of each metric, those that logged it at one of the last steps that have it."""
        left = {name: self._window for name in wanted if self._metrics[name].first < step}
        found: dict[str, Ranks] = {}
        if not left:
            return found
        for earlier in self._steps.before(step):
            logged = self._decoded(earlier.ranks).logged
            for name in [name for name in left if name in logged]:
                if hits := wanted[name] & logged[name]:
                    found[name] = found[name] | hits if name in found else hits
                left[name] -= 1
                if not left[name] or found.get(name) == wanted[name] or self._metrics[name].first >= earlier.step:
                    del left[name]
            if not left:
                break
        return found

    def _affected(self, step: int, differing: Iterable[str]) -> list[int]:
        """The later steps that have one of these metrics and look back as far as this step."""
        left = {name: self._window for name in differing if len(self._metrics[name].ranks) > 1}
        found: list[int] = []
        if not left or step >= self._highest:
            return found
        for later in self._steps.after(step):
            logged = self._decoded(later.ranks).logged
            looking = False
            for name in [name for name in left if name in logged]:
                looking = looking or logged[name] != self._metrics[name].ranks  # else no rank can be short
                left[name] -= 1
                if not left[name]:
                    del left[name]
            if looking:
                found.append(later.step)
            if not left:
                break
        return found


def _union(one: Logged, other: Logged) -> Logged:
    no_rank: frozenset[RankName] = frozenset()
    return {name: one.get(name, no_rank) | other.get(name, no_rank) for name in {**one, **other}}
